"""Alignment of the sentences of documents and their translations."""

import json
import math
import random
from pathlib import Path
from statistics import NormalDist
from textwrap import fill

import numpy as np
import pytest

from cotext.data.aligned_corpus import (
    ALONE,
    COPIED,
    EMPTY,
    SWAPPED,
    UNRELATED,
    AlignedCorpus,
    Gap,
    align_corpus,
)
from cotext.data.alignment import (
    DISCOUNT,
    EXPLAINED,
    VARIANCE,
    Band,
    Lengths,
    Lexicon,
    NearScores,
    SharedWords,
    Side,
    Vocabulary,
    Words,
    align_documents,
    best_path,
    path_band,
)
from cotext.data.documents import Document, Languages
from cotext.data.formats import read_parallel
from cotext.data.formats.xml_formats import languages_of_tmx
from tests.command_line import World, must_refuse, succeed
from tests.loops import loop_over

ENDE = Languages("en", "de")
LETTERS = "abcdefghijklm", "nopqrstuvwxyz"  # of the source and of the target: no word is in both


def pairs_of(number: int, seed: int) -> list[tuple[str, str]]:
    """Sentences of 4 to 12 words of a dictionary, and their translations word for word."""
    words, draw = random.Random(0), random.Random(seed)
    dictionary = [tuple("".join(words.choices(side, k=5)) for side in LETTERS) for _ in range(150)]
    sentences = [draw.choices(dictionary, k=draw.randint(4, 12)) for _ in range(number)]
    return [(" ".join(s for s, _ in each), " ".join(t for _, t in each)) for each in sentences]


def corpus_of(*documents: tuple[list[str], list[str]]) -> AlignedCorpus:
    sides = [(Document(f"{n}", tuple(s)), Document(f"{n}", tuple(t))) for n, (s, t) in enumerate(documents)]
    return align_corpus(sides, ENDE)


def sides_of(pairs: list[tuple[str, str]]) -> tuple[list[str], list[str]]:
    return [s for s, _ in pairs], [t for _, t in pairs]


def test_shared_words_by_hand() -> None:
    """Rare words of both sides: `anna` once on each, `ben` twice on the target side, of five sentences."""
    vocabulary = Vocabulary()
    source = vocabulary.side(["one", "anna", "ben", "two"])
    target = vocabulary.side(["eins", "ben", "anna", "ben", "zwei"])
    shared = SharedWords.of(source, target, len(vocabulary))
    scores = shared.scores(range(1, 3), range(1, 5))
    anna, ben = math.log(5), math.log(5 / 2)
    assert scores[0] == pytest.approx(np.array([[0, anna, 0, 0], [ben, 0, ben, 0]]))
    assert scores[1] == pytest.approx(np.array([[0, anna, anna, 0], [0, ben, ben, ben]]))
    assert scores[2] == pytest.approx(np.array([[0, 0, 0, 0], [ben, anna, ben, 0]]))

    for count, found in ((3, 3), (4, 0)):  # rare words have at most three occurrences
        shared = SharedWords.of(vocabulary.side(["carl"] * count), vocabulary.side(["carl"]), len(vocabulary))
        assert shared.pairs.shape == (2, found)


def test_a_band_has_room_on_both_sides_of_a_gap() -> None:
    gap = ((), tuple(range(100, 200)))
    path = [*(((i,), (i,)) for i in range(100)), gap, *(((i,), (i + 100,)) for i in range(100, 200))]
    band = path_band(path, 200, 300)
    # The beads at row 100 go from column 99 to 200; their middle is 149.
    assert (band.width, band.low[50], band.low[100], band.low[150]) == (2 * 91 + 1, 0, 149 - 91, 118)


def test_lengths_are_compared_by_hand() -> None:
    vocabulary, lengths = Vocabulary(), Lengths(ratio=1.5, mean=3.0, deviation=0.7)
    source, target = vocabulary.side(["a" * 2, "b" * 20]), vocabulary.side(["c" * 4, "d" * 40])
    alone = [NormalDist(3.0, 0.7).pdf(math.log1p(t)) / (1 + t) for t in (4, 40)]

    def translation(expected: float, t: int) -> float:
        return NormalDist(expected, math.sqrt(VARIANCE * max(5, (expected + t) / 2))).pdf(t)

    scores = np.exp(lengths.scores(source, target))
    one = [
        [0.95 * translation(1.5 * s, t) / p + 0.05 for t, p in zip((4, 40), alone, strict=True)]
        for s in (2, 20)
    ]
    assert scores[0] == pytest.approx(np.array(one), rel=1e-4)
    assert scores[2, 1, 1] == pytest.approx(0.95 * translation(33, 40) / alone[1] + 0.05, rel=1e-4)
    assert scores[2, 0].tolist() == scores[1, :, 0].tolist() == [0, 0]
    assert Lengths.of([(source, target)]).ratio == pytest.approx(44 / 22)


