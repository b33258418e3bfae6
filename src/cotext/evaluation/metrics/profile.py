"""Quality by position in the document, and by document length.

Sentences at similar positions, or documents of similar length, are scored as a separate corpus, under any
protocol. By position, a document consists of its sentences at these positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from cotext.data.documents import Document
from cotext.evaluation.metrics.interface import Score, measure
from cotext.runtime.rendering import render_rows

Kind = Literal["position", "length"]
TITLES: Final[dict[Kind, str]] = {
    "position": "position in the document",
    "length": "sentences in the document",
}
POSITIONS: Final = (1, 2, 3, 5, 9, 17, 33, 65)  # where buckets begin; the last has no end


@dataclass(frozen=True, slots=True)
class Bucket:
    """Positions or lengths from `first` to `last` (None: no end), and the scores of each system."""

    first: int
    last: int | None
    documents: int
    sentences: int
    scores: tuple[tuple[Score, ...], ...]

    @property
    def name(self) -> str:
        """Return the range, such as 3, 5-8 or 65-."""
        if self.last == self.first:
            return str(self.first)
        return f"{self.first}-{'' if self.last is None else self.last}"


def profile(
    kind: Kind,
    hypotheses: Sequence[Sequence[Document]],
    references: Sequence[Document],
    protocols: Sequence[str],
    *,
    target_language: str | None = None,
) -> list[Bucket]:
    """Score the sentences at similar positions, counted from 1, or the documents of similar length.

    Buckets without a sentence are omitted. Raises CotextError for an unknown protocol.
    """

    def part(documents: Sequence[Document], first: int, stop: int | None) -> list[Document]:
        if kind == "length":
            return [d for d in documents if len(d) >= first and (stop is None or len(d) < stop)]
        cut = (Document(d.id, d.sentences[first - 1 : None if stop is None else stop - 1]) for d in documents)
        return [d for d in cut if d.sentences]

    buckets = []
    for first, stop in zip(POSITIONS, [*POSITIONS[1:], None], strict=True):
        right = part(references, first, stop)
        if not any(d.sentences for d in right):
            continue
        parts = {f"{n}": part(hypothesis, first, stop) for n, hypothesis in enumerate(hypotheses)}
        measured = measure(parts, [right], protocols, target_language=target_language).values()
        scores = tuple(tuple(each.score for each in of_system) for of_system in measured)
        last = None if stop is None else stop - 1
        buckets.append(Bucket(first, last, len(right), sum(map(len, right)), scores))
    return buckets


def render_profile(title: str, buckets: Sequence[Bucket], systems: Sequence[str]) -> str:
    """Format buckets as text: a line for each, a column for every system and protocol, and signatures."""
    first = buckets[0].scores[0] if buckets else ()
    names = [f"{s} {p.title}" if len(systems) > 1 else p.title for s in systems for p in first]
    rows = [[title, "documents", "sentences", *names]]
    for bucket in buckets:
        values = [f"{score.value:.2f}" for system in bucket.scores for score in system]
        rows.append([bucket.name, str(bucket.documents), str(bucket.sentences), *values])
    return "\n".join([render_rows(rows, left=1), *(score.signature for score in first)])
