"""Markdown: CommonMark with tables, strikethrough, footnotes and front matter.

Only ranges of text are replaced. Link texts are part of their sentence; link titles and image texts are
blocks after the paragraph. Code is copied, and the model reads it as context. Front matter, code blocks and
HTML blocks are kept, with a message. A paragraph of several lines is wrapped again if its translation is
wider.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, Final

from cotext.files.blocks import Block, Close, Copied, FileFormat, Item, Open, Piece, Point, Tag, mates, merged
from cotext.files.places import Decoded, Edit, Slot, SplicedFile, decoded
from cotext.files.text import wrapped
from cotext.runtime import optional_module, substituted
from cotext.runtime.xml import taken

# --- Inline elements of a paragraph with their spelling, and the source of a translated paragraph.
#
# The tokens of the parser have no positions, so each token is searched for in the source after the previous
# one. If this fails, the paragraph is kept unchanged.

FOOTNOTE = re.compile(r"\[\^[^\]\s]+\]")
_INSIDE = r"(?:[^()\s\\]|\\.|\((?:[^()\s\\]|\\.)*\))*"
_TITLE = r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\((?:\\.|[^()\\])*\)"
_TARGET = re.compile(rf"\]\(\s*+(?:<(?:\\.|[^<>\n\\])*>|{_INSIDE})(\s+(?P<title>{_TITLE}))?\s*\)")
_LABEL = r"\[(?:\\.|[^\[\]\\])*\]"
_REFERENCE = re.compile(rf"\](?:{_LABEL})?")
_HTML_NAME = re.compile(r"<(/?)([A-Za-z][\w-]*)")
_SPECIAL = re.compile(r"[\\`*_\[\]<>&~|!^$]")
_MARKUP = re.compile(r"[\\`*_\[\]<>&~|!^\n\"]")
_SPECIAL_INSIDE = re.compile(r"[\\`*_\[\]<&~|!^\"'()]")
_BLOCK_START = re.compile(
    r"[-+*](?=\s|$)|[#>|:]|=+\s*$|`{3,}[^`]*$|~{3,}|(?:-[\s-]*|(?:\*\s*){3,}|(?:_\s*){3,})$"
)
_DEFINITION_START = re.compile(rf"{_LABEL}(?=:)")
_MARKS: Final = {"*": "em", "_": "em", "**": "strong", "__": "strong", "~~": "s"}
_TAGS: Final = {"em": "em", "strong": "strong", "s": "del"}
_NUMBER_START = re.compile(r"^(\d{1,9})([.)])(?=\s|$)")

Template = list[str | int]  # source text, and numbers of further blocks whose text is inserted


class NotFoundError(Exception):
    """A token of the parser was not found in the source."""


@dataclass(slots=True)
class Paragraph:
    """The pieces of a paragraph, and the source text of its elements (`sources`).

    `spelled`: spelling of characters that were escaped or written as entities. `further`: kind and content of
    texts inside elements, such as link titles.
    """

    pieces: list[Piece] = field(default_factory=list)
    sources: dict[Tag, Template] = field(default_factory=dict)
    spelled: dict[str, str] = field(default_factory=dict)
    further: list[tuple[str, str]] = field(default_factory=list)


class Scanner:
    """Search for the tokens of a paragraph in its source."""

    def __init__(self, source: str) -> None:
        self.source, self.at = source, 0
        self.found = Paragraph()
        self._open: list[tuple[str, int, int]] = []  # kind, key, start of the text inside
        self._key = count(1).__next__

    def scan(self, tokens: Sequence[Any]) -> Paragraph:
        """Return the paragraph of these tokens; raise NotFoundError if the source does not contain them."""
        mates = html_mates(tokens)
        waiting = iter(enumerate(tokens))
        for number, token in waiting:
            if token.type == "html_inline" and number in mates:
                self._element(token.content, mates[number] > number, "html")
            elif token.type == "link_open" and token.info == "auto":
                content, _ = next(waiting)[1].content, next(waiting)
                self._add(Copied(self._key(), content), [self._take(f"<{content}>")])
            else:
                self._token(token)
        if self.at != len(self.source) or self._open:
            raise NotFoundError
        self.found.pieces = list(merged(self.found.pieces))
        return self.found

    def _token(self, token: Any) -> None:
        kind = token.type
        if kind == "text":
            self.found.pieces.append(self._take(token.content))
        elif kind == "text_special":
            self.found.spelled[token.content] = self._take(token.markup)
            self.found.pieces.append(token.content)
        elif kind == "softbreak":
            self._matched(re.compile(r" *\n[ \t]*"))
            self.found.pieces.append("\n")
        elif kind == "hardbreak":
            self._add(Point(self._key(), True), [self._matched(re.compile(r"(?: {2,}|\\)\n[ \t]*"))])
        elif kind == "code_inline":
            mark = re.escape(token.markup)
            whole = self._matched(re.compile(rf"{mark}(?!`).*?(?<!`){mark}(?!`)", re.DOTALL))
            self._add(Copied(self._key(), token.content), [whole])
        elif kind in ("footnote", "html_inline"):
            breaks = token.content[:3].lower() == "<br"
            self._add(Point(self._key(), breaks), [self._take(token.content)])
        elif kind == "image":
            start = self._take(f"![{token.content}")[:2]
            inside = self._inside("text of an image", token.content)
            self._add(Point(self._key()), [start, inside, *self._target(token.content)])
        elif kind == "link_open":
            self._element("[", True, "link")
        elif kind == "link_close":
            begins = next((at for kind, _, at in reversed(self._open) if kind == "link"), self.at)
            self._element(self._target(self.source[begins : self.at]), False, "link")
        elif (name := kind.rpartition("_")[0]) in _TAGS:
            self._element(token.markup, token.nesting > 0, name)
        else:
            raise NotFoundError

    def _take(self, text: str) -> str:
        if not self.source.startswith(text, self.at):
            raise NotFoundError
        self.at += len(text)
        return text

    def _matched(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.source, self.at)
        if match is None:
            raise NotFoundError
        self.at = match.end()
        return match[0]

    def _add(self, piece: Tag, template: Template) -> None:
        self.found.pieces.append(piece)
        self.found.sources[piece] = template

    def _element(self, source: str | Template, begins: bool, kind: str) -> None:
        template: Template = source if isinstance(source, list) else [self._take(source)]
        if begins:
            self._open.append((kind, self._key(), self.at))
            self._add(Open(self._open[-1][1], kind == "link"), template)
            return
        if not self._open or self._open[-1][0] != kind:
            raise NotFoundError
        self._add(Close(self._open.pop()[1]), template)

    def _target(self, label: str) -> Template:
        """Return the end of a link: its target, in which the title is translated.

        A reference without a label gets its source text as label, because the text changes.
        """
        match = _TARGET.match(self.source, self.at) or _REFERENCE.match(self.source, self.at)
        if match is None:
            raise NotFoundError
        self.at = match.end()
        if match[0] in ("]", "][]"):
            return [f"][{label}]"]
        title = (match.groupdict().get("title") or "")[1:-1]
        if not title:
            return [match[0]]
        before, _, after = match[0].rpartition(title)
        return [before, self._inside("title of a link", title), after]

    def _inside(self, what: str, text: str) -> str | int:
        """Add a text inside an element if it can be translated, that is, has letters and no markup."""
        if not any(map(str.isalpha, text)) or _MARKUP.search(text):
            return text
        self.found.further.append((what, text))
        return len(self.found.further) - 1


def html_mates(tokens: Sequence[Any]) -> dict[int, int]:
    """Map the number of the start token of each HTML element to that of its end token, and vice versa.

    Both tokens are in the same Markdown element, so that elements are nested.
    """
    numbers: list[int] = []
    tags: list[Item] = []
    around = [-1]
    for number, token in enumerate(tokens):
        if token.nesting > 0:
            around.append(number)
        elif token.nesting < 0:
            around.pop()
        elif token.type == "html_inline" and (match := _HTML_NAME.match(token.content)):
            numbers.append(number)
            kind = "close" if match[1] else "open"
            tags.append(Item(kind, f"{match[2].lower()} in {around[-1]}", number, number + 1))
    return {numbers[a]: numbers[b] for a, b in mates(tags).items()}


def visible(paragraph: Paragraph, pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Remove emphasis without text: Markdown would show its marks as text."""
    kept: list[Piece] = []
    empty: list[int] = []  # start of emphasis without text so far
    for piece in pieces:
        if isinstance(piece, Open) and _mark(paragraph, piece) in _MARKS:
            empty.append(len(kept))
        elif isinstance(piece, Close) and empty and kept[empty[-1]] == Open(piece.key):
            del kept[empty.pop()]
            continue
        elif not isinstance(piece, str) or piece.strip():
            empty = []
        kept.append(piece)
    return merged(kept)


