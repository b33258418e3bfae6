"""HTML pages: text ranges are replaced, all other bytes are kept.

The encoding is taken from the byte order mark, or otherwise from the XML declaration or <meta>. If there are
none, it is UTF-8, or windows-1252 (with a message) if the page is not valid UTF-8. The page is written in the
same encoding; characters that it lacks become character references (&#8364;). Code and elements with
translate="no" or class="notranslate" are copied; lang attributes are kept.
"""

import codecs
import re
from collections.abc import Sequence
from typing import Final

from cotext.files.blocks import Block, Contents, FileFormat
from cotext.files.markup import Markup
from cotext.files.places import marked_encoding
from cotext.runtime import CotextError

MAX_PAGE_BYTES: Final = 64 << 20
_DECLARED_WITHIN: Final = 4096
_DECLARED: Final = re.compile(
    rb"""<\?xml[^>]*?\sencoding\s*=\s*["']([\w.:-]+)|<meta[^>]*?[\s;"']charset\s*=\s*+["']?\s*+([\w.:-]+)""",
    re.IGNORECASE,
)
# By declared encoding, the encoding that browsers use instead.
_READ_AS: Final = {
    "iso8859-1": "cp1252",
    "ascii": "cp1252",
    "utf-16": "utf-8",
    "utf-16-le": "utf-8",
    "utf-16-be": "utf-8",
}
_ASCII: Final = bytes(range(0x20, 0x7F))
_WRITTEN: Final = "cotext-page"  # name of the error handler for characters that an encoding lacks
_LEADING: Final = re.compile(r"(?:\s+|<!--.*?-->|<\?[^>]*>)*", re.DOTALL)
_PAGE: Final = re.compile(r"<!doctype\s+html\b|<html[\s>]", re.IGNORECASE)
_FRAGMENT: Final = re.compile(
    r"<(?:p|div|h[1-6]|ul|ol|table|section|article|main|span|head|title)[\s>]", re.IGNORECASE
)


def _recognises(head: bytes) -> bool:
    """Return whether the first content, after comments, is a page or one of its elements."""
    mark, encoding = marked_encoding(head)
    text = head[len(mark) :].decode(encoding or "latin-1", "replace")
    start = _LEADING.match(text)
    at = start.end() if start else 0
    return bool(_PAGE.match(text, at) or _FRAGMENT.match(text, at))


class Page:
    """An HTML or XHTML page as one document, with messages about elements that are not translated.

    Raises CotextError if the page is too large, or its bytes do not fit its encoding.
    """

    def __init__(self, content: bytes, name: str, xml: bool) -> None:
        if len(content) > MAX_PAGE_BYTES:
            raise CotextError(
                f"{name}: {len(content):,} bytes, but the limit is {MAX_PAGE_BYTES:,}; split it"
            )
        messages: list[str] = []
        mark, encoding = marked_encoding(content)
        encoding = encoding or _declared(content) or _guessed(content, messages)
        try:
            page = content[len(mark) :].decode(encoding, "surrogateescape")
            same = page.encode(encoding, _WRITTEN) == content[len(mark) :]
        except UnicodeError:
            same = False
        if not same:
            raise CotextError(f"{name}: cannot be decoded as {encoding} without loss; save it as UTF-8")
        self._mark, self._encoding = mark, encoding
        self._markup = Markup(page, xml)
        self.contents = Contents([self._markup.blocks], messages)
        for element, lines in self._markup.left.items():
            times = f"{len(lines)} times, first on line {lines[0]}" if len(lines) > 1 else f"line {lines[0]}"
            messages.append(f"<{element}> is not translated ({times})")

    def written(self, documents: Sequence[Sequence[Block]]) -> bytes:
        [blocks] = documents
        return self._mark + self._markup.written(blocks).encode(self._encoding, _WRITTEN)


def _declared(content: bytes) -> str | None:
    """Return the declared encoding, as browsers interpret it; None if it is not an extension of ASCII."""
    match = _DECLARED.search(content, 0, _DECLARED_WITHIN)
    if not match:
        return None
    try:
        declared = codecs.lookup((match[1] or match[2]).decode("ascii")).name
        encoding = _READ_AS.get(declared, declared)
        # XML parsers use the declared encoding, so it is used if it reads this page in the same way.
        if content.decode(declared, "replace") == content.decode(encoding, "replace"):
            encoding = declared
        return encoding if _ASCII.decode(encoding) == _ASCII.decode("ascii") else None
    except (LookupError, UnicodeError):
        return None


def _guessed(content: bytes, messages: list[str]) -> str:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        messages.append("no encoding is declared, and the page is not UTF-8: read as windows-1252")
        return "cp1252"
    return "utf-8"


def _byte_or_reference(error: UnicodeError) -> tuple[bytes, int]:
    """Error handler: write character references, and undecodable bytes as they were."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = (ord(character) for character in error.object[error.start : error.end])
    spelled = (bytes([n - 0xDC00]) if 0xDC80 <= n <= 0xDCFF else b"&#%d;" % n for n in lacking)
    return b"".join(spelled), error.end


codecs.register_error(_WRITTEN, _byte_or_reference)


def _open(content: bytes, name: str) -> Page:
    is_declared = content.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"<?xml")
    return Page(content, name, xml=is_declared or name.lower().endswith((".xhtml", ".xht")))


# Pages may be malformed, and may be fragments.
FORMAT: Final = FileFormat("html", (".html", ".htm", ".xhtml", ".xht"), _recognises, _open)
