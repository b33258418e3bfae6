"""Scores by length: buckets and rank correlation by hand."""

import math

import numpy as np
import pytest

from cotext.data.documents import Document
from cotext.evaluation.metrics.bleu import Measurement, Score
from cotext.evaluation.metrics.length_buckets import length_buckets, rank_correlation
from cotext.evaluation.statistics.sufficient_statistics import Floats, Statistics


def mean(sums: Floats) -> Floats:
    scores: Floats = 100 * sums[:, 0] / sums[:, 1]
    return scores


def measurement(scores: list[float]) -> Measurement:
    counts = np.array([(score, 1.0) for score in scores])
    statistics = Statistics(counts, np.zeros(len(scores), dtype=np.int64), "sentence", mean)
    return Measurement(Score("comet", "COMET", statistics.score, "", 1, len(scores), 0, {}), statistics)


def test_segments_are_grouped_by_the_words_of_their_source() -> None:
    source = [Document("a", ("", "one two", "w " * 10)), Document("b", ("w " * 11, "茶" * 21, "w " * 500))]
    systems = {"x": measurement([0.1, 0.2, 0.4, 0.5, 0.6, 0.7]), "y": measurement([0.3] * 6)}
    found = length_buckets(systems, source)
    assert found.names == ("0", "1-10", "11-20", "21-40", "161 and more")
    assert found.segments == (1, 2, 1, 1, 1)
    assert found.scores["x"] == pytest.approx((10, 30, 50, 60, 70))
    assert found.scores["y"] == pytest.approx((30,) * 5)
    assert found.correlations["x"] == pytest.approx(1)
    assert math.isnan(found.correlations["y"])
    lines = found.render().splitlines()
    assert lines[0].split() == ["COMET", "by", "source", "words", "segments", "x", "y"]
    assert lines[-1].split()[-2:] == ["+1.00", "-"]


def test_equal_values_share_their_ranks() -> None:
    # Ranks 1, 2.5, 2.5, 4 and 4, 3, 1.5, 1.5, less 2.5: the products add up to -2.25 - 0 - 0 - 1.5.
    assert rank_correlation(np.array([1.0, 2, 2, 9]), np.array([7.0, 5, 0, 0])) == pytest.approx(
        (-1.5 * 1.5 + 0 + 0 + 1.5 * -1) / math.sqrt((2.25 + 2.25) * (2.25 + 0.25 + 1 + 1))
    )
