"""Statistics of a corpus in one pass, in bounded memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # `cotext info` imports this module, and should not wait for the import of pyarrow
    from cotext.data.store import Flat

PERCENTILES: Final = (50, 90, 99)
# A pair is an outlier if the longer side has at least OUTLIER_TOKENS, and more than OUTLIER_RATIO times the
# tokens of the other side.
OUTLIER_TOKENS: Final = 10
OUTLIER_RATIO: Final = 3

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Distribution:
    """Percentiles (nearest rank), maximum and mean of a count."""

    percentiles: dict[int, int]
    maximum: int
    mean: float


@dataclass(frozen=True, slots=True)
class BothSides:
    """A distribution for each side."""

    source: Distribution
    target: Distribution


@dataclass(frozen=True, slots=True)
class SplitStatistics:
    """Statistics of one split; lengths are in tokens."""

    documents: int
    sentences: int
    source_tokens: int
    target_tokens: int
    mean_sentence_tokens: float
    sentence_tokens: BothSides
    document_tokens: BothSides
    document_sentences: Distribution
    empty_sentences: tuple[int, int]
    unknown_token_rate: tuple[float, float]
    ratio_outliers: int


class Histogram:
    """Histogram of natural numbers; numbers of at least `limit` share one bin, so that memory is bounded."""

    def __init__(self, limit: int = 1 << 20) -> None:
        self._limit = limit
        self._counts: Counts = np.zeros(64, np.int64)
        self._number = 0
        self.sum = 0
        self._maximum = 0

    def add(self, values: Counts) -> None:
        if not len(values):
            return
        self._number += len(values)
        self.sum += int(values.sum())
        self._maximum = max(self._maximum, int(values.max()))
        fresh = np.bincount(np.minimum(values, self._limit))
        if len(fresh) > len(self._counts):
            self._counts = np.pad(self._counts, (0, 2 * len(fresh) - len(self._counts)))
        self._counts[: len(fresh)] += fresh

    def distribution(self) -> Distribution:
        """Return the distribution of the numbers added so far; percentiles above the limit are the limit."""
        cumulative = np.cumsum(self._counts)
        ranks = {q: -(-q * self._number // 100) for q in PERCENTILES}
        return Distribution(
            {q: int(np.searchsorted(cumulative, max(rank, 1))) if rank else 0 for q, rank in ranks.items()},
            self._maximum,
            self.sum / max(self._number, 1),
        )


class StatisticsCollector:
    """A collector of the statistics of one split, chunk by chunk."""

    def __init__(self, unk: int) -> None:
        self._unk = unk
        self._sentence_tokens = Histogram(), Histogram()
        self._document_tokens = Histogram(), Histogram()
        self._document_sentences = Histogram()
        self._documents = 0
        self._empty = [0, 0]
        self._unknown = [0, 0]
        self._outliers = 0

    def add(self, sizes: Sequence[int], source_side: "Flat", target_side: "Flat") -> None:
        """Count documents. `sizes`: sentences of each (at least 1). Sides are concatenated over documents."""
        counts = np.array(sizes, np.int64)
        starts = np.cumsum(counts) - counts
        self._documents += len(counts)
        self._document_sentences.add(counts)
        sides = source_side, target_side
        source, target = (side.lengths.astype(np.int64) for side in sides)
        for side, lengths in enumerate((source, target)):
            self._sentence_tokens[side].add(lengths)
            self._document_tokens[side].add(np.add.reduceat(lengths, starts))
            self._empty[side] += int((lengths == 0).sum())
            self._unknown[side] += int((sides[side].tokens == self._unk).sum())
        longer, shorter = np.maximum(source, target), np.minimum(source, target)
        self._outliers += int(((longer >= OUTLIER_TOKENS) & (longer > OUTLIER_RATIO * shorter)).sum())

    def statistics(self) -> SplitStatistics:
        sentences, unknown = self._document_sentences.sum, self._unknown
        source_tokens, target_tokens = (histogram.sum for histogram in self._sentence_tokens)
        return SplitStatistics(
            documents=self._documents,
            sentences=sentences,
            source_tokens=source_tokens,
            target_tokens=target_tokens,
            mean_sentence_tokens=(source_tokens + target_tokens) / max(2 * sentences, 1),
            sentence_tokens=BothSides(*(histogram.distribution() for histogram in self._sentence_tokens)),
            document_tokens=BothSides(*(histogram.distribution() for histogram in self._document_tokens)),
            document_sentences=self._document_sentences.distribution(),
            empty_sentences=(self._empty[0], self._empty[1]),
            unknown_token_rate=(unknown[0] / max(source_tokens, 1), unknown[1] / max(target_tokens, 1)),
            ratio_outliers=self._outliers,
        )
