"""Corpus scores as functions of sums, so that resampling scores ten thousand corpora in seconds.

The counts of each segment are computed once (by sacrebleu for its own metrics). A corpus drawn from the
segments is scored from a sum of rows, and many such corpora by a few array operations.

For minimum Bayes risk, the counts of all pairs of texts are computed at once. Each n-gram has one column for
its first occurrence, one for its second, and so on. A text has a 1 in the column of each occurrence. The
product of this matrix with its transpose contains the numbers of matches of all pairs.

Shapes: R corpora, K texts, S counts of a metric, G columns.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.helpers import extract_all_char_ngrams
from sacrebleu.metrics.ter import TER

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
CorpusMetric = BLEU | CHRF | TER
Unit = Literal["sentence", "piece", "document"]

# Maps sums of counts [R, S] to scores [R].
SumScorer = Callable[[Floats], Floats]


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """Counts [segments, S] of a hypothesis, the document of each segment, and the scorer of their sum."""

    counts: Floats
    document: Integers
    unit: Unit
    scorer: SumScorer

    @property
    def score(self) -> float:
        return float(self.scorer(self.counts.sum(axis=0, keepdims=True))[0])

    def by(self, unit: Unit) -> tuple[Floats, Unit]:
        """Return counts and their unit: summed by document if requested, otherwise those of the segments."""
        if unit != "document" or self.unit == "document":
            return self.counts, self.unit
        summed = np.zeros((int(self.document.max()) + 1, self.counts.shape[1]))
        np.add.at(summed, self.document, self.counts)
        return summed, "document"


def share(part: int, whole: int, scale: float = 100.0) -> SumScorer:
    """Return a scorer: one column divided by another, times `scale`; NaN if the divisor is 0."""

    def score(sums: Floats) -> Floats:
        shares: Floats = scale * sums[:, part] / np.where(sums[:, whole] > 0, sums[:, whole], np.nan)
        return shares

    return score


def sum_scorer(metric: CorpusMetric) -> SumScorer:
    """Return the vectorised formula of a metric; BLEU is smoothed exponentially or not at all."""
    if isinstance(metric, BLEU):
        exponential = metric.smooth_method == "exp"
        return lambda sums: bleu_from_sums(sums, exponential)
    if isinstance(metric, CHRF):
        beta = metric.beta
        return lambda sums: chrf_from_sums(sums, beta)
    return ter_from_sums


def bleu_from_sums(sums: Floats, exponential_smoothing: bool) -> Floats:
    """Return BLEU of R corpora from hypothesis length, reference length, matches and totals by n-gram order.

    For orders without matches, exponential smoothing (NIST) counts 1/2, 1/4, ... matches; without it, scores
    are 0. Scores are always 0 if no word matches, or the hypothesis is shorter than the highest order.
    """
    orders = (sums.shape[1] - 2) // 2
    length, reference = sums[:, 0], sums[:, 1]
    matched, total = sums[:, 2 : 2 + orders], sums[:, 2 + orders :]
    some = total > 0
    zero = (matched == 0) & some
    divisor = np.where(some, total, 1.0)
    precision = matched / divisor
    if exponential_smoothing:
        precision = np.where(zero, 0.5 ** np.cumsum(zero, axis=1) / divisor, precision)
    scored = np.all((precision > 0) & some, axis=1) & np.any(matched > 0, axis=1)
    safe = np.where(np.expand_dims(scored, 1), precision, 1.0)
    shortfall = 1.0 - reference / np.where(length > 0, length, 1.0)
    brevity = np.where(length > 0, np.exp(np.minimum(shortfall, 0.0)), 0.0)
    return np.where(scored, 100.0 * brevity * np.exp(np.log(safe).mean(axis=1)), 0.0)


def chrf_from_sums(sums: Floats, beta: float) -> Floats:
    """Return chrF of R corpora from (hypothesis, reference, matched) of each order that both sides have."""
    counts = sums.reshape(len(sums), -1, 3)
    hypothesis, reference, matched = counts[..., 0], counts[..., 1], counts[..., 2]
    both = (hypothesis > 0) & (reference > 0)
    orders = np.maximum(both.sum(axis=1), 1)
    precision = np.where(both, matched / np.where(both, hypothesis, 1.0), 0.0).sum(axis=1) / orders
    recall = np.where(both, matched / np.where(both, reference, 1.0), 0.0).sum(axis=1) / orders
    weighted = beta**2 * precision + recall
    good = weighted > 0
    scores: Floats = 100.0 * (1 + beta**2) * precision * recall / np.where(good, weighted, 1.0) * good
    return scores


def ter_from_sums(sums: Floats) -> Floats:
    """Return TER of R corpora from edits and reference length."""
    edits, length = sums[:, 0], sums[:, 1]
    return 100.0 * np.where(length > 0, edits / np.where(length > 0, length, 1.0), (edits > 0) * 1.0)


def chrf_pairs(metric: CHRF, texts: Sequence[str]) -> Floats:
    """Return the chrF counts of all pairs of K texts, [K, K, S]; the first index is the hypothesis.

    For each order: n-grams of the hypothesis (0 if the reference has none), of the reference, and of both.
    """
    extracted = [
        extract_all_char_ngrams(metric._preprocess_segment(t), metric.char_order, metric.whitespace)
        for t in texts
    ]
    counts = np.empty((len(texts), len(texts), 3 * metric.char_order))
    for order, counters in enumerate(zip(*extracted, strict=True)):
        totals = np.array([counter.total() for counter in counters], dtype=np.float64)
        counts[:, :, 3 * order] = totals[:, None] * (totals > 0)[None, :]
        counts[:, :, 3 * order + 1] = totals[None, :]
        counts[:, :, 3 * order + 2] = shared(counters)
    return counts


def shared(counters: "Sequence[Counter[Any]]") -> Floats:
    """Return the number of elements that every two of K counters have in common, [K, K]."""
    columns: dict[tuple[Hashable, int], int] = {}
    rows, at = [], []
    for row, counter in enumerate(counters):
        for element, count in counter.items():
            for t in range(count):
                rows.append(row)
                at.append(columns.setdefault((element, t), len(columns)))
    # Sums of ones are integers, which float32 represents exactly up to 16 million.
    has_KG = np.zeros((len(counters), len(columns)), dtype=np.float32)
    has_KG[rows, at] = 1
    matches: Floats = (has_KG @ has_KG.T).astype(np.float64)
    return matches
