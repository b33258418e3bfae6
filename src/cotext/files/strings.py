"""Strings of catalogues as blocks: lines, placeholders, markup and accelerators of messages in programs.

A string may be a paragraph that was wrapped by hand, or a list of lines. A break is soft, and part of its
paragraph, where a line of 30 characters or more does not end as a sentence does and the next begins with a
letter, a bracket, a quote or a placeholder; the translation is wrapped at the width of the longest line.
Every other break ends a block. Outer white space, and lines without a letter, stay as they are.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cotext.files.blocks import LINKS, Close, Copied, Item, Open, Piece, Point, mates, merged

_SHORT_LINE: Final = 30  # characters; a shorter line was not broken for its length
_SENTENCE_END: Final = re.compile(r"[.!?:;…。！？：；][\"'”’»)\]]*$")
_GOES_ON: Final = re.compile(r"[\w(\[\"'“‘«„<%{$]")
_LETTER: Final = re.compile(r"[^\W\d_]")
_BREAKS: Final = re.compile(r"\r\n|\n|\r")
_TAG: Final = re.compile(r"<(/?)([A-Za-z][\w:.-]*|\d+)((?:[\s/][^<>]*)?)>")
_CHARACTER_REFERENCE: Final = re.compile(r"&(?:[A-Za-z][A-Za-z0-9]{1,30}|#\d{1,7}|#[xX][0-9A-Fa-f]{1,6});")
MAX_INLINE: Final = 1000  # elements in a string that are taken apart


@dataclass(frozen=True, slots=True)
class Markers:
    """What is not text in a string: placeholders, and the mark before the letter of a shortcut.

    `accelerators`: characters that may be such a mark at the beginning of a word, in a string that has one.
    `within_words`: it may stand inside a word, as in "E&xit".
    """

    placeholders: re.Pattern[str] | None = None
    accelerators: str = ""
    within_words: bool = False


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A block of a string: its pieces, what its elements are written as, and where it was wrapped (or 0)."""

    pieces: tuple[Piece, ...]
    elements: dict[Piece, str]
    width: int
    accelerator: int | None  # its key

    def written(self, pieces: Sequence[Piece]) -> str:
        """The text with other pieces."""
        parts = list(pieces)
        if self.accelerator is not None:
            parts = list(_before_a_letter(parts, Point(self.accelerator)))
        text = "".join(
            piece
            if isinstance(piece, str)
            else piece.text
            if isinstance(piece, Copied)
            else self.elements[piece]
            for piece in parts
        )
        return "\n".join(wrapped(text, self.width)) if self.width else text


class CatalogueString:
    """A string, cut into paragraphs and what stands between them."""

    def __init__(self, text: str, markers: Markers) -> None:
        self._parts: list[str | Paragraph] = []
        for between, paragraph, width in _paragraphs(text):
            self._parts.append(between)
            if paragraph:
                self._parts.append(_taken_apart(paragraph, width, markers))
        self.paragraphs = [part for part in self._parts if isinstance(part, Paragraph)]

    def written(self, given: Sequence[Sequence[Piece]]) -> str:
        """The string with other pieces, as many as it has paragraphs."""
        waiting = iter(given)
        return "".join(part if isinstance(part, str) else part.written(next(waiting)) for part in self._parts)


def has_letters(text: str) -> bool:
    """Whether there is a letter in a text."""
    return _LETTER.search(text) is not None


def has_words(pieces: Sequence[Piece]) -> bool:
    """Whether there is a letter outside what is copied."""
    return any(isinstance(piece, str) and _LETTER.search(piece) for piece in pieces)


