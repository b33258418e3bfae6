"""Tables of scores, and what is written beside a translated corpus: scores and lists of translations."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from cotext.data.documents import ParallelDocument
from cotext.data.formats.streams import atomic_sinks
from cotext.data.nbest_lists import ListedDocument, write_documents
from cotext.runtime.errors import CotextError, shown
from cotext.translation.open import OpenedRun
from cotext.translation.scorer import SentenceScore
from cotext.translation.translator import Translation

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


LISTS: Final = ".nbest.jsonl"


def write_scores(path: Path, translations: Iterable[Translation]) -> None:
    """Write the log-probabilities of the tokens that were written for every sentence."""
    documents = (
        (t.document.id, list(map(SentenceScore, t.log_probabilities, t.tokens))) for t in translations
    )
    with atomic_sinks([path]) as [sink]:
        for line in score_lines(documents):
            sink.write(f"{line}\n")


def lists_beside(out: Path) -> Path:
    """Where the lists of an output stand."""
    return out.with_name(f"{out.name}{LISTS}")


def check_new_lists(out: Path) -> None:
    """Refuse to replace lists that nobody has said may be replaced.

    Raises:
        CotextError: they are there.
    """
    if (lists := lists_beside(out)).exists():
        raise CotextError(f"{lists}: exists; choose another --out, or add --overwrite to replace it")


def remove_lists(out: Path) -> None:
    """Remove lists beside an output that is going to be replaced by one without any."""
    lists_beside(out).unlink(missing_ok=True)


def require_no_lists(opened: OpenedRun, what: str) -> None:
    """Refuse a run that makes lists where none are written.

    Raises:
        CotextError: `decode.nbest` above 1; `what` is translated.
    """
    if (nbest := opened.config.decode.nbest) > 1:
        raise CotextError(
            f"{what}: decode.nbest = {nbest}: lists are written beside corpora, a sentence a line, that are "
            "translated here; add --set nbest=1"
        )


def write_lists(
    out: Path,
    pairs: Iterable[ParallelDocument],
    translations: Iterable[Translation],
    nbest: int,
    signature: str,
) -> None:
    """Write the lists of a translated corpus; `pairs` has its documents as they are written.

    Sentences that were not translated, as nothing of them is text, have the one line that the output has.
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
