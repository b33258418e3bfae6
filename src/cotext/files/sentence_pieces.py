"""The pieces of a block by sentence, and a block of the pieces of its sentences.

Inline elements that enclose whole sentences, or lie at the ends of one, stand between sentences, where
translation does not touch them. An element that begins within one sentence and ends within a later one has
its `Open` among the pieces of the one and its `Close` among those of the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cotext.data.words import overlaps
from cotext.files.blocks import Close, Copied, Open, Piece, merged
from cotext.translation.terms.word_alignment import Span


@dataclass(frozen=True, slots=True)
class SentencePieces:
    """The pieces of each sentence of a block, and what stands before, between and behind the sentences.

    `between` has one entry more than `sentences`.
    """

    sentences: list[tuple[Piece, ...]]
    between: list[tuple[Piece, ...]]


def length(piece: Piece) -> int:
    """How many characters of the text of its block a piece has."""
    if isinstance(piece, str):
        return len(piece)
    return len(piece.text) if isinstance(piece, Copied) else 0


def split_pieces(pieces: Sequence[Piece], spans: Sequence[Span]) -> SentencePieces:
    """Split the pieces of a block into sentences, whose spans count the characters of `Block.text`.

    Copied text is never cut: sentences of which one ends within it are one sentence.
    """
    spans = _uncut(pieces, spans)
    parts: list[list[Piece]] = [[] for _ in range(2 * len(spans) + 1)]  # between, sentence, between, ...
    edges = [edge for span in spans for edge in span]
    place, part = 0, 0
    for piece in pieces:
        if not isinstance(piece, str):
            while part < len(edges) and edges[part] <= place and length(piece):
                part += 1
            parts[part].append(piece)
            place += length(piece)
            continue
        stop = place + len(piece)
        while place < stop:
            while part < len(edges) and edges[part] <= place:
                part += 1
            end = min(stop, edges[part]) if part < len(edges) else stop
            parts[part].append(piece[place - stop + len(piece) : end - stop + len(piece)])
            place = end
    return _settled(parts)


def _uncut(pieces: Sequence[Piece], spans: Sequence[Span]) -> list[Span]:
    """The spans, joined where copied text lies across the end of one."""
    found: list[Span] = []
    copied: list[Span] = []
    place = 0
    for piece in pieces:
        if isinstance(piece, Copied):
            copied.append((place, place + len(piece.text)))
        place += length(piece)
    for start, stop in spans:
        if found and any(overlaps(copied, edge, edge) for edge in (found[-1][1], start)):
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return found


def _settled(parts: list[list[Piece]]) -> SentencePieces:
    """Move elements at the ends of sentences to where they belong.

    Characters have decided alone so far: elements at the start of a sentence stand before it, those at its
    end within it. An element that ends within a sentence at whose start it begins belongs into it; one at the
    end of which the sentence ends as well does not, unless it begins within the sentence.
    """
    for i in range(1, len(parts), 2):
        before, inside, after = parts[i - 1], parts[i], parts[i + 1]
        closed = {piece.key for piece in inside if isinstance(piece, Close)}
        first = _behind_last_text(inside)
        # What ends at the end of the sentence encloses its start as well, or began before it.
        closed -= {piece.key for piece in inside[first:] if isinstance(piece, Close)}
        taken = next((n for n in _trailing(before) if _opens(before[n], closed)), len(before))
        inside[:0] = before[taken:]
        del before[taken:]
        first = _behind_last_text(inside)
        opened = {piece.key for piece in inside if isinstance(piece, Open)}
        opened -= {piece.key for piece in inside[first:] if isinstance(piece, Open)}
        last = next((n for n in reversed(range(first, len(inside))) if _closes(inside[n], opened)), first - 1)
        after[:0] = inside[last + 1 :]
        del inside[last + 1 :]
    return SentencePieces([merged(part) for part in parts[1::2]], [merged(part) for part in parts[::2]])


def _behind_last_text(pieces: Sequence[Piece]) -> int:
    return next((n + 1 for n in reversed(range(len(pieces))) if length(pieces[n])), 0)


def _trailing(pieces: Sequence[Piece]) -> range:
    """The places of the elements behind the last text."""
    return range(_behind_last_text(pieces), len(pieces))


def _opens(piece: Piece, keys: set[int]) -> bool:
    return isinstance(piece, Open) and piece.key in keys


def _closes(piece: Piece, keys: set[int]) -> bool:
    return isinstance(piece, Close) and piece.key in keys


def join_pieces(parts: SentencePieces, sentences: Sequence[Sequence[Piece]]) -> tuple[Piece, ...]:
    """The pieces of a block, with these in the places of its sentences."""
    joined = list(parts.between[0])
    for sentence, after in zip(sentences, parts.between[1:], strict=True):
        joined += (*sentence, *after)
    return merged(joined)
