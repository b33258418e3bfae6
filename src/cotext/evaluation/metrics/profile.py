"""Quality against position in the document, and against the length of documents.

Sentences that stand alike in their documents, or documents of like length, are scored as a corpus of their
own, under any protocol of `cotext.evaluation.metrics.bleu`. By position, a document of a document-level
protocol is what of it stands there. By length, d-BLEU of each bucket is what papers plot to show where long
documents fail.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cotext.data.documents import Document
from cotext.evaluation.metrics.interface import Score, check_correspondence, evaluate
from cotext.runtime.errors import CotextError
from cotext.runtime.tables import render_rows

# Where buckets begin; the last has no end.
POSITIONS: Final = (1, 2, 3, 5, 9, 17, 33, 65)
LENGTHS: Final = (1, 2, 3, 5, 9, 17, 33, 65)
TITLES: Final = {"position": "position in the document", "length": "sentences in the document"}


@dataclass(frozen=True, slots=True)
class Bucket:
    """A part of a corpus and, of each system, its scores there under every protocol."""

    first: int
    last: int | None  # None: no end
    documents: int
    sentences: int
    scores: tuple[tuple[Score, ...], ...]

    @property
    def name(self) -> str:
        """As in 3, 5-8 or 65-."""
        if self.last == self.first:
            return str(self.first)
        return f"{self.first}-{'' if self.last is None else self.last}"

    def as_dict(self) -> dict[str, Any]:
        """Everything, for a JSON file."""
        return {
            "first": self.first,
            "last": self.last,
            "documents": self.documents,
            "sentences": self.sentences,
            "scores": [[score.as_dict() for score in system] for system in self.scores],
        }


def by_position(
    hypotheses: Sequence[Sequence[Document]],
    references: Sequence[Document],
    protocols: Sequence[str],
    *,
    target_language: str | None = None,
    starts: Sequence[int] = POSITIONS,
) -> list[Bucket]:
    """Score the sentences at like positions, counted from 1; buckets without a sentence are left out.

    Raises:
        CotextError: documents that do not correspond, an unknown protocol, buckets that are not in order.
    """

    def part(documents: Sequence[Document], first: int, stop: int | None) -> list[Document]:
        cut = (Document(d.id, d.sentences[first - 1 : None if stop is None else stop - 1]) for d in documents)
        return [d for d in cut if d.sentences]

    return _scored(hypotheses, references, protocols, target_language, starts, part)


def by_length(
    hypotheses: Sequence[Sequence[Document]],
    references: Sequence[Document],
    protocols: Sequence[str],
    *,
    target_language: str | None = None,
    starts: Sequence[int] = LENGTHS,
) -> list[Bucket]:
    """Score the documents of like length, in sentences; as `by_position`."""

    def part(documents: Sequence[Document], first: int, stop: int | None) -> list[Document]:
        return [d for d in documents if len(d) >= first and (stop is None or len(d) < stop)]

    return _scored(hypotheses, references, protocols, target_language, starts, part)


def _scored(
    hypotheses: Sequence[Sequence[Document]],
    references: Sequence[Document],
    protocols: Sequence[str],
    target_language: str | None,
    starts: Sequence[int],
    part: Callable[[Sequence[Document], int, int | None], list[Document]],
) -> list[Bucket]:
    if list(starts) != sorted(set(starts)) or not starts or starts[0] != 1:
        raise CotextError(
            f"buckets that begin at {', '.join(map(str, starts))}: begin with 1 and give each once, in order"
        )
    for documents in hypotheses:
        check_correspondence(documents, references)
    buckets = []
    for first, stop in zip(starts, [*starts[1:], None], strict=True):
        chosen = part(references, first, stop)
        if not any(d.sentences for d in chosen):
            continue
        scores = tuple(
            tuple(evaluate(part(h, first, stop), chosen, protocols, target_language=target_language))
            for h in hypotheses
        )
        last = None if stop is None else stop - 1
        buckets.append(Bucket(first, last, len(chosen), sum(map(len, chosen)), scores))
    return buckets


def render_profile(title: str, buckets: Sequence[Bucket], systems: Sequence[str]) -> str:
    """A line for every bucket, a column for every system and protocol, and the signatures."""
    protocols = [score.title for score in buckets[0].scores[0]] if buckets else []
    names = [f"{s} {p}" if len(systems) > 1 else p for s in systems for p in protocols]
    rows = [[title, "documents", "sentences", *names]]
    for bucket in buckets:
        values = [f"{score.value:.2f}" for system in bucket.scores for score in system]
        rows.append([bucket.name, str(bucket.documents), str(bucket.sentences), *values])
    signatures = [score.signature for score in buckets[0].scores[0]] if buckets else []
    return "\n".join([render_rows(rows, left=1), *signatures])
