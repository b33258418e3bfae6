"""Paired significance tests between systems, over documents.

Sentences of a document are not independent of each other, and a document system's errors least of all, so
the unit that is drawn or swapped is the document; sentences are there for comparison with other tools. The
same draws serve all systems and all scores. Every p-value is two-sided and counts the observed
corpus among the samples (the +1 rule), so that it is never 0 and never too small; Koehn's alone is one-sided
and a plain share, as published.

Paired tests by flipping the signs of documents.

Where two ways of deciding are equally good, the difference that a document makes could as well have the
opposite sign. p is the share of all 2^n patterns of signs under which the differences of n documents add up
to at least as much, one way or the other (Fisher's randomisation test; Riezler and Maxwell, 2005). Examples
of one document keep together: they are not independent. With one example a document it is McNemar's test.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np

from cotext.evaluation.statistics.sufficient_statistics import Floats, Statistics, Unit
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.version import __version__

Test = Literal["randomisation", "bootstrap", "koehn"]
TESTS: tuple[Test, ...] = ("randomisation", "bootstrap", "koehn")
MAX_SAMPLES = 10_000_000
_ROUNDING = 1e-9  # differences this close are equal
_DRAWS_AT_ONCE = 2_000_000
_Z_95_PERCENT = 1.959963984540054


@dataclass(frozen=True, slots=True, kw_only=True)
class Resampling:
    """Settings of a paired test.

    `randomisation` asks how often swapping the two systems' outputs at random, unit by unit, makes their
    scores differ at least as much (Riezler and Maxwell, 2005). The others draw the units of test sets of the
    same size with replacement. `bootstrap` is the centred test, which is sacrebleu's too: how often does the
    difference stray at least as far from its mean as the observed one is from 0? `koehn` is that of Koehn
    (2004, section 4): in what share of the sets is the system that is ahead not better? Significant at 0.05
    is what is better in 95 per cent of them. The intervals come from the bootstrap under all.
    """

    test: Test = "randomisation"
    unit: Unit = "document"
    samples: int = 10_000
    seed: int = 12345

    def __post_init__(self) -> None:
        for name, value, known in (("test", self.test, TESTS), ("unit", self.unit, ("document", "sentence"))):
            if value not in known:
                raise CotextError(f"unknown {name} {value!r} for a paired test; choose {' or '.join(known)}")
        if self.samples < 100:
            raise CotextError(f"{self.samples} samples are too few for a paired test; take 1000 or more")
        if self.samples > MAX_SAMPLES:
            raise CotextError(f"{shown(self.samples)} samples are too many; take at most {MAX_SAMPLES:,}")
        if self.seed < 0:
            raise CotextError(f"seed {shown(self.seed)}: give a number of 0 or more")


@dataclass(frozen=True, slots=True)
class SystemDifference:
    """One system against another under one score.

    `difference` is the system's score less the baseline's, `interval_95` its percentile interval. `ahead` is
    the share of bootstrap samples in which the system's score is the higher *number* (a tie counts half).
    `p_corrected` holds for all comparisons made under this score (Holm, 1979).
    """

    baseline: str
    system: str
    difference: float
    interval_95: tuple[float, float]
    ahead: float
    p: float
    p_corrected: float


@dataclass(frozen=True, slots=True)
class PairedTest:
    """All comparisons under one score, and the bootstrap interval of each system's own score."""

    signature: str
    unit: Unit
    units: int
    intervals_95: dict[str, tuple[float, float]]
    comparisons: tuple[SystemDifference, ...]

    def as_dict(self) -> dict[str, Any]:
        """Everything, for a JSON file."""
        return asdict(self)


def paired_test(
    systems: Mapping[str, Statistics], baseline: str | None = None, resampling: Resampling | None = None
) -> PairedTest:
    """Compare systems by the counts of their hypotheses: all with `baseline`, or, if None, all pairs.

    Raises CotextError when there are fewer than two systems or units, or no such baseline.
    """
    chosen = resampling or Resampling()
    pairs = compared_pairs(list(systems), baseline)
    counts, unit = systems[pairs[0][0]].by(chosen.unit)
    units = len(counts)
    if units < 2:
        raise CotextError(
            f"a paired test needs at least two units to draw from, and the corpus has {units} ({unit}); "
            "give more documents, or resample sentences"
        )
    drawn = dict(zip(systems, bootstrap_scores(list(systems.values()), chosen), strict=True))
    found = []
    for one, other in pairs:
        observed = systems[other].score - systems[one].score
        differences = drawn[other] - drawn[one]
        if chosen.test == "bootstrap":
            p = shifted_p(differences, observed)
        elif chosen.test == "koehn":
            p = reversed_p(differences, observed)
        else:
            p = swapped_p(swapped_differences(systems[one], systems[other], chosen), observed)
        ahead = np.mean(differences > _ROUNDING) + np.mean(abs(differences) <= _ROUNDING) / 2
        found.append((one, other, observed, percentiles(differences), float(ahead), p))
    corrected = holm([p for *_, p in found])
    return PairedTest(
        signature="|".join(
            (
                f"test:{chosen.test}|unit:{unit}|n:{units}|samples:{chosen.samples}|seed:{chosen.seed}",
                f"sides:{1 if chosen.test == 'koehn' else 2}|correction:holm-{len(pairs)}",
                f"interval:bootstrap-percentile|version:cotext-{__version__}",
            )
        ),
        unit=unit,
        units=units,
        intervals_95={name: percentiles(scores) for name, scores in drawn.items()},
        comparisons=tuple(
            SystemDifference(*row, p_corrected=value) for row, value in zip(found, corrected, strict=True)
        ),
    )


