"""Paragraphs of office formats: runs of text with properties, as pieces of a block and back.

Word processors split sentences into many runs. Adjacent runs with the same look are merged here. The most
frequent look of a paragraph (or of a link in it) is not an element. Text with another look is enclosed in an
element. A subclass of `Dialect` describes the nodes of a format.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cotext.files.blocks import Item, Open, Piece, Point, Tag, inner, mates, merged, piece_of, without_empty
from cotext.runtime.xml import local_name, lxml_etree

if TYPE_CHECKING:
    from lxml import etree


# Names of points that text does not cross: ends of lines and columns, and the marks of a field that begins or
# ends in another paragraph. Word would replace text that moved into a table of contents.
_BREAKS: Final = frozenset({"br", "cr", "tab", "ptab", "fldChar", "instrText"})


@dataclass(frozen=True, slots=True)
class Atom:
    """A part of a paragraph as its format stores it.

    `kind`: see `Item`. `name` is equal for both tags of an element, and identifies points that end a line.
    `nodes` are written unchanged, in a run with the `properties` if `in_run`. `look` is equal for properties
    with the same look. `holder`: for both tags of an element, the node that contains its runs, if any.
    """

    kind: str
    name: str = ""
    text: str = ""
    nodes: tuple["etree._Element", ...] = ()
    properties: "etree._Element | None" = None
    look: str = ""
    in_run: bool = False
    holder: "etree._Element | None" = None


class Dialect(ABC):
    """Reads and writes nodes of a namespace (in braces); `properties`: names of nodes without text."""

    properties: frozenset[str]

    def __init__(self, namespace: str) -> None:
        self._prefix = namespace

    @abstractmethod
    def atoms(self, paragraph: "etree._Element") -> Iterator[Atom]:
        """Yield the parts of a paragraph in order: texts are not empty, and elements are properly nested."""

    @abstractmethod
    def put_text(self, holder: "etree._Element", text: str, properties: "etree._Element | None") -> None:
        """Append text with these properties to a paragraph or a holder."""

    def emptied(self, holder: "etree._Element") -> None:
        """Remove everything except properties from a paragraph or a holder."""
        for child in list(holder):
            if local_name(child) not in self.properties:
                holder.remove(child)

    def wrapped(
        self, nodes: Sequence["etree._Element"], properties: "etree._Element | None"
    ) -> "etree._Element":
        """Return a new run around nodes, with a copy of the properties."""
        run: etree._Element = lxml_etree().Element(self._prefix + "r")
        if properties is not None:
            run.append(deepcopy(properties))
        run.extend(nodes)
        return run


_PLAIN: Final = Atom("text")


class Paragraph:
    """A paragraph that has been read; `pieces` is empty if it has no text.

    `copies`: the same paragraph in alternative contents, of which a program shows one; all are written.
    """

    def __init__(self, element: "etree._Element", dialect: Dialect) -> None:
        self._element = element
        self._dialect = dialect
        self.copies: list[Paragraph] = []
        self._atoms = _with_spaces_joined(dialect.atoms(element))
        self._bases = _bases(self._atoms)
        self._sources: dict[Tag, tuple[int, int]] = {}  # ranges of atoms
        self._inside = (0, 0)
        items = without_empty(list(self._items()))
        shown = any(item.kind == "text" and item.text.strip() for item in items)
        self.pieces: tuple[Piece, ...] = merged(self._pieces(items)) if shown else ()

    def write(self, pieces: Sequence[Piece]) -> None:
        """Replace the content of the paragraph in its tree, from its old nodes and new text."""
        dialect, bases, (first, behind) = self._dialect, self._bases, self._inside
        dialect.emptied(self._element)
        levels = [(self._element, bases.get(-1, _PLAIN).properties)]  # holders, and properties of text

        def add(start: int, stop: int) -> None:
            """Add atoms unchanged."""
            for index, atom in enumerate(self._atoms[start:stop], start):
                holder, properties = levels[-1]
                for node in atom.nodes:
                    node.tail = None  # text after a node is a separate atom
                if atom.text and not atom.nodes:
                    dialect.put_text(holder, atom.text, atom.properties)
                else:
                    holder.extend(
                        [dialect.wrapped(atom.nodes, atom.properties)] if atom.in_run else atom.nodes
                    )
                if atom.holder is not None and atom.kind == "open":
                    dialect.emptied(atom.holder)
                    levels.append((atom.holder, bases[index].properties if index in bases else properties))
                elif atom.holder is not None:
                    levels.pop()

        add(0, first)
        for piece in pieces:
            holder, properties = levels[-1]
            if isinstance(piece, str):
                if piece:
                    dialect.put_text(holder, piece, properties)
                continue
            start, stop = self._sources[piece]
            if start == stop and isinstance(piece, Open):  # an element around text with another look
                levels.append((holder, self._atoms[start].properties))
            elif start == stop:
                levels.pop()
            add(start, stop)
        add(behind, len(self._atoms))
        for copy in self.copies:
            copy.write(pieces)

    def _items(self) -> Iterator[Item]:
        """Yield the atoms, and elements of no width around text whose look is not the most frequent one."""
        levels = [-1]
        look, begun = "", -1  # look and start of the open element

        for index, atom in enumerate(self._atoms):
            base = self._bases.get(levels[-1], _PLAIN).look
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
            item, last = items[key], pieces[-1] if pieces else ""
            if item.kind == "text":
                pieces.append(item.text)
                continue
            piece, start = piece_of(key, item, ends, _BREAKS), item.start
            if isinstance(piece, Point) and isinstance(last, Point):  # adjacent points become one
                piece, start = Point(last.key, last.breaks or piece.breaks), self._sources[last][0]
                pieces.pop()
            pieces.append(piece)
            self._sources[piece] = start, item.stop
        return pieces


def look_of(properties: "etree._Element | None", unseen: frozenset[str]) -> str:
    """Return a text that is equal for properties of runs with the same look.

    `unseen`: local names of elements and attributes without effect on the look.
    """
    if properties is None:
        return ""
    descriptions: list[str] = []
    for child in (properties, *properties):
        # In some formats the properties have attributes; children are read with all their descendants.
        for node in (child,) if child is properties else child.iter():
            values = sorted(
                f"{_local(key)}={value!s}" for key, value in node.items() if _local(key) not in unseen
            )
            if local_name(child) not in unseen and (values or not (node.attrib or node is properties)):
                descriptions.append(f"{local_name(node)} {values}")
    return " ".join(sorted(descriptions))


def _local(name: str | bytes) -> str:
    return str(name).rpartition("}")[2]


def _with_spaces_joined(atoms: Iterable[Atom]) -> list[Atom]:
    """Return the atoms; each single space gets the look of the text before it."""
    joined: list[Atom] = []
    for atom in atoms:
        if atom.kind == "text" and atom.text == " " and joined and joined[-1].kind == "text":
            atom = replace(atom, properties=joined[-1].properties, look=joined[-1].look)
        joined.append(atom)
    return joined


def _bases(atoms: Sequence[Atom]) -> dict[int, Atom]:
    """Return a text with the most frequent look of each holder, by its start, and of the paragraph (-1)."""
    lengths: dict[int, Counter[str]] = {}
    first: dict[tuple[int, str], Atom] = {}
    levels = [-1]
    for index, atom in enumerate(atoms):
        if atom.kind == "text" and atom.text.strip():
            letters = sum(len(word) for word in atom.text.split())
            lengths.setdefault(levels[-1], Counter())[atom.look] += letters
            first.setdefault((levels[-1], atom.look), atom)
        elif atom.holder is not None:
            levels.append(index) if atom.kind == "open" else levels.pop()
    return {level: first[level, counts.most_common(1)[0][0]] for level, counts in lengths.items()}
