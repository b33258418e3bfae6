"""Tests over seeds and documents: by hand, beside those of single runs, and how often they are wrong."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from cotext.evaluation.statistics.seeds import (
    Difference,
    compare_accuracies,
    paired_test,
    student_p,
    student_quantile,
)
from cotext.evaluation.statistics.significance import Resampling, mcnemar
from cotext.evaluation.statistics.sufficient_statistics import Floats, Statistics
from tests.loops import loop_over

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


def apart(first: list[Statistics], second: list[Statistics]) -> Difference:
    [found] = paired_test({"a": first, "b": second}, "a", QUICK).differences.values()
    return found


def test_the_interval_of_a_score_by_hand() -> None:
    """Three seeds without differences between documents: Student's t with two degrees of freedom."""
    seeds = [means([value] * 20) for value in (10.0, 12.0, 14.0)]
    low, high = paired_test({"a": seeds, "b": seeds}, "a", QUICK).intervals_95["a"]
    half = 4.3027 * 2 / math.sqrt(3)
    assert (low, high) == (pytest.approx(12 - half, abs=1e-3), pytest.approx(12 + half, abs=1e-3))


def test_single_seeds_are_compared_as_single_runs() -> None:
    """Without a test over seeds; seeds that repeat each other have the same difference."""
    draws = np.random.default_rng(1)
    one, other = means(draws.normal(0, 1, 40)), means(draws.normal(0.4, 1, 40))
    single, twice = apart([one], [other]), apart([one, one], [other, other])
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
    test = apart(first, own)
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


def test_a_single_run_is_taken_to_vary_as_the_other_system() -> None:
    first, own = [means([5.0] * 6)], [means([level] * 6) for level in (6.0, 8.0, 10.0)]
    over = apart(first, own).over_seeds
    assert (over.error_seeds, over.degrees) == (pytest.approx(math.sqrt(4 * (1 + 1 / 3))), 2)
    assert apart(own, first).over_seeds.degrees == 2


def draw(draws: np.random.Generator, seeds: int, level: float, of_seeds: float) -> list[Statistics]:
    """Seeds of a system on 150 documents: a level of each seed, and what each document makes of it."""
    return [means(level + draws.normal(0, of_seeds) + draws.normal(0, 1, 150)) for _ in range(seeds)]


def compared(trials: int, seeds: tuple[int, int], gain: float, of_seeds: float) -> list[Difference]:
    draws = np.random.default_rng(7)
    return [
        apart(draw(draws, seeds[0], 0, of_seeds), draw(draws, seeds[1], gain, of_seeds))
        for _ in range(trials)
    ]


@loop_over(
    ("seeds", "of_seeds"),
    [((2, 2), 0.0), ((3, 3), 0.1), ((1, 4), 0.5), ((2, 2), 0.5), ((1, 4), 0.0)],
)
def test_a_system_is_seldom_called_different_from_itself(seeds: tuple[int, int], of_seeds: float) -> None:
    tests = compared(150, seeds, 0.0, of_seeds)
    wrong = sum(test.p < 0.05 for test in tests) / len(tests)
    alone = sum(test.p_documents < 0.05 for test in tests) / len(tests)
    assert wrong <= 0.08
    # Over documents alone it is, as its models do differ.
    if of_seeds == 0.5:
        assert alone > 0.5


def test_planted_differences_are_found_and_intervals_widen() -> None:
    tests = compared(40, (3, 3), 1.0, 0.1)
    assert sum(test.p_corrected < 0.05 for test in tests) >= 39
    # Not where seeds differ as much.
    tests = compared(40, (3, 3), 0.5, 0.5)
    assert sum(test.p_corrected < 0.05 for test in tests) < 20
    draws = np.random.default_rng(3)
    steady, restless = draw(draws, 3, 0, 0.0), draw(draws, 3, 0, 2.0)
    intervals = paired_test({"a": steady, "b": restless}, "a", QUICK).intervals_95
    (low, high), (lower, higher) = intervals.values()
    assert higher - lower > 3 * (high - low)
