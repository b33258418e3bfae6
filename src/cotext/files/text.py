"""Plain text: paragraphs, headings, lists, quotations, and lines wrapped at a width.

A block is the text of a line, without indentation, quotation marks of e-mail (`>`) and list markers. If lines
are wrapped at a fixed width, the lines of a paragraph are one block, and its translation is wrapped at the
same width. Empty lines separate paragraphs of one document. Lines without a letter, tabs and sequences of at
least three spaces are kept.
"""

import codecs
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Final

from cotext.data.splitting import sentence_ends
from cotext.files.blocks import Block, Copied, FileFormat, writable
from cotext.files.places import Edit, Slot, SplicedFile, decoded

# --- Lines wrapped at a fixed width: detection, joining and wrapping.

WIDTHS: Final = range(40, 121)  # characters
FEWEST_BREAKS: Final = 3
_SENTENCE_ENDS: Final = (".", "!", "?", "…", ":", ";", ".”", '."', ".“", ".)", "。", "！", "？")


def wrap_width(lines: Sequence[str]) -> int:
    """Return the width at which lines are wrapped; 0 if the line breaks do not fit any width.

    A break fits a width if the first word of the next line would not have fitted. At least three breaks must
    fit, half of them inside a sentence. They must be at least a quarter of all breaks, and at least 70 % of
    the breaks after lines longer than half the width. Breaks after shorter lines are intended.
    """
    breaks = [(a.rstrip(), b.split()[0]) for a, b in pairwise(lines) if _is_text(a) and _is_text(b)]
    width = max((len(line) for line, _ in breaks), default=0)
    explained = [line for line, word in breaks if breaks_at(width, line, word)]
    if len(explained) < FEWEST_BREAKS or width not in WIDTHS:
        return 0
    long = sum(2 * len(line) > width for line, _ in breaks)
    inside = sum(not line.endswith(_SENTENCE_ENDS) for line in explained)
    share = 4 * len(explained) >= len(breaks) and 10 * len(explained) >= 7 * long
    return width if share and 2 * inside >= len(explained) else 0


def breaks_at(width: int, line: str, word: str) -> bool:
    """Return whether a line is so long that the next word does not fit."""
    return len(line.rstrip()) + 1 + len(word) > width


