"""Sentences ranked by gains that are known, word lists, and weights that follow."""

import json
from pathlib import Path
from typing import Any

import pytest
from tiny import PlainWordTokenizer

from cotext.analysis.corpus_texts import digest_of_texts
from cotext.analysis.marked_words import MarkedWords, read_marked_words
from cotext.analysis.selection import (
    Criterion,
    Selection,
    effective_share,
    read_figures,
    select,
    training_weights,
)
from cotext.data.documents import ParallelDocument
from cotext.runtime.errors import CotextError

TOKENIZER = PlainWordTokenizer(["er", "sie", "es", "läuft", "schläft", "rot", "ist"])
# Two documents of one name, as a file of text may have them.
DOCUMENTS = [
    ParallelDocument("d", ("it runs", "it sleeps", "red"), ("er läuft", "sie schläft", "rot")),
    ParallelDocument("d", ("it is red", "", "runs"), ("Es ist rot", "", "läuft")),
]
# Log p with context minus without, of the words and the end, for every sentence of both documents.
GAINS = [[0.0, 0.0, 0.0], [2.0, -0.5, 0.1], [0.4, 0.2], [0.25, 0.5, 0.75, 0.0], [], [-1.0, -0.25]]
CONTEXT = [0, 1, 2, 1, 0, 2]


def figures(**changed: Any) -> dict[str, Any]:
    places = [("d", 1), ("d", 2), ("d", 3), ("d", 1), ("d", 2), ("d", 3)]
    return {
        "format": "cotext-cxmi",
        "version": 1,
        "signature": "model:tiny",
        "texts": digest_of_texts(DOCUMENTS),
        "sentences": [
            {"document": name, "sentence": number, "context": context, "tokens": gains}
            for (name, number), context, gains in zip(places, CONTEXT, GAINS, strict=True)
        ],
        **changed,
    }


def ranked(criterion: Criterion) -> tuple[Selection, list[tuple[int, int, float]]]:
    found = select(figures(), DOCUMENTS, TOKENIZER, criterion, "use.json")
    return found, [(each.document, each.sentence, pytest.approx(each.score)) for each in found.ranked]


def test_by_the_best_word_the_sum_and_the_mean() -> None:
    """A first sentence is not ranked, and no empty one."""
    assert ranked(Criterion("word"))[1] == [(0, 1, 2.0), (1, 0, 0.75), (0, 2, 0.4), (1, 2, -0.25)]
    assert ranked(Criterion("sentence"))[1] == [(0, 1, 1.6), (1, 0, 1.5), (0, 2, 0.6), (1, 2, -1.25)]
    assert ranked(Criterion("token"))[1] == [(0, 1, 1.6 / 3), (1, 0, 0.375), (0, 2, 0.3), (1, 2, -0.625)]


def test_marked_words_of_the_target_alone_count() -> None:
    pronouns = MarkedWords(["er", "sie", "es"])
    found, order = ranked(Criterion("sentence", target=pronouns))
    assert order == [(0, 1, 2.0), (1, 0, 0.25)]
    assert [word.text for word in found.ranked[1].words] == ["Es", "ist", "rot", "(end)"]
    assert [word.counts for word in found.ranked[1].words] == [True, False, False, False]
    assert found.signature == f"model:tiny|by:sentence|marked:target-{pronouns.digest}"
    assert pronouns.digest != MarkedWords(["er", "sie"]).digest
    assert pronouns.digest == MarkedWords(["es", "Sie", "er", "er"]).digest


def test_marked_words_of_the_source_choose_sentences() -> None:
    found, order = ranked(Criterion("word", source=MarkedWords(["it"])))
    assert order == [(0, 1, 2.0), (1, 0, 0.75)]
    assert found.ranked[0].marked == ("it",)
    with pytest.raises(CotextError, match="no sentence has both context and a marked word"):
        ranked(Criterion("word", source=MarkedWords(["nobody"])))


