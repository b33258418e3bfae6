"""What a request shows of a document: the prompt of translation itself, and nothing that comes later."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from cotext.data.documents import ParallelDocument
from cotext.evaluation.studies.context.endpoint_contexts import (
    RequestExcerpt,
    common_tokens,
    request_excerpts,
    window_of_endpoint,
)
from cotext.language_models.config import Endpoint
from cotext.language_models.plan import piece_of, spans_of
from cotext.language_models.prompts import prompt_of
from cotext.language_models.scored_tokens import TargetToken

DOCUMENT = ParallelDocument("d", tuple("abcdefg"), tuple("ABCDEFG"))
OTHERS = [("x", "X"), ("y", "Y")]
MODES: dict[str, dict[str, Any]] = {
    "sentence": {"mode": "sentence"},
    "context": {"mode": "context", "context": 2},
    "chunk": {"mode": "chunk", "chunk": 3, "context": 1},
    "document": {"mode": "document"},
}


def endpoint(mode: str) -> Endpoint:
    named = {
        "endpoint": "http://localhost/v1",
        "model": "m",
        "source_language": "en",
        "target_language": "de",
    }
    return Endpoint.model_validate({**named, **MODES[mode]})


def said(shown: RequestExcerpt, mode: str, target: Sequence[str] | None = None) -> tuple[str, str, str]:
    """What is asked for at the end of the prompt, what the answer begins with, and the target."""
    forced = shown.forced(prompt_of(endpoint(mode)), target)
    [message] = [dict(each)["content"] for each in forced.messages]
    return message.split("Sentences to translate:\n")[1], forced.begins, forced.target


@pytest.mark.parametrize("mode", MODES)
def test_a_target_stands_behind_the_very_prompt_of_its_translation(mode: str) -> None:
    """Worked out from the plan of translation: the span of the sentence, what is shown before it."""
    asked = endpoint(mode)
    prompt = prompt_of(asked)
    found = request_excerpts(asked, DOCUMENT)
    assert len(found) == 7
    for span in spans_of(7, asked):
        piece = piece_of(DOCUMENT.source, DOCUMENT.target, span, asked.context_sentences)
        for number in span:
            forced = found[number].forced(prompt)
            assert [dict(each) for each in forced.messages] == prompt.messages(piece)
            answer = forced.begins + forced.target
            assert answer == prompt.beginning(DOCUMENT.target[span.start : number]) + DOCUMENT.target[number]
            assert forced.target == f" {DOCUMENT.target[number]}"  # the blank is scored with the word


def test_a_chunk_under_every_condition() -> None:
    [found] = request_excerpts(endpoint("chunk"), DOCUMENT, [4])
    assert found.excerpt.document.source == ("c", "d", "e", "f")
    assert said(found, "chunk") == ("[1] d\n[2] e\n[3] f", "[1] D\n[2]", " E")
    content = dict(found.forced(prompt_of(endpoint("chunk"))).messages[0])["content"]
    assert "English: c\nGerman: C" in content
    assert "F" not in content.split("German: C")[1].replace("[3] f", "")
    alone = found.under("none", OTHERS, Random(1))
    assert said(alone, "chunk") == ("[1] e", "[1]", " E")
    shuffled = found.under("shuffled", OTHERS, Random(1))
    assert shuffled.excerpt.document.source[2] == "e"
    assert sorted(shuffled.excerpt.document.source) == list("cdef")
    asked, begins, _ = said(shuffled, "chunk")
    first = shuffled.excerpt.document.source[1]
    assert asked.startswith(f"[1] {first}\n[2] e")
    assert begins == f"[1] {first.upper()}\n[2]"
    foreign = found.under("random", OTHERS, Random(1))
    assert set(foreign.excerpt.document.source) <= {"x", "y", "e"}
    assert len(said(foreign, "chunk")[0].splitlines()) == 3


def test_sentences_without_a_character_take_no_part() -> None:
    document = ParallelDocument("d", ("a", " ", "c", "d"), ("A", "", "C", ""))
    found = request_excerpts(endpoint("document"), document)
    assert said(found[2], "document") == ("[1] a\n[2] c\n[3] d", "[1] A\n[2]", " C")
    assert found[1].forced(prompt_of(endpoint("document"))).target == ""
    assert not found[3].forced(prompt_of(endpoint("document"))).target.strip()
    assert said(found[2].under("none", OTHERS, Random(1)), "document") == ("[1] c", "[1]", " C")


def test_a_candidate_stands_behind_its_own_earlier_sentences() -> None:
    found = request_excerpts(endpoint("document"), DOCUMENT, [1])[0]
    assert said(found, "document", ["Z", "Y", *"CDEFG"])[1:] == ("[1] Z\n[2]", " Y")


def test_windows() -> None:
    windows = {mode: window_of_endpoint(endpoint(mode)) for mode in MODES}
    assert not windows["sentence"].has_context
    assert (windows["context"].before, windows["context"].after) == (2, 0)
    assert (windows["chunk"].before, windows["chunk"].after) == (3, 2)
    assert windows["document"].contains("pronoun", ">3")


def scored(*tokens: tuple[str, float]) -> list[TargetToken]:
    return [TargetToken(*each) for each in tokens]


def test_two_tokenizations_are_added_up_between_their_common_boundaries() -> None:
    a = scored((" Er", -1.0), (" geht", -2.0), (".", -4.0))
    assert common_tokens([a, a]) == [(-1.0, -2.0, -4.0)] * 2
    b = scored((" E", -8.0), ("r", -16.0), (" geht.", -32.0))
    assert common_tokens([a, b]) == [(-1.0, -6.0), (-24.0, -32.0)]
    # A character that is not shown adds to the token that it ends in.
    c = scored((" Er", -1.0), ("", -2.0), (" geht.", -4.0))
    assert common_tokens([b, c]) == [(-24.0, -32.0), (-3.0, -4.0)]
    # Texts that are not of one length have no common boundary but the end.
    d = scored((" Er", -1.0), (" geht.\ufffd", -2.0))
    assert common_tokens([a, d]) == [(-7.0,), (-3.0,)]
    assert common_tokens([[], []]) == [(), ()]