def test_words_are_compared_by_hand() -> None:
    """Word 1 is the only target word, and always the translation of word 0."""
    words = Words([(np.array([0]), np.array([1]))] * 2, 2)
    probability, share = 1 - DISCOUNT / 2, EXPLAINED
    for _ in range(4):
        share = 2 * (share * probability / (share * probability + 1 - share)) / (2 + 2)
    given, other = (Side(np.ones(1, np.float32), np.array([word]), np.array([0, 1])) for word in (0, 1))
    assert words.scores(given, other)[0] == pytest.approx(math.log(1 - share + share * probability), rel=1e-4)


def test_the_best_path_is_that_of_the_highest_sum() -> None:
    # Two sources and three targets; of 1-1, 1-2 and 2-1 that end at nodes (i, 0) to (i, 3).
    low = -9.0
    rows = {
        1: [[low, 3, low, low], [low, low, 1, low], [low] * 4],
        2: [[low, low, 1, 0], [low, low, low, 5], [low, 2, low, low]],
    }
    path = best_path(2, 3, Band(np.zeros(3, np.int64), 4), lambda i: np.array(rows[i], np.float32), -1.0)
    assert path == [((0,), (0,)), ((1,), (1, 2))]  # 3 + 5
    rows[2][1][3] = low
    path = best_path(2, 3, Band(np.zeros(3, np.int64), 4), lambda i: np.array(rows[i], np.float32), -1.0)
    assert path == [((0,), (0,)), ((1,), (1,)), ((), (2,))]  # 3 + 1 - 1


def test_a_band_without_a_way_through_has_no_path() -> None:
    scores = np.zeros((3, 2), np.float32)
    # Row 0 sees columns 0 and 1, row 1 columns 4 and 5.
    assert best_path(1, 5, Band(np.array([0, 4]), 2), lambda i: scores, -1.0) == []
    assert best_path(1, 5, Band(np.array([0, 4]), 2), lambda i: scores, -math.inf) == []


def test_the_lexicon_finds_the_word_that_always_comes_along() -> None:
    vocabulary = Vocabulary()
    texts = [("red house", "rotes haus"), ("red ship", "rotes boot"), ("old house", "altes haus")] * 2
    sides = [(vocabulary.side([s]), vocabulary.side([t])) for s, t in texts]
    lexicon = Lexicon([(s.words, t.words) for s, t in sides], len(vocabulary))
    source, target = vocabulary.side(["red", "house"]), vocabulary.side(["rotes", "haus"])
    assert lexicon.translated(source).words.tolist() == target.words.tolist()
    one, other = lexicon.scores(source, target)[0]
    assert one[0] > 0 > one[1]
    assert other[1] > 0 > other[0]


def test_two_sentences_of_a_side_are_judged_as_their_words_together() -> None:
    vocabulary = Vocabulary()
    pairs = pairs_of(60, 1)
    sides = [(vocabulary.side([s]), vocabulary.side([t])) for s, t in pairs]
    lexicon = Lexicon([(s.words, t.words) for s, t in sides], len(vocabulary))
    source, target = (vocabulary.side([pair[side] for pair in pairs[:3]]) for side in (0, 1))
    scores = lexicon.scores(source, target)
    for kind, of_source, of_target in ((1, (0,), (0, 1)), (2, (1, 2), (2,))):
        joined = source.joined([of_source]), target.joined([of_target])
        together = lexicon.scores(*joined)[0, 0, 0]
        assert scores[kind, of_source[-1], of_target[-1]] == pytest.approx(together, abs=1e-4)


def test_dropped_and_merged_sentences_are_found() -> None:
    source, target = sides_of(pairs_of(60, 2))
    target[50:52] = [" ".join(target[50:52])]
    source[40:42] = [" ".join(source[40:42])]
    del source[30], target[10]
    [alignment] = align_documents([(source, target)])
    expected = [((n,), (n,)) for n in range(10)] + [((10,), ())]
    expected += [((n,), (n - 1,)) for n in range(11, 30)] + [((), (29,))]
    expected += [((n,), (n,)) for n in range(30, 39)] + [((39,), (39, 40))]
    expected += [((n,), (n + 1,)) for n in range(40, 48)] + [((48, 49), (49,))]
    expected += [((n,), (n,)) for n in range(50, 58)]
    assert alignment.beads == expected


