"""Scores by sacrebleu, whole and by position and length of documents."""

from collections.abc import Sequence

import pytest
import sacrebleu
from sacrebleu.metrics.bleu import BLEU

from cotext.data.documents import Document
from cotext.evaluation.metrics.bleu import PROTOCOLS, build_metric, piece_sizes
from cotext.evaluation.metrics.interface import (
    DEFAULT_PROTOCOLS,
    Score,
    Texts,
    find_protocol,
    measure,
    profile,
    render_profile,
)
from tests.loops import loop_over
from tests.refusals import must_raise

# Sentences of unequal length, two documents of unequal size, an empty sentence, an all-capital word.
HYPOTHESIS = [
    Document("talk", ("The lamp is NEW .", "It shines in the hall .", "")),
    Document("letter", ("She wrote that she would come on Monday, at ten.", "We waited.")),
]
REFERENCE = [
    Document("talk", ("The lamp is new .", "It shines in the hall .", "Good !")),
    Document("letter", ("She wrote that she would come on Monday at ten.", "We waited for hours.")),
]


def evaluate(
    hypothesis: list[Document],
    reference: list[Document],
    protocols: Sequence[str] = DEFAULT_PROTOCOLS,
    *,
    target_language: str | None = None,
) -> list[Score]:
    measured = measure(Texts({"": hypothesis}, [reference]), protocols, target_language)
    return [each.score for each in measured[""]]


def one(ours: list[Document], reference: list[Document], protocol: str, language: str | None = None) -> Score:
    (score,) = evaluate(ours, reference, [protocol], target_language=language)
    return score


def documents_as_lines(documents: list[Document]) -> list[str]:
    return [" ".join(document.sentences) for document in documents]


def single(*sentences: str) -> list[Document]:
    return [Document("d", sentences)]


def test_bleu_worked_by_hand() -> None:
    # Hypothesis: the cat sat on the mat; reference: the cat sat on a mat. Matches by n-gram order, "the"
    # clipped to its one occurrence in the reference:
    #   1: the cat sat on mat   5 of 6      2: the-cat cat-sat sat-on   3 of 5
    #   3: the-cat-sat cat-sat-on   2 of 4  4: the-cat-sat-on   1 of 3
    # Equal lengths, no brevity penalty: (5/6 * 3/5 * 2/4 * 1/3) ** (1/4) = (1/12) ** (1/4) = 0.537285.
    score = one(single("the cat sat on the mat"), single("the cat sat on a mat"), "s-bleu")
    assert score.value == pytest.approx(53.7285, abs=1e-4)
    assert score.components["brevity_penalty"] == 1.0
    precisions = [score.components[f"precision_{n}"] for n in (1, 2, 3, 4)]
    assert precisions == pytest.approx([500 / 6, 60, 50, 100 / 3])


def test_every_protocol_equals_sacrebleu_called_directly() -> None:
    # A third document of 3 * 200 tokens: in pieces of at most 512, two sentences and one.
    ours, theirs = ("On " * 150 + "and on !") * 2, "On " * 150 + "and on " * 25
    hypothesis = [*HYPOTHESIS, Document("long", (ours[:560], theirs, ours))]
    reference = [*REFERENCE, Document("long", (theirs, theirs, theirs))]
    flat_hypothesis = [sentence for document in hypothesis for sentence in document.sentences]
    flat_reference = [sentence for document in reference for sentence in document.sentences]
    long_hypothesis, long_reference = documents_as_lines(hypothesis), documents_as_lines(reference)
    cut_hypothesis, cut_reference = (
        [*lines[:2], " ".join(last.sentences[:2]), last.sentences[2]]
        for lines, last in ((long_hypothesis, hypothesis[2]), (long_reference, reference[2]))
    )
    lowered = [[line.lower() for line in lines] for lines in (long_hypothesis, long_reference)]
    plain = {"tokenize": "none", "smooth_method": "none", "force": True}
    expected = {
        "s-bleu": sacrebleu.corpus_bleu(flat_hypothesis, [flat_reference]).score,
        "s-bleu-tok": sacrebleu.corpus_bleu(flat_hypothesis, [flat_reference], **plain).score,
        "s-bleu-lc": sacrebleu.corpus_bleu(flat_hypothesis, [flat_reference], lowercase=True, **plain).score,
        "d-bleu-512": sacrebleu.corpus_bleu(cut_hypothesis, [cut_reference]).score,
        "d-bleu-512-tok": sacrebleu.corpus_bleu(cut_hypothesis, [cut_reference], **plain).score,
        "d-bleu": sacrebleu.corpus_bleu(long_hypothesis, [long_reference]).score,
        "d-bleu-ci": sacrebleu.corpus_bleu(long_hypothesis, [long_reference], lowercase=True).score,
        "d-bleu-lc": sacrebleu.corpus_bleu(lowered[0], lowered[1:], **plain).score,
        "chrf": sacrebleu.corpus_chrf(flat_hypothesis, [flat_reference]).score,
        "ter": sacrebleu.corpus_ter(flat_hypothesis, [flat_reference]).score,
    }
    scores = evaluate(hypothesis, reference, list(PROTOCOLS))
    assert {score.protocol: score.value for score in scores} == pytest.approx(expected, abs=1e-9)
    # None of them is another one under a second name, on this corpus at least.
    assert len({round(score.value, 6) for score in scores}) == len(PROTOCOLS)


