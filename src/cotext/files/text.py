"""Plain text as people write it: paragraphs, headings, lists, quotations, lines broken at a width.

A line is a block, without the indentation, the quotation marks of mail (`>`) and the marker of a list
before it. Where lines are broken at a fixed width (`wrapping`), the lines of a paragraph are one block;
written again, its translation is broken at that width. Empty lines are breaks between paragraphs of one
document. Lines without a letter, tabulators and three spaces or more are kept.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from cotext.data.sentence_ends import sentence_ends
from cotext.files.blocks import Block, Contents, Copied, FileFormat, Piece, writable
from cotext.runtime.errors import CotextError

# --- Lines broken at a fixed width: detected, joined to paragraphs, and broken again.

WIDTHS: Final = range(40, 121)  # characters of a line that somebody has broken by its width
FEWEST_BREAKS: Final = 3
_SENTENCE_ENDS: Final = (".", "!", "?", "…", ":", ";", ".”", '."', ".“", ".)", "。", "！", "？")


def wrap_width(lines: Sequence[str]) -> int:
    """The width at which lines are broken; 0 where no width explains where they end.

    A break is explained by a width where the first word of the next line would have gone beyond it. At least
    three have to be, half of them inside a sentence, a quarter of all, and seven in ten of those behind lines
    of more than half the width: shorter lines are breaks that somebody meant. Of one sentence a line, lines
    end anywhere.
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
    """Whether a line is so long that the next word does not fit into the width."""
    return len(line.rstrip()) + 1 + len(word) > width


def ends_sentence(line: str) -> bool:
    """Whether a line ends as a sentence, or what introduces a list, does."""
    return line.rstrip().endswith(_SENTENCE_ENDS)


