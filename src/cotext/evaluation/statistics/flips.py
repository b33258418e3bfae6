"""Paired tests by flipping the signs of documents.

Where two ways of deciding are equally good, the difference that a document makes could as well have the
opposite sign. p is the share of all 2^n patterns of signs under which the differences of n documents add up
to at least as much, one way or the other (Fisher's randomisation test; Riezler and Maxwell, 2005). Examples
of one document keep together: they are not independent. With one example a document it is McNemar's test.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cotext.evaluation.statistics.significance import McNemar, mcnemar
from cotext.runtime.errors import CotextError

SIGNIFICANT = 0.05
ALL_PATTERNS = 13  # documents: so many have fewer patterns than are drawn
_DRAWS_AT_ONCE = 4_000_000
_ROUNDING = 1e-9


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
    least = abs(values.sum()) - _ROUNDING * max(1.0, float(abs(values).sum()))
    if len(values) <= ALL_PATTERNS:
        patterns = np.arange(2 ** len(values))[:, None] >> np.arange(len(values)) & 1
        return float(np.mean(abs((1 - 2 * patterns) @ values) >= least))
    generator = np.random.default_rng(seed)
    as_extreme = done = 0
    while done < samples:
        size = min(samples - done, max(1, _DRAWS_AT_ONCE // len(values)))
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
