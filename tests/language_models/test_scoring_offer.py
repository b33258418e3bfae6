"""In which way an API tells log-probabilities: asked once, and believed only if it tells the text."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from language_models.fake import Fake
from language_models.ngram import NGram, pieces

from cotext.language_models import client as client_module
from cotext.language_models.client import Answers, Client, RefusedRequestError
from cotext.language_models.config import Endpoint
from cotext.language_models.scored_tokens import Token, UntoldError
from cotext.language_models.scoring_offer import ScoringOffer, find_offer, told_tokens
from cotext.runtime.errors import CotextError

QUESTION = [{"role": "user", "content": "It eats"}]


def endpoint(url: str) -> Endpoint:
    languages = {"source_language": "en", "target_language": "de"}
    return Endpoint.model_validate({"endpoint": url, "model": "m", **languages, "retries": 0})


ANY = endpoint("http://localhost/v1")


def client(fake: Fake, folder: Path) -> Client:
    return Client(endpoint(fake.url), Answers(folder))


def offer(fake: Fake, folder: Path) -> ScoringOffer:
    with client(fake, folder) as asks:
        return find_offer(asks, asks.endpoint)


@pytest.mark.parametrize(
    ("scoring", "way"),
    [(["prompt_logprobs", "echo"], "chat"), (["echo"], "echo"), ([], None)],
)
def test_the_first_way_that_works(scoring: Sequence[str], way: str | None, tmp_path: Path) -> None:
    with Fake(scoring=scoring) as fake:
        found = offer(fake, tmp_path)
        assert found.way == way
        assert list(found.refused) == ["chat", "prompt_logprobs", "echo"][: len(found.refused)]
        asked = len(fake.requests)
        assert offer(fake, tmp_path) == found
        assert len(fake.requests) == asked  # what was asked once is known


def test_a_server_that_ignores_echo_is_not_believed(tmp_path: Path) -> None:
    """As servers do that tell the tokens which they have written."""
    with Fake() as fake:
        found = offer(fake, tmp_path)
    assert found.way is None
    assert "not offered" in found.in_words
    assert "no prompt_logprobs" in found.refused["chat"]
    assert "no tokens" in found.refused["echo"]


def test_a_chat_that_is_not_gone_on_with_is_no_way(tmp_path: Path) -> None:
    """Its template closes the message: the last tokens are not the target."""
    closed = [*pieces("<|assistant|>\none two three"), "<|im_end|>"]
    with Fake(scoring=["prompt_logprobs"], tokens=lambda text: closed) as fake:
        found = offer(fake, tmp_path)
    assert found.way is None
    assert "do not spell" in found.refused["chat"]


def test_a_request_that_is_refused_is_no_way_and_a_refused_key_an_error(tmp_path: Path) -> None:
    with Fake(scoring=["echo"]) as fake:
        fake.misbehave("404", times=None, when=lambda request: request.path.endswith("/chat/completions"))
        found = offer(fake, tmp_path / "a")
        assert found.way == "echo"
        assert found.refused["chat"] == "status 404"
        fake.behave()
        fake.misbehave("401")
        with pytest.raises(RefusedRequestError):
            offer(fake, tmp_path / "b")


def test_a_server_that_breaks_down_at_the_question_has_no_such_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As some do at fields that they do not know; one that is not there now may have it, and ends the job."""
    monkeypatch.setattr(client_module, "backoff", lambda attempt: 0.0)
    asked = endpoint("http://localhost/v1").model_copy(update={"retries": 2})
    with Fake() as fake:
        fake.misbehave("500", times=None, when=lambda request: bool(request.payload.get("echo")))
        with Client(asked.model_copy(update={"endpoint": fake.url}), Answers(tmp_path)) as asks:
            found = find_offer(asks, asks.endpoint)
            assert found.way is None
            assert "echo: status 500, however often it is asked" in found.in_words
            assert len(fake.requests) == 2 + 3  # chat, prompt_logprobs, and three attempts
            fake.behave()
            overloaded = b'{"error": {"message": "overloaded", "type": "server_error"}}'
            fake.misbehave("given", times=None, when=lambda r: bool(r.payload.get("echo")), body=overloaded)
            assert "echo: status 200, however often" in find_offer(asks, asks.endpoint).in_words
            fake.behave()
            fake.misbehave("503", times=None, when=lambda request: bool(request.payload.get("echo")))
            with pytest.raises(CotextError, match="after 3 attempts: status 503"):
                find_offer(asks, asks.endpoint)


@pytest.mark.parametrize("way", ["chat", "prompt_logprobs", "echo"])
def test_tokens_are_those_of_the_model(way: Any, tmp_path: Path) -> None:
    model = NGram(["It eats\n\nSie frisst"])
    text = "<|user|>\nIt eats\n<|assistant|>\nSie frisst" if way == "chat" else "It eats\n\nSie frisst"
    expected = model.log_probabilities(pieces(text))
    with Fake(model=model, scoring=["echo", "prompt_logprobs"]) as fake, client(fake, tmp_path) as asks:
        found = told_tokens(asks, asks.endpoint, way, QUESTION, "Sie frisst")
    assert [token.log_probability for token in found] == expected
    assert "".join(token.text for token in found).endswith("\nSie frisst")


class Told:
    """An API that answers everything with the same."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer

    def post(self, path: str, payload: Any, repeat: int = 0) -> dict[str, Any]:
        return self.answer


def echoed(tokens: Any, values: Any, **more: Any) -> dict[str, Any]:
    return {"choices": [{"logprobs": {"tokens": tokens, "token_logprobs": values}}], **more}


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"choices": {}},
        {"choices": [7]},
        {"choices": [{"logprobs": []}]},
        echoed("ab", [1, 2]),
        echoed(["a", "b"], [None]),
        echoed(["a", 7], [None, -1.0]),
        echoed(["a", "b"], [None, "-1"]),
        echoed(["a", "b"], [None, True]),
    ],
)
def test_answers_of_another_form_have_no_tokens(answer: dict[str, Any]) -> None:
    with pytest.raises(UntoldError):
        told_tokens(Told(answer), ANY, "echo", QUESTION, "x")


@pytest.mark.parametrize(
    "entries",
    [
        None,
        [],
        "ab",
        [None, {}],
        [None, None],
        [None, {"1": {"logprob": -1.0, "decoded_token": "a"}, "2": {"logprob": -2.0, "decoded_token": "b"}}],
        [None, {"1": {"logprob": -1.0}}],
        [None, {"1": -1.0}],
    ],
)
def test_prompt_logprobs_of_another_form_have_no_tokens(entries: Any) -> None:
    """Of several tokens at one place, nothing tells which one the prompt has."""
    with pytest.raises(UntoldError):
        told_tokens(Told({"prompt_logprobs": entries}), ANY, "chat", QUESTION, "x")


def test_what_the_server_wrote_itself_is_left_out() -> None:
    answer = echoed(["a", "b", "c", "d"], [None, -1, -2, -3.5], usage={"completion_tokens": 2})
    assert told_tokens(Told(answer), ANY, "echo", QUESTION, "") == [Token("a", None), Token("b", -1.0)]
    answer = echoed(["a", "b", "c"], [None, -1, -2], usage={"completion_tokens": "many"})
    assert len(told_tokens(Told(answer), ANY, "echo", QUESTION, "")) == 2
