"""Blocks of HTML and XHTML, and the page with other text in their places.

Text ranges alone are replaced, so that whatever a page looks like, the rest of it stays as it is spelled.
Elements that begin a paragraph in a browser begin a block, and so do two line breaks in a row; all others,
unknown ones too, are inline. White space is collapsed as a browser does; at the ends of a block it stays
outside. Text in attributes follows the paragraph in which it stands, as blocks of its own.
"""

import html
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import Final, NamedTuple

from cotext.files.blocks import (
    LINKS,
    SPACE,
    Block,
    Close,
    Copied,
    Item,
    Open,
    Piece,
    Point,
    inner,
    mates,
    merged,
    without_empty,
)
from cotext.runtime.reading import substituted
from cotext.runtime.xml import taken

# --- Tokens of HTML and XHTML with their offsets, for pages as they are found.
#
# Nothing is mended: an element that is never closed, or closed twice, is a token like any other, so that
# the slices between offsets joined are the page.

# An attribute's value in quotation marks may hold ">". Where a mark is never closed, the tag ends at the next
# ">", and every part is possessive, so that no page takes more than one look at each character.
_TOKEN: Final = re.compile(
    r"""<!--(?:-?>|.*?(?:--!?>|\Z))
    |<(?P<end>/?)(?P<name>[A-Za-z][^\s/>]*+)(?P<inner>(?:[^>"'=]++|=\s*+(?:"[^"]*+"|'[^']*+')?+|["'])*+)(?:>|\Z)
    |<(?:[!?]|/(?![A-Za-z]))[^>]*+(?:>|\Z)""",
    re.VERBOSE | re.DOTALL,
)
_SECTION: Final = re.compile(r"<!\[CDATA\[.*?(?:\]\]>|\Z)", re.DOTALL)
_ATTRIBUTE: Final = re.compile(r"""([^\s/>=]+)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s>"'][^\s>]*))?""")

# Elements whose content is text alone, whatever it looks like.
RAW: Final = frozenset({"script", "style", "textarea", "title", "iframe", "xmp", "noembed", "noframes"})
# In XHTML too, since pages are found whose scripts are written as in HTML; their content is never looked at.
_SCRIPTS: Final = frozenset({"script", "style"})
_VOID_NAMES = """
area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr
"""
VOID: Final = frozenset(_VOID_NAMES.split())
# Elements that another of their name, or the end of the one around them, may close.
_OPTIONAL_END_NAMES = """
p li dt dd tr td th thead tbody tfoot option optgroup rt rp
"""
OPTIONAL_END: Final = frozenset(_OPTIONAL_END_NAMES.split())
_BLOCKS_NAMES = """
address article aside base blockquote body button caption center col colgroup datalist dd details dialog
dir div dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup
hr html label legend li link main menu meta nav noframes noscript ol optgroup option p pre search section
select summary table tbody td textarea tfoot th thead title tr ul xmp
"""
BLOCKS: Final = frozenset(_BLOCKS_NAMES.split())


class Token(NamedTuple):
    """A stretch of a page.

    `kind`: "text", "start" and "end" of an element, "empty" for one that has no end, "raw" for the content of
    one that is text alone, "other" for comments, document types and instructions, and of the name "cdata" for
    sections of it. `name`: the element's, in small letters unless the page is XML.
    """

    kind: str
    name: str
    start: int
    stop: int


def tokens(page: str, xml: bool, html: bool = True) -> list[Token]:
    """The tokens of a page: as many stretches as cover it without a gap.

    With `xml`, as XHTML: names as they are spelled, `<a/>` is empty, and a title is as other elements.
    Without `html`, no element is known by its name to be empty, or text alone.
    """
    return list(_tokens(page, xml, html))


def _tokens(page: str, xml: bool, html: bool) -> Iterator[Token]:
    raw = (_SCRIPTS if xml else RAW) if html else frozenset()
    void = VOID if html else frozenset()
    at = 0
    while match := _TOKEN.search(page, at):
        start, stop = match.span()
        other = ""
        if xml and page.startswith("<![CDATA[", start):
            section = _SECTION.match(page, start)
            stop = section.end() if section else stop
            other = "cdata"
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
                closing = _closing(name).search(page, at)
                at = closing.start() if closing else len(page)
                yield Token("raw", name, stop, at)
    if at < len(page):
        yield Token("text", "", at, len(page))