def _mark(paragraph: Paragraph, piece: Open | Close) -> str | int:
    return paragraph.sources[Open(piece.key)][0]


def spelled(paragraph: Paragraph, block: Block, further: Sequence[str], how: int) -> str:
    """Return the source of a block with the elements of a paragraph.

    `how`: 0: escape what the source escapes. 1: escape all special characters. 2: also write emphasis with
    stars, not underscores. 3: write emphasis as HTML tags.
    """
    parts: list[str] = []
    after_code = False
    for piece in block.pieces:
        if isinstance(piece, str):
            if how:
                parts.append(
                    _SPECIAL.sub(lambda match: paragraph.spelled.get(match[0], f"\\{match[0]}"), piece)
                )
            else:
                parts.append("".join(paragraph.spelled.get(character, character) for character in piece))
            after_code = False
            continue
        template = paragraph.sources[piece]
        source = "".join(part if isinstance(part, str) else further[part] for part in template)
        if isinstance(piece, Open | Close) and source in _MARKS:
            if how == 2:
                source = source.replace("_", "*")
            elif how == 3:
                source = f"<{'/' * isinstance(piece, Close)}{_TAGS[_MARKS[source]]}>"
        is_code = source.startswith("`")
        parts.append(f" {source}" if is_code and after_code else source)  # adjacent code would be joined
        after_code = is_code
    return "".join(parts)


