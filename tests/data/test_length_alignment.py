"""Alignment of sentences by their lengths."""

import random

from hypothesis import given
from hypothesis import strategies as st

from cotext.data.selection import PRIORS, align_lengths

LENGTHS = st.lists(st.integers(0, 300), max_size=8)


def test_beads_by_hand() -> None:
    assert align_lengths([50, 20, 90], [50, 20, 90]) == [((0,), (0,)), ((1,), (1,)), ((2,), (2,))]
    assert align_lengths([100, 50], [48, 55, 52]) == [((0,), (0, 1)), ((1,), (2,))]
    assert align_lengths([20, 60, 55], [21, 118]) == [((0,), (0,)), ((1, 2), (1,))]
    # Of texts of other lengths, too.
    assert align_lengths([100, 50], [16, 18, 17]) == [((0,), (0, 1)), ((1,), (2,))]
    assert align_lengths([10, 10, 10], [30]) == []
    assert align_lengths([10], []) == []
    assert align_lengths([], []) == []


@given(LENGTHS, LENGTHS)
def test_beads_cover_all_once_in_order(source: list[int], target: list[int]) -> None:
    beads = align_lengths(source, target)
    possible = len(source) <= 2 * len(target) and len(target) <= 2 * len(source)
    assert bool(beads) == (possible and bool(source))
    if beads:
        assert [i for bead in beads for i in bead[0]] == list(range(len(source)))
        assert [j for bead in beads for j in bead[1]] == list(range(len(target)))
        assert {(len(a), len(b)) for a, b in beads} <= set(PRIORS)


def test_merged_sentences_are_found_again() -> None:
    draw = random.Random(1)
    right = 0
    for _ in range(200):
        lengths = [draw.randrange(20, 200) for _ in range(6)]
        merged = draw.randrange(5)
        target = [round(n * draw.uniform(0.9, 1.1)) for n in lengths]
        target[merged : merged + 2] = [sum(target[merged : merged + 2])]
        right += ((merged, merged + 1), (merged,)) in align_lengths(lengths, target)
    assert right >= 180
