"""Files that are archives of parts: which parts hold text, and the archive with some of them written anew.

A part is read twice where it changes, once for its blocks and once to be written, so that nothing of it is
kept meanwhile, and what is written hangs on the blocks alone.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cotext.files.archive import Archive
from cotext.files.blocks import Block, Contents, Piece
from cotext.runtime.xml import parse, serialised, taken

if TYPE_CHECKING:
    from lxml import etree


class Slot(Protocol):
    """A place of text in a tree; without `pieces` it holds none."""

    pieces: tuple[Piece, ...]

    def write(self, pieces: Sequence[Piece]) -> None:
        """Put other pieces in the place of its own."""
        ...


class AttributeText:
    """Text in an attribute, as the description of a picture."""

    def __init__(self, element: "etree._Element", attribute: str) -> None:
        self._element, self._attribute = element, attribute
        text = element.get(attribute) or ""
        self.pieces: tuple[Piece, ...] = (text,) if text.strip() else ()

    def write(self, pieces: Sequence[Piece]) -> None:
        """Put other pieces in the place of its own."""
        self._element.set(self._attribute, taken(Block(tuple(pieces)).text))


class ElementText:
    """Text in an element that holds no other, as the title of a document."""

    def __init__(self, element: "etree._Element") -> None:
        self._element = element
        text = element.text or ""
        self.pieces: tuple[Piece, ...] = (text,) if text.strip() and not len(element) else ()

    def write(self, pieces: Sequence[Piece]) -> None:
        """Put other pieces in the place of its own."""
        self._element.text = taken(Block(tuple(pieces)).text)


class ReadPart(Protocol):
    """A part, read; `messages` say what of it is not translated."""

    blocks: list[Block]
    messages: list[str]

    def written(self, blocks: Sequence[Block]) -> bytes:
        """The part with these blocks in the places of its own."""
        ...


class Slots(Protocol):
    """Finds the places of text in the tree of a part, in reading order, each with a name for messages."""

    def __call__(self, root: "etree._Element", /) -> Iterable[tuple[str, Slot]]:
        """The places of text under a root."""
        ...


class TreePart:
    """A part of XML, whose places of text are found by `slots`."""

    def __init__(self, content: bytes, where: str, slots: Slots) -> None:
        self.messages: list[str] = []
        self._content = content
        self._tree = parse(content, where)
        self._slots = [(place, slot) for place, slot in slots(self._tree.getroot()) if slot.pieces]
        self.blocks = [Block(slot.pieces, place) for place, slot in self._slots]

    def written(self, blocks: Sequence[Block]) -> bytes:
        """The part with these blocks in the places of its own; once, since its tree is changed."""
        for (_, slot), block in zip(self._slots, blocks, strict=True):
            if block.pieces != slot.pieces:
                slot.write(block.pieces)
        return serialised(self._tree, self._content)


@dataclass(frozen=True, slots=True)
class PartReader:
    """A part by its name in the archive, and how it is read from its content."""

    name: str
    read: Callable[[bytes], ReadPart]


class PartsFile:
    """An archive, read: each document is a sequence of parts in reading order."""

    def __init__(
        self, archive: Archive, documents: Sequence[Sequence[PartReader]], messages: Sequence[str]
    ) -> None:
        self._archive = archive
        self._readers: list[list[PartReader]] = []
        self._counts: list[list[int]] = []
        self.contents = Contents([], list(messages))
        for readers in documents:
            found: list[list[Block]] = []
            for reader in readers:
                part = self._read(reader)
                found.append(part.blocks)
                self.contents.messages.extend(f"{reader.name}: {message}" for message in part.messages)
            if any(found):
                self._readers.append(list(readers))
                self._counts.append([len(blocks) for blocks in found])
                self.contents.documents.append([block for blocks in found for block in blocks])

    def written(self, documents: Sequence[Sequence[Block]]) -> bytes:
        """The archive with these blocks in the places of its own; parts without a change as they are."""
        changed: dict[str, bytes] = {}
        for reader, own, blocks in self._by_part(documents):
            if any(block.pieces != old.pieces for block, old in zip(blocks, own, strict=True)):
                changed[reader.name] = self._read(reader).written(blocks)
        return self._archive.written(changed)

    def _read(self, reader: PartReader) -> ReadPart:
        return reader.read(self._archive.read(reader.name))

    def _by_part(
        self, documents: Sequence[Sequence[Block]]
    ) -> Iterator[tuple[PartReader, Sequence[Block], Sequence[Block]]]:
        """Each part with its own blocks and those that come in their places."""
        together = zip(self._readers, self._counts, self.contents.documents, documents, strict=True)
        for readers, counts, own, blocks in together:
            at = 0
            for reader, count in zip(readers, counts, strict=True):
                yield reader, own[at : at + count], blocks[at : at + count]
                at += count
            if at != len(blocks):
                raise ValueError("as many blocks are written as were read")