def unlike_a_block(line: str) -> str:
    """Escape the start of a line if it would begin another kind of block."""
    if _BLOCK_START.match(line):
        return f"\\{line}"
    if name := _DEFINITION_START.match(line):  # escape only the colon: it may be a footnote
        return f"{name[0]}\\{line[name.end() :]}"
    return _NUMBER_START.sub(r"\1\\\2", line, count=1)


def content_of(tokens: Sequence[Any]) -> tuple[str, Counter[str]]:
    """Return the content of tokens, independent of spelling: the text and the counts of elements.

    The text has no white space, because the parser removes it at the start of lines.
    """
    text = ""
    elements: Counter[str] = Counter()
    automatic = False
    for token in tokens:
        if token.type in ("text", "text_special"):
            text += "" if automatic else token.content
        elif token.type == "softbreak":
            text += " "
        else:
            automatic = token.type == "link_open" and token.info == "auto"
            elements[_key_of(token)] += 1
    return "".join(text.split()), elements


def _key_of(token: Any) -> str:
    for kind, name in _TAGS.items():
        if token.type == f"{kind}_open" or token.content == f"<{name}>":
            return f"{kind}_open"
        if token.type == f"{kind}_close" or token.content == f"</{name}>":
            return f"{kind}_close"
    if token.type in ("hardbreak", "image"):
        return str(token.type) + str(token.attrs.get("src", ""))
    return f"{token.type} {token.attrs.get('href', '')} {token.content}"