def test_words_are_found_as_words() -> None:
    text = "It's Sie, sie  und New York; Yorker in new york 彼は行く"
    found = MarkedWords(["it", "sie", "new york", "York", "New", "は"])
    assert [text[a:b] for a, b in found.spans(text)] == ["It", "Sie", "sie", "New York", "new york", "は"]
    assert MarkedWords(["er"]).spans("erst der er.") == [(9, 11)]
    assert MarkedWords(["er"]).spans("") == []


def test_words_are_found_however_they_are_written() -> None:
    """In capitals of two letters, and with accents that are characters of their own."""
    found = MarkedWords(["Straße", "fu\u0308r"])
    assert found.spans("STRASSE für, fu\u0308r") == [(0, 7), (8, 11), (13, 17)]
    assert found.digest == MarkedWords(["für", "straße"]).digest


def test_a_list_of_words(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("  er \n\nsie\n")
    assert read_marked_words(path).spans("sie er es") == [(0, 3), (4, 6)]
    path.write_text(" \n")
    with pytest.raises(CotextError, match=r"words.txt: holds no word"):
        read_marked_words(path)


def test_lines_and_table() -> None:
    found, _ = ranked(Criterion("word"))
    header, first, *others = found.rows()
    assert header["sentences"] == 6
    assert header["ranked"] == 1 + len(others) == 4
    assert first == {
        "rank": 1,
        "document": "d",
        "sentence": 2,
        "context": 1,
        "score": 2.0,
        "words": [
            {"text": "sie", "nats": 2.0},
            {"text": "schläft", "nats": -0.5},
            {"text": "(end)", "nats": 0.1},
        ],
        "counted": [0, 1, 2],
        "marked": [],
        "source": "it sleeps",
        "target": "sie schläft",
    }
    table = found.render(1)
    assert "+2.000  sie" in table
    assert "rot" not in table
    assert "4 of 6 sentences are ranked; 3 have a score above 0" in table
    # 2.0, 0.75, 0.4 and 0: the first half of four.
    assert found.held(0.5) == pytest.approx(2.75 / 3.15)


def test_weights_by_hand() -> None:
    """Half of all weight evenly, half by scores above 0, of which the mean over six sentences is 3.15 / 6."""
    found, _ = ranked(Criterion("word"))
    weights = [weight for _, of_document in training_weights(found, 0.5) for weight in of_document]
    gains = [0, 2.0, 0.4, 0.75, 0, 0]
    assert weights == pytest.approx([0.5 + 0.5 * gain / (3.15 / 6) for gain in gains])
    assert sum(weights) / 6 == pytest.approx(1)
    even = [w for _, ws in training_weights(found, 0.0) for w in ws]
    assert even == [1.0] * 6
    assert effective_share(even) == 1
    assert effective_share([1, 0, 0, 0]) == 0.25
    nowhere = select(figures(), DOCUMENTS, TOKENIZER, Criterion("word", target=MarkedWords(["läuft"])), "f")
    assert [each.score for each in nowhere.ranked] == [-1.0]
    with pytest.raises(CotextError, match="no sentence has a score above 0"):
        list(training_weights(nowhere, 0.5))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"texts": "0"}, "use.json: figures of other texts"),
        ({"sentences": []}, "use.json: damaged figures"),
        ({"sentences": [{"context": 1, "tokens": 3}] * 6}, "use.json: damaged figures"),
        ({"sentences": [{"context": 1, "tokens": [1.0]}] * 6}, "sentence 1: another number of tokens"),
        ({"sentences": [{"context": 1, "tokens": ["a", 1, 1]}] * 6}, "use.json: damaged figures"),
    ],
)
def test_figures_that_do_not_belong_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(CotextError, match=message):
        select(figures(**changed), DOCUMENTS, TOKENIZER, Criterion(), "use.json")


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "use.json"
    path.write_text(json.dumps({"format": "cotext-run"}))
    with pytest.raises(CotextError, match=r"use.json: not figures of `cotext cxmi --out`"):
        read_figures(path)
    with pytest.raises(CotextError, match=r"--by 'words': choose word, sentence, token"):
        Criterion("words")