def test_pieces_by_hand() -> None:
    # Tokens of the reference by 13a: 3, 4 (the full stop is one), 1, 6, 2.
    reference = single("a b c", "d e f.", "g", "h i j k l m", "n o")
    assert piece_sizes([reference], 8) == [[3, 2]]
    assert piece_sizes([reference], 7) == [[2, 2, 1]]
    # A sentence that is too long stands alone and is not cut; one that fits exactly is in.
    assert piece_sizes([reference], 4) == [[1, 1, 1, 1, 1]]
    assert piece_sizes([reference], 16) == [[5]]
    assert piece_sizes([[*reference, Document("e", ()), *single("p")]], 9) == [[3, 2], [], [1]]
    # Of several references, the longest counts, in any order.
    other = single("a b c d", "d", "g", "h", "n o")
    assert piece_sizes([reference, other], 8) == piece_sizes([other, reference], 8) == [[2, 2, 1]]
    # Of tokenised text "f." is one token.
    assert piece_sizes([reference], 13, None, PROTOCOLS["d-bleu-512-tok"]) == [[4, 1]]
    assert piece_sizes([reference], 13) == [[3, 2]]
    # Chinese is counted as it is scored, by characters.
    for language in ("zh", "yue"):
        assert piece_sizes([single("灯很新。", "它很亮。", "好")], 8, language) == [[2, 1]]


def test_counts_of_segments_make_the_score() -> None:
    systems = {"ours": HYPOTHESIS, "theirs": REFERENCE}
    for name, measured in measure(Texts(systems, [REFERENCE]), list(PROTOCOLS)).items():
        alone = evaluate(systems[name], REFERENCE, list(PROTOCOLS))
        assert [each.score for each in measured] == alone
        for each in measured:
            assert each.statistics.score == pytest.approx(each.score.value, abs=1e-9)
            assert len(each.statistics.counts) == (5 if each.statistics.unit == "sentence" else 2)
            assert len(each.statistics.by("document")[0]) == 2


@pytest.mark.parametrize("language", ["zh", "zh-CN", "ZH_hans"])
def test_chinese_is_scored_by_characters(language: str) -> None:
    hypothesis, reference = single("灯很新。", "它很亮。"), single("灯很新。", "他很亮。")
    score = one(hypothesis, reference, "s-bleu", language)
    assert "tok:zh" in score.signature
    # Characters: 7/8, 5/6, 3/4, 1/2: of the second sentence 很亮。 stays.
    assert score.value == pytest.approx(100 * (7 / 8 * 5 / 6 * 3 / 4 * 1 / 2) ** 0.25)
    assert "tok:zh" in one(hypothesis, reference, "d-bleu", language).signature
    assert "asian:yes" in one(hypothesis, reference, "ter", language).signature
    # One substituted character of eight.
    assert one(hypothesis, reference, "ter", language).value == pytest.approx(12.5)
    must_raise("without spaces.*--target-language", one, hypothesis, reference, "s-bleu")
    for text, code in (("今天天氣很好", "yue"), ("สวัสดีครับ", "th"), ("Windows", "th")):
        assert "tok:char" in one(single(text), single(text), "s-bleu", code).signature
        must_raise("without spaces.*TER supports only", one, single(text), single(text), "ter", code)


def test_other_languages_use_13a_and_empty_hypotheses_score_zero() -> None:
    for language in (None, "de", "xx"):
        assert "tok:13a" in one(HYPOTHESIS, REFERENCE, "s-bleu", language).signature
    scores = evaluate(single("", "  "), single("a b c d", "e f"), ["s-bleu", "d-bleu", "chrf"])
    assert [score.value for score in scores] == [0.0, 0.0, 0.0]
    assert scores[0].empty_hypotheses == 2


