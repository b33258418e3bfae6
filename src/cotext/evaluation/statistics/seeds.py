"""Systems trained with several seeds: means over seeds, and tests that cover seeds as well as documents.

Two things make the difference of two means uncertain: other documents would give another one, and so would
other seeds. Both are tested:

    documents   would these models differ on other documents? A paired test over documents, in which a
                document counts by its mean over the seeds of a system
    seeds       would other seeds differ, on other documents? Student's t, where the squared error of the
                difference is that by drawing documents, and s^2 / n of the seeds of each system (Welch,
                1947); degrees of freedom after Satterthwaite (1946)

and p is the larger of both p-values. The first alone would call a system different from itself under other
seeds, given documents enough: its models do differ. What seeds and documents have in common is in both terms
of the error, so that p is rather too large. Seeds of two systems are not paired: seed 1 of one has nothing in
common with seed 1 of another. A system of a single seed is taken to vary as the other does; of two such
systems, documents alone are tested.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import numpy as np

from cotext.evaluation.metrics.interface import Score
from cotext.evaluation.statistics.significance import (
    Resampling,
    bootstrap_scores,
    flipped_sums,
    holm,
    mcnemar_by_document,
    percentiles,
    swapped_differences,
    swapped_p,
)
from cotext.evaluation.statistics.sufficient_statistics import Floats, Statistics, Unit
from cotext.runtime.version import __version__

MOST_DEGREES: Final = 1000.0  # of freedom: with more, p is as with these, a hair too large
_SAMPLES: Final = 20_000
_SEED: Final = 12345
_ROUNDING: Final = 1e-9
_NODES: Final = 200


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure of a system by seed, in the order of the seeds."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over seeds."""
        return math.fsum(self.values) / len(self.values)

    @property
    def deviation(self) -> float | None:
        """The standard deviation of seeds, estimated from these (n - 1 below); None of a single one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def as_dict(self) -> dict[str, Any]:
        """Everything, for a JSON file."""
        return {
            "mean": self.mean,
            "standard_deviation": self.deviation,
            "lowest": min(self.values),
            "highest": max(self.values),
            "values": list(self.values),
        }


@dataclass(frozen=True, slots=True)
class SeedTest:
    """The test over seeds and documents: standard errors of the difference from each, and what t says."""

    error_documents: float
    error_seeds: float
    degrees: float
    p: float
    interval_95: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure of a system less that of the first one, both means over their seeds.

    `interval_95` covers what was tested: documents, and seeds where `over_seeds` is there. `p_corrected`
    holds for all tests of a family (Holm, 1979), see `corrected`.
    """

    difference: float
    interval_95: tuple[float, float]
    p_documents: float
    over_seeds: SeedTest | None = None
    p_corrected: float = 1.0

    @property
    def p(self) -> float:
        """Of all that was tested, the least sure."""
        return self.p_documents if self.over_seeds is None else max(self.p_documents, self.over_seeds.p)

    def as_dict(self) -> dict[str, Any]:
        """Everything, for a JSON file."""
        over = self.over_seeds
        return {
            "difference": self.difference,
            "interval_95": list(self.interval_95),
            "p": self.p,
            "p_corrected": self.p_corrected,
            "p_documents": self.p_documents,
            "p_seeds": None if over is None else over.p,
            "standard_error_documents": None if over is None else over.error_documents,
            "standard_error_seeds": None if over is None else over.error_seeds,
            "degrees_of_freedom": None if over is None else over.degrees,
        }


@dataclass(frozen=True, slots=True)
class ScoreTest:
    """Systems under one score: intervals of all, and differences of all but the first from it, in order."""

    signature: str
    unit: Unit
    units: int
    intervals_95: tuple[tuple[float, float], ...]
    differences: tuple[Difference, ...]


def corrected(found: Sequence[Difference]) -> list[Difference]:
    """Correct the p-values of a family of tests, see `holm`."""
    p_values = holm([each.p for each in found])
    return [replace(each, p_corrected=p) for each, p in zip(found, p_values, strict=True)]


def mean_score(scores: Sequence[Score]) -> Score:
    """The mean of a score over seeds; of a single one, that score."""
    first, *others = scores
    if not others:
        return first
    keys = first.components
    return replace(
        first,
        value=Spread(tuple(score.value for score in scores)).mean,
        signature=f"{first.signature}|seeds:{len(scores)}-mean",
        empty_hypotheses=max(score.empty_hypotheses for score in scores),
        components={key: math.fsum(s.components[key] for s in scores) / len(scores) for key in keys},
    )


def compare_scores(systems: Sequence[Sequence[Statistics]], resampling: Resampling) -> ScoreTest:
    """Compare all systems with the first by the counts of their translations, a system being its seeds.

    Systems of a single seed are compared as by `significance.paired_test`.
    """
    flat = [each for seeds in systems for each in seeds]
    units, unit = len(flat[0].by(resampling.unit)[0]), flat[0].by(resampling.unit)[1]
    rows = iter(bootstrap_scores(flat, resampling))
    drawn = [np.mean([next(rows) for _ in seeds], axis=0) for seeds in systems]
    spreads = [Spread(tuple(each.score for each in seeds)) for seeds in systems]
    first, pooled = spreads[0], [_mean_counts(seeds) for seeds in systems]
    found = []
    for number, own in enumerate(spreads[1:], start=1):
        differences = drawn[number] - drawn[0]
        swapped = swapped_differences(pooled[0], pooled[number], resampling)
        over_seeds = _over_seeds(first, own, float(np.std(differences, ddof=1)), units)
        found.append(
            Difference(
                own.mean - first.mean,
                percentiles(differences) if over_seeds is None else over_seeds.interval_95,
                swapped_p(swapped, pooled[number].score - pooled[0].score),
                over_seeds,
            )
        )
    several = any(len(seeds) > 1 for seeds in systems)
    signature = (
        f"test:randomisation{'+welch' if several else ''}|unit:{unit}|n:{units}"
        f"|samples:{resampling.samples}|seed:{resampling.seed}|sides:2|correction:holm-{len(found)}"
        f"|interval:{'student' if several else 'bootstrap-percentile'}|version:cotext-{__version__}"
    )
    intervals = [_interval(spread, scores, units) for spread, scores in zip(spreads, drawn, strict=True)]
    return ScoreTest(signature, unit, units, tuple(intervals), tuple(corrected(found)))