@cache
def _closing(name: str) -> re.Pattern[str]:
    return re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)


def attributes(page: str, token: Token) -> Iterator[tuple[str, str, int, int]]:
    """Name in small letters and value of each attribute of a tag, and where the value is, its marks included.

    Attributes without a value are left out.
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
    """The index behind the last token of the element that begins at `index`.

    An element that is never closed ends with the one around it, or, where its end may be left out, at the
    next of its name.
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
            elif token.name in BLOCKS:
                return at
    return len(all_tokens)


# --- A paragraph of a page: stretches between two block elements as the pieces of a block.

_NUMBER: Final = re.compile("&#([0-9]{8,});?")
_SPACES: Final = re.compile(rf"[{SPACE}]+")
# Points that a reader sees, so that white space on both sides is no double space.
_SHOWN_NAMES = """
cdata img input svg math iframe object applet canvas audio video embed
"""
_SHOWN: Final = frozenset(_SHOWN_NAMES.split())


@dataclass(frozen=True, slots=True)
class Place:
    """Where a block stands in the page, and where its elements are, by key; `ends`: of their ends.

    `quoted`: the mark around an attribute's value, which is part of the range.
    """

    start: int
    stop: int
    quoted: str = ""
    sources: dict[int, tuple[int, int]] = field(default_factory=dict)
    ends: dict[int, tuple[int, int]] = field(default_factory=dict)


def collapsed(text: str) -> str:
    """Text of a page as a reader sees it: references decoded, white space collapsed."""
    return unescaped(substituted(_SPACES, " ", text))


def unescaped(text: str) -> str:
    """Text with its references to characters decoded, of which numbers may have any number of digits."""
    if "&" not in text:
        return text
    # Without leading zeros, eight digits are beyond the last character; Python refuses numbers of thousands.
    return html.unescape(_NUMBER.sub(lambda found: f"&#{found[1].lstrip('0')[:8] or 0};", text))


