"""A paragraph of a page: stretches between two block elements as the pieces of a block."""

import html
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cotext.files.blocks import Close, Copied, Open, Piece, Point, merged

SPACE: Final = " \t\n\r\f"
_SPACES: Final = re.compile(rf"[{SPACE}]+")
# Points that a reader sees, so that white space on both sides is no double space.
_SHOWN: Final = frozenset(
    {"img", "input", "svg", "math", "iframe", "object", "applet", "canvas", "audio", "video", "embed"}
)


class Item(NamedTuple):
    """A stretch of a paragraph.

    `kind`: "text", "copied" with the text that a reader sees, "open" and "close" of an element, "point".
    """

    kind: str
    name: str
    start: int
    stop: int
    text: str = ""

    @property
    def blank(self) -> bool:
        """Whether it is text that shows nothing."""
        return self.kind == "text" and not self.text.strip(SPACE)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a block stands in the page, and where its elements are, by key; `ends`: of their ends.

    `quoted`: the mark around an attribute's value, which is part of the range.
    """

    start: int
    stop: int
    quoted: str = ""
    sources: dict[int, tuple[int, int]] = field(default_factory=dict)
    ends: dict[int, tuple[int, int]] = field(default_factory=dict)


def collapsed(text: str) -> str:
    """Text of a page as a reader sees it: references decoded, white space collapsed."""
    return html.unescape(_SPACES.sub(" ", text))


def paragraph(items: Sequence[Item]) -> tuple[tuple[Piece, ...], Place] | None:
    """The pieces of a paragraph and its place; None where it has no text of its own.

    What stands before its first and behind its last text stays outside, as do elements around all of it.
    """
    if not any(item.kind == "text" and collapsed(item.text).strip() for item in items):
        return None
    paired = _without_empty(items)
    mates = _mates(paired)
    low, high = _inner(paired, mates)
    chosen = list(paired[low:high])
    _trim(chosen)
    place = Place(chosen[0].start, chosen[-1].stop)
    pieces: list[Piece] = []
    after_space = True
    for index, item in enumerate(chosen):
        key = index + low
        if item.kind == "text":
            text = collapsed(item.text)
            text = text[1:] if after_space and item.text[0] in SPACE else text
            after_space = text.endswith(" ") if text else after_space
            pieces.append(text)
            continue
        if item.kind == "close" and key in mates:
            place.ends[mates[key]] = (item.start, item.stop)
            pieces.append(Close(mates[key]))
            continue
        place.sources[key] = (item.start, item.stop)
        if item.kind == "open" and key in mates:
            pieces.append(Open(key))
        elif item.kind == "copied":
            pieces.append(Copied(key, item.text))
            after_space = item.text.endswith(" ")
        else:
            pieces.append(Point(key, item.name == "br"))
            after_space = item.name == "br" or (after_space and item.name not in _SHOWN)
    return merged(pieces), place


def _mates(items: Sequence[Item]) -> dict[int, int]:
    """For each element of which both ends are here, nested properly: each end's index to the other's."""
    mates: dict[int, int] = {}
    open_items: list[int] = []
    names: Counter[str] = Counter()
    for index, item in enumerate(items):
        if item.kind == "open":
            open_items.append(index)
            names[item.name] += 1
        elif item.kind == "close" and names[item.name]:
            while items[opened := open_items.pop()].name != item.name:
                names[items[opened].name] -= 1
            names[item.name] -= 1
            mates[opened], mates[index] = index, opened
    return mates


def _without_empty(items: Sequence[Item]) -> list[Item]:
    """The items with each element that encloses no text, as an anchor or an icon, as a single point."""
    mates = _mates(items)
    shows = [0]
    for item in items:
        shows.append(shows[-1] + (item.kind == "copied" or (item.kind == "text" and item.text != "")))
    kept: list[Item] = []
    index = 0
    while index < len(items):
        item = items[index]
        mate = mates.get(index, -1)
        if item.kind == "open" and mate > index and shows[mate] == shows[index]:
            kept.append(Item("point", item.name, item.start, items[mate].stop))
            index = mate
        else:
            kept.append(item)
        index += 1
    return kept


def _inner(items: Sequence[Item], mates: dict[int, int]) -> tuple[int, int]:
    """The range of items without blanks, points and unpaired ends at both ends, nor elements around all."""

    def outer(index: int) -> bool:
        return items[index].blank or (items[index].kind not in ("text", "copied") and index not in mates)

    low, high = 0, len(items)
    while True:
        while outer(low):
            low += 1
        while outer(high - 1):
            high -= 1
        if mates.get(low) != high - 1:
            return low, high
        low, high = low + 1, high - 1


def _trim(items: list[Item]) -> None:
    """Take outer white space from the first and the last item, if they are text."""
    first = items[0]
    if first.kind == "text":
        text = first.text.lstrip(SPACE)
        items[0] = first._replace(text=text, start=first.stop - len(text))
    last = items[-1]
    if last.kind == "text":
        text = last.text.rstrip(SPACE)
        items[-1] = last._replace(text=text, stop=last.start + len(text))
