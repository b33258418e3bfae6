"""Paired significance tests between systems, over documents.

Sentences of a document are not independent of each other. The unit that is drawn or swapped is therefore the
document; sentences are supported for comparison with other tools. All systems and scores use the same draws.
Every p-value is two-sided and counts the observed corpus among the samples, so that it is never 0.

Tests that flip the signs of documents: if two systems are equally good, the difference of a document could as
well have the opposite sign. p is the share of all 2^n patterns of signs of n documents whose sum is at least
the observed sum in absolute value (Fisher's randomisation test; Riezler and Maxwell, 2005). With one example
per document this is McNemar's test.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from cotext.evaluation.statistics.sufficient_statistics import Floats, Statistics, Unit, share
from cotext.runtime.errors import CotextError, shown

MAX_SAMPLES = 10_000_000
SIGNIFICANT = 0.05
ALL_PATTERNS = 13  # up to this number of documents, all patterns of signs are used
_ROUNDING = 1e-9  # differences this close are equal
_DRAWS_AT_ONCE = 2_000_000
_FLIPS_AT_ONCE = 4_000_000


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
    """Return pairs of systems, the baseline first (None: all pairs); raise CotextError without any."""
    if len(names) < 2:
        raise CotextError("a paired test compares systems; give at least two")
    if baseline is None:
        return list(combinations(names, 2))
    if baseline not in names:
        raise CotextError(f"no system {baseline!r} to compare with; systems are {', '.join(names)}")
    return [(baseline, name) for name in names if name != baseline]


def bootstrap_scores(systems: Sequence[Statistics], resampling: Resampling) -> list[Floats]:
    """Return scores of corpora drawn with replacement; draws are sacrebleu's for the same seed."""
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
    return [np.concatenate(scores) for scores in drawn_scores]


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
    """Return the two-sided p-value of a randomisation test: the share of differences as large as observed."""
    count = int(np.sum(abs(differences) >= abs(observed) - _ROUNDING))
    return (count + 1) / (len(differences) + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct the p-values of a family of tests (Holm, 1979); the order stays.

    The smallest of m is multiplied by m, the next by m - 1 and so on; none becomes smaller than one before.
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
    `interval_95` comes from the bootstrap; a single document allows any difference.
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
    statistics = Statistics(counts, np.arange(len(counts)), "document", share(0, 1))
    interval = -100.0, 100.0
    if len(counts) > 1:
        interval = percentiles(bootstrap_scores([statistics], Resampling())[0])
    return McNemar(pairs[True, False], pairs[False, True], statistics.score, interval, flipped_counts(gains))


def gains_by_document(
    baseline: Sequence[bool], system: Sequence[bool], documents: Sequence[int]
) -> list[int]:
    """Return for each document, in their order, how many more cases the system decides right."""
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


def are_too_few(documents: int, tests: int = 1) -> bool:
    """Return whether no result over these documents can be significant, after correction for all tests.

    The smallest p, if all documents differ in the same direction, is 2 / 2^n.
    """
    return 2.0 ** (1 - documents) * tests >= SIGNIFICANT


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


def flipped_sums(differences: Sequence[float], samples: int, seed: int) -> float:
    """Return the two-sided p of differences by document, over all or, if many, `samples` patterns."""
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
