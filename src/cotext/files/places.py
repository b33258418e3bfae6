"""Text files with blocks at known positions: only these ranges are replaced."""

import codecs
import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final
from xml.parsers import expat

from cotext.data.formats.xml_formats import printable
from cotext.files.blocks import Block, Contents, writable
from cotext.runtime import CotextError, shown, substituted

Edit = tuple[int, int, str]  # start, stop, replacement

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Removed from translations: lone surrogates cannot be encoded, and NUL ends strings in some programs.
_REMOVED = re.compile("[\0\ud800-\udfff]+")
# Encodings of Python that are not used for files, or whose decoding takes quadratic time.
_NOT_OF_FILES = frozenset(("punycode", "idna", "unicode-escape", "raw-unicode-escape", "undefined", "utf-7"))


@dataclass(frozen=True, slots=True)
class Decoded:
    """The text of a file without byte order mark; `errors`: see `str.encode`."""

    text: str
    name: str
    encoding: str = "utf-8"
    byte_order_mark: bytes = b""
    errors: str = "strict"

    def encoded(self, text: str) -> bytes:
        """Encode a text; raise CotextError for a character that the encoding cannot represent."""
        try:
            return self.byte_order_mark + text.encode(self.encoding, self.errors)
        except UnicodeEncodeError as error:
            raise CotextError(
                f"{self.name}: the translation contains {shown(text[error.start])}, which the encoding "
                f"{self.encoding} of the file cannot represent; convert the file to UTF-8 first"
            ) from None


def marked_encoding(content: bytes) -> tuple[bytes, str | None]:
    """Return the byte order mark and its encoding; (b"", None) if there is no mark."""
    return next((pair for pair in _BYTE_ORDER_MARKS if content.startswith(pair[0])), (b"", None))


def decoded(content: bytes, name: str, encoding: str = "utf-8", errors: str = "strict") -> Decoded:
    """Decode a file: as UTF-8 or UTF-16 if it has a byte order mark, otherwise as `encoding`.

    Raises CotextError if the encoding is wrong or unknown, decoding and encoding changes the bytes, or the
    text contains a NUL character.
    """
    mark, marked = marked_encoding(content)
    encoding = marked or encoding
    try:
        if codecs.lookup(encoding).name in _NOT_OF_FILES:
            raise LookupError
        text = content[len(mark) :].decode(encoding)
        is_lossless = mark + text.encode(encoding) == content
    except LookupError:
        raise CotextError(f"{name}: unknown encoding {shown(encoding)}; convert the file to UTF-8") from None
    except UnicodeError as error:
        at = error.start + len(mark) if isinstance(error, UnicodeDecodeError) else 0
        line = content.count(b"\n", 0, at) + 1
        raise CotextError(
            f"{name}:{line}: invalid {encoding}, byte {at + 1}; convert the file to UTF-8"
        ) from None
    if not is_lossless:
        raise CotextError(
            f"{name}: decoding and encoding the file as {shown(encoding)} does not reproduce its bytes; "
            "convert the file to UTF-8"
        )
    if (at := text.find("\0")) >= 0:
        line = text.count("\n", 0, at) + 1
        raise CotextError(f"{name}:{line}: contains a NUL character; remove it")
    return Decoded(text, name, encoding, mark, errors)


@dataclass(frozen=True, slots=True)
class Slot:
    """Consecutive blocks, and a function that returns the edits that replace them.

    The function is called only if a block with `translate` has changed.
    """

    blocks: tuple[Block, ...]
    edits: Callable[[Sequence[Block]], Iterable[Edit]]


