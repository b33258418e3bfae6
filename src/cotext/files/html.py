"""HTML pages: text ranges are replaced, everything else stays byte for byte.

The encoding is that of the byte order mark, else of the XML declaration or <meta>, else UTF-8, else
windows-1252, which is said; the page is written in the same, with references for characters that it lacks.
Code is copied, and so is what is marked translate="no" or class="notranslate"; the lang attribute stays.
"""

import codecs
import re
from collections.abc import Sequence
from typing import Final

from cotext.files.blocks import Block, Contents, FileFormat
from cotext.files.markup import Markup
from cotext.files.places import marked_encoding
from cotext.runtime.errors import CotextError

MAX_PAGE_BYTES: Final = 64 << 20
_DECLARED_WITHIN: Final = 4096
_DECLARED: Final = re.compile(
    rb"""<\?xml[^>]*?\sencoding\s*=\s*["']([\w.:-]+)|<meta[^>]*?[\s;"']charset\s*=\s*+["']?\s*+([\w.:-]+)""",
    re.IGNORECASE,
)
# What browsers read where a page names these.
_READ_AS: Final = {
    "iso8859-1": "cp1252",
    "ascii": "cp1252",
    "utf-16": "utf-8",
    "utf-16-le": "utf-8",
    "utf-16-be": "utf-8",
}
_ASCII: Final = bytes(range(0x20, 0x7F))
_WRITTEN: Final = "cotext-page"  # how what an encoding lacks is written
_LEADING: Final = re.compile(r"(?:\s+|<!--.*?-->|<\?[^>]*>)*", re.DOTALL)
_PAGE: Final = re.compile(r"<!doctype\s+html\b|<html[\s>]", re.IGNORECASE)
_FRAGMENT: Final = re.compile(
    r"<(?:p|div|h[1-6]|ul|ol|table|section|article|main|span|head|title)[\s>]", re.IGNORECASE
)


def _recognises(head: bytes) -> bool:
    """Whether a page or one of its elements comes first, after comments."""
    mark, encoding = marked_encoding(head)
    text = head[len(mark) :].decode(encoding or "latin-1", "replace")
    start = _LEADING.match(text)
    at = start.end() if start else 0
    return bool(_PAGE.match(text, at) or _FRAGMENT.match(text, at))


class HtmlFile:
    """A page, read."""

    def __init__(self, content: bytes, name: str) -> None:
        self._page = Page(content, name, xml=content.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"<?xml"))
        self.contents = Contents([self._page.blocks], self._page.messages)

    def written(self, documents: Sequence[Sequence[Block]]) -> bytes:
        """The page with these blocks in the places of its own."""
        [blocks] = documents
        return self._page.written(blocks)


class Page:
    """The content of a page, HTML or XHTML: its blocks, and what is left as it is.

    Raises:
        CotextError: its bytes are not of its encoding, or too many.
    """

    def __init__(self, content: bytes, name: str, xml: bool) -> None:
        if len(content) > MAX_PAGE_BYTES:
            raise CotextError(
                f"{name}: {len(content):,} bytes, beyond the limit of {MAX_PAGE_BYTES:,}; divide the page"
            )
        self.messages: list[str] = []
        mark, encoding = marked_encoding(content)
        encoding = encoding or _declared(content) or _guessed(content, self.messages)
        try:
            page = content[len(mark) :].decode(encoding, "surrogateescape")
            same = page.encode(encoding, _WRITTEN) == content[len(mark) :]
        except UnicodeError:
            same = False
        if not same:
            raise CotextError(f"{name}: cannot be read as {encoding} without loss; save it as UTF-8")
        self._mark, self._encoding = mark, encoding
        self._markup = Markup(page, xml)
        self.blocks = self._markup.blocks
        for element, lines in self._markup.left.items():
            times = f"{len(lines)} times, first in line {lines[0]}" if len(lines) > 1 else f"line {lines[0]}"
            self.messages.append(f"<{element}> is left as it is ({times})")

    def written(self, blocks: Sequence[Block]) -> bytes:
        """The page with these blocks in the places of its own."""
        return self._mark + self._markup.written(blocks).encode(self._encoding, _WRITTEN)


def _declared(content: bytes) -> str | None:
    """The encoding that a page declares, as browsers read its name; None if no page can have it."""
    found = _DECLARED.search(content, 0, _DECLARED_WITHIN)
    if not found:
        return None
    try:
        encoding = codecs.lookup((found[1] or found[2]).decode("ascii")).name
        encoding = _READ_AS.get(encoding, encoding)
        return encoding if _ASCII.decode(encoding) == _ASCII.decode("ascii") else None
    except (LookupError, UnicodeError):
        return None


def _guessed(content: bytes, messages: list[str]) -> str:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        messages.append("the encoding is not declared, and it is not UTF-8: read as windows-1252")
        return "cp1252"
    return "utf-8"


def _byte_or_reference(error: UnicodeError) -> tuple[bytes, int]:
    """How characters are written that the encoding lacks: bytes that were none come back as they were."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = (ord(character) for character in error.object[error.start : error.end])
    spelled = (bytes([n - 0xDC00]) if 0xDC80 <= n <= 0xDCFF else b"&#%d;" % n for n in lacking)
    return b"".join(spelled), error.end


codecs.register_error(_WRITTEN, _byte_or_reference)

# Well-formed or not; a fragment of a page too.
FORMAT: Final = FileFormat("html", (".html", ".htm", ".xhtml", ".xht"), _recognises, HtmlFile)
