"""Paired significance tests between systems, over documents, and over seeds if systems have several.

Sentences of a document are not independent of each other. The unit that is drawn or swapped is therefore the
document; sentences are supported for comparison with other tools. All systems and scores use the same draws.
Every p-value is two-sided and counts the observed corpus among the samples, so it is never 0.

Tests that flip the signs of documents: if two systems are equally good, the difference of a document could as
well have the opposite sign. A pattern gives each of n documents a sign. p is the share of the 2^n patterns
whose absolute sum reaches the observed one (Fisher's randomisation test; Riezler and Maxwell, 2005). With one
example per document this is McNemar's test.

Systems with several seeds:

    documents   Would these models differ on other documents? A paired test over documents, in which a
                document counts by its mean over the seeds of a system
    seeds       Would models of other seeds differ, on other documents? Student's t. The squared standard
                error of the difference has two parts (Welch 1947): that of drawing documents, and s^2 / n for
                each system. s is the standard deviation over its n seeds. Degrees of freedom are those of
                Satterthwaite (1946)

p is the larger of the two p-values. The first test alone would find that a system differs from itself with
other seeds, since its models do differ. Variance that seeds and documents share is in both parts of the
error, so p is conservative. Seeds of two systems are not paired. If a system has only one seed, its variance
is assumed to equal that of the other system. If both systems have one seed, only documents are tested.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import stdev
from typing import Any

import numpy as np

from cotext.evaluation.metrics.interface import Score
from cotext.evaluation.statistics.sufficient_statistics import Floats, Statistics, Unit
from cotext.runtime import CotextError, __version__, shown

MAX_SAMPLES = 10_000_000
SIGNIFICANT = 0.05
ALL_PATTERNS = 13  # up to this number of documents, all patterns of signs are used
_ROUNDING = 1e-9  # differences this close are equal
_DRAWS_AT_ONCE = 2_000_000
_FLIPS_AT_ONCE = 4_000_000
MOST_DEGREES = 1000.0  # maximum degrees of freedom; larger values hardly change p
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)  # for the integral of Student's t


@dataclass(frozen=True, slots=True, kw_only=True)
class Resampling:
    """Settings of a test by random swaps of outputs (Riezler and Maxwell, 2005), and of the bootstrap."""

    unit: Unit = "document"
    samples: int = 10_000
    seed: int = 12345

    def __post_init__(self) -> None:
        if self.samples > MAX_SAMPLES:
            raise CotextError(f"{shown(self.samples)} samples are too many; use at most {MAX_SAMPLES:,}")


def compared_pairs(names: Sequence[str], baseline: str | None) -> list[tuple[str, str]]:
    """Return pairs of systems, the baseline first (None: all pairs); raise CotextError if there are none."""
    if len(names) < 2:
        raise CotextError("a paired test compares systems; give at least two")
    if baseline is None:
        return list(combinations(names, 2))
    if baseline not in names:
        raise CotextError(f"no system {baseline!r} to compare with; systems are {', '.join(names)}")
    return [(baseline, name) for name in names if name != baseline]


def bootstrap_scores(systems: Sequence[Statistics], resampling: Resampling) -> list[Floats]:
    """Return scores of corpora drawn with replacement, in the same way as sacrebleu with the same seed.

    Corpora without a score, such as those without a term, are left out.
    """
    matrices = [statistics.by(resampling.unit)[0] for statistics in systems]
    units = len(matrices[0])
    joined = np.concatenate(matrices, axis=1)
    generator = np.random.default_rng(resampling.seed)
    ends = np.cumsum([matrix.shape[1] for matrix in matrices])[:-1]
    drawn_scores: list[list[Floats]] = [[] for _ in systems]
    for size in _chunks(resampling.samples, max(units, joined.shape[1])):
        drawn = generator.choice(units, size=(size, units), replace=True)
        drawn += np.arange(size)[:, None] * units
        times = np.bincount(drawn.ravel(), minlength=size * units).reshape(size, units)
        parts = np.split(times.astype(np.float64) @ joined, ends, axis=1)
        for scores, statistics, part in zip(drawn_scores, systems, parts, strict=True):
            scores.append(statistics.scorer(part))
    found = np.array([np.concatenate(scores) for scores in drawn_scores])
    return [*found[:, np.isfinite(found).all(axis=0)]]


def swapped_differences(one: Statistics, other: Statistics, resampling: Resampling) -> Floats:
    """Return differences (other - one) after swapping units with probability 1/2; draws are sacrebleu's."""
    first, second = one.by(resampling.unit)[0], other.by(resampling.unit)[0]
    total, apart = first.sum(axis=0) + second.sum(axis=0), first - second
    generator = np.random.default_rng(resampling.seed)
    rows = []
    for size in _chunks(resampling.samples, len(first)):
        is_kept = generator.integers(2, size=(size, len(first)), dtype=bool)
        sums = is_kept.astype(np.float64) @ apart + second.sum(axis=0)
        rows.append(one.scorer(total - sums) - one.scorer(sums))
    return np.concatenate(rows)