def compare_accuracies(
    first: Sequence[Sequence[bool]], own: Sequence[Sequence[bool]], documents: Sequence[int]
) -> Difference:
    """Compare the decisions of two systems on the same cases, right or not, a row for each seed.

    `documents` has the number of its document for every case. In points of per cent. Systems of a single seed
    are compared as by `flips.mcnemar_by_document`.
    """
    if len(first) == len(own) == 1:
        test = mcnemar_by_document(first[0], own[0], documents)
        return Difference(test.difference, test.interval_95, test.p_mid)
    shares = [np.mean(np.asarray(rows, dtype=np.float64), axis=0) for rows in (first, own)]
    apart = 100.0 * (shares[1] - shares[0])
    by_document: dict[int, list[float]] = defaultdict(list)
    for document, difference in zip(documents, apart.tolist(), strict=True):
        by_document[document].append(difference)
    cases, count, mean = len(documents), len(by_document), float(apart.mean())
    squares = math.fsum((math.fsum(each) - mean * len(each)) ** 2 for each in by_document.values())
    error = math.sqrt(squares * count / max(1, count - 1)) / cases
    one, other = (Spread(tuple(100.0 * sum(row) / cases for row in rows)) for rows in (first, own))
    over_seeds = _over_seeds(one, other, error, count)
    assert over_seeds is not None
    sums = [math.fsum(each) for each in by_document.values()]
    low, high = over_seeds.interval_95
    return Difference(
        mean, (max(-100.0, low), min(100.0, high)), flipped_sums(sums, _SAMPLES, _SEED), over_seeds
    )


def _mean_counts(seeds: Sequence[Statistics]) -> Statistics:
    return replace(seeds[0], counts=np.mean([each.counts for each in seeds], axis=0))


def _over_seeds(first: Spread, own: Spread, error_documents: float, documents: int) -> SeedTest | None:
    """Welch's test of two means over seeds whose difference also has an error by documents.

    None where no system has several seeds.
    """
    known = [each.deviation for each in (first, own) if each.deviation is not None]
    if not known:
        return None
    # Squared errors, and the degrees of freedom with which each is known.
    terms = [(error_documents**2, max(1, documents - 1))]
    if len(known) == 1:
        several = max(len(first.values), len(own.values))
        terms.append((known[0] ** 2 * (1 + 1 / several), several - 1))
    else:
        sizes = [len(first.values), len(own.values)]
        terms += [(s**2 / n, n - 1) for s, n in zip(known, sizes, strict=True)]
    error, degrees = _together(terms)
    difference = own.mean - first.mean
    half = student_quantile(degrees) * error
    p = 1.0
    if abs(difference) > _ROUNDING:
        p = student_p(difference / error, degrees) if error > 0 else 0.0
    error_seeds = math.sqrt(math.fsum(square for square, _ in terms[1:]))
    return SeedTest(error_documents, error_seeds, degrees, p, (difference - half, difference + half))


def _together(terms: Sequence[tuple[float, int]]) -> tuple[float, float]:
    """The error that several make, and its degrees of freedom (Satterthwaite, 1946)."""
    total = math.fsum(square for square, _ in terms)
    if total == 0:
        return 0.0, MOST_DEGREES
    degrees = total**2 / math.fsum(square**2 / freedom for square, freedom in terms)
    return math.sqrt(total), min(MOST_DEGREES, degrees)


def _interval(spread: Spread, drawn: Floats, units: int) -> tuple[float, float]:
    if spread.deviation is None:
        return percentiles(drawn)
    count = len(spread.values)
    error, degrees = _together(
        [(float(np.var(drawn, ddof=1)), max(1, units - 1)), (spread.deviation**2 / count, count - 1)]
    )
    half = student_quantile(degrees) * error
    return spread.mean - half, spread.mean + half


def student_p(t: float, degrees: float) -> float:
    """Two-sided p-value of Student's t: how probably it is as far from 0 or farther.

    With t = sqrt(degrees) * tan(angle), the density is proportional to cos(angle) ** (degrees - 1).
    """
    end = math.pi / 2 - math.atan(abs(t) / math.sqrt(degrees))
    nodes, weights = _nodes()
    angles = end * (nodes + 1) / 2
    tail = float(np.sum(weights * np.sin(angles) ** (degrees - 1))) * end / 2
    log_half = math.lgamma(degrees / 2) - math.lgamma((degrees + 1) / 2) + math.log(math.pi) / 2 - math.log(2)
    return min(1.0, tail / math.exp(log_half))


def student_quantile(degrees: float) -> float:
    """What Student's t exceeds, one way or the other, in 5 per cent of all cases."""
    low, high = 1.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if student_p(middle, degrees) > 0.05 else (low, middle)
    return high


@cache
def _nodes() -> tuple[Floats, Floats]:
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return nodes, weights