def test_several_references() -> None:
    other = [Document("talk", ("A new lamp .", "It shines in the hall .", "")), REFERENCE[1]]
    score = measure(Texts({"": HYPOTHESIS}, [other, REFERENCE]), ["d-bleu"])[""][0].score
    ours, *theirs = map(documents_as_lines, (HYPOTHESIS, other, REFERENCE))
    assert score.value == pytest.approx(sacrebleu.corpus_bleu(ours, theirs).score)
    assert "nrefs:2" in score.signature
    message = "document number 1 is 'talk' in the hypothesis but 'letter'"
    must_raise(message, measure, Texts({"": HYPOTHESIS}, [other, REFERENCE[::-1]]), ["d-bleu"])


@loop_over(
    ("hypothesis", "reference", "message"),
    [
        ({"a": "x"}, {"b": "x"}, "document number 1 is 'a' in the hypothesis but 'b'"),
        ({"a": "x"}, {"a": "xy"}, "document 'a': 1 sentences in the hypothesis, 2 in the reference"),
        ({"a": "x"}, {"a": "x", "b": "y"}, "'b' is the first that only the reference has"),
        ({"a": "x", "b": "y"}, {"a": "x"}, "'b' is the first that only the hypothesis has"),
        ({}, {}, "nothing to score"),
        ({"a": ""}, {"a": ""}, "nothing to score"),
    ],
)
def test_documents_that_differ(hypothesis: dict[str, str], reference: dict[str, str], message: str) -> None:
    sides = ([Document(id, tuple(each)) for id, each in side.items()] for side in (hypothesis, reference))
    must_raise(message, evaluate, *sides)


def test_unknown_protocol_and_missing_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    message = "unknown protocol 'bleu'; known: s-bleu, s-bleu-tok, s-bleu-lc, d-bleu"
    must_raise(message, evaluate, HYPOTHESIS, REFERENCE, ["bleu"])

    def absent(name: str) -> None:
        raise RuntimeError(f"install {name}")

    monkeypatch.setattr("sacrebleu.metrics.bleu._get_tokenizer", absent)
    message = "target language 'ja': the tokenizer is missing: install ja-mecab"
    must_raise(message, build_metric, find_protocol("s-bleu"), "ja")


LINES = ("der Tisch war neu und schön", "er stand am Fenster im Haus", "wir kauften ihn gestern in Rom")
PROFILE_REFERENCE = [
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
    buckets = profile("position", [WRITTEN, PROFILE_REFERENCE], PROFILE_REFERENCE, ["s-bleu", "d-bleu"])
    assert [(b.name, b.documents, b.sentences) for b in buckets] == [("1", 3, 3), ("2", 2, 2), ("3-4", 2, 3)]
    first = [d.sentences[0] for d in WRITTEN], [[d.sentences[0] for d in PROFILE_REFERENCE]]
    assert buckets[0].scores[0][0].value == pytest.approx(BLEU().corpus_score(*first).score)
    third = ["ihn", "der Tisch ist neu und schön", "ja"], [[LINES[2], LINES[0], "ja"]]
    joined = ["ihn", "der Tisch ist neu und schön ja"], [[LINES[2], f"{LINES[0]} ja"]]
    assert buckets[2].scores[0][0].value == pytest.approx(BLEU().corpus_score(*third).score)
    assert buckets[2].scores[0][1].value == pytest.approx(BLEU().corpus_score(*joined).score)
    assert [b.scores[1][1].value for b in buckets] == pytest.approx([100] * 3)
    head, line, *_ = render_profile("place", buckets, ["x", "y"]).splitlines()
    assert " ".join(head.split()) == "place documents sentences x s-BLEU x d-BLEU y s-BLEU y d-BLEU"
    assert line.split()[-1] == "100.00"


def test_by_length() -> None:
    buckets = profile("length", [WRITTEN], PROFILE_REFERENCE, ["d-bleu"])
    assert [(b.name, b.documents, b.sentences) for b in buckets] == [("1", 1, 1), ("3-4", 2, 7)]
    for bucket, numbers in zip(buckets, ((1,), (0, 2)), strict=True):
        ours, theirs = (
            [" ".join(side[n].sentences) for n in numbers] for side in (WRITTEN, PROFILE_REFERENCE)
        )
        whole = ours, [theirs]
        assert bucket.scores[0][0].value == pytest.approx(BLEU().corpus_score(*whole).score)
    must_raise("unknown protocol", profile, "length", [WRITTEN], PROFILE_REFERENCE, ["bleu"])
