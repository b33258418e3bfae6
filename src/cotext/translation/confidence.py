"""Confidence of a translated sentence: the geometric mean of the probabilities of its tokens.

exp(log-probability / tokens), the symbol that closes the sentence counted: between 0 and 1, whatever the
length. `docs/results/terms.md` has its correlation with quality.
"""

import math
from collections.abc import Sequence

from cotext.translation.translator import Translation

# The share of the sentences of a file that are marked. How probable good translations are differs from run to
# run (label smoothing, domain), so that a fixed limit would mark all of one file and none of another.
LEAST_SURE = 0.1


def confidences(translation: Translation) -> list[float | None]:
    """The confidence of every sentence of a document; None: it has no token, or the document no scores."""
    if not translation.log_probabilities:
        return [None] * len(translation.tokens)
    pairs = zip(translation.log_probabilities, translation.tokens, strict=True)
    return [math.exp(log_probability / tokens) if tokens else None for log_probability, tokens in pairs]


def least_sure(values: Sequence[float | None]) -> list[bool]:
    """Which sentences of a file are marked: the tenth of those that have a confidence, with the lowest.

    Of fewer than ten, none; which of equals is marked is decided by their order.
    """
    ranked = sorted((value, j) for j, value in enumerate(values) if value is not None)
    low = {j for _, j in ranked[: int(len(ranked) * LEAST_SURE)]}
    return [j in low for j in range(len(values))]
