"""`decode.before`: windows of another size than in training."""

from typing import Any

import pytest
import torch

from cotext.config.recipe import Config
from cotext.data.documents import Document, ParallelDocument
from cotext.runtime import CotextError
from cotext.translation.translator import DocumentTranslator
from tests.tiny import PlainWordTokenizer, pieces, random_model, random_translator, tiny_config, window

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "it"]
TOKENIZER = PlainWordTokenizer(WORDS)
SOURCE = ("the cat sat", "it saw a mat", "", "a cat", "on the mat it sat", "it")
DOCUMENTS = [Document("d", SOURCE), Document("e", SOURCE[3:])]
PAIRS = [ParallelDocument(d.id, d.sentences, d.sentences[::-1]) for d in DOCUMENTS]
KINDS = {
    "shifted": ({}, {"positions": "shifted", "shift": "sequence"}, {}),
    "learned": ({}, {"segments": "learned"}, {}),
    "indexed": ({"separators": "indexed", "indexed_separators": 2}, {}, {}),
    "numbered": ({"separators": "numbered", "numbers": 4}, {}, {}),
    "regenerate": ({}, {}, {"target_context": "regenerate"}),
    "source context": ({"target_before": 0}, {}, {}),
    "flat": ({"separators": "numbered", "numbers": 4}, {"batch_context": "flat"}, {"group_windows": 3}),
}


def system(before: int, kind: str = "shifted", asked: int | None = None) -> DocumentTranslator:
    """Windows of `before` context sentences and the weights of those of one, however many are asked for."""
    view, model, decode = KINDS[kind]

    def config(sentences: int, **more: Any) -> Config:
        return tiny_config(view=window(sentences) | view, model=model, decode=decode | more)

    weights = random_model(config(1), TOKENIZER)
    return DocumentTranslator(weights, config(before, before=asked), TOKENIZER, torch.device("cpu"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("asked", [0, 2, 3])
def test_another_window_size_is_that_of_a_view_of_this_size(kind: str, asked: int) -> None:
    found, expected = system(1, kind, asked), system(asked, kind)
    assert found.signature == expected.signature
    assert found.config.view.before == asked
    assert found.score(PAIRS) == expected.score(PAIRS)
    assert dict(found.translate(DOCUMENTS)) == dict(expected.translate(DOCUMENTS))
    assert found.score(PAIRS) != system(1, kind).score(PAIRS)


def test_the_size_of_training_changes_nothing() -> None:
    assert system(1, asked=1).score(PAIRS) == system(1).score(PAIRS)


@pytest.mark.parametrize("view", [{"kind": "sentence"}, pieces(20), pieces(20, "cumulative")])
def test_systems_without_windows_are_refused(view: dict[str, Any]) -> None:
    config = tiny_config(view=view, decode={"before": 1})
    with pytest.raises(CotextError, match=r"decode\.before = 1: this system does not translate windows"):
        random_translator(config, TOKENIZER)