# --- Paragraphs of a file.

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r|\Z)")
# The lookbehinds below prevent new searches inside a run of spaces (quadratic time).
_END = r"(?:\r?\n|\r(?!\n))"
_FRONT_MATTER = re.compile(rf"(---|\+\+\+)[ \t]*{_END}(?:[^\r\n]*{_END})*?\1[ \t]*(?:{_END}|\Z)")
_BOX = re.compile(r"\[[ xX]\](?=[ \t])")
_FOOTNOTE_TEXT = re.compile(rf"{FOOTNOTE.pattern}:[ \t]*(?=\S)")
# Lines of extensions of Markdown: alerts, containers, admonitions, tables of contents, templates, imports.
_EXTENSION = re.compile(
    r"(?:\[!\w+\].*|:{3}.*|(?:!!!|\?\?\?)\+?[ \t]+[a-z-]+(?:[ \t]+\".*\")?|\[{1,2}_?(?i:toc)_?\]{1,2}"
    r"|\{[{%](?:(?![%}]\}).)*[%}]\}{1,2}|import [\w*{}, ]{1,200} from [\"'][^\"'\s]{1,200}[\"'];?"
    r"|\$\$[ \t]*\n(?:.*\n)*?.*\$\$)[ \t]*$",
    re.MULTILINE,
)
_MATH = re.compile(r"\$(?![\s$])[^$\n]*(?<!\s)\$(?!\w)")
_CLOSING_MARKS = re.compile(r"(?:^|(?<![ \t])[ \t]++)#++[ \t]*$|(?<![ \t])[ \t]++$")
_LAST_MARKS = re.compile(r"(?:^|(?<=[ \t]))#+$")
_RETURNS = re.compile(r"\r\n?")
_LINE_END = re.compile(r"\r\n|\n|\r")
_LINE_BREAKS = re.compile(r"(?<![ \t])[ \t]*+[\r\n]\s*")
_LAST_BREAK_BACKWARDS = re.compile(r"(?:[^\S\n]*\n(?: {2,}|\\))*")
_MEANT_BREAK = re.compile(r"((?:(?<! ) {2,}+|\\)\n)")
_MAY_GO: Final = {"hardbreak"}  # may be lost at the start or end of a paragraph
_FOOTNOTE_ENDS = re.compile(r"[\]\s]")
_UNCLOSED: Final = -1  # key of a range without footnotes, in a cache whose other keys are positions
_KEPT: Final = dict.fromkeys(("fence", "code_block"), "blocks of code") | {
    "html_block": "blocks of HTML",
    "extension": "lines of extensions or formulas",
}


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
    elements: Counter[str] = field(default_factory=Counter)  # see `content_of`