def wrapped(text: str, width: int) -> list[str]:
    """Wrap a text into lines of at most `width` characters, without breaking words."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def _is_text(line: str) -> bool:
    return any(map(str.isalpha, line)) and " " in line.strip()


_ENDING = re.compile(r"\r\n|\n|\r")
_LINE = re.compile(r"([^\r\n]*)(\r\n|\n|\r|\Z)")
_BEFORE = re.compile(r"[ \t\u00a0\u3000]*(?:>[ \t]?)*[ \t]*")
_BULLET = re.compile(r"(?:[-*+•·‣◦–—]|#{1,6})[ \t]+")
_NUMBER = re.compile(r"\(?(?:\d{1,3}(?:\.\d{1,3})*[.)]|[a-z]\))[ \t]+")
_COLUMN = re.compile(r"(\t+| {3,})")


@dataclass(frozen=True, slots=True)
class Line:
    """A line: the text, and the characters before and after it; `after` includes the line ending."""

    before: str
    text: str
    after: str
    marked: str = ""  # "bullet" or "number"

    @classmethod
    def of(cls, line: str, ending: str) -> "Line":
        """Split a line without its `ending` into parts."""
        before = _BEFORE.match(line)
        assert before is not None
        at, marked = before.end(), ""
        for kind, marker in (("bullet", _BULLET), ("number", _NUMBER)):
            if match := marker.match(line, at):
                at, marked = match.end(), kind
        text = line[at:].rstrip()
        return cls(line[:at], text, line[at + len(text) :] + ending, marked)

    @property
    def whole(self) -> str:
        """The line without trailing space and line ending."""
        return self.before + self.text


def lines_of(text: str) -> list[Line]:
    """Return the lines of a text; text after the last line ending is a line."""
    return [Line.of(match[1], match[2]) for match in _LINE.finditer(text) if match[0]]


def paragraphs(lines: Sequence[Line]) -> tuple[list[range], int]:
    """Return the line numbers of each block, and the width of wrapped lines (0: not wrapped)."""
    width = wrap_width([line.whole for line in lines])
    blocks: list[range] = []
    for number, line in enumerate(lines):
        if not any(map(str.isalpha, line.text)):
            continue
        if width and blocks and blocks[-1].stop == number and _continues(lines[number - 1], line, width):
            blocks[-1] = range(blocks[-1].start, number + 1)
        else:
            blocks.append(range(number, number + 1))
    return blocks, width


def _continues(line: Line, following: Line, width: int) -> bool:
    """Return whether a line break between two lines is only due to the width."""
    if following.marked == "bullet" or (following.marked and line.text.endswith(_SENTENCE_ENDS)):
        return False
    if any(_COLUMN.search(each.text) for each in (line, following)):
        return False
    if line.before.count(">") != following.before.count(">"):
        return False
    return breaks_at(width, line.whole, following.text.split()[0])


def looks_like_prose(lines: Sequence[Line]) -> str:
    """Return why lines look like running text; an empty string if they look like one sentence per line.

    In running text, lines are wrapped at a width, or at least 1 line in 4 contains several sentences (in
    corpora, at most 1 in 6). In a text of several paragraphs, half of them one line long, 1 in 10 is enough.
    """
    texts = [line.text for line in lines]
    filled = [text for text in texts if text]
    if width := wrap_width([line.whole for line in lines]):
        return f"because its lines are wrapped at {width} characters"
    if len(lines) > 1 and all(line.after.endswith("\r") for line in lines[:-1]):
        return "because its lines end in carriage returns only"  # in a corpus, they do not end a line
    several = sum(bool(sentence_ends(text)) for text in filled)
    runs = ["", *texts, ""]
    starts = sum(not a and bool(b) for a, b in pairwise(runs))
    alone = sum(not a and bool(b) and not c for a, b, c in zip(runs, runs[1:], runs[2:], strict=False))
    if several and (
        4 * several >= len(filled) or (starts > 1 and 2 * alone >= starts and 10 * several >= len(filled))
    ):
        return f"because {several:,} of {len(filled):,} lines contain several sentences"
    return ""


def _open(content: bytes, name: str) -> SplicedFile:
    """Read a plain text as one document; raise the errors of `decoded`."""
    source = decoded(content, name)
    lines = lines_of(source.text)
    starts = list(accumulate((len(line.whole + line.after) for line in lines), initial=0))
    blocks, width = paragraphs(lines)
    slots = []
    for numbers in blocks:
        span, own = (starts[numbers.start], starts[numbers.stop]), lines[numbers.start : numbers.stop]
        slots.append(Slot((_block(own, numbers.start + 1),), partial(_edits, span, own, width)))
    why = looks_like_prose(lines)
    reason = f", {why}" if why else ""
    messages = [
        f"read as running text{reason}; empty lines separate paragraphs of one document "
        "(--format text: one sentence per line, an empty line after each document)"
    ]
    if joined := sum(len(numbers) > 1 for numbers in blocks):
        messages.append(
            f"the lines of {joined:,} paragraphs, wrapped at {width} characters, are joined, and "
            "their translations are wrapped at the same width"
        )
    return SplicedFile(source, [slots] if slots else [], messages)


def _block(lines: Sequence[Line], number: int) -> Block:
    parts = enumerate(_COLUMN.split("\n".join(line.text for line in lines)))
    return Block(tuple(Copied(n // 2, part) if n % 2 else part for n, part in parts), f"line {number}")


def _edits(span: tuple[int, int], lines: Sequence[Line], width: int, blocks: Sequence[Block]) -> list[Edit]:
    """Return the edit of a block, with the indentation and the line endings of the original lines."""
    [block] = blocks
    text = _ENDING.sub("\n", writable(block).text)
    if len(lines) == 1:
        texts = [" ".join(text.split("\n"))]
    else:
        texts = text.split("\n")
        widest = max(len(line.text) for line in lines)
        room = width - max(len(line.before) for line in lines)
        if max(map(len, texts)) > widest:
            texts = wrapped(" ".join(texts), max(room, widest))
    last = len(texts) - 1
    parts = []
    for number, line_text in enumerate(texts):
        before = lines[min(number, len(lines) - 1)].before
        after = lines[-1 if number == last else min(number, len(lines) - 2)].after
        parts.append(f"{before}{line_text}{after}")
    return [(*span, "".join(parts))]


def _recognises(head: bytes) -> bool:
    """Return whether a file is text, and does not look like a corpus with one sentence per line."""
    try:  # the last character may be incomplete
        text, _ = codecs.utf_8_decode(head.removeprefix(codecs.BOM_UTF8))
    except UnicodeDecodeError:
        return False
    if "\0" in text:
        return False
    lines = lines_of(text)
    # The last line may be incomplete.
    cut_off = lines and not lines[-1].after and len(lines) > 1
    return bool(looks_like_prose(lines[:-1] if cut_off else lines))


FORMAT: Final = FileFormat("prose", (".txt", ".text"), _recognises, _open)
