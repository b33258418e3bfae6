"""The client: answers are kept, passing failures are waited for, and the key is seen by nobody."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cotext.language_models import client as client_module
from cotext.language_models.client import (
    Answers,
    Client,
    Pace,
    RefusedRequestError,
    Request,
    StoppedError,
    Usage,
    backoff,
    retry_after,
)
from cotext.runtime import CotextError
from tests.language_models.described import KEY, VARIABLE, WORDS, described
from tests.language_models.fake import Fake
from tests.loops import loop_over
from tests.refusals import must_raise


def asking(text: str = "The cat sleeps.") -> dict[str, Any]:
    return {"model": "fake", "messages": [{"role": "user", "content": text}]}


def opened(folder: Path, fake: Fake, **settings: Any) -> Client:
    return Client(described(folder, fake.url, key=VARIABLE, **{"retries": 2} | settings))


def refused(folder: Path, fake: Fake, words: str, **settings: Any) -> CotextError:
    """The error of a request."""
    with opened(folder, fake, **settings) as client, pytest.raises(CotextError, match=words) as error:
        client.post(asking())
    return error.value


def said(answer: dict[str, Any]) -> str:
    return str(answer["choices"][0]["message"]["content"])


def test_an_answer_is_kept_and_not_asked_for_again(tmp_path: Path, fake: Fake) -> None:
    with opened(tmp_path, fake) as client:
        first = client.post(asking())
    with opened(tmp_path, fake) as client:
        again = client.post(dict(reversed(asking().items())))
        assert client.counts.all.requests == 1
        assert client.counts.now.requests == 0
    assert said(first) == "Die Katze schläft."
    assert first == again
    with opened(tmp_path, fake) as client:
        client.post(asking("A dog barks."))
        client.post(asking(), repeat=1)
    assert len(fake.requests) == 3
    # Neither which repeat it is nor anything else of ours is sent.
    assert fake.requests[2].payload == fake.requests[0].payload == asking()


def test_what_an_answer_is_kept_under() -> None:
    one = {"a": 1, "b": [1, 2]}
    assert Request("a", one).digest == Request("a", {"b": [1, 2], "a": 1}).digest
    others = (("b", one), ("a", {"a": 1, "b": [2, 1]}), ("a", one, 1))
    assert len({Request(*each).digest for each in (("a", one), *others)}) == 4


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\x00", None, b'{"answer": []}'])
def test_a_damaged_answer_is_asked_for_again(tmp_path: Path, fake: Fake, damage: bytes | None) -> None:
    with opened(tmp_path, fake) as client:
        client.post(asking())
        assert client.answers.folder == tmp_path / "model.answers"
        [path] = client.answers.folder.rglob("*.json")
        path.write_bytes(path.read_bytes().replace(b"Katze", b"Hunde") if damage is None else damage)
        assert said(client.post(asking())) == "Die Katze schläft."
        assert said(client.post(asking())) == "Die Katze schläft."
    assert len(fake.requests) == 2


@pytest.mark.parametrize("fault", ["429", "500", "disconnect"])
def test_passing_failures_are_waited_for(tmp_path: Path, fake: Fake, fault: str) -> None:
    fake.misbehave(fault, times=1)
    fake.misbehave("429", retry_after=0.3)
    with opened(tmp_path, fake) as client:
        assert said(client.post(asking())) == "Die Katze schläft."
        assert client.counts.sent_again == 2
        assert client.counts.all.requests == 1
    assert len(fake.requests) == 3
    # The server names a time, and is given it.
    assert 0.3 <= fake.requests[2].at - fake.requests[1].at < 3


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_what_the_api_will_never_answer_is_sent_once(tmp_path: Path, fake: Fake, status: int) -> None:
    fake.misbehave(str(status), times=None)
    error = refused(tmp_path, fake, ".")
    assert isinstance(error, RefusedRequestError)
    assert error.said == f"status {status}"
    assert len(fake.requests) == 1


def test_an_exhausted_account_is_not_waited_for(tmp_path: Path, fake: Fake) -> None:
    with opened(tmp_path, fake) as client:
        body = json.dumps({"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}})
        assert isinstance(client._refusal(429, body, ""), RefusedRequestError)
        assert not isinstance(client._refusal(429, "{}", ""), RefusedRequestError)


@pytest.mark.parametrize(("status", "attempts"), [(400, 1), (503, 2), (7, 2), ("rate_limit", 2)])
def test_an_answer_may_tell_a_status(status: int | str, attempts: int, tmp_path: Path, fake: Fake) -> None:
    """A request that is refused there is not sent again."""
    body = json.dumps({"error": {"message": "no such field", "code": status}}).encode()
    fake.misbehave("given", times=None, body=body)
    error = refused(tmp_path, fake, "no such field", retries=1)
    assert isinstance(error, RefusedRequestError) is (attempts == 1)
    assert len(fake.requests) == attempts


def test_an_answer_without_end_is_cut(tmp_path: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_ANSWER_BYTES", 100_000)
    fake.misbehave("given", times=None, body=b" " * 5_000_000)
    refused(tmp_path, fake, "an answer of more than 100,000 bytes", retries=0)


def test_a_redirection_is_not_followed(tmp_path: Path, fake: Fake) -> None:
    with Fake(WORDS) as other, opened(tmp_path, fake) as client:
        headers = {"Location": f"{other.url}/chat/completions"}
        fake.misbehave("given", status=307, body=b"", headers=headers)
        with pytest.raises(RefusedRequestError, match="the address has moved"):
            client.post(asking())
        assert not other.requests


@loop_over(
    ("address", "variable", "value"),
    [
        ("http://256.1.1.1/v1", "", ""),
        ("http://127.0.0.1:9/v1", "ALL_PROXY", "gopher://proxy"),
        ("http://127.0.0.1:9/v1", "SSL_CERT_FILE", "/no/such/file"),
    ],
)
def test_what_makes_no_connection_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, variable: str, value: str
) -> None:
    if variable:
        monkeypatch.setenv(variable, value)
    client_module.certificates.cache_clear()
    must_raise("no connection can be made", Client, described(tmp_path, address))


def test_nobody_there(tmp_path: Path) -> None:
    with (
        Client(described(tmp_path, "http://127.0.0.1:9/v1", retries=1)) as client,
        pytest.raises(CotextError, match="no answer after 2 attempts: ConnectError"),
    ):
        client.post(asking())


def test_half_a_character_is_damaged(tmp_path: Path, fake: Fake) -> None:
    fake.words["Smile."] = "Lächle \ud83d\ude00, nicht \ud83d."  # a whole one in two, and a half
    with opened(tmp_path, fake) as client:
        assert said(client.post(asking("Smile."))) == "Lächle 😀, nicht \ufffd\ufffd\ufffd."


def test_the_key_is_sent_and_shown_nowhere(tmp_path: Path, fake: Fake) -> None:
    with opened(tmp_path, fake) as client:
        # The model says the key, as a server that writes headers into its prompts makes it.
        fake.words["The cat sleeps."] = f"Bearer {KEY}"
        assert said(client.post(asking())) == "Bearer [key]"
        body = json.dumps({"error": {"message": f"bad request\n\x1b[31m with header Bearer {KEY}"}}).encode()
        fake.misbehave("given", status=400, body=body)
        with pytest.raises(RefusedRequestError) as error:
            client.post(asking("A dog barks."))
    assert "bad request [31m with header Bearer [key]" in str(error.value)
    assert KEY not in f"{error.value.said} {client.endpoint!r} {client.counts!r}"
    assert all(fake.headers["Authorization"] == f"Bearer {KEY}" for fake in fake.requests)
    assert all(KEY.encode() not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.parametrize("status", [200, 400])
def test_an_error_that_is_cut_has_no_part_of_the_key(tmp_path: Path, fake: Fake, status: int) -> None:
    said = "x" * (client_module.SAID_CHARACTERS - 20) + KEY
    for body in (said.encode(), json.dumps({"error": {"message": said}}).encode()):
        fake.misbehave("given", status=status, body=body)
        assert KEY[:12] not in str(refused(tmp_path, fake, ".", retries=0))


def test_a_key_in_other_json_is_not_kept(tmp_path: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    key = 'sk-"quoted"\\and-long'
    monkeypatch.setenv(VARIABLE, key)
    fake.misbehave("given", body=json.dumps({"a": [f"Bearer {key}"]}).encode())
    with opened(tmp_path, fake) as client:
        assert client.post(asking()) == {"a": ["Bearer [key]"]}


def test_a_placeholder_for_a_key_is_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "EMPTY")
    with Fake({"Nothing.": "EMPTY."}, key="EMPTY") as fake, opened(tmp_path, fake) as client:
        assert said(client.post(asking("Nothing."))) == "EMPTY."


def test_requests_side_by_side_are_as_many_as_allowed(tmp_path: Path, fake: Fake) -> None:
    with opened(tmp_path, fake, at_once=2) as client, ThreadPoolExecutor(12) as pool:
        list(pool.map(client.post, [asking(f"{number}.") for number in range(12)]))
    assert len(fake.requests) == 12
    assert fake.most_at_once <= 2


def test_equal_requests_at_once_share_an_answer(tmp_path: Path, fake: Fake) -> None:
    fake.misbehave("timeout", seconds=0.2)  # the first is still under way when the others come
    with opened(tmp_path, fake) as client:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(client.post, [asking()] * 4))
        # Paid for once, it counts once.
        assert (client.counts.now.requests, client.counts.all.requests) == (1, 1)
    assert len(fake.requests) == 2  # one without an answer


def test_the_largest_answer_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_ANSWER_BYTES", 2_000)
    content = {"a": "é" * 990}
    answers, request = Answers(tmp_path / "a"), Request("http://a/v1", {})
    answers.keep(request, content)
    found = answers.find(request)
    assert found
    assert found[0] == content
    # The first answer of two processes stays.
    assert answers.keep(request, {"a": 2})[0] == content


def test_waiting_ends_when_the_job_is_given_up() -> None:
    pace = Pace(None)
    pace.pause(60)
    began = time.monotonic()
    threading.Timer(0.05, pace.stop).start()
    with pytest.raises(StoppedError):
        pace.wait()
    assert time.monotonic() - began < 10


def test_times_that_servers_name() -> None:
    assert retry_after("2.5", 0) == 2.5
    assert retry_after("-1", 0) == 0
    # 2026-11-23 00:00:30 and 20 seconds before it.
    assert retry_after("Mon, 23 Nov 2026 00:00:30 GMT", 1795392010) == 20
    for text in ("", "soon", "nan", "inf", f"Mon, 23 Nov 2026 00:00:30 +{10**12}"):
        assert retry_after(text, 0) is None
    assert [backoff(attempt) for attempt in (0, 1, 2, 100)] == [1, 2, 4, 60]


def test_tokens_are_counted() -> None:
    usage = Usage()
    usage.add({"usage": {"prompt_tokens": 1_000_000, "completion_tokens": 250_000}})
    usage.add({"usage": {"prompt_tokens": 500_000, "completion_tokens": 50_000}})
    for wrong in ({}, {"usage": {"prompt_tokens": "7", "completion_tokens": True}}, {"usage": [1]}):
        usage.add(wrong)
    assert usage == Usage(5, 1_500_000, 300_000)


def test_a_folder_that_takes_no_answers(tmp_path: Path, fake: Fake) -> None:
    (tmp_path / "model.answers").write_text("in the way")
    refused(tmp_path, fake, "answers cannot be stored there")
