"""Strings of message catalogues as blocks: lines, placeholders, markup and accelerators.

A string may be a wrapped paragraph or a list of lines. A line break is part of a paragraph under three
conditions. The line has at least 30 characters. It does not end a sentence. The next line begins with a
letter, bracket, quote or placeholder. The translation is wrapped at the width of the longest line. Every
other break ends a block. Outer white space, lines without a letter, and options in a column are kept.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from cotext.files.blocks import Copied, Item, Piece, Point, Tag, mates, merged, piece_of

_SHORT_LINE: Final = 30  # characters; a shorter line was not wrapped
_SENTENCE_END: Final = re.compile(r"[.!?:;…。！？：；][\"'”’»)\]]*$")
_GOES_ON: Final = re.compile(r"[\w(\[\"'“‘«„<%{$]")
_OPTION: Final = re.compile(r"-\S+(?: \S+)*+ {2,}")  # of a command, in a column before its description
_LETTER: Final = re.compile(r"[^\W\d_]")
_BREAKS: Final = re.compile(r"\r\n|\n|\r")
TAG: Final = re.compile(r"<(/?)([A-Za-z][\w:.-]*|\d+)((?:[\s/][^<>]*)?)>")
_CHARACTER_REFERENCE: Final = re.compile(r"&(?:[A-Za-z][A-Za-z0-9]{1,30}|#\d{1,7}|#[xX][0-9A-Fa-f]{1,6});")
# Tags of HTML, Qt and KDE between lines or paragraphs. They enclose no words of a sentence.
_BETWEEN_LINES: Final = re.compile(
    "br|nl|hr|p|div|li|[uod]l|d[td]|table|t[rdh]|h[1-6]|blockquote", re.IGNORECASE
)
MAX_ITEMS: Final = 2000  # maximum number of texts and inline elements of a string


@dataclass(frozen=True, slots=True)
class Markers:
    """Syntax of placeholders and of accelerators, the marks before the letter of a keyboard shortcut.

    `accelerators`: characters; each is such a mark if it occurs exactly once in a string, directly before a
    word or, with `within_words`, also inside a word, as in "E&xit".
    """

    placeholders: re.Pattern[str] | None = None
    accelerators: str = ""
    within_words: bool = False


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A block of a string: its pieces, the original text of its elements, and its width (0: not wrapped)."""

    pieces: tuple[Piece, ...]
    elements: dict[Tag, str]
    width: int
    accelerator: int | None  # key of the piece that is the accelerator

    def written(self, pieces: Sequence[Piece]) -> str:
        parts = list(pieces)
        if self.accelerator is not None:
            parts = _before_a_letter(parts, Point(self.accelerator))
        text = "".join(
            p if isinstance(p, str) else p.text if isinstance(p, Copied) else self.elements[p] for p in parts
        )
        return "\n".join(wrapped(text, self.width)) if self.width else text


class CatalogueString:
    """A string as paragraphs and the text between them."""

    def __init__(self, text: str, markers: Markers) -> None:
        self._parts: list[str | Paragraph] = []
        for between, paragraph, width in _paragraphs(text):
            self._parts.append(between)
            if paragraph:
                items = items_of(paragraph, markers)
                pieces, elements = pieces_of(items, [paragraph[item.start : item.stop] for item in items])
                marks = (key for key, item in enumerate(items) if item.kind == "accelerator")
                self._parts.append(Paragraph(pieces, elements, width, next(marks, None)))
        self.paragraphs = [part for part in self._parts if isinstance(part, Paragraph)]

    def written(self, given: Sequence[Sequence[Piece]]) -> str:
        waiting = iter(given)
        return "".join(part if isinstance(part, str) else part.written(next(waiting)) for part in self._parts)


def has_words(pieces: Sequence[Piece]) -> bool:
    """Return whether the text that is not copied contains a letter."""
    return any(isinstance(piece, str) and _LETTER.search(piece) for piece in pieces)


