"""Probabilities of an alignment: how sure it is that sentences correspond, or have no counterpart.

The probability of a path is proportional to the exponential of its score. The sums over all paths come from
the forward-backward algorithm (Rabiner 1989, section III), in the band of the search.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cotext.data.alignment import KINDS, PRIORS, Band, Bead, Scores, Side, row_scores, shifted

Logs = NDArray[np.floating[Any]]
_SKIP: Final = math.log(PRIORS[1, 0])


@dataclass(frozen=True, slots=True)
class Posteriors:
    """Probabilities of the pairs of sentences in a band, and of unaligned sentences.

    `pairs`: of source sentence i and target sentence `low[i + 1] + c - 1`, [n, W]. `unaligned`: of source
    sentences [n] and target sentences [m].
    """

    band: Band
    pairs: Logs
    unaligned: tuple[Logs, Logs]

    def of(self, bead: Bead) -> float:
        """Return the probability of an unaligned sentence, or of the most probable pair of a bead."""
        source, target = bead
        if not source or not target:
            alone = self.unaligned[0][[*source]] if source else self.unaligned[1][[*target]]
            return float(alone.min())
        cells = [(i, j + 1 - int(self.band.low[i + 1])) for i in source for j in target]
        return max((float(self.pairs[i, c]) for i, c in cells if 0 <= c < self.band.width), default=0.0)


def posteriors(source: Side, target: Side, band: Band, scores: Scores) -> Posteriors:
    """Return the probabilities in a band that contains the best path; arguments as in `align_sides`."""
    n, m, low = len(source), len(target), band.low.tolist()
    scores_of = row_scores(source, target, band, scores)
    rows = [scores_of(i) for i in range(1, n + 1)]
    forward, backward = (np.full((n + 1, band.width), -np.inf) for _ in range(2))
    forward[0, -low[0]] = backward[n, m - low[n]] = 0.0

    def steps(i: int) -> Iterator[tuple[int, int, Logs | float, int]]:
        """Yield the beads that end in row i: numbers of sentences, scores, and the shift from their start."""
        for (k, m_of), score in zip(KINDS[:4], [*rows[i - 1], _SKIP], strict=True):
            if k <= i:
                yield k, m_of, score, low[i] - low[i - k] - m_of

    skips = _SKIP * np.arange(band.width)
    for i in range(n + 1):
        for k, _, score, by in steps(i) if i else ():
            forward[i] = np.logaddexp(forward[i], shifted(forward[i - k], by) + score)
        forward[i] = np.logaddexp.accumulate(forward[i] - skips) + skips
    ends, pairs = (np.zeros((n, band.width)) for _ in range(2))
    lost = np.zeros(n)
    for i in range(n, 0, -1):
        backward[i] = np.logaddexp.accumulate((backward[i] + skips)[::-1])[::-1] - skips
        for k, m_of, score, by in steps(i):
            backward[i - k] = np.logaddexp(backward[i - k], shifted(backward[i] + score, -by))
            logs = shifted(forward[i - k], by) + score + backward[i] - forward[n, m - low[n]]
            if m_of == 0:
                lost[i - 1] = np.exp(logs).sum()
                continue
            ends[i - 1] += np.exp(logs)
            if m_of == 2:
                ends[i - 1] += np.exp(shifted(logs, 1))
            if k == 2:
                pairs[i - 2] += np.exp(shifted(logs, low[i - 1] - low[i]))
    targets = band.low[1:, None] + np.arange(band.width)
    inside = (targets >= 1) & (targets <= m)
    added: Logs = 1.0 - np.bincount(targets[inside] - 1, ends[inside], minlength=m).astype(np.float64)
    return Posteriors(band, ends + pairs, (lost, added))
