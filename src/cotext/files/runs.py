"""Paragraphs of office formats: runs of text with properties, as pieces of a block and back.

A word processor cuts a sentence into runs wherever somebody clicked. Runs whose properties look the same are
one here, and the look that most text of a paragraph (or of a link in it) has is no element at all: the others
are elements. A format says by its `Dialect` what its nodes are; all else is shared.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from cotext.files.blocks import (
    LINKS,
    Close,
    Copied,
    Item,
    Open,
    Piece,
    Point,
    inner,
    mates,
    merged,
    without_empty,
)
from cotext.runtime.xml import local_name, lxml_etree

if TYPE_CHECKING:
    from lxml import etree


# Names of points that end a line, or a column.
_BREAKS: Final = frozenset({"br", "cr", "tab", "ptab"})
_BREAKING: Final = re.compile("([\t\n\r]+)")


@dataclass(frozen=True, slots=True)
class Atom:
    """A part of a paragraph as its format stores it.

    `kind` as in `Item`; `name` pairs the ends of an element, and says which points end a line. `nodes` are
    written as they are, inside a run of the `properties` where `in_run`; `look` is equal for properties that
    look the same. An element that has its content inside itself has it in `holder`, at both of its ends.
    """

    kind: str
    name: str = ""
    text: str = ""
    nodes: tuple["etree._Element", ...] = ()
    properties: "etree._Element | None" = None
    look: str = ""
    in_run: bool = False
    holder: "etree._Element | None" = None


class Dialect(Protocol):
    """What the nodes of a format are."""

    def atoms(self, paragraph: "etree._Element") -> list[Atom]:
        """What the paragraph holds, in order: no text is empty, and holders are nested."""
        ...

    def emptied(self, holder: "etree._Element") -> None:
        """Take everything but properties out of a paragraph or a holder."""
        ...

    def put_text(self, holder: "etree._Element", text: str, properties: "etree._Element | None") -> None:
        """Add text of these properties at the end of a paragraph or a holder."""
        ...

    def wrapped(
        self, nodes: Sequence["etree._Element"], properties: "etree._Element | None"
    ) -> "etree._Element":
        """A new run around nodes that stand in one."""
        ...


@dataclass(frozen=True, slots=True)
class _Base:
    """What most text of a paragraph or a holder looks like."""

    look: str = ""
    properties: "etree._Element | None" = None


class Paragraph:
    """A paragraph, read: its `pieces`, none where it has no text of its own."""

    def __init__(self, element: "etree._Element", dialect: Dialect) -> None:
        self._element = element
        self._dialect = dialect
        self._atoms = _with_spaces_joined(dialect.atoms(element))
        self._bases = _bases(self._atoms)
        self._sources: dict[int, tuple[int, int]] = {}
        self._ends: dict[int, tuple[int, int]] = {}
        self._inside = (0, 0)
        items = without_empty(list(self._items()))
        shown = any(item.kind == "text" and item.text.strip() for item in items)
        self.pieces: tuple[Piece, ...] = merged(self._pieces(items)) if shown else ()

    def write(self, pieces: Sequence[Piece]) -> None:
        """Put other pieces in the place of its own; the tree is changed."""
        first, behind = self._inside
        writer = _Writer(self._element, self._dialect, self._bases)
        writer.add(range(first), self._atoms)
        for piece in pieces:
            if isinstance(piece, str):
                writer.text(piece)
                continue
            start, stop = (self._ends if isinstance(piece, Close) else self._sources)[piece.key]
            if start == stop and isinstance(piece, Open):
                writer.begin_look(self._atoms[start].properties)
            elif start == stop:
                writer.end_look()
            writer.add(range(start, stop), self._atoms)
        writer.add(range(behind, len(self._atoms)), self._atoms)

    def _items(self) -> Iterator[Item]:
        """The atoms, and an element of no width around neighbours of another look than most text has."""
        levels = [-1]
        look, begun = "", -1  # of the element that is open

        for index, atom in enumerate(self._atoms):
            base = self._bases.get(levels[-1], _Base()).look
            alike = begun >= 0 and atom.look == look and (atom.kind == "text" or atom.in_run)
            if begun >= 0 and not alike:
                yield Item("close", f"look {begun}", index, index)
                begun = -1
            if begun < 0 and atom.kind == "text" and atom.look != base:
                look, begun = atom.look, index
                yield Item("open", f"look {begun}", index, index)
            yield Item(atom.kind, atom.name, index, index + 1, atom.text)
            if atom.holder is not None:
                levels.append(index) if atom.kind == "open" else levels.pop()
        if begun >= 0:
            yield Item("close", f"look {begun}", len(self._atoms), len(self._atoms))

    def _pieces(self, items: Sequence[Item]) -> list[Piece]:
        ends = mates(items)
        low, high = inner(items, ends)
        self._inside = (items[low].start, items[high - 1].stop)
        pieces: list[Piece] = []
        for key in range(low, high):
            item = items[key]
            last = pieces[-1] if pieces else ""
            if item.kind == "text":
                pieces.append(item.text)
            elif item.kind == "close" and key in ends:
                self._ends[ends[key]] = (item.start, item.stop)
                pieces.append(Close(ends[key]))
            elif item.kind in ("open", "close", "point") and key not in ends and isinstance(last, Point):
                # Neighbouring points stay together.
                self._sources[last.key] = (self._sources[last.key][0], item.stop)
                pieces[-1] = Point(last.key, last.breaks or item.name in _BREAKS)
            else:
                self._sources[key] = (item.start, item.stop)
                if item.kind == "copied":
                    pieces.append(Copied(key, item.text))
                else:
                    is_link = item.name.partition(" ")[0] in LINKS
                    point = Point(key, item.name in _BREAKS)
                    pieces.append(Open(key, is_link) if key in ends else point)
        return pieces


class _Writer:
    """Builds the content of a paragraph again, from nodes that it had and from new text."""

    def __init__(self, element: "etree._Element", dialect: Dialect, bases: dict[int, _Base]) -> None:
        dialect.emptied(element)
        self._dialect = dialect
        self._bases = bases
        self._levels = [(element, bases.get(-1, _Base()).properties)]

    def text(self, text: str) -> None:
        """Add text of the properties that hold here."""
        holder, properties = self._levels[-1]
        if text:
            self._dialect.put_text(holder, text, properties)

    def begin_look(self, properties: "etree._Element | None") -> None:
        """From here on, text has these properties."""
        self._levels.append((self._levels[-1][0], properties))

    def end_look(self) -> None:
        """Text is again as before the look began."""
        self._levels.pop()

    def add(self, indices: range, atoms: Sequence[Atom]) -> None:
        """Add atoms as they were."""
        for index in indices:
            atom = atoms[index]
            holder, properties = self._levels[-1]
            for node in atom.nodes:
                node.tail = None  # text behind a node is an atom of its own
            if atom.text and not atom.nodes:
                self._dialect.put_text(holder, atom.text, atom.properties)
            else:
                holder.extend(
                    [self._dialect.wrapped(atom.nodes, atom.properties)] if atom.in_run else atom.nodes
                )
            if atom.holder is not None and atom.kind == "open":
                self._dialect.emptied(atom.holder)
                self._levels.append(
                    (atom.holder, self._bases.get(index, _Base(properties=properties)).properties)
                )
            elif atom.holder is not None:
                self._levels.pop()


def text_atoms(text: str, properties: "etree._Element | None" = None, look: str = "") -> Iterator[Atom]:
    """The text of a run in which tabs and line breaks are characters: these are copied."""
    for part in _BREAKING.split(text):
        if part:
            yield Atom("copied" if part[0] in "\t\n\r" else "text", "", part, (), properties, look)


def look_of(properties: "etree._Element | None", unseen: frozenset[str]) -> str:
    """What a reader sees of the properties of a run, as a text that is equal where it is.

    `unseen`: local names of elements and attributes that do not count.
    """
    if properties is None:
        return ""
    seen: list[str] = []
    for child in (properties, *properties):
        # The properties themselves have attributes in some formats; each child is looked at with all in it.
        for node in (child,) if child is properties else child.iter():
            values = sorted(
                f"{_local(key)}={value!s}" for key, value in node.items() if _local(key) not in unseen
            )
            if local_name(child) not in unseen and (values or not (node.attrib or node is properties)):
                seen.append(f"{local_name(node)} {values}")
    return " ".join(sorted(seen))


def _local(name: str | bytes) -> str:
    return str(name).rpartition("}")[2]


def new_run(
    prefix: str, nodes: Sequence["etree._Element"], properties: "etree._Element | None"
) -> "etree._Element":
    """A new run of a namespace, in braces, around nodes; `properties` are copied."""
    run: etree._Element = lxml_etree().Element(prefix + "r")
    if properties is not None:
        run.append(deepcopy(properties))
    run.extend(nodes)
    return run


def _with_spaces_joined(atoms: Sequence[Atom]) -> list[Atom]:
    """The atoms with a single space looking as the text before it, since nobody sees the difference."""
    joined: list[Atom] = []
    for atom in atoms:
        if atom.kind == "text" and atom.text == " " and joined and joined[-1].kind == "text":
            atom = replace(atom, properties=joined[-1].properties, look=joined[-1].look)
        joined.append(atom)
    return joined


def _bases(atoms: Sequence[Atom]) -> dict[int, _Base]:
    """What most text looks like in the paragraph (-1), and in each holder by the index of its beginning."""
    lengths: dict[int, Counter[str]] = {}
    first: dict[tuple[int, str], _Base] = {}
    levels = [-1]
    for index, atom in enumerate(atoms):
        if atom.kind == "text" and atom.text.strip():
            letters = sum(len(word) for word in atom.text.split())
            lengths.setdefault(levels[-1], Counter())[atom.look] += letters
            first.setdefault((levels[-1], atom.look), _Base(atom.look, atom.properties))
        elif atom.holder is not None:
            levels.append(index) if atom.kind == "open" else levels.pop()
    return {level: first[level, counts.most_common(1)[0][0]] for level, counts in lengths.items()}
