"""The translation of a block of subtitles divided among its cues, and into their lines.

A border between cues is moved to the place between two words that is nearest to the mean of two others: where
its marker stands in the translation, near the words that are spoken there, and where the share of time is,
which gives all cues the same reading speed. Places behind a comma, and that of the marker, are preferred.
Each cue has a word, where there are as many.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from cotext.data.sentence_ends import UNSPACED_CHARACTER
from cotext.files.blocks import Close, Copied, Open, Piece, Point
from cotext.files.cue_text import Flow, Part

_WORD = re.compile(r"(?<=\s)\S")
_UNSPACED_SCRIPT = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")  # Thai, Lao, Burmese, Khmer
_COMBINING = re.compile(
    "[\u0e31\u0e33-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ecd\u102b-\u103e\u17b4-\u17d3]"
)
_NOT_FIRST = frozenset("、。，．：；？！）」』】〉》”’…ー々ぁぃぅぇぉっゃゅょァィゥェォッャュョ,.!?:;)]%")
_PAUSE = frozenset([*",.;:!?…，、。；：！？"])
_PREFERRED: Final = 0.08  # of the text, that a border at a preferred place may be farther away


def divided(flow: Flow, pieces: Sequence[Piece]) -> list[list[Piece]]:
    """The translated pieces of a block, a list for each of its parts.

    Elements that go over a border are closed before it and opened again behind it.
    """
    tokens = [p for p in pieces if not (isinstance(p, Point) and p.key in flow.borders)]
    text, marked = "", []
    for piece in pieces:
        if isinstance(piece, str | Copied):
            text += piece if isinstance(piece, str) else piece.text
        elif isinstance(piece, Point) and piece.key in flow.borders:
            marked.append(len(text))
    cuts = _cuts(text, sorted(marked), [max(1, part.cue.end - part.cue.start) for part in flow.parts])
    return _cut(tokens, cuts)


def _cuts(text: str, marked: Sequence[int], durations: Sequence[int]) -> list[int]:
    """Where each part but the first begins, in order."""
    # Behind the white space at a marker.
    marks = [mark + len(text[mark:]) - len(text[mark:].lstrip()) for mark in marked]
    wanted, at = [], 0
    for mark, duration in zip(marked, durations, strict=False):
        at += duration
        wanted.append((mark + len(text) * at / sum(durations)) / 2)
    places = _places(text, len(wanted))
    if len(places) <= len(wanted):
        # At most a word for each cue; the last ones may have none.
        return [*places, *[len(text)] * (len(wanted) - len(places))]
    size, gains = len(text), [_gain(text, place) for place in places]
    number_of = {place: number for number, place in enumerate(places, 1)}
    # What it costs at least to have chosen so many borders, the last of them at each place.
    costs, before = [0.0] * (len(places) + 1), []
    for aim, mark in zip(wanted, marks, strict=True):
        row, best = [float("inf")], float("inf")
        for cost, place, gain in zip(costs, places, gains, strict=False):
            best = cost if cost < best else best
            row.append(best + (abs(place - aim) / size - gain))
        before.append(costs)
        costs = row
        if mark in number_of:
            costs[number_of[mark]] -= _PREFERRED
    chosen = []
    for rest in reversed(before):
        number = min(range(len(costs)), key=costs.__getitem__)
        chosen.append(places[number - 1])
        costs = rest[:number]
    return chosen[::-1]


def _gain(text: str, place: int) -> float:
    """How much better a place is than others, in shares of the text: behind a comma and the like."""
    return _PREFERRED if text[max(0, place - 2) : place].strip()[-1:] in _PAUSE else 0


def _places(text: str, wanted: int) -> list[int]:
    """Where a line or a cue may begin: at words, and between characters of scripts without spaces."""
    places = {match.start() for match in _WORD.finditer(text)}
    unspaced = (
        UNSPACED_CHARACTER
        if len(places) >= wanted
        else re.compile(f"{UNSPACED_CHARACTER.pattern}|{_UNSPACED_SCRIPT.pattern}")
    )
    for match in unspaced.finditer(text):
        at = match.start()
        if (
            at
            and match[0] not in _NOT_FIRST
            and not _COMBINING.match(match[0])
            and not text[at - 1].isspace()
        ):
            places.add(at)
    begins = len(text) - len(text.lstrip())
    return sorted(place for place in places if place > begins)


def _cut(tokens: Sequence[Piece], cuts: Sequence[int]) -> list[list[Piece]]:
    parts: list[list[Piece]] = [[]]
    inside: list[Open] = []
    waiting, at = list(cuts), 0

    def border() -> None:
        waiting.pop(0)
        parts[-1].extend(Close(each.key) for each in reversed(inside))
        parts.append(list(inside))

    for token in tokens:
        if isinstance(token, str | Copied):
            text = token if isinstance(token, str) else token.text
            while waiting and waiting[0] < at + len(text):
                head, text = text[: waiting[0] - at], text[waiting[0] - at :]
                at = waiting[0]
                parts[-1].append(head)
                border()
            parts[-1].append(text)
            at += len(text)
            continue
        while waiting and waiting[0] == at and not isinstance(token, Close):
            border()
        parts[-1].append(token)
        if isinstance(token, Open):
            inside.append(token)
        elif isinstance(token, Close):
            inside = [each for each in inside if each.key != token.key]
    while waiting:
        border()
    return [_stripped(part) for part in parts]


def _stripped(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces without white space at the ends of their text, and without elements that enclose nothing."""
    found = list(pieces)
    for places, strip in ((range(len(found)), str.lstrip), (range(len(found) - 1, -1, -1), str.rstrip)):
        for place in places:
            piece = found[place]
            if isinstance(piece, str):
                found[place] = strip(piece)
                if found[place]:
                    break
    return [piece for piece in found if piece != ""]


def breaks(text: str, part: Part) -> list[int]:
    """Where lines but the first begin in the text of a part.

    As few lines as keep within the longest that it had, and at most as many as it had, of like lengths.
    """
    had = part.lines
    if len(had) == 1 or len(text) <= max(had):
        return []
    places = _places(text, len(had) - 1)
    paused = [place for place in places if _gain(text, place)]
    # In fewer lines, one at least would be longer.
    lines = min(len(had), max(2, -(-len(text) // (max(had) + 1))))
    while True:
        chosen = _even(text, places, paused, lines)
        longest = max(b - a for a, b in pairwise([0, *chosen, len(text)]))
        if longest <= max(had) + 1 or lines == len(had):
            return chosen
        # Of many lines not every number is tried, so that all together take time by the length of the text.
        lines = min(len(had), lines + 1 + lines // 16)


def _even(text: str, places: Sequence[int], paused: Sequence[int], lines: int) -> list[int]:
    """The places nearest to equal shares of the text, each once; those behind a comma are `paused`."""
    chosen: list[int] = []
    for number in range(1, lines):
        aim = len(text) * number / lines
        later = [*_nearest(places, chosen, aim), *_nearest(paused, chosen, aim)]
        if not later:
            break
        _, best = min((abs(place - aim) / len(text) - _gain(text, place), place) for place in later)
        chosen.append(best)
    return chosen


def _nearest(places: Sequence[int], chosen: Sequence[int], aim: float) -> Iterator[int]:
    """The places behind all chosen ones that are nearest to an aim on both sides."""
    first = bisect_right(places, chosen[-1]) if chosen else 0
    at = bisect_left(places, aim, first)
    yield from places[max(first, at - 1) : at + 1]
