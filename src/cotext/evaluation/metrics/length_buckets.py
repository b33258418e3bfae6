"""Scores of learned metrics by the length of what is scored: such metrics prefer short segments.

Quality estimation finds more errors in long segments than people do, and the mean over a test set hides it.
Segments (sentences, or the windows of SLIDE) are grouped by the length of their *source*, which is the same
for all systems, in words as `cotext.evaluation.metrics.forms.words_of` counts them: marks, and characters of
Chinese and Japanese, are words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

from cotext.data.documents import Document
from cotext.evaluation.metrics.bleu import Measurement
from cotext.evaluation.metrics.comet import Comet, slide_windows
from cotext.evaluation.metrics.contrastive import words_of
from cotext.evaluation.statistics.sufficient_statistics import Floats
from cotext.runtime.tables import render_rows

STARTS: Final = (0, 1, 11, 21, 41, 81, 161)  # words with which buckets begin; none, then 1 to 10, and so on


@dataclass(frozen=True, slots=True)
class LengthBuckets:
    """Mean scores of systems by length under one metric, and rank correlations of score and length.

    `scores` has the means of a system in the order of `names`; `segments` counts those of a bucket.
    """

    title: str
    names: tuple[str, ...]
    segments: tuple[int, ...]
    scores: dict[str, tuple[float, ...]]
    correlations: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Everything, for a JSON file; a correlation is not a number where all lengths or scores are one."""
        return {
            "unit": "source words",
            "buckets": list(self.names),
            "segments": list(self.segments),
            "scores": {name: list(values) for name, values in self.scores.items()},
            "rank_correlation": self.correlations,
        }

    def render(self) -> str:
        """A line for each bucket, a column for each system."""
        rows = [[f"{self.title} by source words", "segments", *self.scores]]
        for index, (name, count) in enumerate(zip(self.names, self.segments, strict=True)):
            values = [f"{of_system[index]:.2f}" for of_system in self.scores.values()]
            rows.append([name, str(count), *values])
        correlations = ["-" if np.isnan(value) else f"{value:+.2f}" for value in self.correlations.values()]
        rows.append(["rank correlation with length", "", *correlations])
        return render_rows(rows, left=1)


def by_length(
    measured: Mapping[str, Sequence[Measurement]], comet: Comet, source: Sequence[Document]
) -> dict[str, LengthBuckets]:
    """Buckets of each metric of a COMET model, as `comet_by_length` for COMET itself."""
    first, *_ = measured.values()
    found = {}
    for index, each in enumerate(first):
        segments = source
        if each.score.protocol == "slide":
            segments = slide_windows(source, comet.slide_sentences, comet.slide_stride)
        of_metric = {name: scores[index] for name, scores in measured.items()}
        found[f"{each.score.protocol}_by_length"] = length_buckets(of_metric, segments)
    return found


def length_buckets(measured: Mapping[str, Measurement], source: Sequence[Document]) -> LengthBuckets:
    """Group the segments of a metric that is a mean over them by the length of their source."""
    lengths = np.array([words_of(text).total() for document in source for text in document.sentences])
    first, *_ = measured.values()
    bucket = np.searchsorted(np.array(STARTS), lengths, side="right") - 1
    present = [index for index in range(len(STARTS)) if np.any(bucket == index)]
    stops = [*(later - 1 for _, later in pairwise(STARTS)), None]
    names = [_name(STARTS[index], stops[index]) for index in present]
    scores, correlations = {}, {}
    for name, measurement in measured.items():
        of_segment = measurement.statistics.scorer(measurement.statistics.counts)
        scores[name] = tuple(float(of_segment[bucket == index].mean()) for index in present)
        correlations[name] = rank_correlation(lengths.astype(np.float64), of_segment)
    return LengthBuckets(
        title=first.score.title,
        names=tuple(names),
        segments=tuple(int(np.sum(bucket == index)) for index in present),
        scores=scores,
        correlations=correlations,
    )


def rank_correlation(one: Floats, other: Floats) -> float:
    """Spearman's correlation, equal values sharing the mean of their ranks; not a number for constants."""
    first, second = (each - each.mean() for each in (_ranks(one), _ranks(other)))
    size = np.linalg.norm(first) * np.linalg.norm(second)
    return float(first @ second / size) if size > 0 else float("nan")


def _ranks(values: Floats) -> Floats:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    means: Floats = np.cumsum(counts) - (counts - 1) / 2
    return means[inverse]


def _name(first: int, last: int | None) -> str:
    if last is None:
        return f"{first} and more"
    return f"{first}" if first == last else f"{first}-{last}"
