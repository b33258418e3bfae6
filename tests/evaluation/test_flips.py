"""Tests over documents whose signs are flipped, against counting by hand and against McNemar's."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotext.evaluation.statistics.significance import (
    ALL_PATTERNS,
    flipped_counts,
    flipped_sums,
    least_p,
    mcnemar,
    mcnemar_by_document,
)
from tests.refusals import must_raise


def counted(differences: list[int]) -> tuple[float, float]:
    """Over all patterns, one by one."""
    observed = abs(sum(differences))
    sums = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in product((1, -1), repeat=len(differences))
    ]
    more, same = (sum(map(test, sums)) / len(sums) for test in (observed.__lt__, observed.__eq__))
    return more + same, more + same / 2


@settings(max_examples=60)
@given(st.lists(st.integers(-4, 4), max_size=9))
def test_every_pattern_is_counted(differences: list[int]) -> None:
    exact, mid = flipped_counts(differences)
    # Where the sum is 0 every pattern is at least as far from 0, and the two tails meet.
    by_hand = counted(differences)
    assert exact == pytest.approx(by_hand[0])
    assert mid == pytest.approx(by_hand[1] if sum(differences) else 1.0)
    assert flipped_sums(differences, 1000, 1) == pytest.approx(by_hand[0])


def test_by_hand() -> None:
    # Documents that win 3 and 2 and lose 1: of 8 patterns +-6 (2), +-4 (2) reach 4.
    assert flipped_counts([3, 2, -1]) == pytest.approx((4 / 8, 3 / 8))
    assert flipped_sums([3.0, 2.0, -1.0], 100, 1) == 4 / 8
    assert flipped_counts([0, 0]) == (1.0, 1.0)
    for count in range(1, 12):
        assert least_p(count) == pytest.approx(flipped_counts([2] * count)[0])
        assert least_p(count) == pytest.approx(flipped_sums([0.5] * count, 100, 1))
    values = [0.5] * 40 + [-0.5] * 20
    assert flipped_sums(values, 20_000, 1) == pytest.approx(flipped_counts([1] * 40 + [-1] * 20)[0], abs=2e-3)
    assert flipped_sums([1.0] * 40, 999, 1) == 1 / 1000
    assert len(values) > ALL_PATTERNS
    message = "2 decisions do not match 1 document numbers"
    must_raise(message, mcnemar_by_document, [True, True], [True, False], [0])


@settings(max_examples=60)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_an_example_a_document_is_mcnemar(cases: list[tuple[bool, bool]]) -> None:
    one, other = [a for a, _ in cases], [b for _, b in cases]
    plain = mcnemar(one, other)
    assert mcnemar_by_document(one, other, range(len(cases))) == plain
    exact, mid = flipped_counts([int(b) - int(a) for a, b in cases])
    assert (exact, mid) == pytest.approx((plain.p_exact, plain.p_mid))


def test_documents_count_more_than_examples() -> None:
    """Eight documents of ten examples that are all won, and two that are all lost."""
    one = [False] * 80 + [True] * 20
    other = [not value for value in one]
    documents = [place // 10 for place in range(100)]
    by_document, by_example = mcnemar_by_document(one, other, documents), mcnemar(one, other)
    # At most two of ten tosses, on either side: 2 * (1 + 10 + 45) / 1024.
    assert by_document.p_exact == pytest.approx(112 / 1024)
    assert by_example.p_exact < 1e-6
    assert (by_document.documents, by_example.documents) == (10, 100)
    assert by_document.difference == by_example.difference == 60.0
    # Ten times the variance, as ten examples count as one.
    width, plain = (each.interval_95[1] - each.interval_95[0] for each in (by_document, by_example))
    assert width > 2 * plain
    one, other = [True, False] * 20, [False, True] * 20
    documents = [place // 2 for place in range(40)]
    found = mcnemar_by_document(one, other, documents)
    assert found.interval_95 == mcnemar(one, other).interval_95
    assert found.p_mid == 1.0
