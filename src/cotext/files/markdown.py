"""Markdown: CommonMark with tables, strikethrough, footnotes and front matter.

Only ranges of text are replaced, so that everything else stays as it is spelled. Texts of links are part of
their sentence; titles and the texts of images are blocks behind the paragraph. Code is copied, and read as
context; front matter, blocks of code and blocks of HTML are kept, and said. A paragraph of several lines is
broken at its width again where a translation goes beyond it.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import chain
from typing import Any, Final

from cotext.files.blocks import Block, Close, Contents, FileFormat, Open
from cotext.files.markdown_inline import (
    FOOTNOTE,
    NotFoundError,
    Paragraph,
    Scanner,
    inside_an_element,
    is_certain,
    mark_said,
    said,
    spelled,
    unlike_a_block,
    visible,
)
from cotext.files.text import BYTE_ORDER_MARK, decoded, wrapped
from cotext.runtime.errors import CotextError
from cotext.runtime.reading import substituted
from cotext.runtime.xml import taken

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r|\Z)")
# A search that fails at the beginning of a run of spaces is not begun again within it.
_FRONT_MATTER = re.compile(r"(---|\+\+\+)[ \t]*\r?\n(?:[^\n]*\n)*?\1[ \t]*(?:\r?\n|\Z)")
_FOOTNOTE_TEXT = re.compile(r"\[\^[^\]\s]+\]:[ \t]*(?=\S)")
_CLOSING_MARKS = re.compile(r"(?:^|(?<![ \t])[ \t]++)#++[ \t]*$|(?<![ \t])[ \t]++$")
_LAST_MARKS = re.compile(r"(?:^|(?<=[ \t]))#+$")
_DEFINED_TITLE = re.compile(
    r"^ {0,3}\[(?:\\.|[^\]\\])+\]:\s*\S+[ \t]+([\"'(])(?P<title>[^\"'()\n]+)[\"')][ \t]*$"
)
_RETURNS = re.compile(r"\r\n?")
_LINE_BREAKS = re.compile(r"(?<![ \t])[ \t]*+[\r\n]\s*")
_LAST_BREAK_BACKWARDS = re.compile(r"(?:[^\S\n]*\n(?: {2,}|\\))*")
_MEANT_BREAK = re.compile(r"((?:(?<! ) {2,}+|\\)\n)")
_MAY_GO: Final = {"hardbreak"}  # where it is the first or the last of a paragraph
_FOOTNOTE_ENDS = re.compile(r"[\]\s]")
_UNCLOSED: Final = -1  # a key of the parser's cache, whose others are places: where no footnote begins
_KEPT: Final = {
    "fence": "blocks of code",
    "code_block": "blocks of code",
    "html_block": "blocks of HTML",
}


@dataclass(slots=True)
class _Place:
    """Where a paragraph stands: from `start` to `stop` of the text; of several lines, what is between them.

    `before` are the beginnings of its lines but the first, `width` is that of its longest line, 0 for one.
    """

    start: int
    stop: int
    source: str
    paragraph: Paragraph
    before: list[str] = field(default_factory=list)
    ending: str = "\n"
    width: int = 0
    in_table: bool = False
    in_heading: bool = False  # behind its marks, not above a line
    own: list[Block] = field(default_factory=list)  # the paragraph, then the texts inside its elements


class MarkdownFile:
    """A Markdown text, read."""

    def __init__(self, content: bytes, name: str) -> None:
        self._text = decoded(content, name)
        self._parser = _parser()
        begin = len(BYTE_ORDER_MARK) if self._text.startswith(BYTE_ORDER_MARK) else 0
        self.contents = Contents()
        front = _FRONT_MATTER.match(self._text, begin)
        if front is not None:
            begin = front.end()
            self.contents.messages.append(
                f"line 1: front matter of {_lines_in(front[0])} lines is kept as it is"
            )
        self._first_line = _lines_in(self._text[:begin])
        self._lines = [match.span() for match in _LINE.finditer(self._text, begin) if match[0]]
        self._environment: dict[str, Any] = {}
        tokens = self._parser.parse(substituted(_RETURNS, "\n", self._text[begin:]), self._environment)
        self._kept: dict[str, list[int]] = {}
        self._unlike: list[str] = []  # places of paragraphs that no spelling makes what they should be
        found = chain(self._paragraphs(tokens), self._titles())
        self._places = sorted(found, key=lambda place: place.start)
        blocks = [block for place in self._places for block in place.own]
        self.contents.documents = [blocks] if blocks else []
        self.contents.messages += [
            f"line {lines[0]}: {what} are kept as they are: {len(lines):,}"
            for what, lines in self._kept.items()
        ]

    def _number(self, line: int) -> int:
        """The number in the file of a line that the parser counts from 0."""
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
                    self._keep("paragraphs whose markup cannot be taken apart", first)

    def _spans(self, contents: Sequence[str], lines: range) -> Iterator[tuple[int, int, int]]:
        """Where the lines of a paragraph stand in those of the text."""
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
        source = token.content.replace("|", "\\|") if in_table else token.content
        if in_table and source != token.content:
            raise NotFoundError
        place = _Place(start, stop, source, Scanner(source).scan(token.children), in_table=in_table)
        if len(spans) > 1:
            place.before = [self._line(number)[:at] for at, _, number in spans[1:]]
            place.width = max(end for _, end, _ in spans)
            first = self._text[slice(*self._lines[low[2]])]
            place.ending = first[len(first.rstrip("\r\n")) :]
        where = f"line {self._number(line)}"
        place.own = [Block(tuple(place.paragraph.pieces), where)]
        place.own += [Block((text,), f"{where}, {what}") for what, text in place.paragraph.further]
        return place

    def _titles(self) -> Iterator[_Place]:
        """The titles in definitions of link targets."""
        for reference in self._environment.get("references", {}).values():
            first, last = reference["map"]
            if last - first != 1 or not reference.get("title"):
                continue
            match = _DEFINED_TITLE.match(self._line(first))
            if match is None or not any(map(str.isalpha, match["title"])) or set(match["title"]) & set("\\&"):
                continue
            start = self._lines[first][0]
            block = Block((match["title"],), f"line {self._number(first)}, title of a link")
            span = start + match.start("title"), start + match.end("title")
            yield _Place(*span, match["title"], Paragraph(), own=[block])

    def written(self, documents: Sequence[Sequence[Block]]) -> bytes:
        """The text with these blocks in the places of its own."""
        blocks = [block for document in documents for block in document]
        parts = []
        self._unlike = []
        at = taken = 0
        for place in self._places:
            given = blocks[taken : taken + len(place.own)]
            taken += len(place.own)
            if given != place.own:
                parts += [self._text[at : place.start], self._written(place, given)]
                at = place.stop
        if self._unlike:
            self.contents.messages.append(
                f"{self._unlike[0]}: paragraphs whose translation may read as other markup than it should: "
                f"{len(self._unlike):,}"
            )
        return "".join([*parts, self._text[at:]]).encode()

    def _written(self, place: _Place, given: Sequence[Block]) -> str:
        block, *inner = given
        further = [inside_an_element(each) for each in inner]
        if not place.paragraph.pieces:
            return inside_an_element(block)
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
        """The lines of a paragraph: none begins what is no paragraph."""
        last = _LAST_BREAK_BACKWARDS.match(source[::-1])
        source = source[: len(source) - (last.end() if last else 0)].strip(" \t\n")
        if place.in_table:
            return [re.sub(r"(?<!\\)\|", r"\\|", source)]
        lines = source.split("\n")
        if place.width and "\n" in place.source and max(map(len, lines)) > place.width:
            lines = self._rewrapped(place, source)
        if lines == place.source.split("\n"):
            return lines
        # An empty line would end the paragraph; two spaces on one are a line break that is meant.
        lines = [line if line.strip(" \t") else "\\" * line.endswith("  ") for line in lines]
        lines = [unlike_a_block(line.lstrip(" \t")) for line in lines if line] or [""]
        if place.in_heading:
            lines[-1] = _LAST_MARKS.sub(r"\\\g<0>", lines[-1])
        return lines

    def _rewrapped(self, place: _Place, source: str) -> list[str]:
        """The source in lines of the paragraph's width; line breaks that are meant stay."""
        room = place.width - max(map(len, place.before), default=0)
        meant = _MEANT_BREAK.split(source)
        lines: list[str] = []
        for text, end in zip(meant[::2], [*meant[1::2], ""], strict=True):
            found = wrapped(" ".join(text.split("\n")), max(room, 20))
            lines += [*found[:-1], found[-1] + end.rstrip("\n")]
        return lines

    def _spelled(self, place: _Place, block: Block, further: Sequence[str]) -> list[str]:
        """The lines of a block: the first spelling that says what it should, as a paragraph.

        Where none does, that with tags and escapes has all elements; it is said.
        """
        lines = self._lines_of(place, spelled(place.paragraph, block, further, 0))
        if not place.in_table and is_certain(place.paragraph, block.pieces, lines):
            return lines
        text, wanted = self._wanted(place, block)
        second: list[str] | None = None
        for how in range(4):
            lines = self._lines_of(place, spelled(place.paragraph, block, further, how)) if how else lines
            found = self._said(place, lines)
            if found == (text, wanted):
                return lines
            # A line break at an end may go: nobody sees it.
            without = found is not None and found[0] == text and not found[1] - wanted
            if second is None and found and without and set(wanted - found[1]) <= _MAY_GO:
                second = lines
        if second is None:
            self._unlike.append(block.place)
        return second or lines

    def _said(self, place: _Place, lines: Sequence[str]) -> tuple[str, Counter[str]] | None:
        """What lines say as a paragraph; None where they are none."""
        if place.in_table:
            [token] = self._parser.parseInline(lines[0].replace("\\|", "|"), self._environment)
            return said(token.children)
        if lines == [""]:
            return "", Counter()
        tokens = self._parser.parse("\n".join(lines), dict(self._environment))
        if [token.type for token in tokens] != ["paragraph_open", "inline", "paragraph_close"]:
            return None
        return said(tokens[1].children)

    def _wanted(self, place: _Place, block: Block) -> tuple[str, Counter[str]]:
        """The text that a block should say, and its elements: those of the paragraph that are still in it."""
        [token] = self._parser.parseInline(place.source, self._environment)
        elements = said(token.children)[1]
        left = set(place.paragraph.pieces) - set(block.pieces)
        elements.subtract(
            mark_said(place.paragraph, piece) for piece in left if isinstance(piece, Open | Close)
        )
        return "".join("".join(piece for piece in block.pieces if isinstance(piece, str)).split()), +elements


