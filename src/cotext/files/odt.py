"""OpenDocument texts (.odt): text of paragraphs is replaced, all else stays.

Reading order: the body, with tables cell by cell; notes, comments and boxes after the paragraph in which they
stand. Headers and footers are a document of their own, and what the file says of itself the last. Text that
tracked changes have deleted stays as it is.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from cotext.files.archive import Archive
from cotext.files.parts import ElementText, PartReader, PartsFile, Slot, Slots, TreePart
from cotext.files.runs import Paragraph
from cotext.runtime.errors import CotextError
from cotext.runtime.reading import substituted
from cotext.runtime.xml import local_name, parse

if TYPE_CHECKING:
    from lxml import etree
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cotext.files.runs import Atom
from cotext.runtime.xml import lxml_etree, taken

if TYPE_CHECKING:
    from lxml import etree

# --- Paragraphs of OpenDocument (OASIS OpenDocument 1.3, chapter 6) as pieces.
#
# Spans, links and ranges of bookmarks, changes and comments are elements; breaks, tabs, frames and notes
# are points; fields are copied. Spans that look like the text around them go from changed paragraphs, as do
# marks where pages broke.

TEXT: Final = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
STYLE: Final = "{urn:oasis:names:tc:opendocument:xmlns:style:1.0}"
OFFICE: Final = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_SPACES: Final = re.compile("[ \t\r\n]+")
_PARTED: Final = re.compile("( {2,}|^ |[\t\n])")
_POINTS: Final = frozenset({"tab", "line-break", "note", "bookmark", "change", "reference-mark", "toc-mark"})
_RANGES: Final = re.compile(
    "(bookmark|reference-mark|change|toc-mark|user-index-mark|annotation)(-start|-end)"
)
_UNSEEN: Final = re.compile(
    "rsid|paragraph-rsid|(language|country|script|rfc-language-tag)(-asian|-complex)?"
)


class OdfDialect:
    """OpenDocument text; `root`: of the part, which holds the styles of its spans."""

    def __init__(self, root: "etree._Element") -> None:
        self._plain = set(_plain_styles(root))

    def atoms(self, paragraph: "etree._Element") -> list[Atom]:
        """What the paragraph holds, in order."""
        return list(self._content(paragraph))

    def emptied(self, holder: "etree._Element") -> None:
        """Take everything out."""
        holder.text = None
        for child in list(holder):
            holder.remove(child)

    def put_text(self, holder: "etree._Element", text: str, properties: "etree._Element | None") -> None:
        """Add text; spaces that a reader would collapse, tabs and breaks have elements of their own."""
        last = next(holder.iterchildren(reversed=True), None)
        own: list[str] = []  # what is behind the last element so far
        begins = last is None and not holder.text
        for part in _PARTED.split(taken(text)):
            if part.isspace() and part[0] in " \t\n" and (part != " " or begins):
                _append(holder, last, own)
                name = {"\t": "tab", "\n": "line-break"}.get(part, "s")
                last = lxml_etree().SubElement(holder, TEXT + name)
                if name == "s" and len(part) > 1:
                    last.set(TEXT + "c", str(len(part)))
            elif part:
                own.append(part)
        _append(holder, last, own)

    def wrapped(
        self, nodes: Sequence["etree._Element"], properties: "etree._Element | None"
    ) -> "etree._Element":
        """There are no runs in this format."""
        raise NotImplementedError

    def _content(self, holder: "etree._Element") -> Iterator[Atom]:
        yield from _text(holder.text)
        for child in holder:
            yield from self._child(child)
            yield from _text(child.tail)

    def _child(self, child: "etree._Element") -> Iterator[Atom]:
        name = local_name(child)
        own = str(child.tag).startswith(TEXT)
        if own and name == "s":
            count = child.get(TEXT + "c") or "1"
            yield Atom("text", text=" " * min(int(count), 1000) if count.isdigit() else " ")
        elif own and name == "span" and child.get(TEXT + "style-name") in self._plain:
            yield from self._content(child)
        elif own and name in ("span", "a", "meta"):
            yield Atom("open", f"{name} {id(child)}", nodes=(child,), holder=child)
            yield from self._content(child)
            yield Atom("close", f"{name} {id(child)}", holder=child)
        elif found := _RANGES.fullmatch(name):
            kind = "open" if found[2] == "-start" else "close"
            yield Atom(kind, f"{found[1]} {_identity(child)}", nodes=(child,))
        elif name == "annotation":
            yield Atom("open", f"annotation {_identity(child)}", nodes=(child,))
        elif own and name != "soft-page-break":
            text = "" if name in _POINTS else "".join(child.itertext())
            yield Atom("copied" if text.strip() else "point", name, text, (child,))
        elif not own:
            yield Atom("point", nodes=(child,))


def _identity(node: "etree._Element") -> str:
    names = (TEXT + "name", TEXT + "change-id", TEXT + "id", OFFICE + "name")
    return next((value for name in names if (value := node.get(name))), "")


def _text(text: str | None) -> Iterator[Atom]:
    if text:
        yield Atom("text", text=substituted(_SPACES, " ", text))


def _append(holder: "etree._Element", last: "etree._Element | None", texts: list[str]) -> None:
    """Add texts behind the last element of a holder, and empty the list: each alone would be copied again."""
    if texts and last is not None:
        last.tail = "".join([last.tail or "", *texts])
    elif texts:
        holder.text = "".join([holder.text or "", *texts])
    texts.clear()


def _plain_styles(root: "etree._Element") -> Iterator[str]:
    """Names of automatic styles of text that nobody sees: word processors note in them who typed when."""
    for style in root.iterfind(f"{OFFICE}automatic-styles/{STYLE}style"):
        own = {str(key).rpartition("}")[2] for key in style.attrib}
        keys = [str(key).rpartition("}")[2] for node in style.iterdescendants() for key in node.attrib]
        unseen = own == {"name", "family"} and all(_UNSEEN.fullmatch(key) for key in keys)
        if unseen and style.get(STYLE + "family") == "text":
            yield style.get(STYLE + "name") or ""


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
