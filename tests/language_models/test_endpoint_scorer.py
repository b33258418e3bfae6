"""Targets scored by requests: real subwords, equal targets asked for once, and errors that lose nothing."""

from pathlib import Path
from typing import Any

import pytest
from described import described
from language_models.fake import Fake, Request
from language_models.ngram import NGram

from cotext.language_models.client import Client
from cotext.language_models.scorer import ForcedTarget, PromptScorer
from cotext.language_models.scoring_offer import Way
from cotext.runtime.errors import CotextError

QUESTION = [{"role": "user", "content": "Translate: [1] It eats."}]


def scorer(fake: Fake, folder: Path, way: Way = "chat", **more: Any) -> PromptScorer:
    return PromptScorer(Client.open(described(folder, fake.url, retries=0, **more)), way)


def target(text: str) -> ForcedTarget:
    return ForcedTarget.of(QUESTION, "[1] ", text)


def test_equal_targets_are_asked_for_once_and_come_in_order(tmp_path: Path) -> None:
    told: list[int] = []
    with Fake(scoring=["prompt_logprobs"]) as fake:
        asked = [target(text) for text in ("Er", "Sie", "Er", "", "Es", "Er")]
        found = scorer(fake, tmp_path).score(asked, told.append)
        assert len(fake.requests) == 3
    assert ["".join(token.text for token in each) for each in found] == [
        " Er",
        " Sie",
        " Er",
        "",
        " Es",
        " Er",
    ]
    assert sum(told) == len(asked)


def test_an_error_ends_the_job_and_keeps_what_was_answered(tmp_path: Path) -> None:
    asked = [target(f"Wort{n}") for n in range(20)]
    with Fake(scoring=["prompt_logprobs"]) as fake:
        fake.misbehave("400", times=None, when=lambda request: "Wort7" in request.text)
        with pytest.raises(CotextError, match="status 400"):
            scorer(fake, tmp_path, at_once=1).score(asked)
        before = len(fake.requests)
        assert before < 20  # what was not yet sent is not sent
        fake.behave()
        found = scorer(fake, tmp_path, at_once=1).score(asked)
        assert len(fake.requests) == 20 + 1  # the one that was refused, twice
    assert all(each for each in found)


def test_a_way_that_stops_telling_is_an_error_and_no_score(tmp_path: Path) -> None:
    with Fake(scoring=["prompt_logprobs"]) as fake:
        asks = scorer(fake, tmp_path)
        fake.scoring = ()
        with pytest.raises(CotextError, match="no prompt_logprobs"):
            asks.score([target("Er")])
        assert len(fake.requests) == 3  # once, and the two repeats that a description has


class Forgetful(Fake):
    """A server that leaves the log-probabilities out of its first answer."""

    def answer(self, request: Request, fault: str | None) -> Any:
        made = super().answer(request, fault)
        if len(self.requests) == 1:
            del made["prompt_logprobs"]
        return made


def test_an_answer_without_log_probabilities_does_not_stay(tmp_path: Path) -> None:
    with Forgetful(scoring=["prompt_logprobs"]) as fake:
        for asked in (2, 2):
            [found] = scorer(fake, tmp_path).score([target("Sie")])
            assert "".join(token.text for token in found) == " Sie"
            assert len(fake.requests) == asked


def test_subwords_of_bytes_score_exactly_the_target(tmp_path: Path) -> None:
    """Byte pairs, learnt from a text: blanks within words, characters divided, the target summed by ids."""
    tokenizers = pytest.importorskip("tokenizers")
    coder = tokenizers.ByteLevelBPETokenizer()
    coder.train_from_iterator(["Er schläft. Sie schläft über Nacht.", "Übel, übermüde."] * 3, 290)

    def subwords(text: str) -> list[str]:
        return [coder.decode([number]) for number in coder.encode(text).ids]

    model = NGram(["Er schläft über Nacht."])
    texts = ["Er schläft.", "Über Nacht.", "他睡觉。", "schön 🎈 müde", "ß", "Ü", "…"]
    with Fake(model=model, tokens=subwords, scoring=["prompt_logprobs"]) as fake:
        found = scorer(fake, tmp_path, at_once=1).score([target(text) for text in texts])
        for text, tokens in zip(texts, found, strict=True):
            prompt = f"<|user|>\n{QUESTION[0]['content']}\n<|assistant|>\n[1]"
            whole = subwords(f"{prompt} {text}")
            alone = subwords(prompt)
            assert whole[: len(alone)] == alone
            expected = model.log_probabilities(whole)[len(alone) :]
            assert [token.log_probability for token in tokens] == expected
            assert coder.decode(coder.encode(f" {text}").ids) == f" {text}"
        divided = [r for r in fake.requests if r.payload["messages"][-1]["content"] == "[1]"]
        assert len(divided) == 1  # the prompt alone, once for all targets that need it
