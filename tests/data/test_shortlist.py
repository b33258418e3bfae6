"""Lexical shortlists: what is learned from sentence pairs, what a sentence gets, and files of it."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from cotext.data import shortlist
from cotext.data.shortlist import Shortlist, coverage, learned_shortlist
from cotext.data.store import TokenStore, store_writer
from tests.refusals import must_raise
from tests.tiny import WordTokenizer

TOKENIZER = WordTokenizer(("the", "cat", "sat", "die", "katze", "sass", "hund", "dog"))
the, cat, sat, die, katze, sass, hund, dog = range(4, 12)
Pairs = list[tuple[list[int], list[int]]]
PAIRS: Pairs = [
    ([the, cat, sat], [die, katze, sass]),
    ([the, dog, sat], [die, hund, sass]),
    ([the, cat], [die, katze]),
    ([], [die]),
    ([dog, dog], [hund]),
]


def store(path: Path, pairs: Pairs = PAIRS, made_with: str = "words") -> TokenStore:
    with store_writer(path / "train.arrow", made_with) as writer:
        writer.add("d", [source for source, _ in pairs], [target for _, target in pairs])
    return TokenStore(path / "train.arrow")


def in_loops(rounds: int) -> dict[int, dict[int, float]]:
    """IBM Model 1 as in Brown et al. 1993, with a source token -1 in every pair."""
    p: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(lambda: 1.0))
    for _ in range(rounds):
        counts: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        for source, target in PAIRS:
            sources = [-1, *dict.fromkeys(source)] if source else []
            for t in set(target) if sources else ():
                total = sum(p[s][t] for s in sources)
                for s in sources:
                    counts[s][t] += p[s][t] / total
        p = defaultdict(lambda: defaultdict(float))
        for s, row in counts.items():
            for t, count in row.items():
                p[s][t] = count / sum(row.values())
    return p


def test_probabilities_are_those_of_model_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortlist, "_LEAST", 0.0)
    pairs = [(np.array(s), np.array(t)) for s, t in PAIRS if s]
    model = shortlist._Model1(pairs, 12, 12)
    for rounds in (1, 2, 3):
        model.improve()
        expected = in_loops(rounds)
        for source, (tokens, probability) in model.rows.items():
            found = dict(zip(tokens.tolist(), probability.tolist(), strict=True))
            assert found == pytest.approx({t: p for t, p in expected[source].items() if p > 0})


def test_a_translation_is_among_the_candidates_and_stored(tmp_path: Path) -> None:
    made = learned_shortlist(store(tmp_path), TOKENIZER)
    for source, target in ((cat, katze), (dog, hund), (the, die), (sat, sass)):
        # The token itself is first, for names; then the most probable one.
        assert made.candidates[source, :2].tolist() == [source, target]
    assert made.frequent.tolist() == [die, katze, sass, hund]
    assert made.candidates[0, :2].tolist() == [0, -1]  # never seen
    made = learned_shortlist(store(tmp_path), TOKENIZER)
    made.save(tmp_path / "s")
    found = Shortlist.load(tmp_path / "s", TOKENIZER)
    assert np.array_equal(found.candidates, made.candidates)
    assert np.array_equal(found.frequent, made.frequent)


def test_candidates_of_a_row_and_coverage(tmp_path: Path) -> None:
    made = Shortlist("words", np.array([[0, -1], [1, 7], [6, 5]], np.int32), np.array([3], np.int32))
    assert made.of([1, 2], 2).tolist() == [1, 3, 5, 6, 7]
    assert made.of([1, 2], 1).tolist() == [1, 3, 6]
    assert made.of([0], 2).tolist() == [0, 3]
    assert made.of([40], 2).tolist() == [3]  # a symbol that the table does not have
    made = Shortlist("words", np.full((12, 1), -1, np.int32), np.array([die, katze], np.int32))
    found = coverage(made, store(tmp_path), 1, TOKENIZER)
    assert (found.tokens, found.sentences, found.size) == pytest.approx((100 * 5 / 9, 25, 2))


def test_another_tokenizer_and_damaged_files_are_refused(tmp_path: Path) -> None:
    must_raise("another tokenizer", learned_shortlist, store(tmp_path, made_with="other"), TOKENIZER)
    must_raise("no sentence pair", learned_shortlist, store(tmp_path, [([], [die])]), TOKENIZER)
    path, frequent = tmp_path / "s", np.array([2], np.int32)
    Shortlist("other", np.zeros((3, 1), np.int32), frequent).save(path)
    must_raise("another tokenizer", Shortlist.load, path, TOKENIZER)
    size = TOKENIZER.source_vocabulary_size
    whole = Shortlist("words", np.zeros((size, 1), np.int32), frequent)
    whole.save(path)
    assert Shortlist.load(path, TOKENIZER).frequent.tolist() == [2]
    wrongs = (
        np.full((size, 1), TOKENIZER.pieces, np.int32),
        np.full((size, 1), -2, np.int32),
        np.zeros(size, np.int32),
        np.zeros((size - 1, 1), np.int32),  # the last token would have no candidates
        np.array(0, np.int32),
    )
    for wrong in wrongs:
        Shortlist("words", wrong, frequent).save(path)
        must_raise("damaged", Shortlist.load, path, TOKENIZER)
    path.write_bytes(path.read_bytes()[:50])
    must_raise("damaged", Shortlist.load, path, TOKENIZER)
