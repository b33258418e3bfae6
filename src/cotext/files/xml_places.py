"""XML read with the places of its elements, so that a file is edited in places and not written anew.

A parser checks that the text is well-formed, and refuses what a file of strings does not need: entities of
its own, more than MAX_DEPTH elements inside each other, more than MAX_ELEMENTS of them. No entity, file or
address that a DOCTYPE names is looked up.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from xml.parsers import expat

from cotext.data.formats.xml_formats import printable
from cotext.files.places import Decoded, decoded
from cotext.runtime.errors import CotextError

MAX_DEPTH: Final = 100
MAX_ELEMENTS: Final = 2_000_000
XML_NAMESPACE: Final = "http://www.w3.org/XML/1998/namespace"
_DECLARED = re.compile(rb"^\s*<\?xml[^>]*?encoding\s*=\s*[\"']([\w.:-]+)[\"']")
_TOKEN = re.compile(
    r"<!--.*?-->|<\?.*?\?>|<!\[CDATA\[.*?\]\]>|<!DOCTYPE(?:[^>\[\"']|\"[^\"]*\"|'[^']*'|\[[^\]]*\])*>"
    r"|</[^>]*>|<(?:[^>\"']|\"[^\"]*\"|'[^']*')*>|[^<]+",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(r"\s([^\s=]++)\s*+=\s*+(?:\"([^\"]*)\"|'([^']*)')")
_REFERENCE = re.compile(r"&(?:#(\d+)|#x([0-9A-Fa-f]+)|(\w+));")
_NAMED = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}


@dataclass(frozen=True, slots=True)
class Text:
    """Text between tags, a CDATA section, a comment or an instruction; `meant`: None if it is no text."""

    start: int
    stop: int
    meant: str | None


@dataclass(slots=True)
class Element:
    """An element with its places: of its first tag, of its contents, and where it ends."""

    space: str  # its namespace, or empty
    name: str  # without a prefix
    raw_name: str
    attributes: dict[str, str]  # by names as they are written
    start: int
    inner: int  # where the contents begin
    after: int = 0  # where the contents end
    stop: int = 0
    children: "list[Element | Text]" = field(default_factory=list)

    def elements(self, *names: str) -> "Iterator[Element]":
        """The children of these names in the namespace of this element; without names, all of them."""
        for child in self.children:
            if (
                isinstance(child, Element)
                and child.space == self.space
                and (not names or child.name in names)
            ):
                yield child

    def first(self, name: str) -> "Element | None":
        """The first child of that name."""
        return next(self.elements(name), None)

    @property
    def text(self) -> str:
        """All text inside, whatever elements it is in."""
        return "".join(
            child.text if isinstance(child, Element) else child.meant or "" for child in self.children
        )


def has_root(head: bytes, root: re.Pattern[bytes]) -> bool:
    """Whether a file that begins so is markup in which `root` is found near its beginning, UTF-16 or not."""
    head = head.replace(b"\0", b"") if head.startswith((b"\xff\xfe", b"\xfe\xff")) else head
    start = head.lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n")
    return start.startswith(b"<") and root.search(head[:65536]) is not None


def decoded_xml(content: bytes, name: str) -> Decoded:
    """The text of an XML file in the encoding that it declares; raises CotextError as `decoded` does."""
    declared = _DECLARED.match(content[:200])
    return decoded(content, name, declared[1].decode() if declared else "utf-8")


def read_markup(text: str, name: str) -> Element:
    """The root element of an XML text.

    Raises:
        CotextError: not well-formed, with line and column; entities; a limit.
    """
    _check(text, name)
    root: Element | None = None
    inside: list[tuple[Element, dict[str, str]]] = []
    spaces: dict[str, str] = {"xml": XML_NAMESPACE}
    for token in _TOKEN.finditer(text):
        raw = token[0]
        if raw.startswith("</"):
            element, spaces = inside.pop()
            element.after, element.stop = token.span()
        elif raw.startswith("<") and raw[1] not in "!?":
            attributes = {each[1]: unescaped(each[2] or each[3] or "") for each in _ATTRIBUTE.finditer(raw)}
            declared = {key[6:]: value for key, value in attributes.items() if key.startswith("xmlns:")}
            if "xmlns" in attributes:
                declared[""] = attributes["xmlns"]
            outer, spaces = spaces, {**spaces, **declared} if declared else spaces
            raw_name = re.split(r"[\s/>]", raw[1:], maxsplit=1)[0]
            prefix, _, local = raw_name.rpartition(":")
            element = Element(
                spaces.get(prefix, prefix), local, raw_name, attributes, token.start(), token.end()
            )
            element.after = element.stop = token.end()
            if inside:
                inside[-1][0].children.append(element)
            root = root or element
            if raw.endswith("/>"):
                spaces = outer
            else:
                inside.append((element, outer))
        elif inside:
            inside[-1][0].children.append(Text(token.start(), token.end(), _meant(raw)))
    assert root is not None  # the parser has seen one
    return root


def _check(text: str, name: str) -> None:
    parser = expat.ParserCreate("utf-8")
    depth = elements = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth, elements
        depth, elements = depth + 1, elements + 1
        if depth > MAX_DEPTH:
            raise CotextError(
                f"{name}:{parser.CurrentLineNumber}: more than {MAX_DEPTH} elements inside each other"
            )
        if elements > MAX_ELEMENTS:
            raise CotextError(f"{name}: more than {MAX_ELEMENTS:,} elements; split the file")

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1

    def doctype(tag: str, system: str | None, public: str | None, internal: int) -> None:
        if internal:
            raise CotextError(
                f"{name}:{parser.CurrentLineNumber}: declares entities or elements in its DOCTYPE, which are "
                "not read; remove the part in brackets"
            )

    def unknown(entity: str, is_parameter: int) -> None:
        raise CotextError(
            f"{name}:{parser.CurrentLineNumber}: the entity &{entity}; is not of XML; write its character"
        )

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = doctype
    parser.SkippedEntityHandler = unknown
    try:
        parser.Parse(text.encode(), True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        where = f"{name}:{error.lineno}"
        raise CotextError(f"{where}: malformed XML at column {error.offset + 1}: {reason}") from None


def _meant(raw: str) -> str | None:
    if raw.startswith("<![CDATA["):
        return _one_break(raw[len("<![CDATA[") : -len("]]>")])
    return None if raw.startswith("<") else unescaped(_one_break(raw))


def _one_break(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def unescaped(text: str) -> str:
    """What a text with references to characters means."""

    def character(reference: re.Match[str]) -> str:
        if reference[3] is not None:
            return _NAMED[reference[3]]
        return chr(int(reference[1][-7:]) if reference[1] else int(reference[2], 16))

    return _REFERENCE.sub(character, text) if "&" in text else text


def escaped(text: str) -> str:
    """A text as XML holds it; characters that XML cannot hold become spaces."""
    return html.escape(printable(text), quote=False).replace("\r", "&#13;")


def with_attribute(tag: str, name: str, value: str) -> str:
    """The first tag of an element with an attribute set to a value, everything else as it was."""
    quoted = f'{name}="{html.escape(value)}"'
    pattern = re.compile(rf"(?<=\s){re.escape(name)}\s*=\s*(?:\"[^\"]*\"|'[^']*')")
    changed, count = pattern.subn(lambda _: quoted, tag, count=1)
    if count:
        return changed
    end = "/>" if tag.endswith("/>") else ">"
    bare = tag.removesuffix(end)
    kept = bare.rstrip()
    return f"{kept} {quoted}{bare[len(kept) :]}{end}"


def opened_tag(tag: str) -> str:
    """The first tag of an element that was empty (`<a/>`) as that of one with contents."""
    return tag.removesuffix("/>").rstrip() + ">" if tag.endswith("/>") else tag