def wrapped(text: str, width: int) -> list[str]:
    """A text in lines of at most so many characters, words never broken."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def spread(text: str, lengths: Sequence[int]) -> list[str]:
    """A text in exactly as many lines as there are lengths, its words shared out in proportion to them.

    Every line has a word, as long as there are words; a text in a script without spaces is cut anywhere.
    """
    words = text.split()
    between = " "
    if len(words) < len(lengths):
        words, between = list("".join(words)), ""
    whole, total = sum(lengths), sum(map(len, words))
    lines: list[str] = []
    taken = at = done = 0
    for number, length in enumerate(lengths):
        done += length
        start, most = at, len(words) - (len(lengths) - number - 1)
        while at < most and (at == start or (taken + len(words[at]) / 2) * whole <= done * total):
            taken += len(words[at])
            at += 1
        lines.append(between.join(words[start:at]))
    lines[-1] = between.join(filter(None, [lines[-1], *words[at:]]))
    return lines


def _is_text(line: str) -> bool:
    return any(map(str.isalpha, line)) and " " in line.strip()


BYTE_ORDER_MARK: Final = "\ufeff"
_ENDING = re.compile(r"\r\n|\n|\r")
_BEFORE = re.compile(r"[ \t\u00a0\u3000]*(?:>[ \t]?)*[ \t]*")
_BULLET = re.compile(r"(?:[-*+•·‣◦–—]|#{1,6})[ \t]+")
_NUMBER = re.compile(r"\(?(?:\d{1,3}(?:\.\d{1,3})*[.)]|[a-z]\))[ \t]+")
_COLUMN = re.compile(r"\t+| {3,}")


@dataclass(frozen=True, slots=True)
class Line:
    """A line: what stands before its text, the text, and what stands behind it, its ending included."""

    before: str
    text: str
    after: str
    marked: str = ""  # by a bullet, or by a number

    @classmethod
    def of(cls, line: str, ending: str) -> "Line":
        """Take a line apart."""
        found = _BEFORE.match(line)
        assert found is not None
        at = found.end()
        marked = ""
        for kind, marker in (("bullet", _BULLET), ("number", _NUMBER)):
            if match := marker.match(line, at):
                at, marked = match.end(), kind
        text = line[at:].rstrip()
        return cls(line[:at], text, line[at + len(text) :] + ending, marked)

    @property
    def whole(self) -> str:
        """The line without what ends it."""
        return self.before + self.text


def lines_of(text: str) -> list[Line]:
    """The lines of a text; what is behind the last ending is a line, if it is not empty."""
    lines = []
    at = 0
    for match in _ENDING.finditer(text):
        lines.append(Line.of(text[at : match.start()], match[0]))
        at = match.end()
    return [*lines, Line.of(text[at:], "")] if at < len(text) else lines


def paragraphs(lines: Sequence[Line]) -> tuple[list[range], int]:
    """The lines of each block, in order, and the width at which they are broken; 0 if they are not."""
    width = wrap_width([line.whole for line in lines])
    found: list[range] = []
    for number, line in enumerate(lines):
        if not any(map(str.isalpha, line.text)):
            continue
        if width and found and found[-1].stop == number and _goes_on(lines[number - 1], line, width):
            found[-1] = range(found[-1].start, number + 1)
        else:
            found.append(range(number, number + 1))
    return found, width


def _goes_on(line: Line, following: Line, width: int) -> bool:
    """Whether the width alone explains why the next line is another one."""
    if following.marked == "bullet" or (following.marked and ends_sentence(line.text)):
        return False
    if _COLUMN.search(line.text) or line.before.count(">") != following.before.count(">"):
        return False
    return breaks_at(width, line.whole, following.text.split()[0])


def looks_like_prose(lines: Sequence[Line]) -> str:
    """Why lines look like running text and not like one sentence a line; empty where they do not.

    Running text is broken at a width, or holds several sentences in every fourth line, or in every tenth
    where half of all paragraphs are a line. Of corpora with a segment a line, at most every sixth does
    (docs/files.md).
    """
    texts = [line.text for line in lines]
    filled = [text for text in texts if text]
    if width := wrap_width([line.whole for line in lines]):
        return f"its lines are broken at {width} characters"
    several = sum(bool(sentence_ends(text)) for text in filled)
    runs = ["", *texts, ""]
    starts = sum(not a and bool(b) for a, b in pairwise(runs))
    alone = sum(not a and bool(b) and not c for a, b, c in zip(runs, runs[1:], runs[2:], strict=False))
    if several and (
        4 * several >= len(filled) or (starts > 1 and 2 * alone >= starts and 10 * several >= len(filled))
    ):
        return f"{several:,} of {len(filled):,} lines hold several sentences"
    return ""


class TextFile:
    """A plain text, read; `keep_lines`: it is written with as many lines as it has."""

    def __init__(self, content: bytes, name: str, keep_lines: bool = False) -> None:
        self._keep_lines = keep_lines
        text = decoded(content, name)
        self._mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
        self._lines = lines_of(text.removeprefix(BYTE_ORDER_MARK))
        self._paragraphs, self._width = paragraphs(self._lines)
        self._blocks = [self._block(each) for each in self._paragraphs]
        self.contents = Contents([self._blocks] if self._blocks else [], list(self._messages()))

    def _messages(self) -> Iterator[str]:
        why = looks_like_prose(self._lines)
        reason = f", as {why}" if why else ""
        yield (
            f"read as running text{reason}: empty lines are breaks between paragraphs of one document "
            "(--format text: one sentence a line, an empty line after each document)"
        )
        if joined := sum(len(each) > 1 for each in self._paragraphs):
            yield (
                f"the lines of {joined:,} paragraphs, broken at {self._width} characters, are joined, and "
                "their translations broken at that width again"
            )

    def _block(self, numbers: range) -> Block:
        text = "\n".join(self._lines[number].text for number in numbers)
        pieces: list[Piece] = []
        at = 0
        for key, match in enumerate(_COLUMN.finditer(text)):
            pieces += [text[at : match.start()], Copied(key, match[0])]
            at = match.end()
        return Block((*pieces, text[at:]), f"line {numbers.start + 1}")

    def written(self, documents: Sequence[Sequence[Block]]) -> bytes:
        """The text with these blocks in the places of its own."""
        blocks = [block for document in documents for block in document]
        parts = [self._mark]
        at = 0
        for numbers, own, block in zip(self._paragraphs, self._blocks, blocks, strict=True):
            parts += [f"{line.whole}{line.after}" for line in self._lines[at : numbers.start]]
            at = numbers.stop
            parts.append(self._paragraph([self._lines[number] for number in numbers], own, block))
        return "".join([*parts, *(f"{line.whole}{line.after}" for line in self._lines[at:])]).encode()

    def _paragraph(self, lines: Sequence[Line], own: Block, block: Block) -> str:
        """The lines of a block: every one as its own are, the last as their last is."""
        if block.pieces == own.pieces:
            return "".join(f"{line.whole}{line.after}" for line in lines)
        text = _ENDING.sub("\n", writable(block).text)
        if len(lines) == 1:
            texts = [" ".join(text.split("\n"))]
        elif self._keep_lines:
            texts = spread(text, [len(line.text) for line in lines])
        else:
            texts = text.split("\n")
            widest = max(len(line.text) for line in lines)
            room = self._width - max(len(line.before) for line in lines)
            if max(map(len, texts)) > widest:
                texts = wrapped(" ".join(texts), max(room, widest))
        last = len(texts) - 1
        parts = []
        for number, each in enumerate(texts):
            before = lines[min(number, len(lines) - 1)].before
            after = lines[-1 if number == last else min(number, len(lines) - 2)].after
            parts.append(f"{before}{each}{after}")
        return "".join(parts)


def decoded(content: bytes, name: str) -> str:
    """A text in UTF-8.

    Raises:
        CotextError: it is none, or binary.
    """
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        hint = (
            "it looks like UTF-16: convert it"
            if content[:2] in (b"\xff\xfe", b"\xfe\xff")
            else "convert the file"
        )
        raise CotextError(
            f"{name}:{line}: invalid UTF-8, byte {error.start + 1} of the file is "
            f"0x{content[error.start]:02x}; {hint} to UTF-8"
        ) from None
    if (at := text.find("\0")) >= 0:
        line = text.count("\n", 0, at) + 1
        raise CotextError(f"{name}:{line}: contains a NUL character; remove it")
    return text


def _recognises(head: bytes) -> bool:
    """Whether it is text that is no corpus of one sentence a line."""
    if b"\0" in head:
        return False
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:
            return False
        text = head[: error.start].decode()
    lines = lines_of(text.removeprefix(BYTE_ORDER_MARK))
    # The end may have cut the last line.
    cut_off = lines and not lines[-1].after and len(lines) > 1
    return bool(looks_like_prose(lines[:-1] if cut_off else lines))


FORMAT: Final = FileFormat("prose", (".txt", ".text"), _recognises, TextFile)
