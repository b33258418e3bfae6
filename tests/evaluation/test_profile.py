"""Quality by position and by length, against sacrebleu on what a person would pick out."""

import pytest
from sacrebleu.metrics.bleu import BLEU

from cotext.data.documents import Document
from cotext.evaluation.metrics.profile import profile, render_profile
from tests.refusals import must_raise

LINES = ("der Tisch war neu und schön", "er stand am Fenster im Haus", "wir kauften ihn gestern in Rom")
REFERENCE = [
    Document("a", LINES),
    Document("b", LINES[:1]),
    Document("c", (LINES[1], LINES[2], LINES[0], "ja")),
]
WRITTEN = [
    Document("a", (LINES[0], "er stand am Tisch im Haus", "ihn")),
    Document("b", ("der Tisch war alt und schön",)),
    Document("c", (LINES[1], LINES[2], "der Tisch ist neu und schön", "ja")),
]


def test_by_position() -> None:
    buckets = profile("position", [WRITTEN, REFERENCE], REFERENCE, ["s-bleu", "d-bleu"])
    assert [(b.name, b.documents, b.sentences) for b in buckets] == [("1", 3, 3), ("2", 2, 2), ("3-4", 2, 3)]
    first = [d.sentences[0] for d in WRITTEN], [[d.sentences[0] for d in REFERENCE]]
    assert buckets[0].scores[0][0].value == pytest.approx(BLEU().corpus_score(*first).score)
    third = ["ihn", "der Tisch ist neu und schön", "ja"], [[LINES[2], LINES[0], "ja"]]
    joined = ["ihn", "der Tisch ist neu und schön ja"], [[LINES[2], f"{LINES[0]} ja"]]
    assert buckets[2].scores[0][0].value == pytest.approx(BLEU().corpus_score(*third).score)
    assert buckets[2].scores[0][1].value == pytest.approx(BLEU().corpus_score(*joined).score)
    assert [b.scores[1][1].value for b in buckets] == pytest.approx([100] * 3)


def test_by_length() -> None:
    buckets = profile("length", [WRITTEN], REFERENCE, ["d-bleu"])
    assert [(b.name, b.documents, b.sentences) for b in buckets] == [("1", 1, 1), ("3-4", 2, 7)]
    for bucket, numbers in zip(buckets, ((1,), (0, 2)), strict=True):
        ours, theirs = ([" ".join(side[n].sentences) for n in numbers] for side in (WRITTEN, REFERENCE))
        whole = ours, [theirs]
        assert bucket.scores[0][0].value == pytest.approx(BLEU().corpus_score(*whole).score)


def test_text_and_bad_input() -> None:
    buckets = profile("position", [WRITTEN, REFERENCE], REFERENCE, ["s-bleu"])
    head, line, *_ = render_profile("place", buckets, ["x", "y"]).splitlines()
    assert head.split() == ["place", "documents", "sentences", "x", "s-BLEU", "y", "s-BLEU"]
    assert line.split()[-1] == "100.00"
    must_raise("unknown protocol", profile, "length", [WRITTEN], REFERENCE, ["bleu"])
