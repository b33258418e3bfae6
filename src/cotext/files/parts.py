"""Files that are archives of parts: which parts hold text, and the archive with some of them written anew.

A part is read twice where it changes, once for its blocks and once to be written, so that nothing of it is
kept meanwhile, and what is written hangs on the blocks alone.
"""

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import unquote

from cotext.files.archive import Archive
from cotext.files.blocks import Block, Contents, Piece
from cotext.runtime.errors import CotextError
from cotext.runtime.xml import local_name, parse, serialised, taken

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


# Finds the places of text under the root of a part, in reading order, each with a name for messages.
Slots = Callable[["etree._Element"], Iterable[tuple[str, Slot]]]


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


# --- Parts of Office files and how they name each other (ECMA-376 part 2, Open Packaging Conventions).

# Files of this kind are encrypted Office files, or those of Office before 2007.
_COMPOUND: Final = bytes.fromhex("d0cf11e0a1b11ae1")
_PROPERTIES: Final = ("title", "subject", "description", "keywords")


class Package:
    """An Office file of parts that name each other.

    Raises:
        CotextError: encrypted or of an old kind, or not an archive within limits.
    """

    def __init__(self, content: bytes, name: str) -> None:
        if content.startswith(_COMPOUND):
            raise CotextError(
                f"{name}: protected by a password, or of an old kind (.doc, .xls, .ppt); save it without a"
                " password as .docx or .pptx"
            )
        self.name = name
        self.archive = Archive(content, name)
        self.main = next((target for kind, target in self.related("") if kind == "officeDocument"), "")
        if self.main not in self.archive:
            raise CotextError(
                f"{name}: does not say which of its parts is the document; open and save it again"
            )

    def related(self, part: str) -> list[tuple[str, str]]:
        """Kinds and names of the parts to which a part relates, in its order; of the package for ""."""
        return [(kind, target) for _, kind, target in self.relations(part)]

    def relations(self, part: str) -> list[tuple[str, str, str]]:
        """The `related` parts, each with the name that the part has for the relation before it."""
        folder, base = posixpath.split(part)
        listing = posixpath.join(folder, "_rels", f"{base}.rels")
        if listing not in self.archive:
            return []
        found: list[tuple[str, str, str]] = []
        for relation in parse(self.archive.read(listing), f"{self.name}: {listing}").getroot():
            if local_name(relation) == "Relationship" and relation.get("TargetMode") != "External":
                target = posixpath.join("/", folder, unquote(relation.get("Target") or ""))
                kind = (relation.get("Type") or "").rpartition("/")[2]
                found.append((relation.get("Id") or "", kind, posixpath.normpath(target).lstrip("/")))
        return [each for each in found if each[2] in self.archive]

    def tree(self, part: str) -> "etree._ElementTree[etree._Element]":
        """The tree of a part."""
        return parse(self.archive.read(part), f"{self.name}: {part}")

    def properties(self) -> list[PartReader]:
        """The title of the document and what else it says of itself."""

        def slots(root: "etree._Element") -> Iterator[tuple[str, Slot]]:
            for element in root:
                if local_name(element) in _PROPERTIES:
                    yield f"properties, {local_name(element)}", ElementText(element)

        parts = [target for kind, target in self.related("") if kind == "core-properties"]
        return [self.reader(part, slots) for part in parts]

    def reader(self, part: str, slots: Slots) -> PartReader:
        """How a part is read whose places of text are found by `slots`."""
        return PartReader(part, lambda content: TreePart(content, f"{self.name}: {part}", slots))

    def left(self, folder: str) -> Iterator[str]:
        """Messages about what the parts hold that is not translated; `folder`: that of the main part."""
        for pattern, what in (
            (r"charts/chart[^/]*\.xml", "charts"),
            (r"diagrams/data[^/]*\.xml", "diagrams (SmartArt)"),
            (r"embeddings/.+", "embedded documents"),
            (r"afchunk.*", "inserted documents (altChunk)"),
        ):
            count = sum(bool(re.fullmatch(folder + pattern, name)) for name in self.archive.names)
            if count:
                yield f"{what}: {count}, whose text is left as it is"
        if any(name.lower().endswith("vbaproject.bin") for name in self.archive.names):
            yield "macros are kept as they are, and not run"
        if any(name.startswith("_xmlsignatures/") for name in self.archive.names):
            yield "the digital signature no longer fits the translated file"


def recognises(head: bytes, folder: bytes) -> bool:
    """Whether it is an archive with that folder, or of an old kind, which is refused when it is opened."""
    if head.startswith(_COMPOUND):
        return True
    return head.startswith(b"PK\3\4") and bool(re.search(rb"PK\x03\x04[\s\S]{26}" + folder, head))


def relation_of(node: "etree._Element") -> str:
    """The name of the relation that an element has in an attribute of any namespace of relations."""
    return next((str(value) for key, value in node.items() if str(key).endswith("}id")), "")
