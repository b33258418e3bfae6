"""Files that are archives (such as DOCX): text parts are read as translatable blocks, changed parts replaced.

A block is a paragraph or another unit of text (see `cotext.files.blocks`). A changed part is read twice: once
for its blocks, and once to write it. So no part stays in memory, and the output depends only on the blocks.
"""

import io
import posixpath
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from cotext.files.blocks import Block, Contents, Item, OpenedFile, Piece
from cotext.files.runs import Paragraph
from cotext.files.strings import Markers, has_words, items_of, pieces_of
from cotext.runtime import CotextError, shown
from cotext.runtime.xml import local_name, parse, serialised, taken

if TYPE_CHECKING:
    from lxml import etree

# --- Zip archives, read within limits, and written with some members replaced.
#
# The compressed bytes of unchanged members are copied. Nested archives are treated as opaque bytes and never
# opened, which rules out nested zip bombs. Nothing is unpacked to disk.

MAX_MEMBERS: Final = 20_000
MAX_MEMBER_BYTES: Final = 256 << 20  # limit of a member, unpacked
MAX_TOTAL_BYTES: Final = 4 << 30  # limit of all members, unpacked, by their declared sizes
# Markup rarely compresses by more than 100:1; the limit of DEFLATE is 1032:1. Small members are exempt.
MAX_RATIO: Final = 300
RATIO_FROM_BYTES: Final = 8 << 20

_LOCAL: Final = struct.Struct("<4s2B4HL2L2H")
_CENTRAL: Final = struct.Struct("<4s4B4HL2L5H2L")
_END: Final = struct.Struct("<4s4H2LH")
_ZIP64: Final = 1  # id of the extra field with 64-bit sizes
_DESCRIPTOR: Final = 0x08  # flag: sizes are after the data
_ENCRYPTED: Final = 0x01
_UTF8: Final = 0x800


class Archive:
    """A zip archive in memory; `name` is its name in messages.

    Raises CotextError if the archive is damaged, encrypted, too large, or has unsafe or duplicate names.
    """

    def __init__(self, content: bytes, name: str) -> None:
        self._content = content
        self.name = name
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(content))
            self._members = {info.filename: info for info in self._zip.infolist()}
        except (zipfile.BadZipFile, ValueError, OverflowError, struct.error, NotImplementedError) as error:
            kind = f"a damaged archive ({error})" if b"PK" in content else "not a zip archive"
            raise self._refused(f"{kind}; open the file in its program and save it again") from None
        self._check()

    @property
    def names(self) -> list[str]:
        """Names of the members, in the order of the directory."""
        return list(self._members)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def read(self, name: str) -> bytes:
        """Return the content of a member; raise CotextError if it is missing, damaged or beyond a limit."""
        info = self._members.get(name)
        if info is None:
            raise self._refused(f"has no part {shown(name)}; open the file and save it again")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise self._refused(
                f"part {shown(name)} has an unsupported compression; open the file and save it again"
            )
        if info.file_size > MAX_MEMBER_BYTES:
            raise self._refused(
                f"part {shown(name)} has {info.file_size:,} bytes unpacked, beyond the limit of"
                f" {MAX_MEMBER_BYTES:,}; split the document"
            )
        try:
            with self._zip.open(info) as member:
                content = member.read(info.file_size + 1)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError, OSError) as error:
            raise self._refused(f"part {shown(name)} is damaged ({error}); save the file again") from None
        if len(content) != info.file_size:
            raise self._refused(f"part {shown(name)} is cut off; copy the file again")
        return content

    def root(self, part: str) -> "etree._Element":
        """Return the root element of an XML member."""
        return parse(self.read(part), f"{self.name}: {part}").getroot()

    def reader(self, part: str, slots: "TreeSlots") -> "PartReader":
        """Return the reader of a member whose text slots are found by the function `slots`."""
        return PartReader(part, lambda content: TreePart(content, f"{self.name}: {part}", slots))

    def written(self, changed: Mapping[str, bytes]) -> bytes:
        """Return the archive with the contents of some members replaced.

        Order, compression methods, dates, attributes and comments are kept. Without a change, the bytes are
        those of the original file.
        """
        changed = {name: content for name, content in changed.items() if self.read(name) != content}
        if not changed:
            return self._content
        out = bytearray()
        directory = bytearray()
        for name, info in self._members.items():
            start = self._data_start(info)
            packed, size, crc = self._content[start : start + info.compress_size], info.file_size, info.CRC
            if name in changed:
                packed, size, crc = changed[name], len(changed[name]), zlib.crc32(changed[name])
                if info.compress_type != zipfile.ZIP_STORED:
                    packed = zlib.compress(packed, wbits=-15)  # without a header
            version, system, _, method, time, date, *_, extra_length = self._local_fields(info)
            written_name = info.orig_filename.encode("utf-8" if info.flag_bits & _UTF8 else "cp437")
            local, extra = _small(self._content[start - extra_length : start]), _small(info.extra)
            shared = (info.flag_bits & ~_DESCRIPTOR, method, time, date, crc, len(packed), size)
            head = (b"PK\1\2", info.create_version, info.create_system, info.extract_version, info.reserved)
            lengths = (len(written_name), len(extra), len(info.comment), 0)
            rest = (info.internal_attr, info.external_attr, len(out))
            directory += _CENTRAL.pack(*head, *shared, *lengths, *rest) + written_name + extra + info.comment
            out += _LOCAL.pack(b"PK\3\4", version, system, *shared, len(written_name), len(local))
            out += written_name + local + packed
        count, comment = len(self._members), self._zip.comment
        end = _END.pack(b"PK\5\6", 0, 0, count, count, len(directory), len(out), len(comment))
        return bytes(out + directory + end + comment)

    def _refused(self, reason: str) -> CotextError:
        return CotextError(f"{self.name}: {reason}")

    def _check(self) -> None:
        infos = sorted(self._zip.infolist(), key=lambda info: info.header_offset)
        if len(infos) != len(self._members):
            raise self._refused("two parts have the same name; open the file and save it again")
        if len(infos) > MAX_MEMBERS:
            raise self._refused(f"{len(infos):,} parts, beyond the limit of {MAX_MEMBERS:,}; split it")
        for info in infos:
            path = info.orig_filename.replace("\\", "/")
            if path.startswith("/") or ".." in path.split("/") or ":" in path or "\0" in path:
                raise self._refused(f"part {shown(info.orig_filename)} has a name that leaves the archive")
            if info.flag_bits & _ENCRYPTED:
                raise self._refused("encrypted; save the file without a password")
        total = sum(info.file_size for info in infos)
        if total > MAX_TOTAL_BYTES:
            raise self._refused(f"{total:,} bytes unpacked, but the limit is {MAX_TOTAL_BYTES:,}; split it")
        for info in infos:
            if info.file_size > max(RATIO_FROM_BYTES, MAX_RATIO * info.compress_size):
                raise self._refused(
                    f"part {shown(info.filename)} unpacks to more than {MAX_RATIO} times its size; such"
                    " archives can exhaust memory"
                )
            if info.header_offset + _LOCAL.size + info.compress_size > len(self._content):
                raise self._refused(f"part {shown(info.filename)} is cut off; copy the file again")
        if infos and infos[0].header_offset:
            raise self._refused("does not begin with its first part; open the file and save it again")
        for info, following in pairwise(infos):
            if self._data_start(info) + info.compress_size > following.header_offset:
                raise self._refused(f"parts {shown(info.filename)} and {shown(following.filename)} overlap")

    def _data_start(self, info: zipfile.ZipInfo) -> int:
        fields = self._local_fields(info)
        return info.header_offset + _LOCAL.size + fields[-2] + fields[-1]

    def _local_fields(self, info: zipfile.ZipInfo) -> tuple[int, ...]:
        magic, *fields = _LOCAL.unpack_from(self._content, info.header_offset)
        if magic != b"PK\3\4" or fields[3] != info.compress_type:
            raise self._refused(f"part {shown(info.filename)} is not at the declared position")
        return tuple(fields)


