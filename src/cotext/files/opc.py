"""Parts of Office files and how they name each other (ECMA-376 part 2, Open Packaging Conventions)."""

import posixpath
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from cotext.files.archive import Archive
from cotext.files.parts import ElementText, PartReader, Slot, Slots, TreePart
from cotext.runtime.errors import CotextError
from cotext.runtime.xml import local_name, parse

if TYPE_CHECKING:
    from lxml import etree

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
                " password as .docx, .xlsx or .pptx"
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
            yield "macros are kept as they are, and not run (--drop-macros: left out)"
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
