"""Inline elements of a paragraph: which stretch ends which, and which of them stand outside of its text."""

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

SPACE: Final = " \t\n\r\f"
LINKS: Final = frozenset({"a", "hyperlink"})  # elements, of any format


class Item(NamedTuple):
    """A stretch of a paragraph, from `start` to `stop` of whatever its format counts.

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


def mates(items: Sequence[Item]) -> dict[int, int]:
    """For each element of which both ends are here, nested properly: each end's index to the other's."""
    found: dict[int, int] = {}
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
            found[opened], found[index] = index, opened
    return found


def without_empty(items: Sequence[Item]) -> list[Item]:
    """The items with each element that encloses no text, as an anchor or an icon, as a single point."""
    ends = mates(items)
    shows = [0]
    for item in items:
        shows.append(shows[-1] + (item.kind == "copied" or (item.kind == "text" and item.text != "")))
    kept: list[Item] = []
    index = 0
    while index < len(items):
        item = items[index]
        mate = ends.get(index, -1)
        if item.kind == "open" and mate > index and shows[mate] == shows[index]:
            kept.append(Item("point", item.name, item.start, items[mate].stop))
            index = mate
        else:
            kept.append(item)
        index += 1
    return kept


def inner(items: Sequence[Item], ends: dict[int, int]) -> tuple[int, int]:
    """The range of items without blanks, points and unpaired ends at both ends, nor elements around all.

    `ends`: their `mates`. One item at least is text that shows something.
    """

    def outer(index: int) -> bool:
        return items[index].blank or (items[index].kind not in ("text", "copied") and index not in ends)

    low, high = 0, len(items)
    while True:
        while outer(low):
            low += 1
        while outer(high - 1):
            high -= 1
        if ends.get(low) != high - 1:
            return low, high
        low, high = low + 1, high - 1
