"""Segments found by least edits: beside all cuts that there are, in blocks, at length, beside mweralign."""

import random
import time
import tracemalloc
from collections.abc import Sequence
from itertools import combinations_with_replacement, pairwise

import numpy as np
import pytest

from cotext.evaluation.metrics import realign
from cotext.evaluation.metrics.realign import align_by_error
from tests.refusals import must_raise


def numbers(values: Sequence[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def everywhere(count: int) -> np.ndarray:
    return np.ones(count + 1, dtype=bool)


def edit_distance(one: Sequence[int], other: Sequence[int]) -> int:
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, 1):
        below = [i]
        for j, right in enumerate(other, 1):
            below.append(min(row[j] + 1, below[-1] + 1, row[j - 1] + (left != right)))
        row = below
    return row[-1]


def test_by_hand() -> None:
    """1 2 | 3 4 with a word too many, 9, between them: it goes with the earlier piece, and costs an edit."""
    two, three = [[1, 2], [3, 4]], [[1, 2], [5, 6, 7], [3, 4]]
    # Where the system's own line ends before it, it goes with the later one: that is as good.
    line_ends = np.array([True, False, True, False, False, True])
    for tokens, segments, preferred, cuts in (
        ([1, 2, 9, 3, 4], two, ~everywhere(5), (0, 3, 5)),
        ([1, 2, 9, 3, 4], two, line_ends, (0, 2, 5)),
        ([1, 2, 3, 4], three, ~everywhere(4), (0, 2, 2, 4)),  # a segment left out is an empty piece
        ([], three, everywhere(0), (0, 0, 0, 0)),  # nothing was written at all
    ):
        given = [[numbers(segment)] for segment in segments]
        assert align_by_error(numbers(tokens), given, everywhere(len(tokens)), preferred) == cuts


@pytest.mark.parametrize("block_bytes", [1 << 26, 60, 1])
def test_no_cuts_are_better(block_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All cuts are tried: fewest edits, fewest cuts off the preferred places, then the later ones."""
    monkeypatch.setattr(realign, "_BLOCK_BYTES", block_bytes)
    generator = random.Random(block_bytes)
    for trial in range(150):
        count = generator.randint(0, 6)
        hypothesis = [generator.randint(0, 3) for _ in range(count)]
        segments = [
            [[generator.randint(0, 3) for _ in range(generator.randint(0, 4))] for _ in range(1 + trial % 2)]
            for _ in range(generator.randint(1, 4))
        ]
        may = [True, *(generator.random() < 0.7 for _ in range(count - 1)), True][: count + 1]
        preferred = [generator.random() < 0.4 for _ in range(count + 1)]
        ways = []
        for inner in combinations_with_replacement(range(count + 1), len(segments) - 1):
            cuts = (0, *inner, count)
            edits = sum(
                min(edit_distance(hypothesis[start:end], tokens) for tokens in segment)
                for segment, (start, end) in zip(segments, pairwise(cuts), strict=True)
            )
            if all(may[cut] for cut in inner):
                off = sum(not preferred[cut] for cut in inner)
                ways.append((edits, off, [-cut for cut in reversed(cuts)], cuts))
        found = align_by_error(
            numbers(hypothesis),
            [[numbers(tokens) for tokens in segment] for segment in segments],
            np.array(may),
            np.array(preferred),
        )
        assert found == min(ways)[3]


def test_ten_thousand_tokens_take_little_time_and_memory() -> None:
    generator = np.random.default_rng(2)
    reference = generator.integers(0, 3000, 10_000)
    hypothesis = reference[generator.random(10_000) < 0.9]
    segments = [[piece] for piece in np.array_split(reference, 400)]
    tracemalloc.start()
    begun = time.process_time()
    found = align_by_error(hypothesis, segments, everywhere(len(hypothesis)), ~everywhere(len(hypothesis)))
    seconds, (_, most) = time.process_time() - begun, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found) == 401
    assert most < 100e6
    assert seconds < 20  # about one; what is quadratic in Python would take minutes


def test_more_than_time_allows_is_refused() -> None:
    tokens = np.zeros(200_000, dtype=np.int64)
    places, message = everywhere(len(tokens)), r"200,000 tokens to be aligned with 200,001 .* too long"
    must_raise(message, align_by_error, tokens, [[tokens]], places, places)