@loop_over("side", [0, 1])
def test_headings_of_one_side_are_no_parts_of_sentences(side: int) -> None:
    pairs = [(f"{source}.", f"{target}.") for source, target in pairs_of(90, 6)]
    sides = sides_of(pairs)
    for n in range(80, 0, -10):
        sides[side].insert(n, " ".join(pairs_of(90, 13)[n][side].split()[:2]))
    assert corpus_of(sides).beads == {"1-1": 90}


def test_a_sentence_alone_is_dropped_and_a_long_gap_cuts() -> None:
    source, target = sides_of(pairs_of(60, 3))
    del target[40:50], target[10]
    corpus = corpus_of((source, target))
    assert [document.id for document in corpus.documents] == ["0#1", "0#2"]
    assert corpus.documents[0].source == (*source[:10], *source[11:40])
    assert corpus.documents[1].target == tuple(target[39:])
    assert corpus.gaps == [
        Gap("0", (11, 11), (), doubtful=False, cut=False),
        Gap("0", (41, 50), (), doubtful=False, cut=True),
    ]
    assert corpus.beads == {"1-1": 49}
    assert "stretches where the document was cut: 1\n  0: source 41-50" in corpus.render()


def test_documents_that_are_no_translations_are_left_out() -> None:
    good = [sides_of(pairs_of(30, seed)) for seed in range(4)]
    weather = [f"Tomorrow rain falls near valley number {n} before noon" for n in "abcdefghijklmnopqrst"]
    corpus = corpus_of(
        *good,
        (weather, good[0][1][:20]),
        (good[1][1], good[1][0]),
        (good[2][0], []),
        (good[3][0], good[3][0]),
        (good[0][0][:1], good[1][1] * 6),
    )
    assert corpus.left_out == {"4": UNRELATED, "5": SWAPPED, "6": EMPTY, "7": COPIED, "8": UNRELATED}
    assert [(each.source, each.target) for each in corpus.documents] == [
        (tuple(source), tuple(target)) for source, target in good
    ]
    # Known languages may be swapped in every document.
    english = ["The committee has discussed the report.", "We thank the members for their questions."]
    german = ["Der Ausschuss hat den Bericht besprochen.", "Wir danken den Mitgliedern für ihre Fragen."]
    assert corpus_of((german, english)).left_out == {"0": SWAPPED}


def test_contents_of_one_side_are_cut_off_and_numbers_aligned_as_equal() -> None:
    source, target = sides_of(pairs_of(200, 5))
    contents = source[4::25]  # headings of which none is the first line
    corpus = corpus_of(([*contents, *source], target))
    assert corpus.documents[0].source == tuple(source)
    assert corpus.gaps == [Gap("0", (1, 8), (), doubtful=False, cut=True)]
    numbers = [f"{n * 137} {n * 91}" for n in range(10, 60)]
    corpus = corpus_of((numbers, numbers[:20] + numbers[21:]))
    assert corpus.documents[0].source == tuple(numbers[:20] + numbers[21:])


def test_a_short_document_is_aligned_by_lengths_and_said_to_be() -> None:
    source = ["Dear all,", "thank you very much for the long and friendly letter of last week.", "Bye!"]
    target = [
        "Liebe Leute,",
        "vielen Dank für den langen und freundlichen Brief von letzter Woche.",
        "Tschüss!",
    ]
    corpus = corpus_of((source, target))
    assert corpus.documents[0].target == tuple(target)
    assert corpus.by_lengths == ["0"]
    assert "aligned mainly by lengths" in corpus.render()


def test_a_system_decides_where_lengths_and_words_say_nothing() -> None:
    source = [f"{letter * 8}." for letter in "abcdefgh"]
    target = [f"{letter * 8}." for letter in "ABDEFGH".translate(str.maketrans("ABDEFGH", "stuvwxy"))]
    true = dict(zip(target, [*source[:2], *source[3:]], strict=True))

    def probabilities(texts):  # type: ignore[no-untyped-def]
        return [-1.0 if true[t] == s else -30.0 for s, t in texts]

    [alignment] = align_documents([(source, target)], probabilities)
    assert [bead for bead in alignment.beads if not all(bead)] == [((2,), ())]
    assert min(e for e, bead in zip(alignment.evidence, alignment.beads, strict=True) if all(bead)) > 1


def test_scores_of_a_system_are_relative_to_sources_near_by() -> None:
    def probabilities(texts):  # type: ignore[no-untyped-def]
        return [math.log(0.5) if (s, t) == ("a", "x") else math.log(0.1) for s, t in texts]

    near = NearScores.of(["a", "b"], ["x"], [((0,), (0,)), ((1,), ())], probabilities)
    # Three sources of x: a, b, and both; the mean is 0.7 / 3.
    assert near.by_source[0][1, 0] == pytest.approx(math.log(0.5 / (0.7 / 3)))
    assert near.by_source[0][2, 0] == pytest.approx(math.log(0.1 / (0.7 / 3)))


