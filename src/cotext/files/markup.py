"""Blocks of HTML and XHTML.

Only text ranges are replaced; the rest of a page is not parsed and written again. A block begins at elements
that begin a paragraph in a browser, and after two consecutive `<br>`. All other elements, also unknown
elements, are inline. White space is collapsed as in a browser. Texts of attributes are separate blocks after
their paragraph.
"""

import html
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final, NamedTuple

from cotext.files.blocks import (
    SPACE,
    Block,
    Copied,
    Item,
    Piece,
    Point,
    Tag,
    inner,
    mates,
    merged,
    piece_of,
    without_empty,
)
from cotext.runtime import substituted
from cotext.runtime.xml import taken

# --- Tokens of HTML and XHTML with their offsets.
#
# Nothing is repaired: tags without a partner are tokens too. The tokens cover the page without gaps.

# A quoted value may contain ">". If the quote is never closed, the tag ends at the next ">". All quantifiers
# are possessive, so that the time is linear.
_TOKEN: Final = re.compile(
    r"""<!--(?:-?>|.*?(?:--!?>|\Z))
    |<(?P<end>/?)(?P<name>[A-Za-z][^\s/>]*+)(?P<inner>(?:[^>"'=]++|=\s*+(?:"[^"]*+"|'[^']*+')?+|["'])*+)(?:>|\Z)
    |<\?(?:php\b|=).*?(?:\?>|\Z)|<%(?:(?!<%|%>).)*+%>  # code of templates
    |<(?:[!?]|/(?![A-Za-z]))[^>]*+(?:>|\Z)""",
    re.VERBOSE | re.DOTALL,
)
_SECTION: Final = re.compile(r"<!\[CDATA\[.*?(?:\]\]>|\Z)", re.DOTALL)
_ATTRIBUTE: Final = re.compile(r"""([^\s/>=]+)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s>"'][^\s>]*))?""")

# Elements whose content is text, even if it looks like markup.
RAW: Final = frozenset({"script", "style", "textarea", "title", "iframe", "xmp", "noembed", "noframes"})
# These are raw in XHTML, too, because real pages contain scripts written as in HTML. They are not read.
_SCRIPTS: Final = frozenset({"script", "style"})


def _names(names: str) -> frozenset[str]:
    return frozenset(names.split())


VOID: Final = _names("""
area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr
""")
# Elements that are also closed by the next element of this name, or by the end of the parent.
OPTIONAL_END: Final = _names("p li dt dd tr td th thead tbody tfoot option optgroup rt rp")
BLOCKS: Final = _names("""
address article aside base blockquote body button caption center col colgroup datalist dd details dialog
dir div dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup
hr html label legend li link main menu meta nav noframes noscript ol optgroup option p pre search section
select summary table tbody td textarea tfoot th thead title tr ul xmp
""")


class Token(NamedTuple):
    """A token of a page.

    `kind`: "text"; "start", "end" and "empty" for tags; "raw" for the content of an element of `RAW`.
    "other": comments, document types, instructions, and CDATA sections (with `name` "cdata"). `name`: name of
    the element, in lower case unless the page is XML.
    """

    kind: str
    name: str
    start: int
    stop: int


def tokens(page: str, xml: bool, html: bool = True) -> Iterator[Token]:
    """Yield the tokens of a page, which cover it without gaps.

    With `xml`, names keep their case, `<a/>` is empty, and only scripts and styles are raw. Without `html`,
    no element name has a special meaning.
    """
    raw = (_SCRIPTS if xml else RAW) if html else frozenset()
    void = VOID if html else frozenset()
    at = 0
    while match := _TOKEN.search(page, at):
        start, stop = match.span()
        other = ""
        if xml and (section := _SECTION.match(page, start)):
            stop, other = section.end(), "cdata"
        if start > at:
            yield Token("text", "", at, start)
        at = stop
        name = match["name"]
        if name is None:
            yield Token("other", other, start, stop)
            continue
        name = name if xml else name.lower()
        if match["end"]:
            yield Token("end", name, start, stop)
        elif name in void or (xml and match["inner"].endswith("/")):
            yield Token("empty", name, start, stop)
        else:
            yield Token("start", name, start, stop)
            if name in raw:
                closing = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(page, at)
                at = closing.start() if closing else len(page)
                yield Token("raw", name, stop, at)
    if at < len(page):
        yield Token("text", "", at, len(page))