def paragraph(items: Sequence[Item], spaced: bool = False) -> tuple[tuple[Piece, ...], Place] | None:
    """The pieces of a paragraph and its place; None where it has no text of its own.

    What stands before its first and behind its last text stays outside, as do elements around all of it.
    With `spaced`, white space between these is text as any other.
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
        if item.kind == "close" and key in ends:
            place.ends[ends[key]] = (item.start, item.stop)
            pieces.append(Close(ends[key]))
            continue
        place.sources[key] = (item.start, item.stop)
        if item.kind == "open" and key in ends:
            pieces.append(Open(key, item.name in LINKS))
        elif item.kind == "copied":
            pieces.append(Copied(key, item.text))
            after_space = item.text.endswith(" ")
        else:
            pieces.append(Point(key, item.name == "br"))
            after_space = item.name == "br" or (after_space and item.name not in _SHOWN)
    return merged(pieces), place


def _trim(items: list[Item]) -> None:
    """Take outer white space from the first and the last item, if they are text."""
    first = items[0]
    if first.kind == "text":
        text = first.text.lstrip(SPACE)
        items[0] = first._replace(text=text, start=first.stop - len(text))
    last = items[-1]
    if last.kind == "text":
        text = last.text.rstrip(SPACE)
        items[-1] = last._replace(text=text, stop=last.start + len(text))


# Copied as text in a sentence.
_CODE: Final = frozenset({"code", "kbd", "samp", "var", "tt"})
# Left as they are; they hold no text, or text that is no prose.
_LEFT_NAMES = """
script style template svg math iframe object applet canvas audio video noembed noframes xmp pre plaintext
"""
_LEFT: Final = frozenset(_LEFT_NAMES.split())
_SAID: Final = _LEFT - {"script", "style"}
_READ_ATTRIBUTES_NAMES = """
alt title placeholder aria-label aria-description aria-placeholder aria-valuetext aria-roledescription
label summary
"""
_READ_ATTRIBUTES: Final = frozenset(_READ_ATTRIBUTES_NAMES.split())
_READ_META: Final = frozenset(
    {"description", "keywords", "og:title", "og:description", "twitter:title", "twitter:description"}
)
_MAY_BE_READ: Final = re.compile(
    rf"\b(?:{'|'.join(sorted(_READ_ATTRIBUTES))}|value|content)\s*=", re.IGNORECASE
)
_MAY_BE_KEPT: Final = re.compile("translate", re.IGNORECASE)
_HALVES: Final = re.compile("[\ud800-\udfff]+")  # bytes that the page's encoding does not have
# Each run of spaces is tried once, from its beginning.
_LINE_BREAK: Final = re.compile(r"(?<![ \t])[ \t]*+[\r\n]\s*")
_MARK: Final = re.compile(r"\{\d+\}")
MAX_READ: Final = 80  # characters of an ignored element that a model reads


@dataclass(frozen=True, slots=True)
class ElementRules:
    """How elements are read, by their names in small letters.

    `blocks` begin a paragraph, `copied` are copied text in a sentence, `left` stay, whatever is in them, and
    so do `ignored` ones, which stand for a word in their sentence even if they are empty. `attributes`: those
    that a reader sees are text. `spaced`: white space is text, nothing of it is taken away. `lines`: a line
    break ends a sentence. `html`: elements of HTML that are empty, or text alone, are known by their names.
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
    """A page, read: `blocks` in reading order; `left`: the elements left as they are, by name, with lines."""

    def __init__(self, page: str, xml: bool = False, rules: ElementRules = PAGES) -> None:
        self._page = page
        self._rules = rules
        taken_marks = {found[0] for found in _MARK.finditer(page)}  # others run between two matches
        self._stand_ins = (mark for n in count(1) if (mark := f"{{{n}}}") not in taken_marks)
        self.blocks: list[Block] = []
        self.left: dict[str, list[int]] = {}
        self._places: list[Place] = []
        self._line, self._counted = 1, 0
        self._items: list[Item] = []
        self._values: list[tuple[tuple[Piece, ...], Place]] = []
        self._read(tokens(page, xml, rules.html))

    def written(self, blocks: Sequence[Block]) -> str:
        """The page with these blocks in the places of its own."""
        changed = [
            (place, block)
            for place, block, own in zip(self._places, blocks, self.blocks, strict=True)
            if block.pieces != own.pieces
        ]
        values = _Values(self._page, [pair for pair in changed if pair[0].quoted])
        parts: list[str] = []
        at = 0
        for place, block in changed:
            if place.quoted:
                continue
            parts.extend(values.source(at, place.start))
            for piece in block.pieces:
                if isinstance(piece, str):
                    parts.append(_spelled(piece))
                else:
                    ranges = place.ends if isinstance(piece, Close) else place.sources
                    parts.extend(values.source(*ranges[piece.key]))
            at = place.stop
        parts.extend(values.source(at, len(self._page)))
        return "".join(parts)

    def _read(self, all_tokens: list[Token]) -> None:
        index = 0
        while index < len(all_tokens):
            token = all_tokens[index]
            index += 1
            if token.kind == "text":
                self._text(token.start, token.stop)
            elif token.kind == "other":
                self._add("point", token)
            elif token.kind == "raw":  # of title and textarea: the others are left
                self._raw(token)
            elif token.kind == "end":
                self._end(token)
            else:
                index = self._start(all_tokens, index - 1)
        self._flush()

    def _start(self, all_tokens: list[Token], index: int) -> int:
        """Take a start or empty tag, or the element if it is copied or left; the index of what follows."""
        token = all_tokens[index]
        name = token.name.lower()
        kept = name in self._rules.ignored or self._is_kept(token)
        if kept or name in self._rules.left or name in self._rules.copied:
            following = end_of(all_tokens, index)
            self._whole(all_tokens[index:following], kept)
            return following
        if name in self._rules.blocks or (name == "br" and self._follows_break()):
            self._flush()
        else:
            self._add("open" if token.kind == "start" else "point", token)
        if self._rules.attributes and _MAY_BE_READ.search(self._page, token.start, token.stop):
            self._attributes(token, name)
        return index + 1

    def _end(self, token: Token) -> None:
        if token.name.lower() in self._rules.blocks:
            self._flush()
        else:
            self._add("close", token)

    def _follows_break(self) -> bool:
        last = next((item for item in reversed(self._items) if not item.blank), None)
        return last is not None and last.name == "br"

    def _is_kept(self, token: Token) -> bool:
        """Whether the author wants it as it is."""
        if not _MAY_BE_KEPT.search(self._page, token.start, token.stop):
            return False
        values = {name: value.lower().split() for name, value, _, _ in attributes(self._page, token)}
        return values.get("translate") == ["no"] or "notranslate" in values.get("class", [])

    def _whole(self, element: Sequence[Token], kept: bool) -> None:
        name, start, stop = element[0].name.lower(), element[0].start, element[-1].stop
        if name in self._rules.blocks or name == "plaintext":
            self._flush()
        else:
            text = "".join(self._page[each.start : each.stop] for each in element if each.kind == "text")
            text = "" if name in self._rules.left else substituted(_HALVES, "", collapsed(text))
            if name in self._rules.ignored and not 0 < len(text.strip()) <= MAX_READ:
                text = next(self._stand_ins)
            kind = "copied" if text.strip() else "point"
            self._items.append(Item(kind, name, start, stop, text))
        if name in _SAID or (kept and name in self._rules.blocks):
            self.left.setdefault(name, []).append(self._line_of(start))

    def _add(self, kind: str, token: Token) -> None:
        self._items.append(Item(kind, token.name, token.start, token.stop))

    def _text(self, start: int, stop: int) -> None:
        at = start
        apart, kind, text = (_LINE_BREAK, "copied", "\n") if self._rules.lines else (_HALVES, "point", "")
        for found in apart.finditer(self._page, start, stop):
            if found.start() > at:
                self._items.append(Item("text", "", at, found.start(), self._page[at : found.start()]))
            self._items.append(Item(kind, "", *found.span(), text))
            at = found.end()
        if stop > at:
            self._items.append(Item("text", "", at, stop, self._page[at:stop]))

    def _raw(self, token: Token) -> None:
        """Text alone: of <title>, and of <textarea>, where white space is part of it."""
        text = self._page[token.start : token.stop]
        inner = text.strip(SPACE)
        shown = unescaped(inner) if token.name == "textarea" else collapsed(inner)
        if shown.strip() and not _HALVES.search(shown):
            start = token.start + text.index(inner)
            self._block((shown,), Place(start, start + len(inner)))

    def _attributes(self, token: Token, name: str) -> None:
        found = list(attributes(self._page, token))
        values = {attribute: value.lower() for attribute, value, _, _ in found}
        read = set(_READ_ATTRIBUTES)
        if name == "input" and values.get("type") in ("button", "submit", "reset"):
            read.add("value")
        if name == "meta" and (values.get("name") or values.get("property")) in _READ_META:
            read.add("content")
        for attribute, value, start, stop in found:
            text = collapsed(value).strip()
            if attribute in read and text and not _HALVES.search(text):
                mark = self._page[start] if self._page[start] in "\"'" else '"'
                self._values.append(((text,), Place(start, stop, mark)))
        if not self._items:
            self._flush()

    def _flush(self) -> None:
        """End the paragraph, if there is one; then come the attributes that stand in it."""
        if self._items and (found := paragraph(self._items, self._rules.spaced)):
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


class _Values:
    """The page with other values of some attributes, by ranges."""

    def __init__(self, page: str, changed: Sequence[tuple[Place, Block]]) -> None:
        self._page = page
        self._changed = sorted(changed, key=lambda pair: pair[0].start)
        self._starts = [place.start for place, _ in self._changed]

    def source(self, start: int, stop: int) -> Iterator[str]:
        """A range of the page, which holds an attribute's value whole or not at all."""
        first, last = bisect_left(self._starts, start), bisect_left(self._starts, stop)
        for place, block in self._changed[first:last]:
            yield self._page[start : place.start]
            yield (
                place.quoted + _spelled(block.text).replace(place.quoted, _MARKS[place.quoted]) + place.quoted
            )
            start = place.stop
        yield self._page[start:stop]


_MARKS: Final = {'"': "&quot;", "'": "&#39;"}


def _spelled(text: str) -> str:
    """Text with references for what would be markup, without characters that no page can have."""
    return taken(text).replace("&", "&amp;").replace("<", "&lt;").replace("]]>", "]]&gt;")
