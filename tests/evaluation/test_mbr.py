"""Minimum Bayes risk: counts and scores are sacrebleu's, choices those of the definition."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.chrf import CHRF

from cotext.data.nbest_lists import Candidate, Candidates
from cotext.evaluation.metrics.bleu import chrf_utilities
from cotext.evaluation.statistics.sufficient_statistics import chrf_pairs, shared
from cotext.evaluation.studies.evaluate.mbr_files import Pool, decide, pooled
from tests.refusals import must_raise

WORDS = ["der", "die", "Katze", "Katzen", "sieht", "sieht,", "Hund", ".", "ä", "1,5"]
texts = st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)


def lists(*scored: tuple[str, float]) -> Candidates:
    return tuple(Candidate(text, score, score / 2) for text, score in scored)


@pytest.mark.parametrize("lowercase", [False, True])
@settings(max_examples=15, derandomize=True)
@given(candidates=st.lists(texts, min_size=1, max_size=6))
def test_counts_and_scores_of_pairs_are_those_of_sacrebleu(lowercase: bool, candidates: list[str]) -> None:
    metric = CHRF(lowercase=lowercase)
    counts = chrf_pairs(metric, candidates)
    utilities = chrf_utilities(metric, candidates)
    for h, hypothesis in enumerate(candidates):
        for r, reference in enumerate(candidates):
            own = CHRF(lowercase=lowercase)
            [expected] = own._extract_corpus_statistics([hypothesis], [[reference]])
            assert counts[h, r].tolist() == expected
            assert utilities[h, r] == pytest.approx(own._aggregate_and_compute([expected]).score, abs=1e-9)


def test_the_smaller_count_is_shared() -> None:
    found = shared([Counter("aab"), Counter("ab"), Counter("aaac"), Counter()])
    assert found.tolist() == [[3, 2, 2, 0], [2, 2, 1, 0], [2, 1, 4, 0], [0, 0, 0, 0]]


def test_a_choice_worked_by_hand() -> None:
    """What most agree with, though no system ranks it first; the third column is what weights make of it."""
    utility = np.array([[10.0, 2.0, 0.0], [4.0, 10.0, 4.0], [0.0, 2.0, 10.0]])
    even = Pool(("a", "b", "c"), np.full((1, 3), 1 / 3))
    first = Pool(("a", "b", "c"), np.array([[0.9, 0.05, 0.05]]))
    # 0.9 * 10 + 0.05 * 2 = 9.1, and (4 + 10 + 4) / 3 = 6; of the first ones 9.1 and (10 + 2 + 0) / 3 = 4.
    for pool, chosen, best, of_first in ((first, 0, 9.1, 9.1), (even, 1, 6.0, 4.0)):
        decision = decide(pool, utility)
        assert decision.chosen == chosen
        assert (decision.utility, decision.utility_of_first) == pytest.approx((best, of_first))
    utility = np.array([[5.0, 1.0], [1.0, 5.0 + 1e-13]])
    assert decide(Pool(("a", "b"), np.full((1, 2), 0.5)), utility).chosen == 0


def test_probabilities_of_lists() -> None:
    one, two = lists(("a", np.log(0.6)), ("b", np.log(0.2)), ("c", np.log(0.2))), lists(("c", -9), ("d", -9))
    pool = pooled([one, two], "uniform")
    assert pool.texts == ("a", "b", "c", "d")
    assert pool.probability.tolist() == [[1 / 3, 1 / 3, 1 / 3, 0], [0, 0, 0.5, 0.5]]
    assert pool.probability.mean(axis=0) == pytest.approx([1 / 6, 1 / 6, 5 / 12, 1 / 4])
    assert pooled([one], "scores").probability[0] == pytest.approx([0.6, 0.2, 0.2])
    unknown = (Candidate("a", float("nan"), float("nan")), Candidate("b", -1, -1))
    must_raise("--probabilities uniform", pooled, [unknown], "scores")
    assert pooled([unknown[:1]], "scores").probability.tolist() == [[1.0]]
