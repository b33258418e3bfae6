"""Paired tests over documents and seeds: against sacrebleu, exact enumeration, and by hand."""

import math
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest as SacrebleuTest

from cotext.evaluation.statistics.significance import (
    ALL_PATTERNS,
    Difference,
    McNemar,
    PairedTest,
    Resampling,
    are_too_few,
    bootstrap_scores,
    compare_accuracies,
    compared_pairs,
    flipped_counts,
    flipped_sums,
    holm,
    mcnemar,
    paired_test,
    percentiles,
    student_p,
    student_quantile,
    swapped_differences,
    swapped_p,
)
from cotext.evaluation.statistics.sufficient_statistics import Floats, Statistics, share, sum_scorer
from tests.loops import loop_over
from tests.refusals import must_raise

WORDS = list("abcdefghijklmnopqrst.")
METRICS = {"BLEU": BLEU(force=True), "chrF2": CHRF(), "TER": TER()}


def test_an_interval_leaves_out_as_much_on_both_sides() -> None:
    assert percentiles(np.arange(1001.0)) == (25, 975)


def corpora(sentences: int, seed: int, *error_rates: float) -> tuple[list[str], list[list[str]]]:
    """A reference and hypotheses that have each word wrong with a given probability."""
    generator = random.Random(seed)
    reference = [" ".join(generator.choices(WORDS, k=generator.randint(5, 15))) for _ in range(sentences)]
    hypotheses = [
        [
            " ".join(generator.choice(WORDS) if generator.random() < rate else word for word in line.split())
            for line in reference
        ]
        for rate in error_rates
    ]
    return reference, hypotheses


def counted(metric: BLEU | CHRF | TER, hypothesis: list[str], reference: list[str]) -> Statistics:
    rows = metric._extract_corpus_statistics(hypothesis, [reference])
    return Statistics(np.array(rows, dtype=float), np.arange(len(rows)), "sentence", sum_scorer(metric))


def paired(systems: dict[str, Statistics], **settings: object) -> PairedTest:
    return paired_test({n: [s] for n, s in systems.items()}, None, Resampling(**settings))


def apart(one: Statistics, other: Statistics, **settings: object) -> Difference:
    return paired({"a": one, "b": other}, **{"unit": "sentence", **settings}).differences["a", "b"]


counts = st.integers(0, 6)


@settings(max_examples=200)
@given(
    arrays.arrays(float, (5, 4), elements=counts),
    arrays.arrays(float, (5, 4), elements=counts),
    arrays.arrays(float, (5, 1), elements=counts),
    st.booleans(),
)
def test_bleu_of_missing_n_grams(matched: Floats, more: Floats, reference: Floats, exponential: bool) -> None:
    metric = BLEU(smooth_method="exp" if exponential else "none")
    # Totals cannot rise with the order, nor lie below the matches.
    total = np.maximum.accumulate((matched + more)[:, ::-1], axis=1)[:, ::-1]
    rows = np.concatenate([total[:, :1], reference, matched, total], axis=1)
    expected = [metric._compute_score_from_stats(row.tolist()).score for row in rows]
    assert sum_scorer(metric)(rows) == pytest.approx(expected, abs=1e-9)


@settings(max_examples=100)
@given(arrays.arrays(float, (4, 18), elements=counts), arrays.arrays(float, (4, 2), elements=counts))
def test_chrf_and_ter_where_counts_are_missing(triples: Floats, edits: Floats) -> None:
    triples = triples.reshape(4, 6, 3)
    triples[..., 2] = np.minimum(triples[..., 2], np.minimum(triples[..., 0], triples[..., 1]))
    for metric, rows in ((METRICS["chrF2"], triples.reshape(4, 18)), (METRICS["TER"], edits)):
        expected = [metric._compute_score_from_stats(row.tolist()).score for row in rows]
        assert sum_scorer(metric)(rows) == pytest.approx(expected, abs=1e-9)


def test_counts_by_document() -> None:
    rows = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    statistics = Statistics(rows, np.array([0, 0, 1]), "sentence", lambda sums: sums[:, 0])
    assert statistics.by("document")[0].tolist() == [[4.0, 6.0], [5.0, 6.0]]
    assert statistics.by("sentence")[0] is rows
    whole = Statistics(rows, np.arange(3), "document", lambda sums: sums[:, 0])
    assert whole.by("sentence") == (rows, "document")
    # Three of four documents have no term; samples of these have no score.
    terms = Statistics(np.eye(2)[[0, 1, 1, 1]][:, :1].repeat(2, 1), np.arange(4), "document", share(0, 1))
    [drawn] = bootstrap_scores([terms], Resampling())
    assert set(drawn) == {100.0}
    assert len(drawn) == pytest.approx(10_000 * (1 - 0.75**4), rel=0.03)


