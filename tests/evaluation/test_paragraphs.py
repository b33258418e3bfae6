"""Paragraphs in evaluation: split where all sides have equally many sentences."""

import json
from pathlib import Path

import pytest

from cotext.data.documents import Document
from cotext.data.splitting import Splitter
from cotext.evaluation.metrics.aligned_files import split_paragraphs
from cotext.evaluation.metrics.interface import Texts
from cotext.evaluation.requests import EvaluationRequest
from cotext.evaluation.studies.evaluate.evaluate_files import evaluate_files
from cotext.runtime.errors import CotextError
from tests.command_line import cotext, succeed

SOURCE = "It rains. She is late.\nIs it so? Yes!\nOne only.\n"
REFERENCE = "Es regnet. Sie kommt zu spät.\nIst es so? Ja!\nNur einer.\n"
FIRST = "Es regnete. Sie kam zu spät.\nEs ist so, ja!\nNur einer.\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, text in {"s.en": SOURCE, "r.de": REFERENCE, "a.de": FIRST}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_lines_are_split_where_all_sides_have_equally_many() -> None:
    def documents(text: str) -> list[Document]:
        return [Document("d", tuple(text.splitlines()))]

    whole = Texts({"a": documents(FIRST)}, [documents(REFERENCE)], documents(SOURCE))
    units, counts = split_paragraphs(whole, Splitter("de"), Splitter("en"))
    assert units.systems["a"][0].sentences == (
        "Es regnete.",
        "Sie kam zu spät.",
        "Es ist so, ja!",
        "Nur einer.",
    )
    assert units.references[0][0].sentences == (
        "Es regnet.",
        "Sie kommt zu spät.",
        "Ist es so? Ja!",
        "Nur einer.",
    )
    assert units.source[0].sentences == ("It rains.", "She is late.", "Is it so? Yes!", "One only.")
    assert counts.as_dict() == {"lines": 3, "split": 1, "sentences": 2, "whole": 1}
    without, _ = split_paragraphs(Texts(whole.systems, whole.references, []), Splitter("de"), Splitter(""))
    assert without.source == []
    assert without.systems == units.systems


def test_scores_of_sentences_read_sentences_and_others_the_lines(files: Path) -> None:
    plain, split = (
        evaluate_files(
            EvaluationRequest(
                hypothesis=[files / "a.de"],
                reference=[files / "r.de"],
                protocol=("s-bleu", "d-bleu"),
                paragraphs=paragraphs,
            )
        )
        for paragraphs in (False, True)
    )
    for before, after in zip(plain.scores["a.de"], split.scores["a.de"], strict=True):
        if before.protocol == "d-bleu":
            assert after == before
        else:
            assert (before.sentences, after.sentences) == (3, 4)
            assert after.signature == f"{before.signature}|split:rules-1:de"
    told = "3 lines: 1 split into 2 sentences, as all sides have equally many; 1 left whole"
    assert told in split.render()
    assert told not in plain.render()


def test_the_command_splits_paragraphs(files: Path) -> None:
    command = [
        "evaluate",
        "--hypothesis",
        files / "a.de",
        "--reference",
        files / "r.de",
        "--source",
        files / "s.en",
    ]
    shown = succeed(*command, "--paragraphs", "--protocol", "s-bleu", "--json").out
    assert json.loads(shown)["paragraphs"] == {"lines": 3, "split": 1, "sentences": 2, "whole": 1}
    assert "paragraphs" not in json.loads(succeed(*command, "--json").out)
    (files / "own.txt").write_text("regnete\n")
    shown = succeed(*command, "--paragraphs", "--abbreviations", files / "own.txt", "--json").out
    assert json.loads(shown)["paragraphs"]["split"] == 0
    refused = cotext(*command, "--abbreviations", files / "own.txt")
    assert (refused.code, "add --paragraphs" in " ".join(refused.err.split())) == (2, True)


def test_marked_words_are_those_of_lines(files: Path) -> None:
    with pytest.raises(CotextError, match="omit --paragraphs"):
        EvaluationRequest(
            hypothesis=[files / "a.de"],
            reference=[files / "r.de"],
            discourse=files / "marks",
            paragraphs=True,
        )