def _cell(content: str, line: str, start: int) -> tuple[int, int]:
    """Where a cell stands in its line, from `start` on; a bar in it is escaped."""
    source = content.replace("|", "\\|")
    if (at := line.find(source, start)) < 0:
        raise NotFoundError
    return at, at + len(source)


def _lines_in(text: str) -> int:
    return text.count("\n") + text.count("\r") - text.count("\r\n")


def _parser() -> Any:
    """A parser whose tokens keep their spelling.

    Raises:
        CotextError: its package is not installed.
    """
    try:
        parser = import_module("markdown_it").MarkdownIt("commonmark")
    except ImportError:
        raise CotextError(
            "Markdown is read with the package markdown-it-py; pip install 'cotext[files]' brings it "
            "(--format prose: as plain text)"
        ) from None
    parser.enable(["table", "strikethrough"]).disable(["text_join"])
    parser.block.ruler.before("reference", "footnote", _footnote_text, {"alt": ["paragraph", "reference"]})
    parser.inline.ruler.before("link", "footnote", _footnote_mark)
    return parser


def _footnote_text(state: Any, line: int, last: int, silent: bool) -> bool:
    """A rule of the parser: the text of a footnote is a paragraph behind its mark."""
    start = state.bMarks[line] + state.tShift[line]
    match = _FOOTNOTE_TEXT.match(state.src, start, state.eMarks[line])
    if match is None:
        return False
    if not silent:
        state.bMarks[line] += match.end() - start
    return bool(silent)


def _footnote_mark(state: Any, silent: bool) -> bool:
    """A rule of the parser: the mark of a footnote in a text."""
    first, last = state.cache.get(_UNCLOSED, (0, 0))
    if not state.src.startswith("[^", state.pos) or first <= state.pos < last:
        return False
    match = FOOTNOTE.match(state.src, state.pos, state.posMax)
    if match is None:
        # What keeps this mark from being closed keeps all that begin before it.
        ends = _FOOTNOTE_ENDS.search(state.src, state.pos + 2, state.posMax)
        state.cache[_UNCLOSED] = state.pos, ends.start() if ends else state.posMax
        return False
    if not silent:
        state.push("footnote", "", 0).content = match[0]
    state.pos = match.end()
    return True


# Any text: its name alone tells what is Markdown (`cotext.files.table`).
FORMAT: Final = FileFormat(
    "markdown", (".md", ".markdown", ".mdown", ".mkd"), lambda head: b"\0" not in head, MarkdownFile
)