def attributes(page: str, token: Token) -> Iterator[tuple[str, str, int, int]]:
    """Yield name (lower case), value, and start and stop of the value with its quotes, for each attribute.

    Attributes without a value are skipped.
    """
    inner = token.start + 1 + len(token.name)
    for match in _ATTRIBUTE.finditer(page, inner, token.stop):
        value = match[2]
        if value is None:
            continue
        start, stop = match.span(2)
        quoted = value[0] in "\"'"
        if not quoted and page[stop - 1] == "/" and page[stop : stop + 1] == ">":
            stop -= 1
        yield match[1].lower(), page[start + quoted : stop - quoted], start, stop


def end_of(all_tokens: Sequence[Token], index: int) -> int:
    """Return the index after the last token of the element that begins at `index`.

    An element that is never closed ends with its parent or, if its end tag is optional, at the next element
    with its name.
    """
    name = all_tokens[index].name
    if all_tokens[index].kind != "start":
        return index + 1
    inside: list[str] = []
    open_names: Counter[str] = Counter()
    for at in range(index + 1, len(all_tokens)):
        token = all_tokens[at]
        if token.kind == "start":
            if not inside and token.name == name and name in OPTIONAL_END:
                return at
            inside.append(token.name)
            open_names[token.name] += 1
        elif token.kind == "end":
            if open_names[token.name]:
                while (closed := inside.pop()) != token.name:
                    open_names[closed] -= 1
                open_names[token.name] -= 1
            elif token.name == name:
                return at + 1
            elif token.name in BLOCKS or token.name == "ruby":
                return at
    return len(all_tokens)


# --- A paragraph of a page: the items between two block elements as the pieces of a block.

_NUMBER: Final = re.compile("&#([0-9]{8,});?")
_SPACES: Final = re.compile(rf"[{SPACE}]+")
# Empty elements that are rendered: white space before and after them is not collapsed into one space. Style
# sheets render empty <i> and <span> as icons.
_SHOWN: Final = _names("cdata img input svg math iframe object applet canvas audio video embed i span")


@dataclass(frozen=True, slots=True)
class Place:
    """The range of a block in the page, and the ranges of its elements (`sources`).

    `quoted`: the quote of an attribute value; it is part of the range.
    """

    start: int
    stop: int
    quoted: str = ""
    sources: dict[Tag, tuple[int, int]] = field(default_factory=dict)


def collapsed(text: str) -> str:
    """Decode character references and collapse white space."""
    return unescaped(substituted(_SPACES, " ", text))


def unescaped(text: str) -> str:
    """Decode character references; numbers may have any number of digits."""
    if "&" not in text:
        return text
    # Eight digits are beyond the last character, and Python rejects numbers with thousands of digits.
    return html.unescape(_NUMBER.sub(lambda match: f"&#{match[1].lstrip('0')[:8] or 0};", text))


def paragraph(items: Sequence[Item], spaced: bool = False) -> tuple[tuple[Piece, ...], Place] | None:
    """Return the pieces of a paragraph and its place; None if it has no text.

    Items before the first and after the last text, and elements around all of it, are omitted. With
    `spaced`, white space is not collapsed.
    """
    if not any(item.kind == "text" and collapsed(item.text).strip() for item in items):
        return None
    paired = without_empty(items)
    ends = mates(paired)
    low, high = inner(paired, ends)
    chosen = list(paired[low:high])
    _trim(chosen)
    place = Place(chosen[0].start, chosen[-1].stop)
    pieces: list[Piece] = []
    after_space = True
    for index, item in enumerate(chosen):
        key = index + low
        if item.kind == "text":
            text = unescaped(item.text) if spaced else collapsed(item.text)
            text = text[1:] if after_space and item.text[0] in SPACE and not spaced else text
            after_space = text.endswith(" ") if text else after_space
            pieces.append(text)
            continue
        pieces.append(piece := piece_of(key, item, ends, ("br",)))
        place.sources[piece] = item.start, item.stop
        if isinstance(piece, Copied):
            after_space = item.text.endswith(" ")
        elif isinstance(piece, Point):
            after_space = piece.breaks or (after_space and item.name not in _SHOWN)
    return merged(pieces), place


def _trim(items: list[Item]) -> None:
    """Remove outer white space from the first and the last item."""
    first = items[0]
    if first.kind == "text":
        text = first.text.lstrip(SPACE)
        items[0] = first._replace(text=text, start=first.stop - len(text))
    last = items[-1]
    if last.kind == "text":
        text = last.text.rstrip(SPACE)
        items[-1] = last._replace(text=text, stop=last.start + len(text))