def _small(extra: bytes) -> bytes:
    """Return the extra fields of a member without the 64-bit sizes; the header contains the sizes instead."""
    kept, at = b"", 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind != _ZIP64:
            kept += extra[at : at + 4 + length]
        at += 4 + length
    return kept


# --- Parts and their text.


class PlainSlot:
    """Text of an element without children (such as a title), or of an attribute (such as a description)."""

    def __init__(self, element: "etree._Element", attribute: str | None = None) -> None:
        self._element, self._attribute = element, attribute
        text = (element.get(attribute) if attribute else None if len(element) else element.text) or ""
        # Descriptions may be HTML. A line break in an attribute was a character reference, so it is intended.
        markers = Markers(re.compile(r"\n\s*") if attribute else None)
        is_plain = not attribute and local_name(element) != "description"
        items = [Item("text", "", 0, len(text), text)] if is_plain else items_of(text, markers)
        pieces, self._elements = pieces_of(items, [text[item.start : item.stop] for item in items])
        self.pieces: tuple[Piece, ...] = pieces if has_words(pieces) else ()

    def write(self, pieces: Sequence[Piece]) -> None:
        text = taken("".join(p if isinstance(p, str) else self._elements[p] for p in pieces))
        if self._attribute is None:
            self._element.text = text
        else:
            self._element.set(self._attribute, text)


TreeSlot = PlainSlot | Paragraph  # a position in a tree; its `pieces` are empty if there is no text
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
    """Yield the texts of elements that are properties of a document, such as its title."""
    for element in elements:
        if local_name(element) in _PROPERTIES:
            yield f"properties, {local_name(element)}", PlainSlot(element)


class Package(Archive):
    """An Office file: parts that refer to each other by relationships.

    Raises CotextError if the file is encrypted, in an old binary format, not an archive, or an archive that
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
        if self.main not in self:
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
        if listing not in self:
            return []
        relations: list[tuple[str, str, str]] = []
        for relation in self.root(listing):
            if local_name(relation) == "Relationship" and relation.get("TargetMode") != "External":
                target = posixpath.join("/", folder, unquote(relation.get("Target") or ""))
                kind = (relation.get("Type") or "").rpartition("/")[2]
                relations.append((relation.get("Id") or "", kind, posixpath.normpath(target).lstrip("/")))
        return [relation for relation in relations if relation[2] in self]

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
            (r"comments/.+", "comments"),
        ):
            if count := sum(bool(re.fullmatch(folder + pattern, name)) for name in self.names):
                yield f"{what} ({count}): their text is not translated"
        if any(name.lower().endswith("vbaproject.bin") for name in self.names):
            yield "macros are kept unchanged and not run"
        if any(name.startswith("_xmlsignatures/") for name in self.names):
            yield "the digital signature is not valid for the translated file"


def recognises(head: bytes, folder: bytes) -> bool:
    """Return whether a file is an Office archive that contains this folder, or has an old format.

    For an old format, `Package` raises CotextError.
    """
    if head.startswith(_COMPOUND):
        return True
    return head.startswith(b"PK\3\4") and bool(re.search(rb"PK\x03\x04[\s\S]{26}" + folder, head))
