"""Blocks of HTML and XHTML, and the page with other text in their places.

Text ranges alone are replaced, so that whatever a page looks like, the rest of it stays as it is spelled.
Elements that begin a paragraph in a browser begin a block, and so do two line breaks in a row; all others,
unknown ones too, are inline. White space is collapsed as a browser does; at the ends of a block it stays
outside. Text in attributes follows the paragraph in which it stands, as blocks of its own.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from cotext.files.blocks import Block, Close, Piece
from cotext.files.elements import SPACE, Item
from cotext.files.markup_paragraph import Place, collapsed, paragraph, unescaped
from cotext.files.markup_tokens import BLOCKS, Token, attributes, end_of, tokens
from cotext.runtime.xml import taken

# Copied as text in a sentence.
_CODE: Final = frozenset({"code", "kbd", "samp", "var", "tt"})
# Left as they are; they hold no text, or text that is no prose.
_LEFT: Final = frozenset(
    {
        *(
            "script",
            "style",
            "template",
            "svg",
            "math",
            "iframe",
            "object",
            "applet",
            "canvas",
            "audio",
            "video",
        ),
        *("noembed", "noframes", "xmp", "pre", "plaintext"),
    }
)
_SAID: Final = _LEFT - {"script", "style"}
_READ_ATTRIBUTES: Final = frozenset(
    {
        *(
            "alt",
            "title",
            "placeholder",
            "aria-label",
            "aria-description",
            "aria-placeholder",
            "aria-valuetext",
        ),
        *("aria-roledescription", "label", "summary"),
    }
)
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
            text = "" if name in self._rules.left else _HALVES.sub("", collapsed(text))
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
