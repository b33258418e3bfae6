"""Alignment of the sentences of two texts by their lengths alone (Gale and Church 1993)."""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

# Source and target sentences that say the same, counted from 0 (a bead of Gale and Church 1993).
Bead = tuple[tuple[int, ...], tuple[int, ...]]

# Gale and Church 1993, table 5: how often a bead of so many source and target sentences is met.
PRIORS: Final = {(1, 1): 0.89, (1, 2): 0.0445, (2, 1): 0.0445}
VARIANCE: Final = 6.8  # of target characters for each source character, section 3.2 there


def align_lengths(source: Sequence[int], target: Sequence[int]) -> list[Bead]:
    """The likeliest beads of one and one, one and two, two and one sentences, by their lengths in characters.

    Target characters for a source character are those of these texts. No beads where none of these kinds
    cover all: where one side has more than twice the sentences of the other, or none.
    """
    # Characters before each sentence.
    before = [[0, *accumulate(side)] for side in (source, target)]
    ratio = max(1, before[1][-1]) / max(1, before[0][-1])
    best: dict[tuple[int, int], tuple[float, tuple[int, int]]] = {(0, 0): (0.0, (0, 0))}
    for i in range(len(source) + 1):
        for j in range(len(target) + 1):
            ways = []
            for (k, m), prior in PRIORS.items():
                if (i - k, j - m) in best:
                    lengths = before[0][i] - before[0][i - k], before[1][j] - before[1][j - m]
                    cost = best[i - k, j - m][0] - math.log(prior) + _cost(*lengths, ratio)
                    ways.append((cost, (k, m)))
            if ways:
                best[i, j] = min(ways)
    at = len(source), len(target)
    beads: list[Bead] = []
    while at in best and at != (0, 0):
        _, (k, m) = best[at]
        beads.append((tuple(range(at[0] - k, at[0])), tuple(range(at[1] - m, at[1]))))
        at = at[0] - k, at[1] - m
    return beads[::-1]


def _cost(source: int, target: int, ratio: float) -> float:
    """Minus the logarithm of the probability that lengths differ as much, equation 2 of section 3.2 there."""
    mean = (source + target / ratio) / 2
    deviation = abs(target - source * ratio) / math.sqrt(max(1.0, mean) * VARIANCE)
    return -math.log(max(math.erfc(deviation / math.sqrt(2)), 1e-300))
