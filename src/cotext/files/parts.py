"""Files that are archives (such as DOCX): text parts are read as translatable blocks, changed parts replaced.

A block is a paragraph or another unit of text (see `cotext.files.blocks`). A changed part is read twice: once
for its blocks, and once to write it. So no part is kept in memory, and the output depends only on the blocks.
"""

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import unquote

from cotext.files.archive import Archive
from cotext.files.blocks import Block, Contents, OpenedFile, Piece, shown_text
from cotext.runtime import CotextError
from cotext.runtime.xml import local_name, parse, serialised, taken

if TYPE_CHECKING:
    from lxml import etree


class TreeSlot(Protocol):
    """A position in a tree that may contain text; `pieces` is empty if there is no text."""

    pieces: tuple[Piece, ...]

    def write(self, pieces: Sequence[Piece]) -> None: ...


class PlainSlot:
    """Text of an element without children (such as a title), or of an attribute (such as a description)."""

    def __init__(self, element: "etree._Element", attribute: str | None = None) -> None:
        self._element, self._attribute = element, attribute
        text = element.get(attribute) if attribute else None if len(element) else element.text
        self.pieces: tuple[Piece, ...] = (text,) if text and text.strip() else ()

    def write(self, pieces: Sequence[Piece]) -> None:
        text = taken(shown_text(pieces))
        if self._attribute is None:
            self._element.text = text
        else:
            self._element.set(self._attribute, text)


# Yields (location, slot) pairs under the root of a part, in reading order; messages quote the location.
TreeSlots = Callable[["etree._Element"], Iterable[tuple[str, TreeSlot]]]


class TreePart:
    """An XML part whose text slots are found by the function `slots`."""

    def __init__(self, content: bytes, where: str, slots: TreeSlots) -> None:
        self._content = content
        self._tree = parse(content, where)
        self._slots = [(place, slot) for place, slot in slots(self._tree.getroot()) if slot.pieces]
        self.contents = Contents([[Block(slot.pieces, place) for place, slot in self._slots]])

    def written(self, documents: Sequence[Sequence[Block]]) -> bytes:
        """Return the part with its blocks replaced; can be called once, because it changes the tree."""
        [blocks] = documents
        for (_, slot), block in zip(self._slots, blocks, strict=True):
            if block.pieces != slot.pieces:
                slot.write(block.pieces)
        return serialised(self._tree, self._content)


@dataclass(frozen=True, slots=True)
class PartReader:
    """The name of a part in the archive, and a function that reads its content as one document."""

    name: str
    read: Callable[[bytes], OpenedFile]


class PartsFile:
    """An archive that has been read; each document is a list of parts in reading order."""

    def __init__(
        self, archive: Archive, documents: Sequence[Sequence[PartReader]], messages: Sequence[str]
    ) -> None:
        self._archive = archive
        # The readers of each document's parts, with their numbers of blocks.
        self._parts: list[list[tuple[PartReader, int]]] = []
        self.contents = Contents([], list(messages))
        for readers in documents:
            counts: list[tuple[PartReader, int]] = []
            blocks: list[Block] = []
            for reader in readers:
                contents = self._read(reader).contents
                counts.append((reader, len(contents.documents[0])))
                blocks += contents.documents[0]
                self.contents.messages.extend(f"{reader.name}: {message}" for message in contents.messages)
            if blocks:
                self._parts.append(counts)
                self.contents.documents.append(blocks)

    def written(self, documents: Sequence[Sequence[Block]]) -> bytes:
        """Return the archive with its blocks replaced; parts without a changed block are not changed."""
        changed: dict[str, bytes] = {}
        for parts, originals, blocks in zip(self._parts, self.contents.documents, documents, strict=True):
            pairs = zip(originals, blocks, strict=True)
            for reader, count in parts:
                given = list(islice(pairs, count))
                if any(original.pieces != block.pieces for original, block in given):
                    changed[reader.name] = self._read(reader).written([[block for _, block in given]])
        return self._archive.written(changed)

    def _read(self, reader: PartReader) -> OpenedFile:
        return reader.read(self._archive.read(reader.name))


# --- Parts of Office files and their relations (ECMA-376 part 2, Open Packaging Conventions).