def compared_pairs(names: Sequence[str], baseline: str | None) -> list[tuple[str, str]]:
    """Pairs of systems to compare, the baseline first."""
    if len(names) < 2:
        raise CotextError("a paired test compares systems; give at least two")
    if baseline is None:
        return list(combinations(names, 2))
    if baseline not in names:
        raise CotextError(f"no system {baseline!r} to compare with; there are {', '.join(names)}")
    return [(baseline, name) for name in names if name != baseline]


def bootstrap_scores(systems: Sequence[Statistics], resampling: Resampling) -> list[Floats]:
    """Scores of each system on the same corpora, their units drawn with replacement.

    The draws are those of sacrebleu for the same seed.
    """
    matrices = [statistics.by(resampling.unit)[0] for statistics in systems]
    units = len(matrices[0])
    joined = np.concatenate(matrices, axis=1)
    generator = np.random.default_rng(resampling.seed)
    ends = np.cumsum([matrix.shape[1] for matrix in matrices])[:-1]
    found: list[list[Floats]] = [[] for _ in systems]
    for size in _chunks(resampling.samples, max(units, joined.shape[1])):
        drawn = generator.choice(units, size=(size, units), replace=True)
        drawn += np.arange(size)[:, None] * units
        times = np.bincount(drawn.ravel(), minlength=size * units).reshape(size, units)
        parts = np.split(times.astype(np.float64) @ joined, ends, axis=1)
        for scores, statistics, part in zip(found, systems, parts, strict=True):
            scores.append(statistics.scorer(part))
    return [np.concatenate(scores) for scores in found]


def swapped_differences(one: Statistics, other: Statistics, resampling: Resampling) -> Floats:
    """Differences in score (other less one) after swapping their outputs, each unit with probability 1/2.

    The draws are those of sacrebleu for the same seed.
    """
    first, second = one.by(resampling.unit)[0], other.by(resampling.unit)[0]
    total, apart = first.sum(axis=0) + second.sum(axis=0), first - second
    generator = np.random.default_rng(resampling.seed)
    rows = []
    for size in _chunks(resampling.samples, len(first)):
        kept = generator.integers(2, size=(size, len(first)), dtype=bool)
        sums = kept.astype(np.float64) @ apart + second.sum(axis=0)
        rows.append(one.scorer(total - sums) - one.scorer(sums))
    return np.concatenate(rows)


def swapped_p(differences: Floats, observed: float) -> float:
    """Two-sided p-value of a randomisation test: samples that differ at least as much as observed."""
    return _share(int(np.sum(abs(differences) >= abs(observed) - _ROUNDING)), len(differences))


def shifted_p(differences: Floats, observed: float) -> float:
    """Two-sided p-value of the centred bootstrap test, the samples shifted to a mean of 0.

    sacrebleu shifts absolute differences and so counts one tail, which is about half of this.
    """
    strayed = abs(differences - differences.mean())
    return _share(int(np.sum(strayed >= abs(observed) - _ROUNDING)), len(differences))


def reversed_p(differences: Floats, observed: float) -> float:
    """Share of bootstrap samples whose difference has not the sign of that observed (Koehn, 2004).

    A tie is no win. As the share is that of the samples alone, it may be 0.
    """
    return float(np.mean(differences * np.sign(observed) <= _ROUNDING))


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values of a family of tests (Holm, 1979), in the order given.

    The smallest of m is multiplied by m, the next by m - 1 and so on; none falls below a smaller one's.
    """
    corrected, floor = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        floor = max(floor, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = floor
    return corrected


@dataclass(frozen=True, slots=True)
class McNemar:
    """Two systems that decided the same cases (McNemar, 1947).

    `only_baseline` and `only_system` count the cases that one of them alone decided right; `difference` is
    that of the accuracies in points of per cent, system less baseline, and `interval_95` the adjusted Wald
    interval of Bonett and Price (2012). `p_exact` is the binomial test, `p_mid` counts the observed outcome
    half (Fagerland, Lydersen and Laake, 2013): less conservative, and what to report. `documents`: how many
    the cases are of, each of its own if there are as many as cases.
    """

    only_baseline: int
    only_system: int
    total: int
    documents: int
    difference: float
    interval_95: tuple[float, float]
    p_exact: float
    p_mid: float

    def as_dict(self) -> dict[str, Any]:
        """Everything, for a JSON file."""
        return asdict(self)


def mcnemar(baseline: Sequence[bool], system: Sequence[bool]) -> McNemar:
    """Compare two systems' decisions on the same cases, right or not, in the same order."""
    if len(baseline) != len(system) or not baseline:
        raise CotextError(f"{len(baseline)} decisions cannot be compared with {len(system)}")
    pairs = list(zip(baseline, system, strict=True))
    lost, won, total = pairs.count((True, False)), pairs.count((False, True)), len(pairs)
    exact, mid = _binomial_half(min(lost, won), lost + won)
    less, more = (lost + 1) / (total + 2), (won + 1) / (total + 2)
    half = _Z_95_PERCENT * math.sqrt((less + more - (more - less) ** 2) / (total + 2))
    return McNemar(
        only_baseline=lost,
        only_system=won,
        total=total,
        documents=total,
        difference=100.0 * (won - lost) / total,
        interval_95=(max(-100.0, 100.0 * (more - less - half)), min(100.0, 100.0 * (more - less + half))),
        p_exact=exact,
        p_mid=mid,
    )


