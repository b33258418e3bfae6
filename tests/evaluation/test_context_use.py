"""Edited documents, and what is measured on them: by hand where a fake system's probabilities are known."""

import math
from collections.abc import Sequence
from random import Random

import pytest

from cotext.config.recipe import Config
from cotext.data.context_edits import Excerpt, alone, excerpt, replaced, shuffled, without
from cotext.data.documents import Document, ParallelDocument
from cotext.evaluation.studies.context.context_use import (
    CONDITIONS,
    Pool,
    SentenceUse,
    check_conditions,
    conditions_of,
    excerpts,
    influences,
    mean_use,
    measure_group,
    score_excerpts,
    word_lengths,
)
from cotext.evaluation.studies.context.page import document_context_use
from cotext.runtime.progress import Meter
from cotext.runtime.rendering import marked
from cotext.translation.translator import DocumentTranslator
from tests.loops import loop_over
from tests.refusals import must_raise
from tests.tiny import PlainWordTokenizer, pieces, random_translator, tiny_config, window
from tests.translation.test_candidate_scoring import VIEWS

TOKENIZER = PlainWordTokenizer(["a", "b", "c", "d", "e", "f", "x", "y"])
DOCUMENT = ParallelDocument("d", tuple("abcdef"), tuple("ABCDEF"))


def letters(found: Excerpt) -> tuple[str, str, int]:
    return "".join(found.document.source), "".join(found.document.target), found.sentence


def test_excerpts_and_their_edits() -> None:
    """The drawing of the module: d sees b and c."""
    found = excerpt(DOCUMENT, range(1, 4), 3)
    assert letters(found) == ("bcd", "BCD", 2)
    assert found.context == (0, 1)
    assert found.numbers == (1, 2, 3)
    assert letters(without(found, 1)) == ("bd", "BD", 1)
    assert without(found, 1).numbers == (1, 3)
    assert letters(without(found, 0)) == ("cd", "CD", 1)
    assert letters(alone(found)) == ("d", "D", 0)
    assert letters(shuffled(found, Random(0))) == ("cbd", "CBD", 2)
    assert letters(replaced(found, [("x", "X")], Random(0))) == ("xxd", "XXD", 2)
    assert replaced(found, [("x", "X")], Random(0)).numbers == (None, None, 3)
    found = excerpt(DOCUMENT, range(1, 5), 2)
    assert letters(without(found, 3)) == ("bcd", "BCD", 1)
    found = excerpt(DOCUMENT, range(2, 4), 3, whole=True)
    assert found.context == (2,)
    assert letters(alone(found)) == ("abdef", "ABDEF", 2)
    assert letters(replaced(found, [("x", "X")], Random(1))) == ("abxdef", "ABXDEF", 3)
    found = excerpt(ParallelDocument("d", ("a", " ", "c"), ("A", "", "C")), range(3), 2)
    assert found.context == (0,)
    assert letters(alone(found)) == (" c", "C", 1)
    found = excerpt(DOCUMENT, range(1, 4), 3)
    must_raise("sentence 3 is not context", without, found, 2)
    must_raise("no sentences of other documents", replaced, found, [], Random(0))
    must_raise("sentence 6 is not among the visible sentences 2 to 4", excerpt, DOCUMENT, range(1, 4), 5)
    assert replaced(alone(found), [], Random(0)) == alone(found)


class Clues:
    """Sees `before` sentences. `it` has a probability of 1/2 beside a sentence `clue`, of 1/8 without one,

    and of 1/16 beside `trap`; every other token has 1/4, and the end of a sentence 1.
    """

    def __init__(self, before: int) -> None:
        self.before = before
        self.read: list[int] = []

    def visible_sentences(self, document: Document) -> list[range]:
        return [range(max(0, j - self.before), j + 1) for j in range(len(document))]

    def score_tokens(
        self, documents: Sequence[tuple[ParallelDocument, Sequence[int]]]
    ) -> list[list[tuple[float, ...]]]:
        self.read.append(len(documents))
        return [[self._score(d, j) for j in chosen] for d, chosen in documents]

    def _score(self, document: ParallelDocument, j: int) -> tuple[float, ...]:
        seen = document.source[max(0, j - self.before) : j]
        it = 1 / 16 if "trap" in seen else 1 / 2 if "clue" in seen else 1 / 8
        words = document.target[j].split()
        return (*(math.log(it if word == "it" else 1 / 4) for word in words), 0.0)