@loop_over("chunk", [50, 2_000_000])
@loop_over("name", ["BLEU", "chrF2", "TER"])
def test_the_samples_are_sacrebleus(name: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotext.evaluation.statistics.significance._DRAWS_AT_ONCE", chunk)
    reference, (one, other) = corpora(40, 2, 0.30, 0.33)
    metric = METRICS[name]
    first, second = counted(metric, one, reference), counted(metric, other, reference)
    observed = second.score - first.score
    same = {"n_samples": 300, "metrics": {name: metric}, "references": [reference]}
    with patch.dict(os.environ, {"SACREBLEU_SEED": "7"}):
        _, swapped = SacrebleuTest([("one", one), ("other", other)], test_type="ar", **same)()
        _, drawn = SacrebleuTest([("one", one), ("other", other)], test_type="bs", **same)()
    resampling = Resampling(unit="sentence", samples=300, seed=7)

    differences = swapped_differences(first, second, resampling)
    # sacrebleu leaves out samples that differ exactly as much as observed.
    strict = (np.sum(abs(differences) > abs(observed) + 1e-9) + 1) / 301
    assert swapped[name][1].p_value == pytest.approx(strict)
    assert strict <= swapped_p(differences, observed) <= strict + 0.02

    _, ours_other = bootstrap_scores([first, second], resampling)
    assert drawn[name][1].mean == pytest.approx(ours_other.mean(), rel=1e-6)  # it adds in 32 bits
    ordered = np.sort(ours_other)
    assert drawn[name][1].ci == pytest.approx((ordered[300 - 7 - 1] - ordered[7]) / 2, rel=1e-5)


def test_randomisation_against_all_swaps() -> None:
    gains = [0.3, 0.1, 0.4, -0.2, 0.15, 0.25, 0.05, -0.1]
    one, other = means([0.0] * 8), means(gains)
    sums = [sum(s * g for s, g in zip(signs, gains, strict=True)) for signs in product((1, -1), repeat=8)]
    exact = sum(abs(value) >= sum(gains) - 1e-12 for value in sums) / 2**8
    found = apart(one, other, samples=20_000)
    # Three standard errors of a share among 20,000.
    assert found.p == pytest.approx(exact, abs=3 * math.sqrt(exact * (1 - exact) / 20_000))
    assert found.difference == pytest.approx(sum(gains) / 8)


def test_documents_are_more_careful_than_sentences() -> None:
    # Ten documents of twenty sentences that are all better or all worse: the sentences repeat each other.
    gains = [1, 1, 1, 1, 1, 1, 1, 1, -1, -1]
    values = [0.5 * gain for gain in gains for _ in range(20)]
    place = np.repeat(np.arange(10), 20)
    one, other = means([0.0] * 200), means(values)
    systems = {"a": replace(one, document=place), "b": replace(other, document=place)}
    by_document, by_sentence = (paired(systems, unit=u, samples=2000) for u in ("document", "sentence"))
    assert (by_document.units, by_sentence.units) == (10, 200)
    # Signs of ten: at least 8 alike on either side, 2 * (1 + 10 + 45) / 1024.
    assert by_document.differences["a", "b"].p == pytest.approx(112 / 1024, abs=0.03)
    assert by_sentence.differences["a", "b"].p < 0.001


def test_holm_and_pairs_by_hand() -> None:
    # 0.01 * 4, 0.02 * 3, then 0.03 * 2 = 0.06 (not below 0.06), then 0.5.
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([0.2]) == [0.2]
    assert holm([]) == []
    assert (swapped_p(np.zeros(99), 1.0), swapped_p(np.full(99, np.nan), 1.0)) == (1 / 100, 1.0)
    assert compared_pairs(["a", "b", "c"], None) == [("a", "b"), ("a", "c"), ("b", "c")]
    assert compared_pairs(["a", "b", "c"], "b") == [("b", "a"), ("b", "c")]
    must_raise("no system 'x' to compare with; systems are a, b", compared_pairs, ["a", "b"], "x")
    must_raise("at least two", compared_pairs, ["a"], None)
    assert apart(means([1.0, 2.0]), means([1.0, 2.0]), samples=200) == Difference(0.0, (0.0, 0.0), 1.0)
    must_raise("at least two units", apart, means([1.0]), means([2.0]))


def by_case(baseline: list[bool], system: list[bool]) -> McNemar:
    """The test if each case is a document."""
    return mcnemar(baseline, system, range(len(baseline)))


def test_mcnemar_by_hand() -> None:
    # 10 cases: 4 both right, 1 the baseline alone, 5 the system alone. Of 6 tosses at most 1: 7 / 64.
    baseline = [True] * 5 + [False] * 5
    system = [True] * 4 + [False] + [True] * 5
    found = by_case(baseline, system)
    assert (found.only_baseline, found.only_system) == (1, 5)
    assert found.p_mid == pytest.approx(2 * (1 + 6 / 2) / 64)
    assert found.difference == pytest.approx(40.0)
    assert by_case([True, False], [False, True]).p_mid == 1.0


def mid_p(differences: list[int]) -> tuple[float, float]:
    """Over all patterns of signs, one by one: the exact p-value and mid-p."""
    observed = abs(sum(differences))
    sums = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in product((1, -1), repeat=len(differences))
    ]
    more, same = (sum(map(test, sums)) / len(sums) for test in (observed.__lt__, observed.__eq__))
    # Where the sum is 0 every pattern is at least as far from 0, and the two tails meet.
    return more + same, more + same / 2 if observed else 1.0