def _paragraphs(text: str) -> Iterator[tuple[str, str, int]]:
    """What stands before a paragraph, the paragraph on one line, and its width if it was wrapped.

    The last has no paragraph.
    """
    lines = _BREAKS.split(text)
    breaks = [*_BREAKS.findall(text), ""]
    between = ""
    number = 0
    while number < len(lines):
        first = number
        while breaks[number] == "\n" and _soft(lines[number], lines[number + 1]):
            number += 1
        group = lines[first : number + 1]
        core = group[0].strip() if len(group) == 1 else " ".join(line.rstrip() for line in group).strip()
        if not _LETTER.search(core):
            between += "\n".join(group) + breaks[number]
        else:
            indent = group[0][: len(group[0]) - len(group[0].lstrip())]
            yield between + indent, core, max(map(len, group)) if len(group) > 1 else 0
            between = group[-1][len(group[-1].rstrip()) :] + breaks[number]
        number += 1
    yield between, "", 0


def _soft(line: str, following: str) -> bool:
    return (
        len(line) >= _SHORT_LINE
        and not _SENTENCE_END.search(line.rstrip())
        and _GOES_ON.match(following) is not None
    )


def wrapped(text: str, width: int) -> Iterator[str]:
    """Lines of at most `width` characters where spaces allow it; joined by spaces they give the text back."""
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


def _taken_apart(text: str, width: int, markers: Markers) -> Paragraph:
    found = found_in(text, markers)
    # What was opened and not closed encloses nothing, as <br> and <file> in a usage message.
    partners = mates(found)
    pieces: list[Piece] = []
    elements: dict[Piece, str] = {}
    at = 0
    for key, each in enumerate(found):
        raw = text[each.start : each.stop]
        piece: Piece = Copied(key, raw) if each.kind == "copied" else Point(key)
        if key in partners:
            piece = Open(key, each.name in LINKS) if each.kind == "open" else Close(partners[key])
        pieces += [text[at : each.start], piece]
        elements[piece] = raw
        at = each.stop
    accelerator = next((key for key, each in enumerate(found) if each.kind == "accelerator"), None)
    return Paragraph(merged([*pieces, text[at:]]), elements, width, accelerator)


def found_in(text: str, markers: Markers) -> list[Item]:
    """What is not text, in order: "copied", "accelerator", of tags "open", "close" and "point"."""
    found: list[Item] = []
    for each in sorted(_all_found(text, markers), key=lambda each: (each.start, -each.stop)):
        if (not found or each.start >= found[-1].stop) and len(found) < MAX_INLINE:
            found.append(each)
    return found


def _all_found(text: str, markers: Markers) -> Iterator[Item]:
    for tag in _TAG.finditer(text):
        kind = "close" if tag[1] else "point" if tag[3].endswith("/") else "open"
        yield Item(kind, tag[2], *tag.span())
    for reference in _CHARACTER_REFERENCE.finditer(text):
        yield Item("copied", "", *reference.span())
    if markers.placeholders is not None:
        for placeholder in markers.placeholders.finditer(text):
            yield Item("copied", "", *placeholder.span())
    for mark in markers.accelerators:
        before = "" if markers.within_words else r"(?<!\w)"
        places = [each.start() for each in re.finditer(rf"{before}{re.escape(mark)}(?=[^\W_])", text)]
        if len(places) == text.count(mark) == 1 and not _CHARACTER_REFERENCE.match(text, places[0]):
            yield Item("accelerator", "", places[0], places[0] + 1)
            return


def _before_a_letter(pieces: list[Piece], mark: Point) -> Iterator[Piece]:
    """The pieces with the mark of a shortcut before the nearest letter after it, or else the first."""
    at = pieces.index(mark)
    rest = pieces[:at] + pieces[at + 1 :]
    order = [*range(at, len(rest)), *range(at)]
    place = next(
        (number for number in order if isinstance(rest[number], str) and _letter(rest[number])), None
    )
    for number, piece in enumerate(rest):
        if number == place and isinstance(piece, str):
            letter = _letter(piece)
            assert letter is not None
            yield from (piece[: letter.start()], mark, piece[letter.start() :])
        else:
            yield piece
    if place is None:
        yield mark


def _letter(piece: Piece) -> re.Match[str] | None:
    return re.search(r"[^\W_]", piece) if isinstance(piece, str) else None
