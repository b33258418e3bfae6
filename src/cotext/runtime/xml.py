"""Parsing of XML within limits, without entities or network access, and writing in the original spelling.

Trees are trees of lxml, which is imported when the first file is read.
"""

import codecs
import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from xml.parsers import expat

from cotext.runtime import CotextError, optional_module, substituted

if TYPE_CHECKING:
    from lxml import etree

# Characters that XML cannot contain, not even as references.
_UNTAKEN: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

MAX_BYTES: Final = 256 << 20
MAX_MARKS: Final = 8_000_000  # number of "<", which determines the memory of the tree
MAX_PROLOGUE_BYTES: Final = 1 << 20  # before the root


@cache
def lxml_etree() -> Any:
    """Import and return `lxml.etree`; raises CotextError if it is not installed."""
    return optional_module("lxml.etree", "files", "XML")


def taken(text: str) -> str:
    """Remove characters that XML cannot contain, such as lone surrogates and most control characters."""
    return substituted(_UNTAKEN, "", text)


def local_name(node: "etree._Element") -> str:
    """Return the name of an element without its namespace; empty for comments and processing instructions."""
    return node.tag.rpartition("}")[2] if isinstance(node.tag, str) else ""


def namespace_of(node: "etree._Element") -> str:
    """Return the namespace of an element in braces; empty if it has none."""
    return str(node.tag)[: len(str(node.tag)) - len(local_name(node))]


def parse(content: bytes, where: str) -> "etree._ElementTree[etree._Element]":
    """Parse an XML document; messages begin with `where`.

    Comments, processing instructions and white space are kept. A document type is kept but not processed:
    entity declarations are rejected, and no other file is opened. Raises CotextError if the document is not
    well-formed, declares entities, or exceeds a limit (bytes, tags, 256 levels).
    """
    library = lxml_etree()
    if len(content) > MAX_BYTES or content.count(b"<") > MAX_MARKS:
        raise CotextError(f"{where}: bytes ({len(content):,}) or tags exceed the limits; divide the document")
    _root_start(content, where)
    parser = library.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        attribute_defaults=False,
        huge_tree=False,
        strip_cdata=False,
    )  # `collect_ids` must stay True: otherwise, libxml2 opens the document type definition

    try:
        root: etree._Element = library.fromstring(content, parser)
    except (library.XMLSyntaxError, ValueError, LookupError) as error:
        raise CotextError(f"{where}: not well-formed XML: {error}") from None
    return root.getroottree()


def serialised(tree: "etree._ElementTree[etree._Element]", like: bytes) -> bytes:
    """Serialise a changed tree in the style of the document `like` from which it was parsed.

    Everything before the root is copied from `like`, byte for byte. Encoding, line ends and white space at
    the end are also copied. Characters that are missing in the encoding become references.
    """
    to_text = lxml_etree().tostring
    start = _root_start(like, "XML")
    encoding = _encoding(tree, like)
    original = like[start:].decode(encoding, "replace")
    root = tree.getroot()
    parts = [root, *root.itersiblings()]
    text = "\n".join(to_text(part, encoding="unicode", with_tail=False) for part in parts)
    # lxml writes a carriage return in the text as a reference, so every line feed is a line end.
    if "\r\n" in original and original.count("\n") == original.count("\r\n"):
        text = text.replace("\n", "\r\n")
    tail = original[len(original.rstrip()) :]
    return like[:start] + (text + tail).encode(encoding, "xmlcharrefreplace")


def _encoding(tree: "etree._ElementTree[etree._Element]", content: bytes) -> str:
    for mark, encoding in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if content.startswith(mark):
            return encoding
    declared = tree.docinfo.encoding or "utf-8"
    try:
        return codecs.lookup(declared).name
    except LookupError:
        raise CotextError(f"encoding {declared} is not known; save the document as UTF-8") from None


class _RootReachedError(Exception):
    def __init__(self, offset: int) -> None:
        self.offset = offset


def _root_start(content: bytes, where: str) -> int:
    """Return the offset of the root element in bytes; reject entity declarations before any expansion."""

    def refuse(*_: object) -> None:
        raise CotextError(f"{where}: declares entities, which are not supported; write their values instead")

    def stop(*_: object) -> None:
        raise _RootReachedError(parser.CurrentByteIndex)

    parser = expat.ParserCreate()
    parser.EntityDeclHandler = refuse
    parser.StartElementHandler = stop
    try:
        parser.Parse(content[:MAX_PROLOGUE_BYTES], False)
    except _RootReachedError as reached:
        return reached.offset
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise CotextError(f"{where}: not well-formed XML: {error}") from None
    raise CotextError(f"{where}: not well-formed XML: no element within {MAX_PROLOGUE_BYTES:,} bytes")