@settings(max_examples=60)
@given(st.lists(st.integers(-4, 4), max_size=9))
def test_every_pattern_of_signs_is_counted(differences: list[int]) -> None:
    exact, mid = mid_p(differences)
    assert flipped_counts(differences) == pytest.approx(mid)
    assert flipped_sums(differences, 1000, 1) == pytest.approx(exact)


def test_flipped_signs_by_hand() -> None:
    # Documents that win 3 and 2 and lose 1: of 8 patterns +-6 (2), +-4 (2) reach 4.
    assert flipped_counts([3, 2, -1]) == pytest.approx(3 / 8)
    assert flipped_sums([3.0, 2.0, -1.0], 100, 1) == 4 / 8
    assert flipped_counts([0, 0]) == 1.0
    for count in range(1, 12):
        assert are_too_few(count, 2) == (2 * flipped_sums([0.5] * count, 100, 1) >= 0.05)
        assert are_too_few(count, 2, mid_p=True) == (2 * flipped_counts([1] * count) >= 0.05)
    values = [0.5] * 40 + [-0.5] * 20
    # At most 20 of 60 tosses, on either side.
    tail = 2 * sum(math.comb(60, k) for k in range(21)) / 2**60
    assert flipped_sums(values, 20_000, 1) == pytest.approx(tail, abs=2e-3)
    assert flipped_sums([1.0] * 40, 999, 1) == 1 / 1000
    assert len(values) > ALL_PATTERNS