# The first bytes of encrypted Office files, and of the binary formats before Office 2007.
_COMPOUND: Final = bytes.fromhex("d0cf11e0a1b11ae1")
_PROPERTIES: Final = ("title", "subject", "description", "keywords")


def properties(elements: "Iterable[etree._Element]") -> Iterator[tuple[str, TreeSlot]]:
    """Yield the texts of those elements that are properties of a document, such as its title."""
    for element in elements:
        if local_name(element) in _PROPERTIES:
            yield f"properties, {local_name(element)}", PlainSlot(element)


class Parts:
    """The parts of an archive; `name` is its name in messages. Raises the errors of `Archive`."""

    def __init__(self, content: bytes, name: str) -> None:
        self.name, self.archive = name, Archive(content, name)

    def root(self, part: str) -> "etree._Element":
        return parse(self.archive.read(part), f"{self.name}: {part}").getroot()

    def reader(self, part: str, slots: TreeSlots) -> PartReader:
        """Return the reader of a part whose text slots are found by the function `slots`."""
        return PartReader(part, lambda content: TreePart(content, f"{self.name}: {part}", slots))


class Package(Parts):
    """An Office file: parts that refer to each other by relationships.

    Raises:
        CotextError: the file is encrypted, in an old binary format, not an archive, or an archive that
            exceeds the limits.
    """

    def __init__(self, content: bytes, name: str) -> None:
        if content.startswith(_COMPOUND):
            raise CotextError(
                f"{name}: protected by a password, or in an old format (.doc, .xls, .ppt); save it without a"
                " password as .docx or .pptx"
            )
        super().__init__(content, name)
        self.main = next((part for _, kind, part in self.relations("") if kind == "officeDocument"), "")
        if self.main not in self.archive:
            raise CotextError(
                f"{name}: the main document part is missing or not declared; open the file in an Office "
                "program and save it again"
            )

    def relations(self, part: str) -> list[tuple[str, str, str]]:
        """Return id, kind and target part of each relationship, in order.

        `part`: name of a part, or "" for the whole package.
        """
        folder, base = posixpath.split(part)
        listing = posixpath.join(folder, "_rels", f"{base}.rels")
        if listing not in self.archive:
            return []
        relations: list[tuple[str, str, str]] = []
        for relation in self.root(listing):
            if local_name(relation) == "Relationship" and relation.get("TargetMode") != "External":
                target = posixpath.join("/", folder, unquote(relation.get("Target") or ""))
                kind = (relation.get("Type") or "").rpartition("/")[2]
                relations.append((relation.get("Id") or "", kind, posixpath.normpath(target).lstrip("/")))
        return [relation for relation in relations if relation[2] in self.archive]

    def properties(self) -> list[PartReader]:
        """Return readers of the document properties, such as the title."""

        parts = [part for _, kind, part in self.relations("") if kind == "core-properties"]
        return [self.reader(part, properties) for part in parts]

    def untranslated_content(self, folder: str) -> Iterator[str]:
        """Yield messages about content that is not translated; `folder`: folder of the main part."""
        for pattern, what in (
            (r"charts/chart[^/]*\.xml", "charts"),
            (r"diagrams/data[^/]*\.xml", "SmartArt diagrams"),
            (r"embeddings/.+", "embedded documents"),
            (r"afchunk.*", "inserted altChunk documents"),
        ):
            count = sum(bool(re.fullmatch(folder + pattern, name)) for name in self.archive.names)
            if count:
                yield f"{what} ({count}): their text is not translated"
        if any(name.lower().endswith("vbaproject.bin") for name in self.archive.names):
            yield "macros are kept unchanged and not run"
        if any(name.startswith("_xmlsignatures/") for name in self.archive.names):
            yield "the digital signature is not valid for the translated file"


def recognises(head: bytes, folder: bytes) -> bool:
    """Return whether a file is an Office archive that contains this folder, or has an old format.

    For an old format, `Package` raises CotextError.
    """
    if head.startswith(_COMPOUND):
        return True
    return head.startswith(b"PK\3\4") and bool(re.search(rb"PK\x03\x04[\s\S]{26}" + folder, head))
