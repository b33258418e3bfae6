"""Copied texts in a sentence and in its translation: where they stand, and which of them is which."""

from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cotext.data.words import overlaps
from cotext.files.blocks import Copied, Piece
from cotext.translation.terms.word_alignment import SentenceAlignment, Span, agreement, proportional


@dataclass(frozen=True, slots=True)
class CopiedText:
    """A copied text, what stands for it in the texts of the model, and where that is in the source."""

    piece: Copied
    shown: str
    source: Span


def shown_text(pieces: Sequence[Piece], shown: Mapping[int, str]) -> str:
    """The text of pieces as the model reads it: with what stands for copied text by key, or else itself."""
    return "".join(
        piece if isinstance(piece, str) else shown.get(piece.key, piece.text)
        for piece in pieces
        if isinstance(piece, str | Copied)
    )


def copied_texts(pieces: Sequence[Piece], shown: Mapping[int, str]) -> list[CopiedText]:
    """The copied texts of a sentence, in order."""
    found, place = [], 0
    for piece in pieces:
        if isinstance(piece, str):
            place += len(piece)
        elif isinstance(piece, Copied):
            text = shown.get(piece.key, piece.text)
            found.append(CopiedText(piece, text, (place, place + len(text))))
            place += len(text)
    return found


def copied_spans(
    texts: Sequence[CopiedText], source: str, target: str, alignment: SentenceAlignment | None
) -> dict[int, Span]:
    """Where copied texts stand in a translation, by key; those that it lacks are left out.

    Longer ones are looked for first, apart from letters and digits beside them if that is possible. Where one
    occurs more or less often than in the source, the pairs that the alignment prefers are chosen.
    """
    found: dict[int, Span] = {}
    taken: list[Span] = []  # in order
    by_text: dict[str, list[CopiedText]] = {}
    for each in texts:
        by_text.setdefault(each.shown, []).append(each)
    for text in sorted(filter(None, by_text), key=len, reverse=True):
        alike = by_text[text]
        places = [span for span in _occurrences(text, target, taken) if _apart(target, span)]
        if len(places) < len(alike):
            places = list(_occurrences(text, target, taken))
        if not places:
            continue
        if len(places) != len(alike):
            aligned = alignment or proportional(source, target)
            alike, places = _paired(alike, places, aligned, (source, target))
        for each, place in zip(alike, places, strict=True):
            found[each.piece.key] = place
            insort(taken, place)
    return found


def _occurrences(text: str, target: str, taken: Sequence[Span]) -> Iterator[Span]:
    start = target.find(text)
    while start >= 0:
        stop = start + len(text)
        if overlaps(taken, start, stop):
            start = target.find(text, start + 1)
        else:
            yield start, stop
            start = target.find(text, stop)


def _apart(target: str, span: Span) -> bool:
    """Whether no letter or digit stands beside one at an end of the span."""
    return not any(
        0 < edge < len(target) and target[edge - 1].isalnum() and target[edge].isalnum() for edge in span
    )


def _paired(
    alike: Sequence[CopiedText],
    places: Sequence[Span],
    alignment: SentenceAlignment,
    texts: tuple[str, str],
) -> tuple[list[CopiedText], list[Span]]:
    """As many pairs as there are, those that agree best first."""
    weights = agreement(alignment, texts, [each.source for each in alike], places)
    judged = sorted(
        ((float(weights[j, i]), -i, -j) for i in range(len(alike)) for j in range(len(places))), reverse=True
    )
    pairs: dict[int, int] = {}
    paired: set[int] = set()
    for _, i, j in judged:
        if -i not in pairs and -j not in paired:
            pairs[-i] = -j
            paired.add(-j)
    return [alike[i] for i in pairs], [places[j] for j in pairs.values()]
