"""The right form in a translation, worked out by hand."""

import pytest

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite
from cotext.data.documents import Document
from cotext.evaluation.metrics.contrastive import generative_accuracy, outcome, render_forms
from tests.loops import loop_over
from tests.refusals import must_raise


def example(*candidates: str | tuple[str, ...], correct: int = 0, id: str = "0") -> ContrastiveExample:
    documents = tuple((c,) if isinstance(c, str) else c for c in candidates)
    source = tuple("s" for _ in documents[0])
    tags = {"tag": "x" if id == "0" else "y"}
    return ContrastiveExample(id, "pronoun", 1, source, documents, correct, tags)


IT = ("Er ist alt.", "Sie ist alt.", "Es ist alt.")
QUOTED = ("Er ist alt, sagt sie.", "Sie ist alt, sagt sie.")
REGISTER = ("Du arbeitest.", "Sie arbeiten.")


@loop_over(
    ("candidates", "written", "expected"),
    [
        (IT, "Er ist alt.", "right"),
        (IT, "Es ist alt.", "wrong"),
        (IT, "Er oder sie ist alt.", "both"),
        (IT, "Der Tisch ist alt.", "neither"),
        (IT, "Erst ist alt", "neither"),  # whole words alone
        (("वह की है।", "वह का है।"), "वह अच्छी चीज़ है।", "neither"),  # also in scripts with vowel signs
        # `sie` once is what the right candidate has too; twice is one too many.
        (QUOTED, "Er sei alt, sagt sie.", "right"),
        (QUOTED, "Sie sei alt, sagt er.", "right"),  # the price of counting
        (QUOTED[::-1], "Sie sei alt, sagt sie.", "right"),
        (QUOTED[::-1], "Alt, sagt sie.", "neither"),  # it needs `sie` more often than the wrong one has it
        # Of several forms, one is enough.
        (REGISTER, "Du schuftest.", "right"),
        (REGISTER, "Du arbeiten.", "both"),
        # The right candidate lacks a word, or has one more.
        (("Er kam.", "Er kam nicht."), "Er kam an.", "right"),
        (("Er kam.", "Er kam nicht."), "Er kam nicht an.", "wrong"),
        # Case and spaces tell nothing apart.
        (("Sie kam.", "sie  kam."), "Sie kam.", None),
        (("Er kam.", "Er kam.", "Sie kam."), "Er kam.", None),
        (("他来了", "她来了"), "她来", "wrong"),
        (("für ihn", "vor ihm"), "fu\u0308r", "right"),  # an accent may be a separate character
    ],
)
def test_outcomes(candidates: tuple[str, ...], written: str, expected: str | None) -> None:
    assert outcome(example(*candidates), [written]) == expected


def test_every_sentence_that_differs_must_be_right_and_no_other_counts() -> None:
    consistent = example(("Du kommst.", "Ja.", "Du gehst."), ("Sie kommen.", "Ja.", "Sie gehen."))
    assert outcome(consistent, ["Du kommst", "Sie, ja", "Du gehst"]) == "right"
    assert outcome(consistent, ["Du kommst", "Ja", "Sie gehen"]) == "wrong"
    assert outcome(consistent, ["Komm", "Du", "Du gehst"]) == "neither"
    # A candidate that differs in one sentence is compared there alone.
    assert outcome(example(*IT, correct=2), ["es"]) == "right"
    mixed = example(("er", "er"), ("sie", "er"), ("er", "es"))
    assert outcome(mixed, ["er", "er"]) == "right"
    assert outcome(mixed, ["er es", "er"]) == "right"
    assert outcome(mixed, ["er", "er es"]) == "both"


def test_a_report_by_groups() -> None:
    examples = (example(*IT), example(*IT, id="1"), example("a", "A", id="2"), example(*IT, id="3"))
    suite = ContrastiveSuite("s", "en", "de", examples)
    written = [Document("", (text,)) for text in ("er", "sie", "a", "er sie")]
    report = generative_accuracy(suite, written, {"model": "m"})
    assert report.undecidable == 1
    assert report.overall.as_dict() == {
        "accuracy_percent": pytest.approx(100 / 3),
        "interval_95_percent": [pytest.approx(6.149, abs=1e-3), pytest.approx(79.235, abs=1e-3)],
        **{"right": 1, "wrong": 1, "both": 1, "neither": 0, "total": 3},
    }
    assert report.by_distance["1"] == report.by_phenomenon["pronoun"] == report.overall
    assert (report.by_tag["tag"]["x"].right, report.by_tag["tag"]["y"].total) == (1, 2)
    assert report.signature.startswith("suite:s|n:3|reading:generative|case:folded|model:m|version:cotext-")
    assert "undecidable: 1 (a wrong candidate has the same words as the right one)" in render_forms(report)


def test_bad_input() -> None:
    suite = ContrastiveSuite("s", "en", "de", (example(*IT),))
    same, written = ContrastiveSuite("s", "en", "de", (example("a", "A"),)), [Document("", ("a",))]
    must_raise("no example whose candidates differ", generative_accuracy, same, written)
    must_raise("cannot be part of a signature", generative_accuracy, suite, written, {"n": "3"})