# Elements that are copied text in a sentence.
_CODE: Final = frozenset({"code", "kbd", "samp", "var", "tt"})
# Elements that are not translated.
_LEFT: Final = _names("""
script style template svg math iframe object applet canvas audio video noembed noframes xmp pre plaintext
rp rt
""")
_REPORTED: Final = _LEFT - {"script", "style", "rp"}  # `Markup.left` lists their lines
_READ_ATTRIBUTES: Final = _names("""
alt title placeholder aria-label aria-description aria-placeholder aria-valuetext aria-roledescription
label summary
""")
_READ_META: Final = frozenset(
    {"description", "keywords", "og:title", "og:description", "twitter:title", "twitter:description"}
)
_MAY_BE_READ: Final = re.compile(
    rf"\b(?:{'|'.join(sorted(_READ_ATTRIBUTES))}|value|content)\s*=", re.IGNORECASE
)
_MAY_BE_KEPT: Final = re.compile("translate", re.IGNORECASE)
_HALVES: Final = re.compile("[\ud800-\udfff]+")  # bytes that are invalid in the encoding of the page
# The pattern is tried only at the start of a run of spaces, so the time is linear.
_LINE_BREAK_OR_HALVES: Final = re.compile(rf"(?<![ \t])[ \t]*+[\r\n]\s*|{_HALVES.pattern}")
_MARK: Final = re.compile(r"\{\d+\}")
MAX_READ: Final = 80  # maximum characters of an ignored element that the model reads


@dataclass(frozen=True, slots=True)
class ElementRules:
    """How elements are read, by name in lower case.

    `blocks` begin a paragraph, `copied` are copied text in a sentence, and `left` are not translated.
    `ignored` elements are not translated either, but the model reads each of them as a word, even if empty.
    `attributes`: translate visible attributes. `spaced`: do not collapse white space. `lines`: line breaks
    end sentences. `html`: apply the HTML definitions of element names (empty elements, raw text).
    """

    blocks: frozenset[str] = BLOCKS
    copied: frozenset[str] = _CODE
    left: frozenset[str] = _LEFT
    ignored: frozenset[str] = frozenset()
    attributes: bool = True
    spaced: bool = False
    lines: bool = False
    html: bool = True


PAGES: Final = ElementRules()


