"""The sentences of a block: its pieces cut where sentences end, and put together again once translated.

What stands at the ends of a sentence stays there, outside it: only elements that begin or end inside a
sentence are part of it. One that goes on beyond the sentence is closed at its end, or opened at its
beginning, for as long as the sentence stands by itself.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from cotext.data.splitting import join_sentences
from cotext.files.blocks import Block, Close, Copied, Open, Piece, merged

_SPACE = re.compile(r"[ \t\n\r\f\v]+")

Spans = Callable[[str], list[tuple[int, int]]]  # the sentences of a text, as `cotext.data.splitting` has them


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a block; white space in its text is single spaces.

    `entering`: the keys of elements that were opened before it and end in it; `leaving`: of those that begin
    in it and are closed behind it. Both are in the order in which they end, or begin.
    """

    pieces: tuple[Piece, ...]
    entering: tuple[int, ...] = ()
    leaving: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CutBlock:
    """A block as its sentences and the pieces before, between and behind them: one more than sentences."""

    block: Block
    sentences: tuple[Sentence, ...]
    between: tuple[tuple[Piece, ...], ...]

    def joined(self, translated: Sequence[tuple[Piece, ...]], language: str) -> Block:
        """The block with these pieces in the places of its sentences.

        Where a sentence follows the one before it without white space, or with spaces alone, `language`
        decides whether a space stands between the two; line breaks and the like stay.
        """
        pieces: list[Piece] = list(self.between[0])
        for number, (sentence, found) in enumerate(zip(self.sentences, translated, strict=True)):
            if number:
                pieces += _seam(pieces, self.between[number], found, language)
            pieces += _unclosed(found, sentence)
        if self.sentences:
            pieces += self.between[-1]
        return replace(self.block, pieces=merged(pieces))


@dataclass(slots=True)
class _Placed:
    """A piece of a block and the offset at which it stands in the block's text."""

    piece: Piece
    at: int

    @property
    def stop(self) -> int:
        text = self.piece.text if isinstance(self.piece, Copied) else self.piece
        return self.at + (len(text) if isinstance(text, str) else 0)


def cut(block: Block, spans: Spans | None) -> CutBlock:
    """Cut a block into the sentences that `spans` sees; without `spans`, or if it is not to be split, whole.

    What holds no letter that could be translated is no sentence.
    """
    if not _has_letter(block.pieces):
        return CutBlock(block, (), (block.pieces,))
    placed = list(_placed(block.pieces))
    ends = _ends_of_elements(placed)
    sentences: list[Sentence] = []
    between: list[tuple[Piece, ...]] = []
    waiting: list[Piece] = []
    at = 0  # index in `placed`
    for start, stop in _spans(block, placed, spans):
        placed = _divided(placed, start, stop)
        first, after = _bounds(placed, at, start, stop, ends)
        waiting += [each.piece for each in placed[at:first]]
        inner = [each.piece for each in placed[first:after]]
        at = after
        if not _has_letter(inner):
            waiting += inner
            continue
        between.append(merged(waiting))
        waiting = []
        sentences.append(_sentence(inner))
    between.append(merged([*waiting, *(each.piece for each in placed[at:])]))
    return CutBlock(block, tuple(sentences), tuple(between))


def _has_letter(pieces: Iterable[Piece]) -> bool:
    return any(isinstance(piece, str) and any(map(str.isalpha, piece)) for piece in pieces)


def _placed(pieces: Iterable[Piece]) -> Iterator[_Placed]:
    at = 0
    for piece in pieces:
        one = _Placed(piece, at)
        at = one.stop
        yield one


def _ends_of_elements(placed: Sequence[_Placed]) -> dict[int, tuple[int, int]]:
    """Where every element that encloses text begins and ends."""
    begins = {each.piece.key: each.at for each in placed if isinstance(each.piece, Open)}
    return {
        each.piece.key: (begins[each.piece.key], each.at) for each in placed if isinstance(each.piece, Close)
    }


def _spans(block: Block, placed: Sequence[_Placed], spans: Spans | None) -> list[tuple[int, int]]:
    """The spans of sentences; copied white space, as a line break, lies between sentences."""
    text = block.text
    borders = [
        (each.at, each.stop)
        for each in placed
        if isinstance(each.piece, Copied) and each.piece.text.isspace()
    ]
    found = []
    start = 0
    for stop, following in [*borders, (len(text), len(text))]:
        part = text[start:stop]
        if block.split and spans is not None:
            found += [(start + low, start + high) for low, high in spans(part)]
        elif stripped := part.strip():
            low = start + part.index(stripped)
            found.append((low, low + len(stripped)))
        start = following
    return list(_whole(found, placed))


