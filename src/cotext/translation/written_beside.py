"""Tables of scores, and the files written next to a translated corpus: scores and n-best lists."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from cotext.data.documents import ParallelDocument
from cotext.data.formats.streams import atomic_sinks
from cotext.data.nbest_lists import ListedDocument, write_documents
from cotext.runtime import CotextError, shown
from cotext.translation.open import OpenedRun
from cotext.translation.scorer import SentenceScore
from cotext.translation.translator import Translation

COLUMNS = ("document", "sentence", "log_probability", "tokens")
ScoredDocument = tuple[str, list[SentenceScore]]  # its id, and a score for every sentence


def require_column(document: str) -> None:
    """Raise CotextError for a document id with a tab or a line break, which would end a column or line."""
    if any(c in document for c in "\t\n\r"):
        raise CotextError(
            f"document id {shown(document)} contains a tab or a line break, which would shift the columns of "
            "the table; rename the document, or use `cotext score --json`"
        )


def score_lines(documents: Iterable[ScoredDocument]) -> Iterator[str]:
    """Yield the lines of a table with tabs between columns: a heading, then one line per sentence."""
    yield "\t".join(COLUMNS)
    for document, scores in documents:
        require_column(document)
        for number, score in enumerate(scores, start=1):
            yield f"{document}\t{number}\t{score.log_probability:.6f}\t{score.tokens}"


def score_figures(documents: Iterable[ScoredDocument], signature: str) -> dict[str, Any]:
    """Return scores as JSON content; a probability of 0, possible in non-autoregressive models, is None."""

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


LISTS: Final = ".nbest.jsonl"


def write_scores(path: Path, translations: Iterable[Translation]) -> None:
    """Write the log-probabilities of the output tokens of every sentence."""
    documents = (
        (t.document.id, list(map(SentenceScore, t.log_probabilities, t.tokens))) for t in translations
    )
    with atomic_sinks([path]) as [sink]:
        for line in score_lines(documents):
            sink.write(f"{line}\n")


def lists_beside(out: Path) -> Path:
    """Return the file with the n-best lists of an output."""
    return out.with_name(f"{out.name}{LISTS}")


def remove_lists(out: Path) -> None:
    """Remove the lists of an output that will be replaced by one without lists."""
    lists_beside(out).unlink(missing_ok=True)


def require_no_lists(opened: OpenedRun, what: str) -> None:
    """Raise CotextError if a run writes n-best lists; `what`: name of an input that cannot have lists."""
    if (nbest := opened.config.decode.nbest) > 1:
        raise CotextError(
            f"{what}: decode.nbest = {nbest}: n-best lists can be written only for corpora with one sentence "
            "per line, and not with --on; add --set nbest=1"
        )


def write_lists(
    out: Path,
    pairs: Iterable[ParallelDocument],
    translations: Iterable[Translation],
    nbest: int,
    signature: str,
) -> None:
    """Write the lists of a translated corpus; `pairs`: its source and the written output.

    Sentences without text are not translated. Their list has one entry, the output line.
    """
    with atomic_sinks([lists_beside(out)]) as [sink]:
        write_documents(sink, _listed(pairs, translations), nbest, f"{signature}|nbest:{nbest}")


def _listed(
    pairs: Iterable[ParallelDocument], translations: Iterable[Translation]
) -> Iterator[ListedDocument]:
    for pair, translation in zip(pairs, translations, strict=True):
        lists = []
        for text, (first, *others) in zip(pair.target, translation.lists, strict=True):
            lists.append((first._replace(text=text), *others))
        yield ListedDocument(pair.id, tuple(lists))
