"""Electronic books (EPUB 2 and 3): text ranges of pages are replaced, all other bytes are kept.

There are three documents: the pages in the order of the spine, the tables of contents, and the properties.
"""

import posixpath
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from cotext.files.archive import Archive
from cotext.files.blocks import FileFormat
from cotext.files.html import Page
from cotext.files.parts import PartReader, PartsFile, PlainSlot, Slot, Slots, TreePart
from cotext.runtime.errors import CotextError
from cotext.runtime.xml import local_name, parse

if TYPE_CHECKING:
    from lxml import etree

_MIMETYPE: Final = b"application/epub+zip"
_CONTAINER: Final = "META-INF/container.xml"
_ENCRYPTION: Final = "META-INF/encryption.xml"
_PAGES: Final = ("application/xhtml+xml", "text/html")
_PROPERTIES: Final = ("title", "subject", "description")


def _recognises(head: bytes) -> bool:
    """Return whether a file is an archive whose first part has the media type of EPUB."""
    return head.startswith(b"PK\3\4") and head[30:].startswith(b"mimetype" + _MIMETYPE)


class _Book:
    """Finds the parts of a book that contain text."""

    def __init__(self, archive: Archive, name: str) -> None:
        self._archive, self._name = archive, name
        self._package = next(
            (path for node in self._root(_CONTAINER).iter("{*}rootfile") if (path := node.get("full-path"))),
            "",
        )
        if self._package not in archive:
            raise CotextError(f"{name}: its container does not declare the book; the file is damaged")

    def file(self) -> PartsFile:
        root = self._root(self._package)
        items = {node.get("id"): node for node in root.iterfind("{*}manifest/{*}item")}
        spine = [items[key] for n in root.iterfind("{*}spine/{*}itemref") if (key := n.get("idref")) in items]
        pages = list(dict.fromkeys(self._part(item) for item in spine if item.get("media-type") in _PAGES))
        contents = dict.fromkeys(
            self._part(item) for item in items.values() if "nav" in (item.get("properties") or "").split()
        )
        outline = [
            self._part(item) for item in items.values() if (item.get("media-type") or "").endswith("ncx+xml")
        ]
        self._refuse_encrypted({*pages, *contents, *outline})
        documents = [
            [self._page(part) for part in pages if part in self._archive],
            [
                *(self._page(part) for part in contents if part in self._archive and part not in pages),
                *(self._tree(part, _labels) for part in outline if part in self._archive),
            ],
            [self._tree(self._package, _properties)],
        ]
        others = [item for item in spine if item.get("media-type") not in _PAGES]
        messages = [f"{len(others)} pages are not XHTML, and not translated"] if others else []
        return PartsFile(self._archive, documents, messages)

    def _root(self, part: str) -> "etree._Element":
        return parse(self._archive.read(part), f"{self._name}: {part}").getroot()

    def _part(self, item: "etree._Element") -> str:
        path = posixpath.join(posixpath.dirname(self._package), unquote(item.get("href") or ""))
        return posixpath.normpath(path)

    def _page(self, part: str) -> PartReader:
        return PartReader(part, lambda content: Page(content, f"{self._name}: {part}", xml=True))

    def _tree(self, part: str, slots: Slots) -> PartReader:
        return PartReader(part, lambda content: TreePart(content, f"{self._name}: {part}", slots))

    def _refuse_encrypted(self, parts: set[str]) -> None:
        """Raise CotextError if pages of the book are encrypted; fonts may be."""
        if _ENCRYPTION in self._archive:
            for node in self._root(_ENCRYPTION).iter("{*}CipherReference"):
                if posixpath.normpath(unquote(node.get("URI") or "")) in parts:
                    raise CotextError(
                        f"{self._name}: its pages are encrypted; give a book without protection"
                    )


def _labels(root: "etree._Element") -> Iterator[tuple[str, Slot]]:
    for count, element in enumerate(root.iter("{*}text"), 1):
        yield f"table of contents, entry {count}", PlainSlot(element)


def _properties(root: "etree._Element") -> Iterator[tuple[str, Slot]]:
    for element in root.iterfind("{*}metadata//*"):
        if local_name(element) in _PROPERTIES:
            yield f"properties, {local_name(element)}", PlainSlot(element)


FORMAT: Final = FileFormat(
    "epub", (".epub",), _recognises, lambda content, name: _Book(Archive(content, name), name).file()
)
