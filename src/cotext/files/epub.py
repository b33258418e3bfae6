"""Electronic books (EPUB 2 and 3): text ranges of pages are replaced, all other bytes are kept.

There are three documents: the pages in the order of the spine, the tables of contents, and the properties.
"""

import posixpath
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from cotext.files.blocks import FileFormat
from cotext.files.html import Page
from cotext.files.parts import Archive, PartReader, PartsFile, PlainSlot, TreeSlot, properties
from cotext.runtime import CotextError

if TYPE_CHECKING:
    from lxml import etree

# The first part of the archive, which has the media type of EPUB.
_FIRST_PART: Final = b"mimetypeapplication/epub+zip"
_CONTAINER: Final = "META-INF/container.xml"
_ENCRYPTION: Final = "META-INF/encryption.xml"
_PAGES: Final = ("application/xhtml+xml", "text/html")


class _Book(Archive):
    """Finds the parts of a book that contain text."""

    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(content, name)
        paths = (node.get("full-path") for node in self.root(_CONTAINER).iter("{*}rootfile"))
        self._package = next(filter(None, paths), "")
        if self._package not in self:
            raise CotextError(f"{name}: its container does not declare the book; the file is damaged")

    def file(self) -> PartsFile:
        root = self.root(self._package)
        items = {node.get("id"): node for node in root.iterfind("{*}manifest/{*}item")}
        spine = [items[key] for n in root.iterfind("{*}spine/{*}itemref") if (key := n.get("idref")) in items]
        pages = self._parts(item for item in spine if item.get("media-type") in _PAGES)
        contents = self._parts(each for each in items.values() if "nav" in each.get("properties", "").split())
        outline = self._parts(i for i in items.values() if i.get("media-type", "").endswith("ncx+xml"))
        # Fonts may be encrypted, but not pages.
        for node in self.root(_ENCRYPTION).iter("{*}CipherReference") if _ENCRYPTION in self else ():
            if posixpath.normpath(unquote(node.get("URI") or "")) in (*pages, *contents, *outline):
                raise CotextError(f"{self.name}: its pages are encrypted; give a book without protection")
        documents = [
            [self._page(part) for part in pages if part in self],
            [
                *(self._page(part) for part in contents if part in self and part not in pages),
                *(self.reader(part, _labels) for part in outline if part in self),
            ],
            [self.reader(self._package, lambda root: properties(root.iterfind("{*}metadata//*")))],
        ]
        others = [item for item in spine if item.get("media-type") not in _PAGES]
        messages = [f"{len(others)} pages are not XHTML, and not translated"] if others else []
        messages += [f"{part}: is listed in the book, but missing" for part in pages if part not in self]
        return PartsFile(self, documents, messages)

    def _parts(self, items: "Iterable[etree._Element]") -> list[str]:
        """Return the parts of items of the manifest, each once."""
        folder = posixpath.dirname(self._package)
        paths = (posixpath.join(folder, unquote(item.get("href") or "")) for item in items)
        return list(dict.fromkeys(map(posixpath.normpath, paths)))

    def _page(self, part: str) -> PartReader:
        return PartReader(part, lambda content: Page(content, f"{self.name}: {part}", xml=True))


def _labels(root: "etree._Element") -> Iterator[tuple[str, TreeSlot]]:
    for count, element in enumerate((*root.iterfind("{*}docTitle/*"), *root.iterfind(".//{*}navLabel/*")), 1):
        yield f"table of contents, entry {count}", PlainSlot(element)


FORMAT: Final = FileFormat(
    "epub",
    (".epub",),
    lambda head: head.startswith(b"PK\3\4") and head[30:].startswith(_FIRST_PART),
    lambda content, name: _Book(content, name).file(),
)
