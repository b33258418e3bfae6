"""Confidence of a translated sentence: the geometric mean of the probabilities of its tokens.

exp(log-probability / tokens), closing symbol included: between 0 and 1 for any length. With a language model,
whose scores are not probabilities, at most 1.
docs/results/terms.md has its correlation with quality.
"""

import math
from collections.abc import Sequence

from cotext.translation.translator import Translation

# The share of sentences that are marked. The confidence of good translations differs between runs (label
# smoothing, domain): a fixed limit would mark all of one file and none of another.
LEAST_SURE = 0.1


def confidences(translation: Translation) -> list[float | None]:
    """Return the confidence of every sentence; None without tokens, or for a document without scores."""
    if not translation.log_probabilities:
        return [None] * len(translation.tokens)
    pairs = zip(translation.log_probabilities, translation.tokens, strict=True)
    return [
        math.exp(min(log_probability / tokens, 0)) if tokens else None for log_probability, tokens in pairs
    ]


def least_sure(values: Sequence[float | None]) -> list[bool]:
    """Return which sentences of a file to mark: the tenth with the lowest confidence.

    None of fewer than ten; among equal values, the first.
    """
    # Sentences without a confidence are never marked.
    ranked = sorted((value, j) for j, value in enumerate(values) if value is not None)
    low = {j for _, j in ranked[: int(len(ranked) * LEAST_SURE)]}
    return [j in low for j in range(len(values))]
