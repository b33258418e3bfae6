"""Servers that misbehave: each attempt that failed is told, time is limited, and Ctrl-C ends everything."""

import gzip
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cotext.language_models.client import Client, UnansweredError
from cotext.runtime.signals import INTERRUPTED
from tests.command_line import cotext
from tests.language_models.described import WORDS, described
from tests.language_models.fake import Fake
from tests.tiny_runs import PROCESSES

PAYLOAD = {"model": "fake", "messages": [{"role": "user", "content": "The cat sleeps."}]}
DEEP = b'{"choices": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"


def asked(folder: Path, fake: Fake, **settings: Any) -> tuple[UnansweredError, list[str]]:
    """The error of a request that is never answered, and what was told before."""
    told: list[str] = []
    with Client(described(folder, fake.url, **settings)) as client:
        client.tell = told.append
        with pytest.raises(UnansweredError) as error:
            client.post(PAYLOAD)
    return error.value, told


ANSWERS: dict[str, tuple[dict[str, Any], str]] = {
    "no JSON": ({"body": b"<html>"}, "not valid JSON"),
    "no object": ({"body": b"[]"}, "not a JSON object"),
    "deep": ({"body": DEEP}, "nested too deep"),
    "packed": ({"body": gzip.compress(b"{}"), "headers": {"Content-Encoding": "gzip"}}, "not valid JSON"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_without_use_is_asked_for_twice(tmp_path: Path, fake: Fake, name: str) -> None:
    options, words = ANSWERS[name]
    fake.misbehave("given", times=None, **options)
    error, told = asked(tmp_path, fake)
    assert len(fake.requests) == 2
    [line] = told
    assert "attempt 1 of 2 failed: " in line
    assert words in line
    assert line.endswith("the next one starts in 0.01 seconds")
    assert words in str(error)
    assert "no answer after 2 attempts" in str(error)
    fake.behave()
    fake.misbehave("given", times=1, **options)
    with Client(described(tmp_path, fake.url)) as client:
        assert client.post(PAYLOAD)["choices"]


@pytest.mark.parametrize(
    ("fault", "options"), [("timeout", {}), ("drip", {"part": "head"}), ("drip", {"part": "body"})]
)
def test_one_limit_for_all_attempts(tmp_path: Path, fake: Fake, fault: str, options: dict[str, str]) -> None:
    """Six repeats of 0.4 seconds would be 2.8; in drops, every byte comes in time, and the last one never."""
    fake.misbehave(fault, times=None, seconds=30, **options)
    began = time.monotonic()
    error, told = asked(tmp_path, fake, timeout=0.4, total_timeout=1.0)
    assert 0.9 < time.monotonic() - began < 2
    assert 1 <= len(told) <= 3  # two, unless the machine is slow
    assert told[0].endswith("no complete answer in 0.4 seconds; the next one starts in 0.01 seconds")
    assert told[0].startswith(f"{fake.url}/chat/completions: attempt 1 of 7 failed: ")
    assert "only 0 seconds of total_timeout (1 seconds) are left" in str(error)


def test_a_pause_beyond_the_limit_is_not_begun(tmp_path: Path, fake: Fake) -> None:
    fake.misbehave("429", times=None, retry_after=3600)
    began = time.monotonic()
    error, told = asked(tmp_path, fake)
    assert time.monotonic() - began < 5
    assert (len(fake.requests), told) == (1, [])
    words = "would start in 3,600 seconds, but only 300 seconds of total_timeout (300 seconds) are left"
    assert words in str(error)


def test_the_pace_is_no_attempt(tmp_path: Path, fake: Fake) -> None:
    """Requests that wait for their turn longer than `total_timeout` are sent nevertheless."""
    settings = {"requests_per_minute": 50, "total_timeout": 1.1, "timeout": 1.1}
    began = time.monotonic()
    with Client(described(tmp_path, fake.url, **settings)) as client:
        for repeat in range(3):
            assert client.post(PAYLOAD, repeat)["choices"]
    assert time.monotonic() - began >= 2 * 1.2


def test_a_server_controls_no_screen(tmp_path: Path, fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    body = b'{"error": {"message": "\\u202ebusy [red]"}}'
    fake.misbehave("given", times=1, status=503, body=body)
    with Client(described(tmp_path, fake.url)) as client:
        client.post(PAYLOAD)
    told = capsys.readouterr().err
    assert "status 503: \\u202ebusy [red]; the next one" in told


def _command(arguments: list[str | Path]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a detached shell lets ignore
    outcome = cotext(*arguments)
    print(outcome.err, file=sys.stderr)
    sys.exit(outcome.code)


@pytest.mark.parametrize(
    "fault", [("timeout", {"seconds": 60}), ("429", {"retry_after": 60})], ids=lambda fault: fault[0]
)
def test_an_interrupt_ends_it_at_once(tmp_path: Path, fake: Fake, fault: tuple[str, dict[str, Any]]) -> None:
    source, out = tmp_path / "a.txt", tmp_path / "out.txt"
    source.write_text("\n\n".join(WORDS) + "\n")
    endpoint = described(tmp_path, fake.url)
    arguments: list[str | Path] = ["translate", endpoint, source, "--out", out]
    before = 2
    name, options = fault
    fake.misbehave(name, times=None, when=lambda request: len(fake.requests) > before, **options)
    process = PROCESSES.Process(target=_command, args=(arguments,), daemon=True)
    process.start()
    while len(fake.requests) < before + 1:
        assert process.is_alive()
        time.sleep(0.01)
    time.sleep(0.3)
    assert process.pid is not None
    began = time.monotonic()
    os.kill(process.pid, signal.SIGINT)
    process.join(20)
    assert (process.exitcode, time.monotonic() - began < 3) == (INTERRUPTED, True)
    assert not out.exists()
    kept = len(list((tmp_path / "model.answers").rglob("*.json")))
    assert kept == before
    fake.behave()
    sent = len(fake.requests)
    assert cotext(*arguments).code == 0
    assert len(fake.requests) - sent == len(WORDS) - kept
    assert out.read_text().split() == " ".join(WORDS.values()).split()