@loop_over("shape", [(1, 700), (700, 1), (2, 2), (1, 1)])
def test_any_shape_is_covered_once_in_order(shape: tuple[int, int]) -> None:
    source, target = sides_of(pairs_of(shape[0], 6))[0], sides_of(pairs_of(shape[1], 7))[1]
    [alignment] = align_documents([(source, target)])
    assert [i for bead in alignment.beads for i in bead[0]] == list(range(shape[0]))
    assert [j for bead in alignment.beads for j in bead[1]] == list(range(shape[1]))


def test_a_long_document_with_a_missing_chapter_is_aligned_in_a_band() -> None:
    source, target = sides_of(pairs_of(900, 8))
    del target[400:500]
    [alignment] = align_documents([(source, target)])
    shifts = {(i[0], j[0]) for i, j in alignment.beads if i and j}
    right = {(n, n) for n in range(400)} | {(n, n - 100) for n in range(500, 900)}
    assert len(right & shifts) >= 780


def test_the_command_reads_files_of_any_kind_and_writes_a_corpus(tmp_path: Path) -> None:
    pairs = pairs_of(40, 9)
    capitals = [(s.capitalize() + ".", t.capitalize() + ".") for s, t in pairs]
    page = "".join(f"<p>{s}</p>\n" for s, _ in capitals)
    (tmp_path / "letter.en.html").write_text(f"<!DOCTYPE html>\n<html><body>{page}</body></html>\n")
    (tmp_path / "letter.de.txt").write_text("".join(f"{t}\n" for n, (_, t) in enumerate(capitals) if n != 7))
    out = tmp_path / "pairs.tmx"
    files = ["--source", str(tmp_path / "letter.en.html"), "--target", str(tmp_path / "letter.de.txt")]
    shown = succeed("align", *files, "--out", str(out)).out
    assert "39 pairs (1-1: 39) of 40 source and 39 target sentences; documents: 1" in shown
    assert "letter: source 8" in shown
    [document] = read_parallel(out, None)
    assert list(zip(document.source, document.target, strict=True)) == [*capitals[:7], *capitals[8:]]
    assert languages_of_tmx(out) == ("en", "de")
    must_refuse("the name must end in .tsv", "align", *files, "--out", str(tmp_path / "pairs.docx"))


def test_folders_are_paired_by_name(tmp_path: Path) -> None:
    pairs = [[(s.capitalize() + "!", t.capitalize() + "!") for s, t in pairs_of(30, n)] for n in range(3)]
    for number in range(3):
        for code, side in zip(("en", "de"), sides_of(pairs[number]), strict=True):
            (tmp_path / code).mkdir(exist_ok=True)
            # One sentence per line; paragraphs of one line; paragraphs of wrapped lines.
            paragraphs = [" ".join(side[at : at + 5]) for at in range(0, 30, 5)] if number else side
            filled = (fill(text, 60) if number == 2 else text for text in paragraphs)
            text = ("\n\n" if number else "\n").join(filled)
            (tmp_path / code / f"chapter{number}_{code}.txt").write_text(text)
    (tmp_path / "en" / "chapter9.txt").write_text("only here")
    out = tmp_path / "pairs.tsv"
    sides = ["--source", str(tmp_path / "en"), "--target", str(tmp_path / "de")]
    found = json.loads(succeed("align", *sides, "--out", str(out), "--json").out)
    assert found["beads"] == {"1-1": 90}
    assert found["left_out"] == {"chapter9": ALONE}
    lines = [line.split("\t") for line in out.read_text().splitlines()]
    assert [tuple(line[1:]) for line in lines] == [pair for chapter in pairs for pair in chapter]
    assert {line[0] for line in lines} == {"chapter0", "chapter1", "chapter2"}
    asked = ("align", *sides[:2], "--target", tmp_path, "--out")
    must_refuse("no source and target file have the same name", *asked, tmp_path / "new.tsv")
    must_refuse("pairs.tsv: would overwrite an input file", *asked, out)


def test_a_run_is_asked_and_long_sentences_are_no_error(world: World, tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text("Dear all,\nthank you for the letter of last week.\n")
    (tmp_path / "a.de").write_text("Liebe alle,\nDanke für den Brief von letzter Woche.\n" + "Wort " * 3000)
    files = ["--source", str(tmp_path / "a.en"), "--target", str(tmp_path / "a.de"), "--run", str(world.run)]
    out = tmp_path / "x.tsv"
    found = json.loads(succeed("align", *files, "--out", str(out), "--json").out)
    assert sum(found["beads"].values()) == 2
