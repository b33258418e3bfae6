"""The fake server itself: what tests of endpoints rest on."""

import json
from typing import Any

import httpx2 as httpx
import pytest

from tests.language_models.fake import TEXTS, TYPES, Fake
from tests.loops import loop_over

WORDS = {"The": "Die", "cat": "Katze", "sleeps": "schläft", "It": "Sie", "eats": "frisst"}
ASKED = "Translate.\n\n1. The cat sleeps.\n2. It eats.\n"


HTTP = httpx.Client(trust_env=False, verify=False, timeout=5)  # what a connection needs is read once


def chat(fake: Fake, content: str = ASKED, **more: Any) -> httpx.Response:
    body = {"model": "m", "messages": [{"role": "user", "content": content}], **more}
    return HTTP.post(f"{fake.url}/chat/completions", json=body)


def content(answer: httpx.Response) -> Any:
    return answer.json()["choices"][0]["message"]["content"]


def test_it_translates_numbered_lines_and_single_ones() -> None:
    with Fake(WORDS) as fake:
        assert content(chat(fake)) == "1. Die Katze schläft.\n2. Sie frisst."
        assert content(chat(fake, "1. context\n\nTranslate:\nIt sleeps.")) == "1. context"
        assert content(chat(fake, "Translate:\nIt sleeps.")) == "Sie schläft."
        assert content(chat(fake, "[7] It\n[8] cat")) == "[7] Sie\n[8] Katze"
        # The last lines that count up are those that are asked for.
        assert content(chat(fake, "1. cat\n2. cat\n\n1. It\n2. It")) == "1. Sie\n2. Sie"
        assert len(fake.requests) == 5
        assert fake.requests[0].question == ASKED


@loop_over(
    ("fault", "expected"),
    [
        ("merge", "1. Die Katze schläft. Sie frisst."),
        ("split", "1. Die Katze schläft.\n2. Sie\n3. frisst."),
        ("drop", "2. Sie frisst."),
        ("drop last", "1. Die Katze schläft."),
        ("reorder", "2. Sie frisst.\n1. Die Katze schläft."),
        ("shift", "1. Sie frisst.\n2. Die Katze schläft."),
        ("twice", "1. Die Katze schläft.\n2. Sie frisst.\n1. Die Katze schläft."),
        ("more", "1. Die Katze schläft.\n2. Sie frisst.\n3. Noch etwas."),
        ("blank", "1. \n2. Sie frisst."),
        ("bare", "Die Katze schläft.\nSie frisst."),
        ("one line", "Die Katze schläft. Sie frisst."),
        ("echo", "1. The cat sleeps.\n2. It eats."),
        ("fence", "```\n1. Die Katze schläft.\n2. Sie frisst.\n```"),
        ("empty", ""),
        ("null content", None),
        ("number content", 7),
    ],
)
def test_a_fault_is_what_its_name_says_once(fault: str, expected: str | None) -> None:
    with Fake(WORDS) as fake:
        fake.misbehave(fault)
        assert content(chat(fake)) == expected
        assert content(chat(fake)) == "1. Die Katze schläft.\n2. Sie frisst."


def test_every_fault_answers() -> None:
    with Fake(WORDS) as fake:
        for fault in (*TEXTS, *TYPES):
            fake.misbehave(fault)
            assert chat(fake).status_code == 200


def test_faults_of_the_way() -> None:
    with Fake(WORDS, key="secret") as fake:
        head = {"Authorization": "Bearer secret"}
        body = {"model": "m", "messages": [{"role": "user", "content": "It"}]}

        def post(timeout: float = 5) -> httpx.Response:
            return HTTP.post(f"{fake.url}/chat/completions", json=body, headers=head, timeout=timeout)

        assert chat(fake).status_code == 401
        fake.misbehave("429", times=2, retry_after=3)
        assert [post().status_code for _ in range(3)] == [429, 429, 200]
        fake.misbehave("429", retry_after=3)
        assert post().headers["Retry-After"] == "3"
        fake.misbehave("echo key")
        assert "secret" in post().text
        fake.misbehave("truncated")
        with pytest.raises(json.JSONDecodeError):
            post().json()
        fake.misbehave("disconnect")
        with pytest.raises(httpx.TransportError):
            post()
        fake.misbehave("timeout", seconds=1)
        with pytest.raises(httpx.ReadTimeout):
            post(timeout=0.05)
        fake.misbehave("huge", size=100_000)
        assert len(post().content) == 100_000
        fake.misbehave("500", when=lambda request: "cat" in request.text)
        assert post().status_code == 200