def _whole(spans: Iterable[tuple[int, int]], placed: Sequence[_Placed]) -> Iterator[tuple[int, int]]:
    """The spans with those joined between which a copied text would be cut."""
    copied = [(each.at, each.stop) for each in placed if isinstance(each.piece, Copied)]
    held: tuple[int, int] | None = None
    for start, stop in spans:
        if held and any(at < held[1] < end or at < start < end for at, end in copied):
            held = held[0], stop
            continue
        if held:
            yield held
        held = start, stop
    if held:
        yield held


def _divided(placed: Sequence[_Placed], *offsets: int) -> list[_Placed]:
    """The pieces with texts divided at the offsets; a copied text is never divided."""
    divided: list[_Placed] = []
    for each in placed:
        inner = [o - each.at for o in offsets if each.at < o < each.stop]
        if not isinstance(each.piece, str) or not inner:
            divided.append(each)
            continue
        for low, high in zip([0, *inner], [*inner, len(each.piece)], strict=True):
            divided.append(_Placed(each.piece[low:high], each.at + low))
    return divided


def _bounds(
    placed: Sequence[_Placed], at: int, start: int, stop: int, ends: dict[int, tuple[int, int]]
) -> tuple[int, int]:
    """The first piece of the sentence from `start` to `stop`, and the one behind its last.

    Of the elements at its beginning, those from the first on that ends inside it belong to it; of those at
    its end, those up to the last that begins inside it.
    """
    first = at
    while first < len(placed) and placed[first].stop <= start:
        if _ends_inside(placed[first], start, stop, ends):
            break
        first += 1
    last = number = first
    opened: set[int] = set()
    while number < len(placed) and placed[number].at <= stop:
        piece = placed[number].piece
        number += 1
        if placed[number - 1].at < stop:
            last = number
            opened |= {piece.key} if isinstance(piece, Open) else set()
        elif isinstance(piece, Close) and piece.key in opened:
            last = number
    return first, last


def _ends_inside(one: _Placed, start: int, stop: int, ends: dict[int, tuple[int, int]]) -> bool:
    return isinstance(one.piece, Open) and one.at == start and start < ends[one.piece.key][1] < stop


def _sentence(pieces: Sequence[Piece]) -> Sentence:
    opened = {piece.key for piece in pieces if isinstance(piece, Open)}
    closed = {piece.key for piece in pieces if isinstance(piece, Close)}
    entering = tuple(p.key for p in pieces if isinstance(p, Close) and p.key not in opened)
    leaving = tuple(p.key for p in pieces if isinstance(p, Open) and p.key not in closed)
    whole = [*map(Open, reversed(entering)), *pieces, *map(Close, reversed(leaving))]
    return Sentence(merged(_with_single_spaces(whole)), entering, leaving)


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


def _unclosed(translated: Sequence[Piece], sentence: Sentence) -> list[Piece]:
    """The pieces without the ends that the sentence was given for elements which go beyond it.

    An end that is left stands outside all elements that lie in the sentence, and those ends in their order.
    """
    beyond = {*sentence.entering, *sentence.leaving}
    if not beyond:
        return list(translated)
    kept: list[Piece] = []
    places: dict[int, int] = {}  # in `kept`, of the ends that are left
    for piece in translated:
        if not isinstance(piece, Open | Close) or piece.key not in beyond:
            kept.append(piece)
        elif isinstance(piece, Close) == (piece.key in sentence.entering):
            places[piece.key] = len(kept)
    outside = _outside(kept)
    pieces: list[Piece] = []
    last = 0
    for key in (*sentence.entering, *sentence.leaving):
        entering = key in sentence.entering
        # The next place outside for what ends, the one before for what begins.
        place = (
            next(o for o in outside if o >= places[key])
            if entering
            else max(o for o in outside if o <= places[key])
        )
        place = max(place, last)
        pieces += [*kept[last:place], Close(key) if entering else Open(key)]
        last = place
    return [*pieces, *kept[last:]]


def _outside(pieces: Sequence[Piece]) -> list[int]:
    """The places before, between and behind the pieces that lie in no element of them."""
    found, depth = [0], 0
    for number, piece in enumerate(pieces, start=1):
        depth += isinstance(piece, Open) - isinstance(piece, Close)
        if not depth:
            found.append(number)
    return found


def _seam(
    before: Sequence[Piece], between: Sequence[Piece], after: Sequence[Piece], language: str
) -> list[Piece]:
    """What stands between two sentences, with a space where the language has one."""
    space = "".join(piece for piece in between if isinstance(piece, str))
    if space.strip(" ") or any(isinstance(piece, Copied) for piece in between):
        return list(between)
    last, first = _text(before)[-1:], _text(after)[:1]
    wanted = len(join_sentences((last, first), language)) > len(last + first)
    if bool(space) == wanted:
        return list(between)
    if wanted:
        return [" ", *between]
    return [piece for piece in between if not isinstance(piece, str)]


def _text(pieces: Iterable[Piece]) -> str:
    return Block(tuple(pieces)).text
