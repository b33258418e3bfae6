"""Search without log-probabilities (`decode.scores = false`): the same texts, without scores."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from cotext.config.recipe import load_config
from cotext.models.build import build_model
from cotext.models.output_layer import OutputLayer
from cotext.runtime import CotextError
from cotext.search.hypotheses import SearchOptions
from cotext.translation.translator import DocumentTranslator
from tests.command_line import World, cotext, documents_file, succeed
from tests.golden import SETTINGS
from tests.noting import calls_of
from tests.tiny import translations
from tests.translation.test_shortlist_search import DOCUMENTS, SYSTEMS, TOKENIZER, WHOLE, system

GREEDY = (*SYSTEMS, "casa/glat", "casa/glat-ctc")


def of(model: Any, config: Any, listed: bool = False, **decode: Any) -> DocumentTranslator:
    changed = config.decode.model_copy(update={"beam": 1, "shortlist": 2 * listed, **decode})
    table = WHOLE if listed else None
    return DocumentTranslator(
        model, config.model_copy(update={"decode": changed}), TOKENIZER, torch.device("cpu"), shortlist=table
    )


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("recipe", GREEDY)
def test_the_same_texts_without_a_score(recipe: str, listed: bool) -> None:
    model, config = system(recipe)
    scored, plain = (translations(of(model, config, listed, scores=s), DOCUMENTS) for s in (True, False))
    assert [t.document for t in scored] == [t.document for t in plain]
    assert [t.tokens for t in scored] == [t.tokens for t in plain]
    assert [t.truncated for t in scored] == [t.truncated for t in plain]
    assert all(len(t.log_probabilities) == len(t.tokens) for t in scored)
    assert all(t.log_probabilities == () for t in plain)
    assert [t.confidences for t in plain] == [[None] * len(t.tokens) for t in plain]


@pytest.mark.parametrize("recipe", ["focused-concatenation/s4to4", "casa/casa"])
def test_probabilities_are_not_normalised(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """But the frames of a sentence in which no word was found, whose probabilities are compared."""
    model, config = system(recipe)
    asked = calls_of(monkeypatch, OutputLayer, "log_probabilities", lambda layer, hidden: len(hidden))
    translations(of(model, config, scores=True), DOCUMENTS)
    assert asked
    asked.clear()
    translations(of(model, config, scores=False), DOCUMENTS)
    assert asked == []


def test_log_probabilities_of_hypotheses_are_nan() -> None:
    windows = of(*system("focused-concatenation/s4to4"), scores=False).windows
    opened = windows.opened(0, DOCUMENTS[0])
    while opened.ready:
        windows.search(list(windows.groups(opened)))
    assert all(math.isnan(sentence.log_probability) for sentence in opened.sentences())


def test_a_beam_and_an_engine_need_scores() -> None:
    with pytest.raises(CotextError, match=r"decode\.scores = false: a beam of 4 ranks .*decode\.beam = 1"):
        SearchOptions(4, 0.6, "constrained", scored=False)
    config = load_config("focused-concatenation/base", None, [*SETTINGS, "decode.scores=false"])
    model = build_model(config, TOKENIZER.vocabulary_size)
    with pytest.raises(CotextError, match=r"decode\.scores = false: a beam"):
        DocumentTranslator(model, config, TOKENIZER, torch.device("cpu"))


def test_a_file_is_the_same_and_its_scores_are_refused(world: World, tmp_path: Path) -> None:
    corpus = documents_file(tmp_path / "in.en", 6, 21)
    run = ["translate", world.run, corpus, "--set", "beam=1"]
    scored = succeed(*run, "--out", tmp_path / "scored.de").out
    plain = succeed(*run, "--set", "scores=false", "--out", tmp_path / "plain.de").out
    assert (tmp_path / "scored.de").read_bytes() == (tmp_path / "plain.de").read_bytes()
    assert "with different scores in `cotext score` and --scores FILE" in scored
    assert "--scores" not in plain
    told = cotext(*run, "--set", "scores=false", "--scores", tmp_path / "x.tsv", "--out", tmp_path / "y.de")
    assert (told.code, "there are no scores with decode.scores = false" in told.err) == (2, True)
    assert not (tmp_path / "y.de").exists()
