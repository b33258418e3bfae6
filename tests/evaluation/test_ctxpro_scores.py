"""Accuracy on ctxPro: the rule by hand, groups and tests, and the authors' own scorer beside."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cotext.data.documents import Document
from cotext.data.formats import write_documents
from cotext.evaluation.metrics.ctxpro import has_form
from cotext.evaluation.requests import CtxproRequest
from cotext.evaluation.studies.evaluate.evaluate_ctxpro import evaluate_ctxpro
from cotext.runtime.errors import CotextError
from tests.command_line import cotext, succeed
from tests.loops import loop_over

CTXPRO_VARIABLE = "COTEXT_CTXPRO_PYTHON"


def example(expected: str, rule: str, distance: int | None, document: str) -> dict[str, Any]:
    entry = {"src segment": "It is.", "expected": expected, "rule": rule, "document id": document}
    return entry if distance is None else {**entry, "ante distance": distance}


EXAMPLES = [
    example("sie", "FEM", 1, "a"),
    example("er", "MASC", 1, "a"),
    example("Es", "NEUT", 0, "b"),
    example("er", "MASC", 5, "c"),
    example("t'", "LIAS", 2, "c"),
]
GOOD = ["Sie ist alt.", "Ich sah ihn. Er ist alt.", "Ja, es.", "er", "je t'aime"]
POOR = ["Er ist alt.", "Er ist alt. Ich sah ihn.", "Essen.", "", "t"]


def write(folder: Path, examples: list[dict[str, Any]] = EXAMPLES) -> Path:
    path = folder / "gender.opensubtitles.en-de.test.json"
    path.write_text(json.dumps(examples, ensure_ascii=False))
    return path


def lines(path: Path, translations: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in translations))
    return path


@loop_over(
    ("sentence", "expected", "found"),
    [
        ("Sie ist's.", "sie", True),
        ("Siehe da.", "sie", False),
        ("Oh,sie ist da", "sie", False),  # the comma is deleted, and leaves one word
        ("Oh -sie", "sie", True),
        ("„sie“", "sie", False),  # not ASCII, so that it stays
        ("SIE", "Sie", True),
        ("ist es so", "es so", True),
        ("t' t'", "t'", False),
        ("", "sie", False),
    ],
)
def test_a_form_between_spaces(sentence: str, expected: str, found: bool) -> None:
    assert has_form(sentence, expected) is found


def test_forms_with_punctuation_are_out_of_reach() -> None:
    assert [has_form(form, form) for form in ("sie", "t'", "fazê-lo", "-")] == [True, False, False, False]


def test_accuracies_by_rule_and_distance(tmp_path: Path) -> None:
    found = evaluate_ctxpro(
        CtxproRequest(suite=write(tmp_path), hypothesis=[lines(tmp_path / "good", GOOD)], splitter="rules")
    )
    forms = found.forms["good"]
    assert forms.right == (True, True, True, True, False)
    assert (forms.overall.correct, forms.overall.total, forms.unreachable) == (4, 5, 1)
    groups = forms.grouped()
    assert {name: (a.correct, a.total) for name, a in groups["rule"].items()} == {
        "FEM": (1, 1),
        "MASC": (2, 2),
        "NEUT": (1, 1),
        "LIAS": (0, 1),
    }
    assert {name: (a.correct, a.total) for name, a in groups["distance"].items()} == {
        "0": (1, 1),
        "1": (2, 2),
        "2": (0, 1),
        ">3": (1, 1),
    }
    assert forms.documents == (0, 0, 1, 2, 2)
    assert forms.signature.startswith(
        "suite:ctxpro/en-de/gender/test|n:5|reading:ctxpro-0.0.5|last:rules-1:de|"
    )
    assert "1 expected forms have punctuation" in found.render()


def test_the_last_sentence_alone_is_read_unless_all_of_a_line_is_the_segment(tmp_path: Path) -> None:
    suite, poor = write(tmp_path), lines(tmp_path / "poor", POOR)
    last = evaluate_ctxpro(CtxproRequest(suite=suite, hypothesis=[poor], splitter="rules")).forms["poor"]
    whole = evaluate_ctxpro(CtxproRequest(suite=suite, hypothesis=[poor], splitter="none")).forms["poor"]
    assert last.right == (False, False, False, False, False)
    assert whole.right == (False, True, False, False, False)
    assert (last.empty, "|last:whole-segment|" in whole.signature) == (1, True)


def test_documents_stand_for_their_last_sentence(tmp_path: Path) -> None:
    suite = write(tmp_path)
    each = [Document(str(n), ("sie er es", line)) for n, line in enumerate(GOOD)]
    write_documents(tmp_path / "each", each, "jsonl")
    write_documents(tmp_path / "one", [Document("all", tuple(GOOD))], "jsonl")
    found = evaluate_ctxpro(
        CtxproRequest(suite=suite, hypothesis=[tmp_path / "each", tmp_path / "one"], splitter="none")
    )
    assert [forms.right for forms in found.forms.values()] == [(True, True, True, True, False)] * 2
    # An empty line is a translation of nothing, whether the format is detected or named.
    poor = lines(tmp_path / "poor", POOR)
    named, found_out = (
        evaluate_ctxpro(CtxproRequest(suite=suite, hypothesis=[poor], splitter="none", format=f))
        for f in ("text", None)
    )
    assert named.forms["poor"].right == found_out.forms["poor"].right
    with pytest.raises(CotextError, match=r"short: 4 lines, but the suite has 5 examples"):
        evaluate_ctxpro(
            CtxproRequest(suite=suite, hypothesis=[lines(tmp_path / "short", GOOD[:4])], splitter="none")
        )


def test_systems_are_tested_over_documents(tmp_path: Path) -> None:
    files = [lines(tmp_path / "poor", POOR), lines(tmp_path / "good", GOOD)]
    found = evaluate_ctxpro(
        CtxproRequest(suite=write(tmp_path), hypothesis=files, splitter="rules", paired=True, samples=200)
    )
    test = found.evaluation.paired["ctxpro"]
    assert (test.unit, test.units, test.comparisons[0].difference) == ("document", 3, pytest.approx(80.0))


def test_decisions_of_an_evaluation_can_be_compared(tmp_path: Path) -> None:
    suite = write(tmp_path)
    for name, translations in (("good", GOOD), ("poor", POOR)):
        hypothesis = lines(tmp_path / name, translations)
        options = [suite, "--hypothesis", hypothesis, "--splitter", "rules", "--json"]
        report = json.loads(succeed("evaluate-ctxpro", *options).out)
        assert report["systems"][name]["scores"]["ctxpro"]["value"] == (80 if name == "good" else 0)
        (tmp_path / f"{name}.json").write_text(json.dumps(report["suites"][name]))
    shown = succeed("compare-decisions", tmp_path / "poor.json", tmp_path / "good.json")
    assert "ctxpro/en-de/gender/test, 5 examples of 3 documents" in shown.out
    assert "+80.00" in shown.out


def test_sentence_splitter_is_what_is_used_if_nothing_else_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, good = write(tmp_path), lines(tmp_path / "good", GOOD)
    monkeypatch.setitem(sys.modules, "sentence_splitter", None)
    with pytest.raises(CotextError, match=r"pip install 'cotext\[ctxpro\]', or choose --splitter rules"):
        evaluate_ctxpro(CtxproRequest(suite=suite, hypothesis=[good]))
    package = ModuleType("sentence_splitter")

    class SentenceSplitterException(Exception):  # noqa: N818 - as the package has it
        pass

    class SentenceSplitter:
        def __init__(self, language: str) -> None:
            if language != "de":
                raise SentenceSplitterException

        def split(self, text: str) -> list[str]:
            return text.split(". ") if text else []

    package.SentenceSplitter = SentenceSplitter  # type: ignore[attr-defined]
    package.SentenceSplitterException = SentenceSplitterException  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_splitter", package)
    monkeypatch.setattr("cotext.evaluation.metrics.ctxpro.version", lambda name: "9.9")
    forms = evaluate_ctxpro(CtxproRequest(suite=suite, hypothesis=[good])).forms["good"]
    assert forms.right == (True, True, True, True, False)
    assert "|last:sentence-splitter-9.9:de|" in forms.signature
    with pytest.raises(CotextError, match="no rules for the language 'xx'"):
        evaluate_ctxpro(CtxproRequest(suite=suite, hypothesis=[good], target_language="xx"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--reference x", "No such option"),
        ("--baseline good", "--baseline needs --paired"),
    ],
)
def test_what_evaluate_refuses(tmp_path: Path, options: str, words: str) -> None:
    good = lines(tmp_path / "good", GOOD)
    outcome = cotext("evaluate-ctxpro", write(tmp_path), "--hypothesis", good, *options.split())
    assert (outcome.code, outcome.out) == (2, "")
    assert words in outcome.err


@pytest.mark.outside
def test_the_authors_scorer_counts_the_same(tmp_path: Path) -> None:
    """Rule by rule, on lines of several sentences, quotation marks and hyphens; without their splitter here,
    on lines of one sentence."""
    if CTXPRO_VARIABLE not in os.environ:
        pytest.skip(f"{CTXPRO_VARIABLE} names no interpreter with ctxpro")
    try:
        import sentence_splitter  # noqa: F401

        last_by, pieces = None, ["Er kam. ", "Dr. Ott ging, z. B. heute. ", "„Sie?“ ", "1. Mai! ", ""]
    except ImportError:
        last_by, pieces = "none", [""]
    forms = ["sie", "Er", "es", "t'", "fazê-lo", "weiß"]
    examples, translations = [], []
    for number in range(180):
        form = forms[number % len(forms)]
        examples.append(example(form, f"R{number % 4}", None, f"d{number // 3}"))
        tested = [f"Und {form} kam", f"Oh,{form}!", f"{form.upper()}.", "Nein", f"-{form}, ja?"][number % 5]
        translations.append(f"  {pieces[number % len(pieces)]}{tested} ")
    suite, hypothesis = write(tmp_path, examples), lines(tmp_path / "out", translations)
    command = [os.environ[CTXPRO_VARIABLE], "-m", "ctxpro", "score", "-e", suite, "-t", hypothesis]
    told = subprocess.run(
        [*command, "-l", "de", "-c", "-V", "quiet"], capture_output=True, text=True, check=True
    )
    theirs = [line.split("\t") for line in told.stdout.splitlines()]
    forms_found = evaluate_ctxpro(
        CtxproRequest(suite=suite, hypothesis=[hypothesis], splitter=last_by)
    ).forms["out"]
    ours = {name: [str(a.correct), str(a.total)] for name, a in forms_found.grouped()["rule"].items()}
    assert {line[0].split(" (")[0]: line[1:3] for line in theirs[:-1]} == ours
    assert theirs[-1][1:3] == [str(forms_found.overall.correct), "180"]
    assert 0 < forms_found.overall.correct < 180
