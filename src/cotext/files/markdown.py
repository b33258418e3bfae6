"""Markdown: CommonMark with tables, strikethrough, footnotes and front matter.

Only ranges of text are replaced. Link texts are part of their sentence; link titles and image texts are
blocks after the paragraph. Code is copied, and the model reads it as context. Front matter, code blocks and
HTML blocks are kept, with a message. A paragraph of several lines is wrapped again if its translation is
wider.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import islice
from typing import Any, Final

from cotext.files.blocks import Block, Close, Contents, FileFormat, Open
from cotext.files.markdown_inline import (
    FOOTNOTE,
    NotFoundError,
    Paragraph,
    Scanner,
    content_of,
    element_key,
    inside_an_element,
    spelled,
    unlike_a_block,
    visible,
)
from cotext.files.places import Edit, spliced
from cotext.files.text import BYTE_ORDER_MARK, decoded, wrapped
from cotext.runtime.errors import CotextError
from cotext.runtime.reading import substituted
from cotext.runtime.xml import taken

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r|\Z)")
# The lookbehinds below prevent new searches inside a run of spaces (quadratic time).
_FRONT_MATTER = re.compile(r"(---|\+\+\+)[ \t]*\r?\n(?:[^\n]*\n)*?\1[ \t]*(?:\r?\n|\Z)")
_FOOTNOTE_TEXT = re.compile(r"\[\^[^\]\s]+\]:[ \t]*(?=\S)")
_CLOSING_MARKS = re.compile(r"(?:^|(?<![ \t])[ \t]++)#++[ \t]*$|(?<![ \t])[ \t]++$")
_LAST_MARKS = re.compile(r"(?:^|(?<=[ \t]))#+$")
_RETURNS = re.compile(r"\r\n?")
_LINE_BREAKS = re.compile(r"(?<![ \t])[ \t]*+[\r\n]\s*")
_LAST_BREAK_BACKWARDS = re.compile(r"(?:[^\S\n]*\n(?: {2,}|\\))*")
_MEANT_BREAK = re.compile(r"((?:(?<! ) {2,}+|\\)\n)")
_MAY_GO: Final = {"hardbreak"}  # may be lost at the start or end of a paragraph
_FOOTNOTE_ENDS = re.compile(r"[\]\s]")
_UNCLOSED: Final = -1  # key (others are positions) of a range without footnotes in the parser's cache
_KEPT: Final = {"fence": "blocks of code", "code_block": "blocks of code", "html_block": "blocks of HTML"}


@dataclass(slots=True)
class _Place:
    """The position of a paragraph in the text, and its lines.

    `before`: indentation of each line except the first. `width`: length of the longest line; 0 if there is
    only one line.
    """

    start: int
    stop: int
    source: str
    paragraph: Paragraph
    before: list[str] = field(default_factory=list)
    ending: str = "\n"
    width: int = 0
    in_table: bool = False
    in_heading: bool = False  # a heading with #
    blocks: list[Block] = field(default_factory=list)  # the paragraph, then texts inside its elements


class MarkdownFile:
    """A Markdown text that has been read."""

    def __init__(self, content: bytes, name: str) -> None:
        self._text = decoded(content, name)
        self._parser = _parser()
        begin = len(BYTE_ORDER_MARK) if self._text.startswith(BYTE_ORDER_MARK) else 0
        self.contents = Contents()
        front = _FRONT_MATTER.match(self._text, begin)
        if front is not None:
            begin = front.end()
            self.contents.messages.append(
                f"line 1: front matter of {_lines_in(front[0])} lines is not translated"
            )
        self._first_line = _lines_in(self._text[:begin])
        self._lines = [match.span() for match in _LINE.finditer(self._text, begin) if match[0]]
        self._environment: dict[str, Any] = {}
        tokens = self._parser.parse(substituted(_RETURNS, "\n", self._text[begin:]), self._environment)
        self._kept: dict[str, list[int]] = {}
        self._unlike: list[str] = []  # places of paragraphs whose markup is not parsed as intended
        self._places = list(self._paragraphs(tokens))
        blocks = [block for place in self._places for block in place.blocks]
        self.contents.documents = [blocks] if blocks else []
        self.contents.messages += [
            f"line {lines[0]}: {len(lines):,} {what} are kept unchanged" for what, lines in self._kept.items()
        ]

    def _number(self, line: int) -> int:
        """Return the line number in the file of a line that the parser counts from 0."""
        return self._first_line + line + 1

    def _keep(self, what: str, line: int) -> None:
        self._kept.setdefault(what, []).append(self._number(line))

    def _line(self, number: int) -> str:
        start, stop = self._lines[number]
        return self._text[start:stop].rstrip("\r\n")

    def _paragraphs(self, tokens: Sequence[Any]) -> Iterator[_Place]:
        row, text, cell_end = -1, "", 0
        for before, token in zip([None, *tokens], tokens, strict=False):
            if token.type in _KEPT:
                if token.content.strip():
                    self._keep(_KEPT[token.type], token.map[0])
                continue
            if token.type != "inline" or not token.content:
                continue
            first, last = token.map
            in_table = before is not None and before.type in ("th_open", "td_open")
            try:
                if in_table:
                    if row != first:
                        row, text, cell_end = first, self._line(first), 0
                    start, cell_end = _cell(token.content, text, cell_end)
                    spans = [(start, cell_end, first)]
                else:
                    spans = list(self._spans(token.content.split("\n"), range(first, last)))
                place = self._place(token, spans, first, in_table)
                place.in_heading = before is not None and before.markup.startswith("#")
                yield place
            except NotFoundError:
                if any(map(str.isalpha, token.content)):
                    self._keep("paragraphs whose markup cannot be parsed", first)

    def _spans(self, contents: Sequence[str], lines: range) -> Iterator[tuple[int, int, int]]:
        """Yield start, stop and line number of each line of a paragraph."""
        if len(contents) > len(lines):
            raise NotFoundError
        for number, content in zip(lines, contents, strict=False):
            text = self._line(number)
            if not text.endswith(content):
                text = text.rstrip()
            if not text.endswith(content):
                text = _CLOSING_MARKS.sub("", text)
            if not text.endswith(content):
                raise NotFoundError
            yield len(text) - len(content), len(text), number

    def _place(self, token: Any, spans: list[tuple[int, int, int]], line: int, in_table: bool) -> _Place:
        low, high = spans[0], spans[-1]
        start, stop = self._lines[low[2]][0] + low[0], self._lines[high[2]][0] + high[1]
        if in_table and "|" in token.content:
            raise NotFoundError
        paragraph = Scanner(token.content).scan(token.children)
        place = _Place(start, stop, token.content, paragraph, in_table=in_table)
        if len(spans) > 1:
            place.before = [self._line(number)[:at] for at, _, number in spans[1:]]
            place.width = max(end for _, end, _ in spans)
            first = self._text[slice(*self._lines[low[2]])]
            place.ending = first[len(first.rstrip("\r\n")) :]
        where = f"line {self._number(line)}"
        place.blocks = [Block(tuple(place.paragraph.pieces), where)]
        place.blocks += [Block((text,), f"{where}, {what}") for what, text in place.paragraph.further]
        return place

    def written(self, documents: Sequence[Sequence[Block]]) -> bytes:
        blocks = iter([block for document in documents for block in document])
        edits: list[Edit] = []
        self._unlike = []
        for place in self._places:
            given = list(islice(blocks, len(place.blocks)))
            if given != place.blocks:
                edits.append((place.start, place.stop, self._written(place, given)))
        if self._unlike:
            self.contents.messages.append(
                f"{self._unlike[0]}: paragraphs whose translation may contain unintended markup: "
                f"{len(self._unlike):,}"
            )
        return "".join(spliced(self._text, edits)).encode()

    def _written(self, place: _Place, given: Sequence[Block]) -> str:
        block, *inner = given
        further = [inside_an_element(text) for text in inner]
        space = "\n" if place.width else " "
        pieces = (_LINE_BREAKS.sub(space, taken(p)) if isinstance(p, str) else p for p in block.pieces)
        lines = self._spelled(place, replace(block, pieces=visible(place.paragraph, pieces)), further)
        before = place.before or [""]
        rest = (
            f"{place.ending}{before[min(number, len(before) - 1)]}{line}"
            for number, line in enumerate(lines[1:])
        )
        return "".join([lines[0], *rest])

    def _lines_of(self, place: _Place, source: str) -> list[str]:
        """Return the lines of a paragraph, escaped so that no line begins another kind of block."""
        last = _LAST_BREAK_BACKWARDS.match(source[::-1])
        source = source[: len(source) - (last.end() if last else 0)].strip(" \t\n")
        if place.in_table:
            return [re.sub(r"(?<!\\)\|", r"\\|", source)]
        lines = source.split("\n")
        if place.width and "\n" in place.source and max(map(len, lines)) > place.width:
            lines = self._rewrapped(place, source)
        if lines == place.source.split("\n"):
            return lines
        # An empty line would end the paragraph; a line of two spaces is an intended line break.
        lines = [line if line.strip(" \t") else "\\" * line.endswith("  ") for line in lines]
        lines = [unlike_a_block(line.lstrip(" \t")) for line in lines if line] or [""]
        if place.in_heading:
            lines[-1] = _LAST_MARKS.sub(r"\\\g<0>", lines[-1])
        return lines

    def _rewrapped(self, place: _Place, source: str) -> list[str]:
        """Wrap the source at the width of the paragraph; intended line breaks are kept."""
        room = place.width - max(map(len, place.before), default=0)
        meant = _MEANT_BREAK.split(source)
        lines: list[str] = []
        for text, end in zip(meant[::2], [*meant[1::2], ""], strict=True):
            wrapped_lines = wrapped(" ".join(text.split("\n")), max(room, 20))
            lines += [*wrapped_lines[:-1], wrapped_lines[-1] + end.rstrip("\n")]
        return lines

    def _spelled(self, place: _Place, block: Block, further: Sequence[str]) -> list[str]:
        """Return the lines of a block in the first spelling that is parsed as intended.

        If there is none, use the spelling with tags and escapes, which has all elements, and record the place
        for a message.
        """
        text, elements = self._expected(place, block)
        second: list[str] | None = None
        for how in range(4):
            lines = self._lines_of(place, spelled(place.paragraph, block, further, how))
            parsed = self._parsed(place, lines)
            if parsed == (text, elements):
                return lines
            # A line break at an end may be lost, as it is invisible.
            is_complete = parsed is not None and parsed[0] == text and not parsed[1] - elements
            if second is None and parsed and is_complete and set(elements - parsed[1]) <= _MAY_GO:
                second = lines
        if second is None:
            self._unlike.append(block.place)
        return second or lines

    def _parsed(self, place: _Place, lines: Sequence[str]) -> tuple[str, Counter[str]] | None:
        """Parse the lines of a paragraph and return `content_of`; None if they are not one paragraph."""
        if place.in_table:
            [token] = self._parser.parseInline(lines[0].replace("\\|", "|"), self._environment)
            return content_of(token.children)
        if lines == [""]:
            return "", Counter()
        tokens = self._parser.parse("\n".join(lines), dict(self._environment))
        if [token.type for token in tokens] != ["paragraph_open", "inline", "paragraph_close"]:
            return None
        return content_of(tokens[1].children)

    def _expected(self, place: _Place, block: Block) -> tuple[str, Counter[str]]:
        """Return the expected text of a block, and the elements of its paragraph that are still in it."""
        [token] = self._parser.parseInline(place.source, self._environment)
        elements = content_of(token.children)[1]
        removed = set(place.paragraph.pieces) - set(block.pieces)
        elements.subtract(element_key(place.paragraph, p) for p in removed if isinstance(p, Open | Close))
        return "".join("".join(piece for piece in block.pieces if isinstance(piece, str)).split()), +elements


def _cell(content: str, line: str, start: int) -> tuple[int, int]:
    """Return the span of a cell in its line, after `start`; bars in it are escaped."""
    source = content.replace("|", "\\|")
    if (at := line.find(source, start)) < 0:
        raise NotFoundError
    return at, at + len(source)


def _lines_in(text: str) -> int:
    return text.count("\n") + text.count("\r") - text.count("\r\n")


def _parser() -> Any:
    """Return a parser whose tokens keep their spelling; raise CotextError if it is not installed."""
    try:
        parser = import_module("markdown_it").MarkdownIt("commonmark")
    except ImportError:
        raise CotextError(
            "Markdown needs the package markdown-it-py: pip install 'cotext[files]' "
            "(or --format prose to translate the file as plain text)"
        ) from None
    parser.enable(["table", "strikethrough"]).disable(["text_join"])
    parser.block.ruler.before("reference", "footnote", _footnote_text, {"alt": ["paragraph", "reference"]})
    parser.inline.ruler.before("link", "footnote", _footnote_mark)
    return parser


def _footnote_text(state: Any, line: int, last: int, silent: bool) -> bool:
    """Block rule: the text of a footnote is a paragraph after its mark."""
    start = state.bMarks[line] + state.tShift[line]
    match = _FOOTNOTE_TEXT.match(state.src, start, state.eMarks[line])
    if match is None:
        return False
    if not silent:
        state.bMarks[line] += match.end() - start
    return bool(silent)


def _footnote_mark(state: Any, silent: bool) -> bool:
    """Inline rule: the mark of a footnote."""
    first, last = state.cache.get(_UNCLOSED, (0, 0))
    if not state.src.startswith("[^", state.pos) or first <= state.pos < last:
        return False
    match = FOOTNOTE.match(state.src, state.pos, state.posMax)
    if match is None:
        # Other marks before the end of this search are not closed either.
        ends = _FOOTNOTE_ENDS.search(state.src, state.pos + 2, state.posMax)
        state.cache[_UNCLOSED] = state.pos, ends.start() if ends else state.posMax
        return False
    if not silent:
        state.push("footnote", "", 0).content = match[0]
    state.pos = match.end()
    return True


# Any text may be Markdown, so only the suffix decides (`cotext.files.table.BY_NAME`).
FORMAT: Final = FileFormat(
    "markdown", (".md", ".markdown", ".mdown", ".mkd"), lambda head: b"\0" not in head, MarkdownFile
)
