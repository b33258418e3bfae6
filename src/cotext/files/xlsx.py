"""Spreadsheets (.xlsx, .xlsm): text of cells and shapes is replaced; numbers, formulas and all else stay.

Reading order: cells with text, sheet by sheet and row by row, each text once where several cells share it;
then texts that stand in a cell alone, comments and shapes by sheet. Names of sheets stay, since formulas name
them, and so do the heads of tables, which have to be equal to the names of their columns.
"""

from collections.abc import Iterator, Set
from functools import partial
from typing import TYPE_CHECKING, Final

from cotext.files.blocks import Block
from cotext.files.drawing import drawn_slots
from cotext.files.opc import Package, recognises, relation_of
from cotext.files.parts import ElementText, PartReader, PartsFile, Slot
from cotext.files.runs import Paragraph
from cotext.files.spreadsheet import CellDialect, heads, place_of

if TYPE_CHECKING:
    from lxml import etree

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
