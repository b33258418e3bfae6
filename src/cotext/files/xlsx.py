"""Spreadsheets (.xlsx, .xlsm): text of cells and shapes is replaced; numbers, formulas and all else stay.

Reading order: cells with text, sheet by sheet and row by row, each text once where several cells share it;
then texts that stand in a cell alone, comments and shapes by sheet. Names of sheets stay, since formulas name
them, and so do the heads of tables, which have to be equal to the names of their columns.
"""

from collections.abc import Iterator, Set
from functools import partial
from typing import TYPE_CHECKING, Final

from cotext.files.blocks import Block
from cotext.files.parts import ElementText, Package, PartReader, PartsFile, Slot, recognises, relation_of
from cotext.files.pptx import drawn_slots
from cotext.files.runs import Paragraph

if TYPE_CHECKING:
    from lxml import etree
import re
from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING

from cotext.files.runs import Atom, look_of, text_atoms
from cotext.runtime.xml import local_name, lxml_etree, namespace_of, taken

if TYPE_CHECKING:
    from lxml import etree

# --- Texts of cells in SpreadsheetML (ECMA-376 part 1, chapter 18): plain, or in runs with properties.

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


_DIGITS: Final = 10  # a longer number counts no shared text


class XlsxFormat:
    """Office Open XML of spreadsheets."""

    name = "xlsx"
    suffixes = (".xlsx", ".xlsm", ".xltx")

    def recognises(self, head: bytes) -> bool:
        """Whether it is an archive with a folder `xl`."""
        return recognises(head, b"xl/")

    def open(self, content: bytes, name: str) -> PartsFile:
        """Read a spreadsheet."""
        return _Workbook(Package(content, name)).file()


class _Workbook:
    """Which parts of a workbook hold text."""

    def __init__(self, package: Package) -> None:
        self._package = package
        related = package.related(package.main)
        self._strings = next((part for kind, part in related if kind == "sharedStrings"), "")
        self._order: dict[int, str] = {}  # shared texts by their first cells
        self._messages = list(package.left("xl/"))
        self._fixed: set[int] = set()  # shared texts that are heads of tables

    def file(self) -> PartsFile:
        """The workbook, read."""
        package = self._package
        sheets = self._sheets()
        others: list[PartReader] = []
        fixed = 0
        for label, part in sheets:
            heads_of = self._heads(part)
            fixed += len(heads_of)
            self._take_shared(label, part, heads_of)
            others.append(package.reader(part, partial(_inline, label=label, fixed=heads_of)))
            others += self._around(label, part)
        documents = [
            [package.reader(self._strings, self._shared)] if self._strings else [],
            others,
            package.properties(),
        ]
        if fixed:
            self._messages.append(f"heads of tables: {fixed} left as they are, since formulas name them")
        return PartsFile(package.archive, documents, self._messages)

    def _sheets(self) -> list[tuple[str, str]]:
        """Sheets in the order of the workbook: a name for messages, and the part."""
        package = self._package
        targets = {key: part for key, kind, part in package.relations(package.main) if kind == "worksheet"}
        nodes = package.tree(package.main).getroot().iterfind("{*}sheets/{*}sheet")
        named = [(node.get("name") or "", relation_of(node)) for node in nodes]
        return [(f"sheet {name}", targets[key]) for name, key in named if key in targets]

    def _heads(self, sheet: str) -> set[tuple[int, int]]:
        tables = [part for kind, part in self._package.related(sheet) if kind == "table"]
        return {cell for part in tables for cell in heads(self._package.tree(part).getroot())}

    def _take_shared(self, label: str, sheet: str, heads_of: Set[tuple[int, int]]) -> None:
        root = self._package.tree(sheet).getroot()
        compared = sum(
            '"' in (formula.text or "") for formula in root.iterfind("{*}sheetData/{*}row/{*}c/{*}f")
        )
        if compared:
            self._messages.append(
                f"{label}: {compared} formulas hold text, which stays; those that compare it with cells find"
                " others there"
            )
        for cell in root.iterfind("{*}sheetData/{*}row/{*}c[@t='s']"):
            number = "".join(value.text or "" for value in cell.iterfind("{*}v")).strip()
            if number.isascii() and number.isdigit() and len(number) < _DIGITS:
                reference = cell.get("r") or ""
                self._order.setdefault(int(number), f"{label}, cell {reference}")
                if place_of(reference) in heads_of:
                    self._fixed.add(int(number))

    def _shared(self, root: "etree._Element") -> Iterator[tuple[str, Slot]]:
        texts = list(root.iterfind("{*}si"))
        for number, place in self._order.items():
            if number < len(texts) and number not in self._fixed:
                yield from _lettered(place, texts[number])

    def _around(self, label: str, sheet: str) -> list[PartReader]:
        """Comments and shapes of a sheet."""
        readers: list[PartReader] = []
        for kind, part in self._package.related(sheet):
            if kind in ("comments", "threadedComment"):
                slots = _comments if kind == "comments" else _threads
                readers.append(self._package.reader(part, partial(slots, label=label)))
            elif kind == "drawing":
                readers.append(self._package.reader(part, partial(drawn_slots, label=f"{label}, shapes")))
        return readers


def _lettered(place: str, text: "etree._Element") -> Iterator[tuple[str, Slot]]:
    """A text if it has letters: numbers that are stored as text stay."""
    paragraph = Paragraph(text, CellDialect())
    if any(letter.isalpha() for letter in Block(paragraph.pieces).text):
        yield place, paragraph


def _inline(root: "etree._Element", label: str, fixed: Set[tuple[int, int]]) -> Iterator[tuple[str, Slot]]:
    """Texts that stand in a cell itself."""
    for cell in root.iterfind("{*}sheetData/{*}row/{*}c[@t='inlineStr']"):
        reference = cell.get("r") or ""
        for text in cell.iterfind("{*}is"):
            if place_of(reference) not in fixed:
                yield from _lettered(f"{label}, cell {reference}", text)


def _comments(root: "etree._Element", label: str) -> Iterator[tuple[str, Slot]]:
    for comment in root.iterfind("{*}commentList/{*}comment"):
        for text in comment.iterfind("{*}text"):
            yield from _lettered(f"{label}, comment on {comment.get('ref') or ''}", text)


def _threads(root: "etree._Element", label: str) -> Iterator[tuple[str, Slot]]:
    for comment in root.iterfind("{*}threadedComment"):
        for text in comment.iterfind("{*}text"):
            yield f"{label}, comment on {comment.get('ref') or ''}", ElementText(text)


FORMAT: Final = XlsxFormat()