def test_documents_count_more_than_examples() -> None:
    """Eight documents of ten examples that are all won, and two that are all lost."""
    one = [False] * 80 + [True] * 20
    other = [not value for value in one]
    documents = [place // 10 for place in range(100)]
    by_document, by_example = mcnemar(one, other, documents), by_case(one, other)
    # At most two of ten tosses, on either side, the observed outcome half: (2 * (1 + 10 + 45) - 45) / 1024.
    assert by_document.p_mid == pytest.approx(67 / 1024)
    assert by_example.p_mid < 1e-6
    assert by_document.difference == by_example.difference == 60.0


def test_an_interval_of_few_differences_is_no_point() -> None:
    for gained, documents in ((2, 2), (0, 500), (4, 500)):
        found = by_case([False] * documents, [True] * gained + [False] * (documents - gained))
        low, high = found.interval_95
        assert low <= 0 < found.difference + 1e-9 < high + 1e-9 or gained == documents == 2
        assert low < high
        assert (low > 0) <= (found.p_mid < 0.05)


def test_the_interval_is_over_documents_as_the_test_is() -> None:
    """12 documents of five examples with 3 won and 2 lost, and one with 3 won and 1 lost.

    All documents are gains, so that p is 1 / 2 ** 13. Over examples, the interval would include 0.
    """
    other = [*([True] * 3 + [False] * 2) * 12, True, True, True, False, False]
    one = [*([False] * 3 + [True] * 2) * 12, False, False, False, True, False]
    documents = [place // 5 for place in range(65)]
    found = mcnemar(one, other, documents)
    assert found.p_mid == pytest.approx(2**-13)
    assert 10 < found.interval_95[0] < found.difference < found.interval_95[1] < 30
    low, high = by_case(one, other).interval_95
    assert low < 0 < found.difference < high
    assert mcnemar(one, other, [0] * 65).interval_95 == (-100.0, 100.0)
    low, high = mcnemar(one, one, range(65)).interval_95
    assert -low == high > 0


QUICK = Resampling(samples=200)


def means(values: Sequence[float] | Floats) -> Statistics:
    """A score that is the mean of values, one a document."""
    counts = np.stack([np.asarray(values, dtype=np.float64), np.ones(len(values))], axis=1)
    return Statistics(counts, np.arange(len(values)), "sentence", lambda sums: sums[:, 0] / sums[:, 1])


@loop_over(
    ("degrees", "quantile"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (10, 2.2281), (30, 2.0423), (1000, 1.9623)],
)
def test_student_t_is_that_of_the_tables(degrees: float, quantile: float) -> None:
    assert student_quantile(degrees) == pytest.approx(quantile, abs=1e-4)
    assert student_p(quantile, degrees) == pytest.approx(0.05, abs=1e-5)
    assert student_p(-quantile, degrees) == student_p(quantile, degrees)


def seeds_apart(first: list[Statistics], second: list[Statistics]) -> Difference:
    [found] = paired_test({"a": first, "b": second}, "a", QUICK).differences.values()
    return found


def test_the_interval_of_a_score_by_hand() -> None:
    """Three seeds without differences between documents: Student's t with two degrees of freedom."""
    seeds = [means([value] * 20) for value in (10.0, 12.0, 14.0)]
    low, high = paired_test({"a": seeds, "b": seeds}, "a", QUICK).intervals_95["a"]
    half = 4.3027 * 2 / math.sqrt(3)
    assert (low, high) == (pytest.approx(12 - half, abs=1e-3), pytest.approx(12 + half, abs=1e-3))


def test_the_interval_of_a_difference_is_of_the_same_documents() -> None:
    values = np.random.default_rng(1).normal(0, 1, 40)
    found = seeds_apart([means(values)], [means(values + 0.5)])
    assert found.interval_95 == pytest.approx((0.5, 0.5))


def test_single_seeds_are_compared_as_single_runs() -> None:
    """Without a test over seeds; seeds that repeat each other have the same difference."""
    draws = np.random.default_rng(1)
    one, other = means(draws.normal(0, 1, 40)), means(draws.normal(0.4, 1, 40))
    single, twice = seeds_apart([one], [other]), seeds_apart([one, one], [other, other])
    assert single.over_seeds is None
    assert (single.difference, single.p) == (pytest.approx(twice.difference), twice.p_documents)
    documents = [n // 2 for n in range(40)]
    first, second = ([bool(v > 0) for v in each.counts[:, 0]] for each in (one, other))
    alone = mcnemar(first, second, documents)
    found_choice = compare_accuracies([first], [second], documents)
    assert found_choice == Difference(alone.difference, alone.interval_95, alone.p_mid)


def test_errors_of_seeds_and_documents_by_hand() -> None:
    """Means 0, 2, 4 against 7, 9: s^2 are 4 and 2. Documents that all differ alike have no error."""
    first, own = ([means([level] * 10) for level in levels] for levels in ((0, 2, 4), (7, 9)))
    test = seeds_apart(first, own)
    over = test.over_seeds
    assert (test.difference, over.error_documents) == (6.0, 0.0)
    assert over.error_seeds == pytest.approx(math.sqrt(4 / 3 + 2 / 2))
    assert over.degrees == pytest.approx((4 / 3 + 1) ** 2 / ((4 / 3) ** 2 / 2 + 1 / 1))
    assert over.p == pytest.approx(student_p(6 / over.error_seeds, over.degrees))
    half = student_quantile(over.degrees) * over.error_seeds
    assert test.interval_95 == pytest.approx((6 - half, 6 + half))
    # The ten documents agree.
    assert test.p_documents == pytest.approx(1 / 201, abs=0.02)
    assert test.p == over.p > test.p_documents


def test_decisions_by_hand() -> None:
    """Four documents of two examples; of the first system both seeds have half of them right."""
    documents = [0, 0, 1, 1, 2, 2, 3, 3]
    first = [[True, False] * 4, [False, True] * 4]
    own = [[True] * 8, [True] * 6 + [False] * 2]
    test = compare_accuracies(first, own, documents)
    # Of each document, in examples: 1, 1, 1, 0; as means over seeds.
    assert test.difference == pytest.approx(100 * (3 * 1 + 0) / 8)
    assert test.p_documents == pytest.approx(2 / 8)
    over = test.over_seeds
    mean = 3 / 8
    squares = 3 * (1 - 2 * mean) ** 2 + (0 - 2 * mean) ** 2
    assert over.error_documents == pytest.approx(100 * math.sqrt(squares * 4 / 3) / 8)
    assert over.error_seeds == pytest.approx(math.sqrt(0 + 25.0**2 / 2 / 2))
    error = math.hypot(over.error_documents, over.error_seeds)
    assert over.p == pytest.approx(student_p(test.difference / error, over.degrees))


def test_a_single_run_is_taken_to_vary_as_the_other_system() -> None:
    first, own = [means([5.0] * 6)], [means([level] * 6) for level in (6.0, 9.0, 12.0)]
    over = seeds_apart(first, own).over_seeds
    assert (over.error_seeds, over.degrees) == (pytest.approx(math.sqrt(9 * (1 + 1 / 3))), 2)
    assert seeds_apart(own, first).over_seeds.degrees == 2