def _binomial_half(smaller: int, trials: int) -> tuple[float, float]:
    """Two-sided p-values, exact and mid-p, of the smaller count of fair coin tosses.

    In whole numbers until the last division: exact for any number of trials.
    """
    term = tail = 1
    for successes in range(1, smaller + 1):
        term = term * (trials - successes + 1) // successes
        tail += term
    return min(1.0, 2 * tail / 2**trials), (2 * tail - term) / 2**trials


def _share(count: int, samples: int) -> float:
    return (count + 1) / (samples + 1)


def percentiles(values: Floats) -> tuple[float, float]:
    """The ends of the middle 95 per cent."""
    low, high = np.percentile(values, (2.5, 97.5))
    return float(low), float(high)


def _chunks(samples: int, units: int) -> Iterator[int]:
    """Sizes that bound memory; multiples of 32, at which drawing in parts is drawing at once."""
    size = max(32, _DRAWS_AT_ONCE // units // 32 * 32)
    for start in range(0, samples, size):
        yield min(size, samples - start)


SIGNIFICANT = 0.05
ALL_PATTERNS = 13  # documents: so many have fewer patterns than are drawn
_FLIPS_AT_ONCE = 4_000_000
_RELATIVE_ROUNDING = 1e-9


def least_p(documents: int) -> float:
    """The smallest p that flipping the signs of so many documents can give: when all differ the same way."""
    return min(1.0, 2.0 ** (1 - documents))


def flipped_counts(differences: Sequence[int]) -> tuple[float, float]:
    """Two-sided p-values, exact and mid-p, of whole differences, one a document; over all patterns.

    The distribution of the sum is built up document by document, so that any number of them is exact.
    """
    sizes = [abs(each) for each in differences if each]
    # Of all that is won or lost, how much a pattern counts as lost.
    shares = np.ones(1)
    for size in sizes:
        wider = np.zeros(len(shares) + size)
        wider[: len(shares)] += shares / 2
        wider[size:] += shares / 2
        shares = wider
    smaller = (sum(sizes) - abs(sum(differences))) // 2
    tail, term = float(shares[: smaller + 1].sum()), float(shares[smaller])
    return min(1.0, 2 * tail), min(1.0, 2 * tail - term)


def flipped_sums(differences: Sequence[float], samples: int, seed: int) -> float:
    """Two-sided p-value of any differences, one a document.

    Over all patterns where these are few; else over `samples` drawn ones, the observed one among them.
    """
    values = np.asarray(differences, dtype=np.float64)
    least = abs(values.sum()) - _RELATIVE_ROUNDING * max(1.0, float(abs(values).sum()))
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


def mcnemar_by_document(
    baseline: Sequence[bool], system: Sequence[bool], documents: Sequence[int]
) -> McNemar:
    """Compare two systems' decisions on the same cases, those of a document flipped together.

    `documents` has the number of its document for every case. The interval is widened by the design effect:
    what the variance of the difference by documents is to that by cases, where it is more (Kish, 1965).

    Raises:
        CotextError: unequal numbers of decisions and documents, or none.
    """
    found = mcnemar(baseline, system)
    if len(documents) != len(baseline):
        raise CotextError(f"{len(baseline)} decisions cannot be of {len(documents)} documents")
    sizes = Counter(documents)
    if len(sizes) == len(documents):
        return found
    won: Counter[int] = Counter()
    for before, after, document in zip(baseline, system, documents, strict=True):
        won[document] += int(after) - int(before)
    exact, mid = flipped_counts([won[document] for document in sizes])
    mean = (found.only_system - found.only_baseline) / found.total
    by_document = sum((won[document] - mean * size) ** 2 for document, size in sizes.items())
    by_case = found.only_baseline + found.only_system - found.total * mean**2
    wider = math.sqrt(max(1.0, by_document / by_case)) if by_case > 0 else 1.0
    low, high = found.interval_95
    middle = (low + high) / 2
    return replace(
        found,
        documents=len(sizes),
        p_exact=exact,
        p_mid=mid,
        interval_95=(
            max(-100.0, middle - wider * (middle - low)),
            min(100.0, middle + wider * (high - middle)),
        ),
    )
