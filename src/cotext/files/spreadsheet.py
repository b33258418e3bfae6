"""Texts of cells in SpreadsheetML (ECMA-376 part 1, chapter 18): plain, or in runs with properties."""

import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Final

from cotext.files.runs import Atom, look_of, text_atoms
from cotext.runtime.xml import local_name, lxml_etree, namespace_of, taken

if TYPE_CHECKING:
    from lxml import etree

_SPACE: Final = "{http://www.w3.org/XML/1998/namespace}space"
_SPELLED: Final = re.compile("_x([0-9A-Fa-f]{4})_")
_REFERENCE: Final = re.compile(r"([A-Z]{1,3})([0-9]{1,7})")


class CellDialect:
    """Text of a cell or a comment; how it is read aloud goes with the text that it was for."""

    joins_text = True

    def atoms(self, paragraph: "etree._Element") -> list[Atom]:
        """What the text holds, in order."""
        return list(_atoms(paragraph))

    def emptied(self, holder: "etree._Element") -> None:
        """Take everything out."""
        for child in list(holder):
            holder.remove(child)

    def put_text(self, holder: "etree._Element", text: str, properties: "etree._Element | None") -> None:
        """Add text: plain if it is all there is, else a run."""
        namespace = namespace_of(holder)
        node = lxml_etree().Element(namespace + "t")
        node.text = _spelled(text)
        node.set(_SPACE, "preserve")
        # To ask for the length of an element counts all that it holds.
        last = next(holder.iterchildren(reversed=True), None)
        if properties is None and last is None:
            holder.append(node)
            return
        if properties is None and last is not None and local_name(last) == "t":
            last.text = (last.text or "") + _spelled(text)
            return
        if last is not None and last.getprevious() is None and local_name(last) == "t":
            holder.append(self.wrapped([last], None))
        holder.append(self.wrapped([node], properties))

    def wrapped(
        self, nodes: Sequence["etree._Element"], properties: "etree._Element | None"
    ) -> "etree._Element":
        """A new run around nodes."""
        namespace = namespace_of(nodes[0])
        run: etree._Element = lxml_etree().Element(namespace + "r")
        if properties is not None:
            run.append(deepcopy(properties))
        run.extend(nodes)
        return run


def _meant(text: str) -> str:
    """A text with the characters that it spells by number, as in "_x000D_" (ECMA-376, ST_Xstring)."""
    return _SPELLED.sub(lambda found: taken(chr(int(found[1], 16))) or found[0], text)


def _spelled(text: str) -> str:
    """A text in which nothing reads as such a number that is none."""
    return _SPELLED.sub(r"_x005F\g<0>", taken(text)).replace("\r", "_x000D_")


def _atoms(text: "etree._Element") -> Iterator[Atom]:
    for child in text:
        name = local_name(child)
        if name == "t" and child.text:
            yield from text_atoms(_meant(child.text))
        elif name == "r":
            properties = next((each for each in child if local_name(each) == "rPr"), None)
            written = "".join(_meant(each.text or "") for each in child if local_name(each) == "t")
            if written:
                yield from text_atoms(written, properties, look_of(properties, frozenset()))
        elif name not in ("t", "rPh", "phoneticPr"):
            yield Atom("point", nodes=(child,))


def place_of(reference: str) -> tuple[int, int]:
    """Column and row of a cell, both from 1; zeros for what is no reference."""
    found = _REFERENCE.fullmatch(reference)
    if not found:
        return 0, 0
    column = 0
    for letter in found[1]:
        column = 26 * column + ord(letter) - 64
    return column, int(found[2])


def heads(table: "etree._Element") -> set[tuple[int, int]]:
    """Columns and rows of the cells with the names of a table's columns."""
    first, _, last = (table.get("ref") or "").partition(":")
    (left, top), (right, _) = place_of(first), place_of(last or first)
    if table.get("headerRowCount") == "0":
        return set()
    return {(column, top) for column in range(left, right + 1)}
