"""Sufficient statistics of all pairs of texts at once: each as hypothesis, with each as reference.

The counts are sacrebleu's, with its own preparation of texts and n-grams. Two texts share as many n-grams as
the smaller of the two counts of each says, and min(a, b) is the number of t = 1, 2 ... up to both: with a
column for every n-gram and t, the matches of all pairs are one product of a matrix with itself.

Shapes: K texts, S counts of a metric, G columns.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.helpers import extract_all_char_ngrams, extract_all_word_ngrams

from cotext.evaluation.statistics.sufficient_statistics import Floats

PairCounts = Callable[[Sequence[str]], Floats]  # K texts -> [K, K, S], hypothesis first


def pair_counts(metric: BLEU | CHRF) -> PairCounts:
    """The statistics of pairs under a metric, as it takes them of a segment with one reference."""
    return _Bleu(metric) if isinstance(metric, BLEU) else _Chrf(metric)


class _Bleu:
    """Lengths of both, matches by order, n-grams of the hypothesis by order."""

    def __init__(self, metric: BLEU) -> None:
        self._metric = metric

    def __call__(self, texts: Sequence[str]) -> Floats:
        orders = self._metric.max_ngram_order
        found = [extract_all_word_ngrams(self._metric._preprocess_segment(t), 1, orders) for t in texts]
        lengths = np.array([length for _, length in found], dtype=np.float64)
        by_order = [[_of_order(ngrams, n) for ngrams, _ in found] for n in range(1, orders + 1)]
        matches = np.stack([shared(counters) for counters in by_order], axis=2)
        totals = np.array([[counters[k].total() for counters in by_order] for k in range(len(texts))])
        size = len(texts)
        counts = np.empty((size, size, 2 + 2 * orders))
        counts[:, :, 0] = lengths[:, None]
        counts[:, :, 1] = lengths[None, :]
        counts[:, :, 2 : 2 + orders] = matches
        counts[:, :, 2 + orders :] = totals[:, None, :]
        return counts


def _of_order(ngrams: "Counter[Any]", n: int) -> "Counter[Any]":
    return Counter({ngram: count for ngram, count in ngrams.items() if len(ngram) == n})


class _Chrf:
    """N-grams of the hypothesis (0 where the reference has none), of the reference, and shared, by order."""

    def __init__(self, metric: CHRF) -> None:
        if metric.word_order:
            raise ValueError("chrF with word n-grams is not written here")
        self._metric = metric

    def __call__(self, texts: Sequence[str]) -> Floats:
        metric, size = self._metric, len(texts)
        found = [
            extract_all_char_ngrams(metric._preprocess_segment(t), metric.char_order, metric.whitespace)
            for t in texts
        ]
        counts = np.empty((size, size, 3 * metric.char_order))
        for order, counters in enumerate(zip(*found, strict=True)):
            totals = np.array([counter.total() for counter in counters], dtype=np.float64)
            counts[:, :, 3 * order] = totals[:, None] * (totals > 0)[None, :]
            counts[:, :, 3 * order + 1] = totals[None, :]
            counts[:, :, 3 * order + 2] = shared(counters)
        return counts


def shared(counters: "Sequence[Counter[Any]]") -> Floats:
    """How many elements every two of K counters have in common, [K, K]."""
    columns: dict[tuple[Hashable, int], int] = {}
    rows, at = [], []
    for row, counter in enumerate(counters):
        for element, count in counter.items():
            for t in range(count):
                rows.append(row)
                at.append(columns.setdefault((element, t), len(columns)))
    # Sums of ones are whole numbers, which float32 holds up to 16 million.
    has_KG = np.zeros((len(counters), len(columns)), dtype=np.float32)
    has_KG[rows, at] = 1
    matches: Floats = (has_KG @ has_KG.T).astype(np.float64)
    return matches
