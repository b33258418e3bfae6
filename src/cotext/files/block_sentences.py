"""The sentences of a block: its pieces cut where sentences end, and put together again once translated."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from cotext.data.splitting import join_sentences
from cotext.files.blocks import Block, Copied, Piece, Point, merged
from cotext.files.sentence_pieces import SentencePieces, join_pieces, length, split_pieces

_SPACE = re.compile(r"[ \t\n\r\f\v]+")

Spans = Callable[[str], list[tuple[int, int]]]  # the sentences of a text, as `cotext.data.splitting` has them


@dataclass(frozen=True, slots=True)
class CutBlock:
    """A block, and the pieces of its sentences, in which white space is single spaces."""

    block: Block
    parts: SentencePieces

    def joined(self, translated: Sequence[Sequence[Piece]], language: str) -> Block:
        """The block with these pieces in the places of its sentences.

        Where a sentence follows the one before it without white space, or with spaces alone, `language`
        decides whether a space stands between the two; line breaks and the like stay.
        """
        between = list(self.parts.between)
        for number in range(1, len(translated)):
            between[number] = _seam(translated[number - 1], between[number], translated[number], language)
        parts = SentencePieces(self.parts.sentences, between)
        return replace(self.block, pieces=join_pieces(parts, translated))


def cut(block: Block, spans: Spans | None) -> CutBlock:
    """Cut a block into the sentences that `spans` sees; without `spans`, or if it is not to be split, whole.

    What holds no letter that could be translated is no sentence.
    """
    parts = split_pieces(block.pieces, _spans(block, spans))
    sentences: list[tuple[Piece, ...]] = []
    between: list[list[Piece]] = [list(parts.between[0])]
    for sentence, after in zip(parts.sentences, parts.between[1:], strict=True):
        if _has_letter(sentence):
            sentences.append(merged(_with_single_spaces(sentence)))
            between.append(list(after))
        else:
            between[-1] += (*sentence, *after)
    return CutBlock(block, SentencePieces(sentences, [merged(pieces) for pieces in between]))


def _has_letter(pieces: Iterable[Piece]) -> bool:
    return any(isinstance(piece, str) and any(map(str.isalpha, piece)) for piece in pieces)


def _spans(block: Block, spans: Spans | None) -> list[tuple[int, int]]:
    """The spans of sentences; a line break, or copied white space, lies between two."""
    found = []
    start, text = 0, block.text
    for at, stop in [*_breaks(block.pieces), (len(text), 0)]:
        part = text[start:at]
        if block.split and spans is not None:
            found += [(start + low, start + high) for low, high in spans(part)]
        elif stripped := part.strip():
            low = start + part.index(stripped)
            found.append((low, low + len(stripped)))
        start = stop
    return found


def _breaks(pieces: Iterable[Piece]) -> Iterator[tuple[int, int]]:
    at = 0
    for piece in pieces:
        if _breaks_line(piece):
            yield at, at + length(piece)
        at += length(piece)


def _breaks_line(piece: Piece) -> bool:
    return (isinstance(piece, Copied) and piece.text.isspace()) or (isinstance(piece, Point) and piece.breaks)


def _with_single_spaces(pieces: Iterable[Piece]) -> Iterator[Piece]:
    spaced = False
    for piece in pieces:
        if isinstance(piece, str):
            text = _SPACE.sub(" ", piece)
            text = text[1:] if spaced and text.startswith(" ") else text
            spaced = text.endswith(" ") or (spaced and not text)
            yield text
        else:
            spaced = spaced and not isinstance(piece, Copied)
            yield piece


def _seam(
    before: Sequence[Piece], between: Sequence[Piece], after: Sequence[Piece], language: str
) -> tuple[Piece, ...]:
    """What stands between two sentences, with a space where the language has one."""
    space = "".join(piece for piece in between if isinstance(piece, str))
    if space.strip(" ") or any(isinstance(piece, Copied) or _breaks_line(piece) for piece in between):
        return tuple(between)
    last, first = _text(before)[-1:], _text(after)[:1]
    wanted = len(join_sentences((last, first), language)) > len(last + first)
    if bool(space) == wanted:
        return tuple(between)
    if wanted:
        return (" ", *between)
    return tuple(piece for piece in between if not isinstance(piece, str))


def _text(pieces: Iterable[Piece]) -> str:
    return Block(tuple(pieces)).text