@dataclass(slots=True)
class SplicedFile:
    """A text file whose translatable ranges (slots) are grouped by document.

    `bilingual`: see `cotext.files.blocks.FileFormat`. `once`: additional edits that are made if any block
    changes.
    """

    source: Decoded
    documents: list[list[Slot]]
    messages: list[str] = field(default_factory=list)
    bilingual: bool = False
    once: Sequence[Edit] = ()
    contents: Contents = field(init=False)

    def __post_init__(self) -> None:
        blocks = [[block for slot in slots for block in slot.blocks] for slots in self.documents]
        self.contents = Contents(blocks, self.messages)

    def written(self, documents: Sequence[Sequence[Block]]) -> bytes:
        """Return the file with its blocks replaced; see `cotext.files.blocks.OpenedFile`."""
        edits: list[Edit] = []
        for slots, given in zip(self.documents, documents, strict=True):
            remaining = iter(given)
            for slot in slots:
                blocks = list(islice(remaining, len(slot.blocks)))
                pairs = [pair for pair in zip(slot.blocks, blocks, strict=True) if pair[0].translate]
                if any(
                    one is not other if self.bilingual else one.pieces != other.pieces for one, other in pairs
                ):
                    edits += slot.edits([writable(b, partial(substituted, _REMOVED, "")) for b in blocks])
        if edits:
            edits += self.once
        text, parts, end = self.source.text, [], 0
        for start, stop, replacement in sorted(edits, key=lambda edit: edit[:2]):
            if start < end:
                raise ValueError("edits overlap")
            parts += [text[end:start], replacement]
            end = stop
        return self.source.encoded("".join([*parts, text[end:]]))


# --- XML with the positions of its elements, so that only ranges of a file are edited.
#
# expat checks that the text is well-formed. Entity declarations, more than MAX_DEPTH nested elements and more
# than MAX_ELEMENTS elements raise an error. External entities and files of a DOCTYPE are never loaded.

MAX_DEPTH: Final = 100
MAX_ELEMENTS: Final = 2_000_000
XML_NAMESPACE: Final = "http://www.w3.org/XML/1998/namespace"
_DECLARED = re.compile(rb"^\s*<\?xml[^>]*?encoding\s*=\s*[\"']([\w.:-]+)[\"']")
_TAG = re.compile(r"<(?:[^>\"']|\"[^\"]*\"|'[^']*')*>")


@dataclass(frozen=True, slots=True)
class Text:
    """Text or a CDATA section; or, if not `shown`, the source of a comment or a processing instruction."""

    content: str
    shown: bool = True


@dataclass(slots=True)
class Element:
    """An element and its positions in the text."""

    space: str  # its namespace, or empty
    name: str  # without a prefix
    raw_name: str  # as written
    attributes: dict[str, str]  # by name as written
    start: int
    inner: int  # where the contents begin
    after: int  # where the contents end
    stop: int
    children: "list[Element | Text]" = field(default_factory=list)

    def elements(self, name: str = "") -> "Iterator[Element]":
        """Yield the children in the namespace of this element, with this name if it is not empty."""
        for child in self.children:
            if isinstance(child, Element) and child.space == self.space and name in ("", child.name):
                yield child

    def first(self, name: str) -> "Element | None":
        """Return the first child with this name, or None."""
        return next(self.elements(name), None)

    @property
    def text(self) -> str:
        return "".join(c.text if isinstance(c, Element) else c.content * c.shown for c in self.children)


def has_root(head: bytes, root: re.Pattern[bytes]) -> bool:
    """Return whether the first bytes of a file are markup (UTF-8 or UTF-16) and match `root`."""
    head = head.replace(b"\0", b"") if head.startswith((b"\xff\xfe", b"\xfe\xff")) else head
    start = head.lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n")
    return start.startswith(b"<") and root.search(head[:65536]) is not None


def decoded_xml(content: bytes, name: str) -> Decoded:
    """Decode an XML file in its declared encoding; raise the errors of `decoded`."""
    declared = _DECLARED.match(content[:200])
    return decoded(content, name, declared[1].decode() if declared else "utf-8", "xmlcharrefreplace")