def measured(scorer: Clues | DocumentTranslator, documents: Sequence[ParallelDocument]) -> list[SentenceUse]:
    return measure_group(scorer, documents, range(len(documents)), Pool(documents), CONDITIONS, 1)


STORY = ParallelDocument(
    "s", ("clue", "other", "say it", "other", "say it"), ("x", "x", "x it", "x", "it x it")
)
TRAPS = ParallelDocument("t", ("trap", "trap"), ("x", "it"))


def test_cxmi_by_hand() -> None:
    found = measured(Clues(2), [STORY, TRAPS])
    assert [(s.document, s.number, s.context) for s in found] == [
        *(("s", j, min(j, 2)) for j in range(5)),
        ("t", 0, 0),
        ("t", 1, 1),
    ]
    # `say it` sees the clue: log 1/2 - log 1/8. The last one does not. The trap leads astray.
    values = [0, 0, math.log(4), 0, 0, 0, -math.log(2)]
    assert [s.cxmi() for s in found] == pytest.approx(values)
    assert found[2].token_cxmi() == pytest.approx((0, math.log(4), 0))
    # In another order both are still seen; sentences of the other document are all traps.
    assert [s.cxmi("shuffled") for s in found] == pytest.approx(values)
    assert [s.cxmi("random") for s in found[:5]] == pytest.approx([0, 0, -math.log(2), 0, -2 * math.log(2)])
    assert all(s.cxmi("none") == 0 for s in found)
    mean = mean_use(found, "true")
    # Five sentences have context, of 2 + 3 + 2 + 4 + 2 tokens.
    assert (mean.sentences, mean.tokens) == (5, 13)
    assert mean.per_sentence == pytest.approx(math.log(2) / 5)
    assert mean.per_token == pytest.approx(math.log(2) / 13)
    assert mean.share_above == pytest.approx(1 / 5)


def test_random_context_is_of_other_documents_and_depends_on_the_seed_alone() -> None:
    def drawn(seed: int, documents: Sequence[ParallelDocument]) -> list[dict[str, Excerpt]]:
        others = [("y", "Y"), ("z", "Z"), ("w", "W")]
        return conditions_of(excerpts(Clues(4), documents[0]), CONDITIONS, others, seed)

    assert drawn(1, [STORY]) == drawn(1, [STORY, TRAPS])
    assert drawn(1, [STORY]) != drawn(2, [STORY])
    empty = ParallelDocument("e", ("", "a"), ("", ""))
    pool = Pool([TRAPS, empty, DOCUMENT, STORY])
    assert pool.without(0)[:2] == [("a", "A"), ("b", "B")]
    both = zip(TRAPS.source + STORY.source, TRAPS.target + STORY.target, strict=True)
    assert pool.without(2) == list(both)
    assert len(pool.without(1)) == 2 + 6 + 5


def test_influences_by_hand() -> None:
    found = influences(Clues(2), STORY)
    assert [[i.number for i in each.influences] for each in found] == [[], [0], [0, 1], [1, 2], [2, 3]]
    [clue, other] = found[2].influences
    assert clue.tokens == pytest.approx((0, math.log(4), 0))
    assert (clue.nats, clue.change) == pytest.approx((math.log(4), math.log(4)))
    assert other.tokens == pytest.approx((0, 0, 0))
    assert found[2].most == clue
    assert found[0].most is None
    trapped = influences(Clues(2), TRAPS)[1].influences[0]
    assert (trapped.nats, trapped.change) == pytest.approx((-math.log(2), math.log(2)))


def test_equal_documents_are_read_once() -> None:
    """Sentences that see the whole document share it, and each document without one of its sentences."""

    class Everything(Clues):
        def visible_sentences(self, document: Document) -> list[range]:
            return [range(len(document))] * len(document)

    scorer = Everything(9)
    influences(scorer, DOCUMENT)
    assert scorer.read == [1 + 6 + 6]  # whole, without one, alone


def test_conditions_that_cannot_be_had() -> None:
    must_raise("other documents, but there is only one", check_conditions, CONDITIONS, 1)
    must_raise("choose true, too", check_conditions, ["none"], 1)
    found = measure_group(Clues(2), [STORY], [0], Pool([STORY]), ["true"], 1)
    assert set(found[0].tokens) == {"true", "none"}
    use = SentenceUse("d", 0, 0, {"true": (0.0,), "none": (0.0,)})
    must_raise("no sentence has context", mean_use, [use], "true")