class MarkdownReader:
    """Reads the paragraphs of a Markdown text as slots."""

    def __init__(self, source: Decoded) -> None:
        self._source, self._text, self._parser = source, source.text, _parser()
        self._kept: dict[str, list[int]] = {}
        self._environment: dict[str, Any] = {}
        self.messages: list[str] = []

    def opened(self) -> SplicedFile:
        front = _FRONT_MATTER.match(self._text)
        begin = front.end() if front else 0
        self._first_line = len(_LINE_END.findall(self._text[:begin]))
        if front:
            self.messages.append(f"line 1: front matter of {self._first_line} lines is not translated")
        self._lines = [match.span() for match in _LINE.finditer(self._text, begin) if match[0]]
        tokens = self._parser.parse(substituted(_RETURNS, "\n", self._text[begin:]), self._environment)
        slots = list(self._slots(tokens))
        self.messages += [
            f"line {lines[0]}: {what} are kept unchanged ({len(lines):,})"
            for what, lines in self._kept.items()
        ]
        return SplicedFile(self._source, [slots] if slots else [], self.messages)

    def _keep(self, what: str, line: int) -> None:
        self._kept.setdefault(what, []).append(self._first_line + line + 1)

    def _line(self, number: int) -> str:
        start, stop = self._lines[number]
        return self._text[start:stop].rstrip("\r\n")

    def _slots(self, tokens: Sequence[Any]) -> Iterator[Slot]:
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
                    source = token.content.replace("|", "\\|")  # bars in a cell are escaped
                    if (start := text.find(source, cell_end)) < 0:
                        raise NotFoundError
                    cell_end = start + len(source)
                    spans = [(start, cell_end, first)]
                else:
                    spans = list(self._spans(token.content.split("\n"), range(first, last)))
                place = self._place(token, spans, in_table)
                place.in_heading = before is not None and before.markup.startswith("#")
                where = f"line {self._first_line + first + 1}"
                inner = [Block((text,), f"{where}, {what}") for what, text in place.paragraph.further]
                blocks = (Block(tuple(place.paragraph.pieces), where), *inner)
                yield Slot(blocks, partial(self._edits, place))
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

    def _place(self, token: Any, spans: list[tuple[int, int, int]], in_table: bool) -> _Place:
        low, high = spans[0], spans[-1]
        start, stop = self._lines[low[2]][0] + low[0], self._lines[high[2]][0] + high[1]
        if in_table and "|" in token.content:
            raise NotFoundError
        paragraph, elements = Scanner(token.content).scan(token.children), content_of(token.children)[1]
        place = _Place(start, stop, token.content, paragraph, in_table=in_table, elements=elements)
        if len(spans) > 1:
            place.before = [self._line(number)[:at] for at, _, number in spans[1:]]
            place.width = max(end for _, end, _ in spans)
            first = self._text[slice(*self._lines[low[2]])]
            place.ending = first[len(first.rstrip("\r\n")) :]
        return place

    def _edits(self, place: _Place, given: Sequence[Block]) -> Iterator[Edit]:
        block, *inner = given
        further = [_SPECIAL_INSIDE.sub(r"\\\g<0>", " ".join(taken(each.text).split())) for each in inner]
        space = "\n" if place.width else " "
        pieces = (_LINE_BREAKS.sub(space, taken(p)) if isinstance(p, str) else p for p in block.pieces)
        lines = self._spelled(place, replace(block, pieces=visible(place.paragraph, pieces)), further)
        before = place.before or [""]
        rest = (
            f"{place.ending}{before[min(number, len(before) - 1)]}{line}"
            for number, line in enumerate(lines[1:])
        )
        yield place.start, place.stop, "".join([lines[0], *rest])

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

        If no spelling is, use the one with tags and escapes, which has all elements, and add a message.
        """
        text = "".join("".join(piece for piece in block.pieces if isinstance(piece, str)).split())
        removed = set(place.paragraph.pieces) - set(block.pieces)
        elements = place.elements - Counter(
            f"{_MARKS[str(_mark(place.paragraph, p))]}_{'open' if isinstance(p, Open) else 'close'}"
            for p in removed
            if isinstance(p, Open | Close)
        )
        second: list[str] | None = None
        for how in range(4):
            lines = self._lines_of(place, spelled(place.paragraph, block, further, how))
            parsed = self._parsed(place, lines)
            if parsed == (text, elements):
                return lines
            # A line break at an end may be lost, because it is invisible.
            is_complete = parsed is not None and parsed[0] == text and not parsed[1] - elements
            if second is None and parsed and is_complete and set(elements - parsed[1]) <= _MAY_GO:
                second = lines
        if second is None:
            self.messages.append(f"{block.place}: the translation may contain unintended markup")
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


def _parser() -> Any:
    """Return a parser whose tokens keep their spelling; raise CotextError if it is not installed."""
    what = "Markdown (without --format prose, which reads it as plain text)"
    parser = optional_module("markdown_it", "files", what).MarkdownIt("commonmark")
    parser.enable(["table", "strikethrough"]).disable(["text_join"])
    parser.block.ruler.before("reference", "footnote", _footnote_text, {"alt": ["paragraph", "reference"]})
    parser.inline.ruler.before("link", "footnote", _footnote_mark)
    parser.block.ruler.before("reference", "extension", _extension, {"alt": ["paragraph", "reference"]})
    parser.inline.ruler.before("link", "math", _math)
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


def _extension(state: Any, line: int, last: int, silent: bool) -> bool:
    """Block rule: a line of an extension, or a formula after a line that is `$$`."""
    start = state.bMarks[line] + state.tShift[line]
    match = _EXTENSION.match(state.src, start, state.eMarks[last - 1])
    if match and not silent:
        token = state.push("extension", "", 0)
        state.line = line + 1 + match[0].count("\n")
        token.content, token.map = match[0], [line, state.line]
    return match is not None


def _math(state: Any, silent: bool) -> bool:
    """Inline rule: a formula between `$` is code."""
    match = _MATH.match(state.src, state.pos, state.posMax)
    if match and not silent:
        token = state.push("code_inline", "code", 0)
        token.markup, token.content = "$", match[0][1:-1]
    state.pos = match.end() if match else state.pos
    return match is not None


def _footnote_mark(state: Any, silent: bool) -> bool:
    """Inline rule: the mark of a footnote, or the box of a task at the start of a list item."""
    box = _BOX.match(state.src) if state.pos == 0 else None
    if box and box[0][1:-1].upper() not in state.env.get("references", {}):
        if not silent:
            state.push("footnote", "", 0).content = box[0]
        state.pos = box.end()
        return True
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


def _open(content: bytes, name: str) -> SplicedFile:
    return MarkdownReader(decoded(content, name)).opened()


# Any text may be Markdown, so only the suffix decides (`cotext.files.table.BY_NAME`).
FORMAT: Final = FileFormat(
    "markdown", (".md", ".markdown", ".mdown", ".mkd"), lambda head: b"\0" not in head, _open
)