def swapped_p(differences: Floats, observed: float) -> float:
    """Return the two-sided p-value: the share of `differences` with at least the size of the observed one."""
    count = int(np.sum(~(abs(differences) < abs(observed) - _ROUNDING)))  # also NaN
    return (count + 1) / (len(differences) + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct the p-values of a family of tests (Holm, 1979); the order stays.

    The smallest of m values is multiplied by m, the next by m - 1, and so on; smaller products are raised.
    """
    corrected, floor = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        floor = max(floor, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = floor
    return corrected


@dataclass(frozen=True, slots=True)
class McNemar:
    """Two systems that decided the same cases (McNemar, 1947).

    `only_baseline` and `only_system` count the cases that only one of them decided right. `difference` is the
    difference of the accuracies in percentage points (system - baseline). Both the test and the interval are
    over documents. `p_mid` counts the observed outcome half (Fagerland, Lydersen and Laake, 2013).
    `interval_95` comes from the bootstrap, after adding one lost and one won case (Bonett and Price, 2012).
    For a single document, it is -100 to 100.
    """

    only_baseline: int
    only_system: int
    difference: float
    interval_95: tuple[float, float]
    p_mid: float


def mcnemar(baseline: Sequence[bool], system: Sequence[bool], documents: Sequence[int]) -> McNemar:
    """Compare two systems' decisions on the same cases, right or not, in the same order.

    All cases of a document are flipped or drawn together. `documents` has the document number of every case.
    """
    pairs, sizes = Counter(zip(baseline, system, strict=True)), Counter(documents)
    gains = gains_by_document(baseline, system, documents)
    counts = np.array(list(zip(gains, sizes.values(), strict=True)), dtype=np.float64)
    difference = 100 * counts[:, 0].sum() / counts[:, 1].sum()
    interval = -100.0, 100.0
    if len(counts) > 1:
        rows, times = np.unique(counts, axis=0, return_counts=True)
        # One lost and one won case are added (Bonett and Price, 2012), so that no interval is a point.
        rows, times = np.concatenate([rows, [[1, 1], [-1, 1]]]), np.append(times, [1, 1])
        generator, number = np.random.default_rng(Resampling().seed), int(times.sum())
        drawn = generator.multinomial(number, times / number, Resampling().samples) @ rows
        interval = percentiles(100 * drawn[:, 0] / drawn[:, 1])
    return McNemar(pairs[True, False], pairs[False, True], float(difference), interval, flipped_counts(gains))


def gains_by_document(
    baseline: Sequence[bool], system: Sequence[bool], documents: Sequence[int]
) -> list[int]:
    """Return for each document, in order of first case, how many more cases the system decides right."""
    gains = Counter[int]()
    for before, after, document in zip(baseline, system, documents, strict=True):
        gains[document] += int(after) - int(before)
    return list(gains.values())


def percentiles(values: Floats) -> tuple[float, float]:
    """Return the 2.5th and the 97.5th percentile."""
    low, high = np.percentile(values, (2.5, 97.5))
    return float(low), float(high)


def _chunks(samples: int, units: int) -> Iterator[int]:
    """Yield chunk sizes that bound memory; with multiples of 32 the draws are the same as in one chunk."""
    size = max(32, _DRAWS_AT_ONCE // units // 32 * 32)
    for start in range(0, samples, size):
        yield min(size, samples - start)


def are_too_few(documents: int, tests: int = 1, mid_p: bool = False) -> bool:
    """Return whether no result over these documents can be significant, after correction for all tests.

    The smallest p, if all documents differ in the same direction, is 2 / 2^n; mid-p is half of that.
    """
    return 2.0 ** (1 - mid_p - documents) * tests >= SIGNIFICANT


def flipped_counts(differences: Sequence[int]) -> float:
    """Return the exact two-sided mid-p of integer differences, one per document."""
    sizes = [abs(difference) for difference in differences if difference]
    # The distribution of the sum of the differences to which a pattern gives a negative sign.
    shares = np.ones(1)
    for size in sizes:
        wider = np.zeros(len(shares) + size)
        wider[: len(shares)] += shares / 2
        wider[size:] += shares / 2
        shares = wider
    smaller = (sum(sizes) - abs(sum(differences))) // 2
    return min(1.0, float(2 * shares[: smaller + 1].sum() - shares[smaller]))


def flipped_sums(differences: Sequence[float], samples: int = 20_000, seed: int = 12345) -> float:
    """Return the two-sided p of differences by document, over all patterns or `samples` random patterns."""
    values = np.asarray(differences, dtype=np.float64)
    least = abs(values.sum()) - _ROUNDING * max(1.0, float(abs(values).sum()))
    if len(values) <= ALL_PATTERNS:
        patterns = np.arange(2 ** len(values))[:, None] >> np.arange(len(values)) & 1
        return float(np.mean(abs((1 - 2 * patterns) @ values) >= least))
    generator = np.random.default_rng(seed)
    as_extreme = done = 0
    while done < samples:
        size = min(samples - done, max(1, _FLIPS_AT_ONCE // len(values)))
        flipped = generator.integers(2, size=(size, len(values)), dtype=np.int8) @ values
        as_extreme += int(np.sum(abs(values.sum() - 2 * flipped) >= least))
        done += size
    return (as_extreme + 1) / (samples + 1)


@dataclass(frozen=True, slots=True)
class Spread:
    """The value of a metric for each seed of a system, in the order of the seeds."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return math.fsum(self.values) / len(self.values)

    @property
    def deviation(self) -> float | None:
        """Return the sample standard deviation over seeds (n - 1); None for a single seed."""
        return stdev(self.values) if len(self.values) > 1 else None

    def as_dict(self) -> dict[str, Any]:
        return {"mean": self.mean, "standard_deviation": self.deviation, "values": list(self.values)}


@dataclass(frozen=True, slots=True)
class SeedTest:
    """The test over seeds and documents: the standard errors of the difference, and the t-test."""

    error_documents: float
    error_seeds: float
    degrees: float
    p: float
    interval_95: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean of a system over its seeds minus that of the system it is compared with.

    `interval_95` covers documents, and seeds if `over_seeds` is given. `p_corrected`: see `corrected`.
    """

    difference: float
    interval_95: tuple[float, float]
    p_documents: float
    over_seeds: SeedTest | None = None
    p_corrected: float = 1.0

    @property
    def p(self) -> float:
        """Return the largest p-value of the tests that were made."""
        return self.p_documents if self.over_seeds is None else max(self.p_documents, self.over_seeds.p)

    @property
    def significant(self) -> bool:
        return self.p_corrected < SIGNIFICANT

    def as_dict(self) -> dict[str, Any]:
        content = {
            "difference": self.difference,
            "interval_95": list(self.interval_95),
            "p": self.p,
            "p_corrected": self.p_corrected,
        }
        if (over := self.over_seeds) is not None:
            content |= {
                "p_documents": self.p_documents,
                "p_seeds": over.p,
                "standard_error_documents": over.error_documents,
                "standard_error_seeds": over.error_seeds,
                "degrees_of_freedom": over.degrees,
            }
        return content


@dataclass(frozen=True, slots=True)
class PairedTest:
    """A score of several systems: intervals by system, and differences by (baseline, system)."""

    signature: str
    unit: Unit
    units: int
    intervals_95: dict[str, tuple[float, float]]
    differences: dict[tuple[str, str], Difference]

    @property
    def too_few(self) -> bool:
        return are_too_few(self.units, len(self.differences))

    def as_dict(self) -> dict[str, Any]:
        pairs = self.differences.items()
        return {
            "signature": self.signature,
            "unit": self.unit,
            "units": self.units,
            "intervals_95": self.intervals_95,
            "comparisons": [{"baseline": one, "system": other, **d.as_dict()} for (one, other), d in pairs],
        }


def corrected(differences: Sequence[Difference]) -> list[Difference]:
    """Correct the p-values of a family of tests, see `holm`."""
    p_values = holm([difference.p for difference in differences])
    return [replace(difference, p_corrected=p) for difference, p in zip(differences, p_values, strict=True)]


def mean_score(scores: Sequence[Score]) -> Score:
    first = scores[0]
    if len(scores) == 1:
        return first
    keys = first.components
    return replace(
        first,
        value=Spread(tuple(score.value for score in scores)).mean,
        signature=f"{first.signature}|seeds:{len(scores)}-mean",
        empty_hypotheses=max(score.empty_hypotheses for score in scores),
        components={key: math.fsum(s.components[key] for s in scores) / len(scores) for key in keys},
    )


def paired_test(
    systems: Mapping[str, Sequence[Statistics]],
    baseline: str | None = None,
    resampling: Resampling | None = None,
) -> PairedTest:
    """Compare every system with `baseline` or, if it is None, all pairs of systems.

    `systems`: for each name, the statistics of every seed. Raises CotextError for fewer than two systems or
    units, or an unknown baseline.
    """
    settings = resampling or Resampling()
    pairs = compared_pairs(list(systems), baseline)
    flat = [seed for seeds in systems.values() for seed in seeds]
    counts, unit = flat[0].by(settings.unit)
    if (units := len(counts)) < 2:
        raise CotextError(
            f"a paired test needs at least two units, but the corpus has {units} ({unit}); "
            "give more documents, or resample sentences"
        )
    rows = iter(bootstrap_scores(flat, settings))
    drawn = {name: np.mean([next(rows) for _ in seeds], axis=0) for name, seeds in systems.items()}
    spreads = {name: Spread(tuple(seed.score for seed in seeds)) for name, seeds in systems.items()}
    pooled = {
        name: replace(seeds[0], counts=np.mean([seed.counts for seed in seeds], axis=0))
        for name, seeds in systems.items()
    }
    differences = []
    for one, other in pairs:
        sampled, observed = drawn[other] - drawn[one], pooled[other].score - pooled[one].score
        p = swapped_p(swapped_differences(pooled[one], pooled[other], settings), observed)
        over_seeds = _over_seeds(spreads[one], spreads[other], float(np.std(sampled, ddof=1)), units)
        interval = percentiles(sampled) if over_seeds is None else over_seeds.interval_95
        differences.append(Difference(spreads[other].mean - spreads[one].mean, interval, p, over_seeds))
    several = len(flat) > len(systems)
    signature = (
        f"test:randomisation{'+welch' if several else ''}|unit:{unit}|n:{units}"
        f"|samples:{settings.samples}|seed:{settings.seed}|sides:2|correction:holm-{len(pairs)}"
        f"|interval:{'student' if several else 'bootstrap-percentile'}|version:cotext-{__version__}"
    )
    intervals = {name: _interval(spreads[name], scores, units) for name, scores in drawn.items()}
    return PairedTest(
        signature, unit, units, intervals, dict(zip(pairs, corrected(differences), strict=True))
    )


def compare_accuracies(
    first: Sequence[Sequence[bool]], second: Sequence[Sequence[bool]], documents: Sequence[int]
) -> Difference:
    """Compare which cases two systems decide correctly, with the document number of every case.

    `first` and `second` have one row of booleans per seed. The difference is in percentage points.
    """
    if len(first) == len(second) == 1:
        test = mcnemar(first[0], second[0], documents)
        return Difference(test.difference, test.interval_95, test.p_mid)
    shares = [np.mean(np.asarray(rows, dtype=np.float64), axis=0) for rows in (first, second)]
    apart = 100.0 * (shares[1] - shares[0])
    by_document: dict[int, list[float]] = defaultdict(list)
    for document, difference in zip(documents, apart.tolist(), strict=True):
        by_document[document].append(difference)
    cases, count, mean = len(documents), len(by_document), float(apart.mean())
    sums = [math.fsum(values) for values in by_document.values()]
    sizes = map(len, by_document.values())
    squares = math.fsum((total - mean * size) ** 2 for total, size in zip(sums, sizes, strict=True))
    error = math.sqrt(squares * count / max(1, count - 1)) / cases
    one, other = (Spread(tuple(100.0 * sum(row) / cases for row in rows)) for rows in (first, second))
    over_seeds = _over_seeds(one, other, error, count)
    assert over_seeds is not None
    low, high = over_seeds.interval_95
    interval = max(-100.0, low), min(100.0, high)
    return Difference(mean, interval, flipped_sums(sums), over_seeds)


def _over_seeds(first: Spread, second: Spread, error_documents: float, documents: int) -> SeedTest | None:
    """Run Welch's test over seeds, with the error from documents; None if no system has several seeds."""
    deviations = [spread.deviation for spread in (first, second) if spread.deviation is not None]
    if not deviations:
        return None
    # Squared errors, and the degrees of freedom of each.
    terms = [(error_documents**2, max(1, documents - 1))]
    sizes = [len(first.values), len(second.values)]
    if len(deviations) == 1:
        several = max(sizes)
        terms.append((deviations[0] ** 2 * (1 + 1 / several), several - 1))
    else:
        terms += [(s**2 / n, n - 1) for s, n in zip(deviations, sizes, strict=True)]
    error, degrees = _together(terms)
    difference = second.mean - first.mean
    half = student_quantile(degrees) * error
    p = 1.0
    if abs(difference) > _ROUNDING:
        p = student_p(difference / error, degrees) if error > 0 else 0.0
    error_seeds = math.sqrt(math.fsum(square for square, _ in terms[1:]))
    return SeedTest(error_documents, error_seeds, degrees, p, (difference - half, difference + half))


def _together(terms: Sequence[tuple[float, int]]) -> tuple[float, float]:
    """Combine independent errors into one, with its degrees of freedom (Satterthwaite, 1946)."""
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
    """Return the two-sided p-value of Student's t.

    With t = sqrt(degrees) * tan(angle), the density is proportional to cos(angle) ** (degrees - 1).
    """
    end = math.pi / 2 - math.atan(abs(t) / math.sqrt(degrees))
    angles = end * (_NODES + 1) / 2
    tail = float(np.sum(_WEIGHTS * np.sin(angles) ** (degrees - 1))) * end / 2
    log_half = math.lgamma(degrees / 2) - math.lgamma((degrees + 1) / 2) + math.log(math.pi) / 2 - math.log(2)
    return min(1.0, tail / math.exp(log_half))


def student_quantile(degrees: float) -> float:
    """Return the value that |t| exceeds with a probability of 5 per cent."""
    low, high = 1.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if student_p(middle, degrees) > 0.05 else (low, middle)
    return high