@loop_over(
    ("texts", "lengths"),
    [
        (["Der", "Der T", "Der Tisch", "Der Tisch ist"], [1, 2, 1]),
        (["D", "De", "Der"], [1, 1, 1]),  # one word: each token by itself
        (["", "Ja", "Ja nein"], [2, 1]),
        (["a", "a b", "a-b", "a-b c"], [1, 3]),  # pieces that are put together again
        ([], []),
    ],
)
def test_word_lengths(texts: list[str], lengths: list[int]) -> None:
    found = word_lengths(lambda ids: texts[len(ids) - 1], list(range(len(texts))))
    assert found == lengths
    assert sum(found) == len(texts)


def test_marked_words() -> None:
    assert marked("er ist <b>", "sie ist <b>") == "<mark>er</mark> ist &lt;b&gt;"


LONG = ParallelDocument(
    "l", ("a b", "c", "", "d e f", "a", "b b", "f"), ("x", "y x", "", "x x", "a y", "y", "b x")
)
FURTHER: dict[str, Config] = {
    "future": tiny_config(view=window(1, after=2)),
    "rows that see each other": tiny_config(model={"batch_context": "flat"}, decode={"group_windows": 3}),
    "such rows, with context": tiny_config(
        view=window(1), model={"batch_context": "flat"}, decode={"group_windows": 3}
    ),
    "parts, of pieces": tiny_config(view=pieces(14, parts=2)),
}
SYSTEMS = {**VIEWS, **FURTHER}


@loop_over("name", SYSTEMS)
def test_in_its_excerpt_a_sentence_is_what_it_is_in_its_document(name: str) -> None:
    t = random_translator(SYSTEMS[name], TOKENIZER)
    [whole], [sentences] = t.score_tokens([(LONG, range(len(LONG)))]), t.score([LONG])
    for found, expected in zip(score_excerpts(t, excerpts(t, LONG)), whole, strict=True):
        assert found == pytest.approx(expected, abs=1e-9)
    assert [(len(s), sum(s)) for s in whole] == [
        (s.tokens, pytest.approx(s.log_probability)) for s in sentences
    ]
    assert t.score_tokens([(LONG, (3, 2))])[0] == [pytest.approx(whole[3]), ()]


@loop_over("name", SYSTEMS)
def test_a_sentence_sees_what_it_reaches_and_nothing_else(name: str) -> None:
    t = random_translator(SYSTEMS[name], TOKENIZER)
    sees = t.visible_sentences(Document("l", LONG.source))
    [before] = t.score_tokens([(LONG, range(len(LONG)))])
    for j in (0, 1, 3, 4, 5, 6):
        source = list(LONG.source)
        source[j] = " ".join("e" for _ in source[j].split())
        if tuple(source) == LONG.source:
            continue
        [after] = t.score_tokens([(ParallelDocument("l", tuple(source), LONG.target), range(len(LONG)))])
        for i, (a, b) in enumerate(zip(before, after, strict=True)):
            moved = a != pytest.approx(b, abs=1e-9)
            assert moved <= (j in sees[i] and bool(a)), (i, j)
            # Other rows may show less than they see.
            assert name == "such rows, with context" or moved == (j in sees[i] and bool(a)), (i, j)


def test_a_report_agrees_with_the_scores() -> None:
    t = random_translator(SYSTEMS["window"], TOKENIZER)
    report = document_context_use(t, LONG, "signature", False, Meter("", 0, None, shown=False))
    assert [s.number for s in report.sentences] == [1, 2, 3, 4, 5, 6, 7]
    [whole] = t.score([LONG])
    for sentence, score in zip(report.sentences, whole, strict=True):
        j = sentence.number - 1
        bare = t.score([ParallelDocument("", (LONG.source[j],), (LONG.target[j],))])[0][0]
        assert sentence.cxmi == pytest.approx(score.log_probability - bare.log_probability)
        assert sum(w.nats for w in sentence.words) == pytest.approx(sentence.cxmi)
        assert [w.text for w in sentence.words] == (
            [*LONG.target[j].split(), "(end)"] if score.tokens else []
        )
        assert [i.change for i in sentence.influences] == sorted(
            (i.change for i in sentence.influences), reverse=True
        )
    # The last sentence without the one before it: b b is sentence 6, and windows have two sentences before.
    last = {i.number: i.nats for i in report.sentences[6].influences}
    shorter = ParallelDocument("", (LONG.source[4], LONG.source[6]), (LONG.target[4], LONG.target[6]))
    assert last[6] == pytest.approx(whole[6].log_probability - t.score([shorter])[0][1].log_probability)
    assert set(last) == {5, 6}
