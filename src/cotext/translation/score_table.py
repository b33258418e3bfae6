"""Sentence scores as a table and as JSON: the output of `score` and of `translate --scores`."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

from cotext.runtime.errors import CotextError, shown
from cotext.translation.scorer import SentenceScore

COLUMNS = ("document", "sentence", "log_probability", "tokens")
ScoredDocument = tuple[str, list[SentenceScore]]  # its id, and a score for every sentence


def require_column(document: str) -> None:
    """Refuse an id that cannot stand in a column.

    Raises:
        CotextError: it holds what ends a column or a line.
    """
    if any(c in document for c in "\t\n\r"):
        raise CotextError(
            f"document id {shown(document)} holds a tab or the end of a line, which would shift the columns "
            "of the table: rename the document, or score the text by `cotext score --json`"
        )


def score_lines(documents: Iterable[ScoredDocument]) -> Iterator[str]:
    """A table with tabs between columns: a heading, then a line for every sentence.

    Raises:
        CotextError: as `require_column`.
    """
    yield "\t".join(COLUMNS)
    for document, scores in documents:
        require_column(document)
        for number, score in enumerate(scores, start=1):
            yield f"{document}\t{number}\t{score.log_probability:.6f}\t{score.tokens}"


def score_figures(documents: Iterable[ScoredDocument], signature: str) -> dict[str, Any]:
    """The same for programs; a probability of 0, possible in non-autoregressive models, is None."""

    def number(value: float) -> float | None:
        return value if math.isfinite(value) else None

    listed = [
        {
            "id": document,
            "log_probabilities": [number(score.log_probability) for score in scores],
            "tokens": [score.tokens for score in scores],
        }
        for document, scores in documents
    ]
    return {"format": "cotext-scores", "version": 1, "signature": signature, "documents": listed}