def _paragraphs(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield the text before each paragraph, the paragraph on one line, and its width (0: not wrapped).

    The last paragraph is empty.
    """
    lines = _BREAKS.split(text)
    breaks = [*_BREAKS.findall(text), ""]
    between = ""
    number = 0
    while number < len(lines):
        first = number
        while (
            breaks[number] == "\n"
            and len(lines[number]) >= _SHORT_LINE
            and not _SENTENCE_END.search(lines[number].rstrip())
            and _GOES_ON.match(lines[number + 1])
        ):
            number += 1
        group = lines[first : number + 1]
        core = group[0].strip() if len(group) == 1 else " ".join(line.rstrip() for line in group).strip()
        option = _OPTION.match(core)
        core = core[option.end() :] if option else core
        if not _LETTER.search(core):
            between += "\n".join(group) + breaks[number]
        else:
            indent = group[0][: len(group[0]) - len(group[0].lstrip())] + (option[0] if option else "")
            yield between + indent, core, max(map(len, group)) if len(group) > 1 else 0
            between = group[-1][len(group[-1].rstrip()) :] + breaks[number]
        number += 1
    yield between, "", 0


def wrapped(text: str, width: int) -> Iterator[str]:
    """Yield lines of at most `width` characters, broken only at spaces; " ".join(lines) gives the text."""
    first, *words = text.split(" ")
    line, length, filled = [first], len(first), bool(first)
    for word in words:
        if filled and length + 1 + len(word) > width:
            yield " ".join(line)
            line, length, filled = [word], len(word), bool(word)
        else:
            line.append(word)
            length += 1 + len(word)
            filled |= bool(word)
    yield " ".join(line)


def pieces_of(items: Sequence[Item], sources: Sequence[str]) -> tuple[tuple[Piece, ...], dict[Tag, str]]:
    """Return the pieces of items, and the source of each piece that is not text.

    Tags without a partner, such as <br>, or <file> in a usage message, become points.
    """
    partners = mates(items)
    pieces: list[Piece] = []
    elements: dict[Tag, str] = {}
    for key, (item, source) in enumerate(zip(items, sources, strict=True)):
        if item.kind == "text":
            pieces.append(item.text)
        else:
            breaks = {item.name} if _BETWEEN_LINES.fullmatch(item.name.rpartition(" ")[2]) else ()
            pieces.append(piece := piece_of(key, item, partners, breaks))
            elements[piece] = source
    return merged(pieces), elements


def items_of(text: str, markers: Markers) -> list[Item]:
    """Return texts and inline elements: "text", "copied", "accelerator", "open", "close", "point"."""
    items: list[Item] = []
    at = 0
    for item in sorted(_all_found(text, markers), key=lambda item: (item.start, -item.stop)):
        if item.start >= at and len(items) < MAX_ITEMS:
            items += [Item("text", "", at, item.start, text[at : item.start]), item]
            at = item.stop
    return [*items, Item("text", "", at, len(text), text[at:])]


def _all_found(text: str, markers: Markers) -> Iterator[Item]:
    for tag in TAG.finditer(text):
        is_point = tag[3].endswith("/") or _BETWEEN_LINES.fullmatch(tag[2])
        kind = "point" if is_point else "close" if tag[1] else "open"
        yield Item(kind, tag[2], *tag.span())
    for copied in chain(_CHARACTER_REFERENCE.finditer(text), re.finditer("\t+", text)):
        yield Item("copied", "", *copied.span(), copied[0])
    if markers.placeholders is not None:
        for placeholder in markers.placeholders.finditer(text):
            yield Item("copied", "", *placeholder.span(), placeholder[0])
    for mark in markers.accelerators:
        before = "" if markers.within_words else r"(?<!\w)"
        places = [match.start() for match in re.finditer(rf"{before}{re.escape(mark)}(?=[^\W_])", text)]
        if len(places) == text.count(mark) == 1 and not _CHARACTER_REFERENCE.match(text, places[0]):
            yield Item("accelerator", "", places[0], places[0] + 1)
            return


def _before_a_letter(pieces: list[Piece], mark: Point) -> list[Piece]:
    """Move an accelerator to the next letter after it or, if there is none, to the first letter."""
    at = pieces.index(mark)
    rest = pieces[:at] + pieces[at + 1 :]
    for number in (*range(at, len(rest)), *range(at)):
        piece = rest[number]
        if isinstance(piece, str) and (letter := re.search(r"[^\W_]", piece)):
            before, after = piece[: letter.start()], piece[letter.start() :]
            return [*rest[:number], before, mark, after, *rest[number + 1 :]]
    return [*rest, mark]