class MarkupReader:
    """Builds elements of an XML text from the events of expat."""

    def __init__(self, text: str, name: str) -> None:
        self._text, self._name, self._content = text, name, text.encode()
        self._inside = [Element("", "", "", {}, 0, 0, 0, 0)]  # the first contains the root
        self._spaces = [{"xml": XML_NAMESPACE}]  # namespaces by prefix
        self._elements = 0
        self._bytes = self._characters = 0  # the last position, in bytes and in characters

    def root(self) -> Element:
        """Return the root element.

        Raises CotextError if the text is not well-formed, declares entities, or exceeds a limit.
        """
        parser = self._parser = expat.ParserCreate("utf-8")
        # One event for each text, of any length.
        parser.buffer_text, parser.buffer_size = True, len(self._content) + 1
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = lambda text: self._inside[-1].children.append(Text(text))
        parser.StartCdataSectionHandler = parser.EndCdataSectionHandler = lambda: None  # so texts end here
        parser.CommentHandler = lambda text: self._hidden("-->")
        parser.ProcessingInstructionHandler = lambda target, text: self._hidden("?>")
        parser.StartDoctypeDeclHandler = self._doctype
        parser.SkippedEntityHandler = self._unknown
        try:
            parser.Parse(self._content, True)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            where = f"{self._name}:{error.lineno}"
            raise CotextError(f"{where}: malformed XML at column {error.offset + 1}: {reason}") from None
        finally:
            del self._parser  # a reference cycle
        return next(child for child in self._inside[0].children if isinstance(child, Element))

    def _position(self) -> int:
        """Return the position of the current event in the text."""
        before, self._bytes = self._bytes, self._parser.CurrentByteIndex
        self._characters += len(self._content[before : self._bytes].decode())
        return self._characters

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._elements += 1
        if len(self._inside) > MAX_DEPTH:
            raise self._refused(f"more than {MAX_DEPTH} nested elements")
        if self._elements > MAX_ELEMENTS:
            raise CotextError(f"{self._name}: more than {MAX_ELEMENTS:,} elements; split the file")
        declared = {key[6:]: value for key, value in attributes.items() if key.startswith("xmlns:")}
        if "xmlns" in attributes:
            declared[""] = attributes["xmlns"]
        spaces = {**self._spaces[-1], **declared} if declared else self._spaces[-1]
        prefix, _, local = tag.rpartition(":")
        start = self._position()
        whole = _TAG.match(self._text, start)
        assert whole is not None
        end = whole.end()
        element = Element(spaces.get(prefix, prefix), local, tag, attributes, start, end, end, end)
        self._inside[-1].children.append(element)
        self._inside.append(element)
        self._spaces.append(spaces)

    def _end(self, tag: str) -> None:
        self._spaces.pop()
        element = self._inside.pop()
        if self._text[element.inner - 2] != "/":  # not an empty-element tag
            element.after = self._position()
            element.stop = self._text.index(">", element.after) + 1

    def _hidden(self, end: str) -> None:
        start = self._position()
        source = self._text[start : self._text.index(end, start) + len(end)]
        self._inside[-1].children.append(Text(source, shown=False))

    def _doctype(self, tag: str, system: str | None, public: str | None, internal: int) -> None:
        if internal:
            raise self._refused(
                "its DOCTYPE declares entities or elements, which are not supported; remove the part in "
                "brackets"
            )

    def _unknown(self, entity: str, is_parameter: int) -> None:
        raise self._refused(f"the entity &{entity}; is not defined in XML; replace it by the character")

    def _refused(self, reason: str) -> CotextError:
        return CotextError(f"{self._name}:{self._parser.CurrentLineNumber}: {reason}")


def escaped(text: str) -> str:
    """Escape a text for XML; characters that XML does not allow become spaces."""
    return html.escape(printable(text), quote=False).replace("\r", "&#13;")


def with_attribute(tag: str, name: str, value: str) -> str:
    """Return a start tag with an attribute set to a value, and everything else unchanged."""
    quoted = f'{name}="{html.escape(value)}"'
    pattern = re.compile(rf"(?<=\s){re.escape(name)}\s*=\s*(?:\"[^\"]*\"|'[^']*')")
    changed, count = pattern.subn(lambda _: quoted, tag, count=1)
    if count:
        return changed
    end = "/>" if tag.endswith("/>") else ">"
    bare = tag.removesuffix(end)
    kept = bare.rstrip()
    return f"{kept} {quoted}{bare[len(kept) :]}{end}"
