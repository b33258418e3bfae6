"""A paragraph of a page: stretches between two block elements as the pieces of a block."""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from cotext.files.blocks import Close, Copied, Open, Piece, Point, merged
from cotext.files.elements import LINKS, SPACE, Item, inner, mates, without_empty

_NUMBER: Final = re.compile("&#([0-9]{8,});?")
_SPACES: Final = re.compile(rf"[{SPACE}]+")
# Points that a reader sees, so that white space on both sides is no double space.
_SHOWN: Final = frozenset(
    {
        "cdata",
        "img",
        "input",
        "svg",
        "math",
        "iframe",
        "object",
        "applet",
        "canvas",
        "audio",
        "video",
        "embed",
    }
)


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
    return unescaped(_SPACES.sub(" ", text))


def unescaped(text: str) -> str:
    """Text with its references to characters decoded, of which numbers may have any number of digits."""
    if "&" not in text:
        return text
    # Without leading zeros, eight digits are beyond the last character; Python refuses numbers of thousands.
    return html.unescape(_NUMBER.sub(lambda found: f"&#{found[1].lstrip('0')[:8] or 0};", text))


def paragraph(items: Sequence[Item], spaced: bool = False) -> tuple[tuple[Piece, ...], Place] | None:
    """The pieces of a paragraph and its place; None where it has no text of its own.

    What stands before its first and behind its last text stays outside, as do elements around all of it.
    With `spaced`, white space between these is text as any other.
    """
    if not any(item.kind == "text" and collapsed(item.text).strip() for item in items):
        return None
    paired = without_empty(items)
    ends = mates(paired)
    low, high = inner(paired, ends)
    chosen = list(paired[low:high])
    _trim(chosen)
    place = Place(chosen[0].start, chosen[-1].stop)
    pieces: list[Piece] = []
    after_space = True
    for index, item in enumerate(chosen):
        key = index + low
        if item.kind == "text":
            text = unescaped(item.text) if spaced else collapsed(item.text)
            text = text[1:] if after_space and item.text[0] in SPACE and not spaced else text
            after_space = text.endswith(" ") if text else after_space
            pieces.append(text)
            continue
        if item.kind == "close" and key in ends:
            place.ends[ends[key]] = (item.start, item.stop)
            pieces.append(Close(ends[key]))
            continue
        place.sources[key] = (item.start, item.stop)
        if item.kind == "open" and key in ends:
            pieces.append(Open(key, item.name in LINKS))
        elif item.kind == "copied":
            pieces.append(Copied(key, item.text))
            after_space = item.text.endswith(" ")
        else:
            pieces.append(Point(key, item.name == "br"))
            after_space = item.name == "br" or (after_space and item.name not in _SHOWN)
    return merged(pieces), place


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
