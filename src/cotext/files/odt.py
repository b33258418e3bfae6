"""OpenDocument texts (.odt): text of paragraphs is replaced, all else stays.

Reading order: the body, with tables cell by cell; notes, comments and boxes after the paragraph in which they
stand. Headers and footers are a document of their own, and what the file says of itself the last. Text that
tracked changes have deleted stays as it is.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from cotext.files.archive import Archive
from cotext.files.opendocument import OFFICE, TEXT, OdfDialect
from cotext.files.parts import ElementText, PartReader, PartsFile, Slot, Slots, TreePart
from cotext.files.runs import Paragraph
from cotext.runtime.errors import CotextError
from cotext.runtime.xml import local_name, parse

if TYPE_CHECKING:
    from lxml import etree

_MIMETYPES: Final = (
    b"application/vnd.oasis.opendocument.text",
    b"application/vnd.oasis.opendocument.text-template",
)
_DRAWN: Final = "{urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0}"
_PROPERTIES: Final = ("title", "subject", "description", "keyword")


class OdtFormat:
    """OpenDocument of word processors."""

    name = "odt"
    suffixes = (".odt", ".ott")

    def recognises(self, head: bytes) -> bool:
        """Whether it is an archive whose first part says so."""
        return head.startswith(b"PK\3\4") and head[30:].startswith(b"mimetype" + _MIMETYPES[0])

    def open(self, content: bytes, name: str) -> PartsFile:
        """Read a document."""
        archive = Archive(content, name)
        if archive.read("mimetype").strip() not in _MIMETYPES:
            raise CotextError(f"{name}: not an OpenDocument text; save it as .odt")
        manifest = "META-INF/manifest.xml"
        if manifest in archive and b"encryption-data" in archive.read(manifest):
            raise CotextError(f"{name}: protected by a password; save it without")

        def reader(part: str, slots: Slots) -> list[PartReader]:
            where = f"{name}: {part}"
            return (
                [PartReader(part, lambda content: TreePart(content, where, slots))] if part in archive else []
            )

        documents = [
            reader("content.xml", _body),
            reader("styles.xml", _headers),
            reader("meta.xml", _properties),
        ]
        root = parse(archive.read("content.xml"), f"{name}: content.xml").getroot()
        return PartsFile(archive, documents, [*_tracked(root), *_left(archive)])


def _body(root: "etree._Element") -> Iterator[tuple[str, Slot]]:
    return _paragraphs(root, root, "body")


def _headers(root: "etree._Element") -> Iterator[tuple[str, Slot]]:
    for master in root.iterfind(f"{OFFICE}master-styles"):
        yield from _paragraphs(root, master, "headers and footers")


def _properties(root: "etree._Element") -> Iterator[tuple[str, Slot]]:
    for element in root.iterfind(f"{OFFICE}meta/*"):
        if local_name(element) in _PROPERTIES:
            yield f"properties, {local_name(element)}", ElementText(element)


def _paragraphs(root: "etree._Element", part: "etree._Element", label: str) -> Iterator[tuple[str, Slot]]:
    dialect = OdfDialect(root)
    deleted = {node for changes in part.iter(TEXT + "tracked-changes") for node in changes.iter()}
    count = 0
    for element in part.iter(TEXT + "p", TEXT + "h", _DRAWN + "title", _DRAWN + "desc"):
        if str(element.tag).startswith(_DRAWN):
            yield f"{label}, after paragraph {count}", ElementText(element)
        elif element not in deleted:
            count += 1
            yield f"{label}, paragraph {count}", Paragraph(element, dialect)


def _tracked(root: "etree._Element") -> Iterator[str]:
    count = sum(1 for _ in root.iter(TEXT + "changed-region"))
    if count:
        yield f"tracked changes: {count}, read as if accepted; deleted text is kept as it is"


def _left(archive: Archive) -> Iterator[str]:
    objects = [name for name in archive.names if name.startswith("Object ") and name.endswith("/content.xml")]
    if objects:
        yield f"embedded documents: {len(objects)}, whose text is left as it is"
    if any(name.startswith(("Basic/", "Scripts/")) for name in archive.names):
        yield "macros are kept as they are, and not run (--drop-macros: left out)"
    if "META-INF/documentsignatures.xml" in archive:
        yield "the digital signature no longer fits the translated file"


FORMAT: Final = OdtFormat()