class Markup:
    """A page that has been read; `left`: line numbers of elements that are not translated, by name."""

    def __init__(self, page: str, xml: bool = False, rules: ElementRules = PAGES) -> None:
        self._page = page
        self._rules = rules
        used_marks = {match[0] for match in _MARK.finditer(page)}
        self._stand_ins = (mark for n in count(1) if (mark := f"{{{n}}}") not in used_marks)
        self.blocks: list[Block] = []
        self.left: dict[str, list[int]] = {}
        self._places: list[Place] = []
        self._line, self._counted = 1, 0
        self._items: list[Item] = []
        self._values: list[tuple[tuple[Piece, ...], Place]] = []
        self._read(list(tokens(page, xml, rules.html)))

    def written(self, blocks: Sequence[Block]) -> str:
        changed = [
            (place, block)
            for place, block, original in zip(self._places, blocks, self.blocks, strict=True)
            if block.pieces != original.pieces
        ]
        values = sorted((pair for pair in changed if pair[0].quoted), key=lambda pair: pair[0].start)
        starts = [place.start for place, _ in values]

        def source(start: int, stop: int) -> Iterator[str]:
            """Yield a range of the page; it contains each attribute value completely or not at all."""
            for place, block in values[bisect_left(starts, start) : bisect_left(starts, stop)]:
                mark = place.quoted
                yield self._page[start : place.start]
                yield mark + _spelled(block.text).replace(mark, _MARKS[mark]).replace("\n", "&#10;") + mark
                start = place.stop
            yield self._page[start:stop]

        parts: list[str] = []
        end = 0
        for place, block in changed:
            if not place.quoted:
                parts.extend(source(end, place.start))
                for piece in block.pieces:
                    if isinstance(piece, str):
                        parts.append(_spelled(piece))
                    else:
                        parts.extend(source(*place.sources[piece]))
                end = place.stop
        return "".join([*parts, *source(end, len(self._page))])

    def _read(self, all_tokens: list[Token]) -> None:
        index = 0
        while index < len(all_tokens):
            token = all_tokens[index]
            index += 1
            if token.kind == "text":
                self._text(token.start, token.stop, self._rules.lines)
            elif token.kind == "other":
                code = self._page[token.start : token.stop]
                kind = "copied" if code.startswith(("<%=", "<%-", "<?=", "<?php echo")) else "point"
                self._items.append(Item(kind, token.name, token.start, token.stop, code))
            elif token.kind == "raw":  # content of title or textarea; other raw elements are skipped
                self._text(token.start, token.stop, token.name == "textarea")
                self._flush(spaced=token.name == "textarea")
            elif token.kind == "end" and token.name.lower() in self._rules.blocks:
                self._flush()
            elif token.kind == "end":
                self._add("close", token)
            else:
                index = self._start(all_tokens, index - 1)
        self._flush()

    def _start(self, all_tokens: list[Token], index: int) -> int:
        """Read a start tag, or a complete element that is not translated; return the index after it."""
        token = all_tokens[index]
        name = token.name.lower()
        kept = name in self._rules.ignored or self._is_kept(token)
        if kept or name in self._rules.left or name in self._rules.copied:
            following = end_of(all_tokens, index)
            self._whole(all_tokens[index:following], kept)
            return following
        before = (i.name for i in reversed(self._items) if i.kind != "text" or i.text.strip(SPACE))
        if name in self._rules.blocks or (name == "br" and next(before, "") == "br"):
            self._flush()
        else:
            self._add("open" if token.kind == "start" else "point", token)
        if self._rules.attributes and _MAY_BE_READ.search(self._page, token.start, token.stop):
            self._attributes(token, name)
        return index + 1

    def _is_kept(self, token: Token) -> bool:
        """Return whether attributes mark the element as not to be translated."""
        if not _MAY_BE_KEPT.search(self._page, token.start, token.stop):
            return False
        values = {name: value.lower().split() for name, value, _, _ in attributes(self._page, token)}
        return values.get("translate") == ["no"] or "notranslate" in values.get("class", [])

    def _whole(self, element: Sequence[Token], kept: bool) -> None:
        name, start, stop = element[0].name.lower(), element[0].start, element[-1].stop
        if name in self._rules.blocks or name == "plaintext":
            self._flush()
        else:
            text = "".join(self._page[t.start : t.stop] for t in element if t.kind == "text")
            text = "" if name in self._rules.left else substituted(_HALVES, "", collapsed(text))
            if name in self._rules.ignored and not 0 < len(text.strip()) <= MAX_READ:
                text = next(self._stand_ins)
            kind = "copied" if text.strip() else "point"
            self._items.append(Item(kind, name, start, stop, text))
        if name in _REPORTED or (kept and name in self._rules.blocks):
            self.left.setdefault(name, []).append(self._line_of(start))

    def _add(self, kind: str, token: Token) -> None:
        self._items.append(Item(kind, token.name, token.start, token.stop))

    def _text(self, start: int, stop: int, lines: bool) -> None:
        end = start
        for match in (_LINE_BREAK_OR_HALVES if lines else _HALVES).finditer(self._page, start, stop):
            if match.start() > end:
                self._items.append(Item("text", "", end, match.start(), self._page[end : match.start()]))
            kind, text = ("copied", "\n") if match[0].isspace() else ("point", "")
            self._items.append(Item(kind, "", *match.span(), text))
            end = match.end()
        if stop > end:
            self._items.append(Item("text", "", end, stop, self._page[end:stop]))

    def _attributes(self, token: Token, name: str) -> None:
        all_attributes = list(attributes(self._page, token))
        values = {attribute: value.lower() for attribute, value, _, _ in all_attributes}
        read = set(_READ_ATTRIBUTES)
        if name == "input" and values.get("type") in ("button", "submit", "reset"):
            read.add("value")
        if name == "meta" and (values.get("name") or values.get("property")) in _READ_META:
            read.add("content")
        for attribute, value, start, stop in all_attributes:
            text = collapsed(value).strip()
            if attribute in read and text and not _HALVES.search(text):
                mark = self._page[start] if self._page[start] in "\"'" else '"'
                parts = enumerate(filter(None, re.split(r"(\n\s*)", text)))  # from `&#10;`
                pieces = tuple(Copied(n, part) if part.isspace() else part for n, part in parts)
                self._values.append((pieces, Place(start, stop, mark)))
        if not self._items:
            self._flush()

    def _flush(self, spaced: bool = False) -> None:
        """End the paragraph, and add the attributes in it."""
        if self._items and (found := paragraph(self._items, spaced or self._rules.spaced)):
            self._block(*found)
        self._items = []
        for pieces, place in self._values:
            self._block(pieces, place)
        self._values = []

    def _block(self, pieces: tuple[Piece, ...], place: Place) -> None:
        self.blocks.append(Block(pieces, f"line {self._line_of(place.start)}"))
        self._places.append(place)

    def _line_of(self, offset: int) -> int:
        low, high = sorted((self._counted, offset))
        lines = self._page.count("\n", low, high)
        self._line += lines if offset >= self._counted else -lines
        self._counted = offset
        return self._line


_MARKS: Final = {'"': "&quot;", "'": "&#39;"}


def _spelled(text: str) -> str:
    """Escape a text for a page, without characters that pages must not contain."""
    return taken(text).replace("&", "&amp;").replace("<", "&lt;").replace("]]>", "]]&gt;")
