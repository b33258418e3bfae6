"""The inline elements of a Markdown paragraph, each with its own spelling, and a paragraph spelled again.

The parser says what there is, but not where; its tokens are found in the source one after the other. What
cannot be found so is left to the caller, who keeps the paragraph as it is.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cotext.files.blocks import SPACE, Block, Close, Copied, Item, Open, Piece, Point, mates, merged
from cotext.runtime.xml import taken

FOOTNOTE = re.compile(r"\[\^[^\]\s]+\]")
_INSIDE = r"(?:[^()\s\\]|\\.|\((?:[^()\s\\]|\\.)*\))*"
_TITLE = r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\((?:\\.|[^()\\])*\)"
_TARGET = re.compile(rf"\]\(\s*(?:<(?:\\.|[^<>\n\\])*>|{_INSIDE})(\s+(?P<title>{_TITLE}))?\s*\)")
_REFERENCE = re.compile(r"\](?:\[(?:\\.|[^\[\]\\])*\])?")
_HTML_NAME = re.compile(r"<(/?)([A-Za-z][\w-]*)")
_SPECIAL = re.compile(r"[\\`*_\[\]<>&~|!^]")
_SPECIAL_INSIDE = re.compile(r"[\\`*_\[\]<&~|!^\"'()]")
_BLOCK_START = re.compile(
    r"[-+*](?=\s|$)|[#>|:]|=+\s*$|`{3,}[^`]*$|~{3,}|(?:-[\s-]*|(?:\*\s*){3,}|(?:_\s*){3,})$"
)
_DEFINITION_START = re.compile(r"\[(?:\\.|[^\[\]\\])*\](?=:)")
_UNCERTAIN = re.compile(r"[\\`*_\[\]<&~|^]|  \n")
_CERTAIN_LINE = re.compile(r"[^\W\d_]|\d+(?![\d.)])|`(?!`)|\[(?!\^)|(?:\*{1,2}|_{1,2})(?=[^\W_])|[(\"'„“«¿¡]")
_MARKS: Final = {"*": "em", "_": "em", "**": "strong", "__": "strong", "~~": "s"}
_TAGS: Final = {"em": "em", "strong": "strong", "s": "del"}
_NUMBER_START = re.compile(r"(\d{1,9})([.)])(?=\s|$)")

Template = list[str | int]  # source text, and numbers of further blocks whose text stands in it


class NotFoundError(Exception):
    """A token of the parser that is not where it should be in the source."""


@dataclass(slots=True)
class Paragraph:
    """A paragraph taken apart: pieces, and by key the spelling of each, of an `Open` and its `Close` two.

    `spelled`: characters that were escaped, or written as entities, and how. `further`: texts inside of
    elements, as the titles of links, by what they are.
    """

    pieces: list[Piece] = field(default_factory=list)
    first: dict[int, Template] = field(default_factory=dict)
    last: dict[int, Template] = field(default_factory=dict)
    spelled: dict[str, str] = field(default_factory=dict)
    further: list[tuple[str, str]] = field(default_factory=list)


class Scanner:
    """Finds the tokens of a paragraph in its source."""

    def __init__(self, source: str) -> None:
        self.source, self.at = source, 0
        self.found = Paragraph()
        self._open: list[tuple[str, int, int]] = []  # kind, key, and where the text in it begins
        self._key = 0

    def scan(self, tokens: Sequence[Any]) -> Paragraph:
        """The paragraph of these tokens.

        Raises:
            NotFoundError: the source does not hold them.
        """
        mates = html_mates(tokens)
        skipped = 0
        for number, token in enumerate(tokens):
            if skipped:
                skipped -= 1
            elif token.type == "html_inline" and number in mates:
                self._element(token.content, mates[number] > number, "html")
            elif token.type == "link_open" and token.info == "auto":
                self._copied(f"<{tokens[number + 1].content}>", tokens[number + 1].content)
                skipped = 2
            else:
                self._token(token)
        if self.at != len(self.source) or self._open:
            raise NotFoundError
        self.found.pieces = list(merged(self.found.pieces))
        return self.found

    def _token(self, token: Any) -> None:
        kind = token.type
        if kind == "text":
            self.found.pieces.append(self._taken(token.content))
        elif kind == "text_special":
            self.found.spelled[token.content] = self._taken(token.markup)
            self.found.pieces.append(token.content)
        elif kind == "softbreak":
            self._matched(re.compile(r" *\n[ \t]*"))
            self.found.pieces.append("\n")
        elif kind == "hardbreak":
            self._point(self._matched(re.compile(r"(?: {2,}|\\)\n[ \t]*")), breaks=True)
        elif kind == "code_inline":
            mark = re.escape(token.markup)
            whole = self._matched(re.compile(rf"{mark}(?!`).*?(?<!`){mark}(?!`)", re.DOTALL))
            self._copied(whole, token.content, at=self.at)
        elif kind == "footnote":
            self._point(self._taken(token.content))
        elif kind == "html_inline":
            self._point(self._taken(token.content), breaks=token.content[:3].lower() == "<br")
        elif kind == "image":
            self._image(token)
        elif kind == "link_open":
            self._element("[", True, "link")
        elif kind == "link_close":
            begins = next((at for kind, _, at in reversed(self._open) if kind == "link"), self.at)
            self._element(self._target(self.source[begins : self.at]), False, "link")
        elif kind in ("em_open", "strong_open", "s_open"):
            self._element(token.markup, True, kind.partition("_")[0])
        elif kind in ("em_close", "strong_close", "s_close"):
            self._element(token.markup, False, kind.partition("_")[0])
        else:
            raise NotFoundError

    def _taken(self, text: str) -> str:
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

    def _new(self) -> int:
        self._key += 1
        return self._key

    def _point(self, source: str, breaks: bool = False) -> None:
        key = self._new()
        self.found.first[key] = [source]
        self.found.pieces.append(Point(key, breaks))

    def _copied(self, source: str, text: str, at: int | None = None) -> None:
        if at is None:
            self._taken(source)
        key = self._new()
        self.found.first[key] = [source]
        self.found.pieces.append(Copied(key, text))

    def _element(self, source: str | Template, begins: bool, kind: str) -> None:
        template: Template = source if isinstance(source, list) else [self._taken(source)]
        if begins:
            key = self._new()
            self._open.append((kind, key, self.at))
            self.found.first[key] = template
            self.found.pieces.append(Open(key, kind == "link"))
            return
        if not self._open or self._open[-1][0] != kind:
            raise NotFoundError
        _, key, _ = self._open.pop()
        self.found.last[key] = template
        self.found.pieces.append(Close(key))

    def _target(self, label: str) -> Template:
        """What closes a link: its target, in which a title is a text.

        A reference by the text itself names that text, which is not going to be there, as its label.
        """
        match = _TARGET.match(self.source, self.at) or _REFERENCE.match(self.source, self.at)
        if match is None:
            raise NotFoundError
        self.at = match.end()
        if match[0] in ("]", "][]"):
            return [f"][{label}]"]
        title = match.groupdict().get("title")
        if not title or not _is_plain(title[1:-1]):
            return [match[0]]
        start, stop = match.start("title") + 1, match.end("title") - 1
        self.found.further.append(("title of a link", title[1:-1]))
        return [
            self.source[match.start() : start],
            len(self.found.further) - 1,
            self.source[stop : match.end()],
        ]

    def _image(self, token: Any) -> None:
        self._taken("![")
        alt = token.content
        template: Template = ["![", alt]
        if _is_plain(alt):
            self.found.further.append(("text of an image", alt))
            template = ["![", len(self.found.further) - 1]
        self._taken(alt)
        template += self._target(alt)
        key = self._new()
        self.found.first[key] = template
        self.found.pieces.append(Point(key))


def _is_plain(text: str) -> bool:
    """Whether a text inside markup is one that can be written anew: of letters, and without markup."""
    return any(map(str.isalpha, text)) and not _SPECIAL.search(text) and "\n" not in text and '"' not in text


def html_mates(tokens: Sequence[Any]) -> dict[int, int]:
    """The numbers of tokens that open and close an element of HTML, each to the other's.

    Both stand in the same element of Markdown, so that none begins or ends in between.
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
    """The pieces without emphasis of nothing, whose marks would be text."""
    left: list[Piece] = []
    empty: list[int] = []  # where emphasis begins that has had no text yet
    for piece in pieces:
        if isinstance(piece, Open) and _mark(paragraph, piece) in _MARKS:
            empty.append(len(left))
        elif isinstance(piece, Close) and empty and left[empty[-1]] == Open(piece.key):
            del left[empty.pop()]
            continue
        elif not isinstance(piece, str) or piece.strip():
            empty = []
        left.append(piece)
    return merged(left)


def _mark(paragraph: Paragraph, piece: Open | Close) -> str:
    template = paragraph.first[piece.key]
    return template[0] if isinstance(template[0], str) else ""


def mark_said(paragraph: Paragraph, piece: Open | Close) -> str:
    """What the mark of an emphasis is in what tokens say."""
    return f"{_MARKS[_mark(paragraph, piece)]}_{'open' if isinstance(piece, Open) else 'close'}"


def spelled(paragraph: Paragraph, block: Block, further: Sequence[str], how: int) -> str:
    """The source of a block with the elements of a paragraph.

    `how`: 0 with its own escapes, 1 with all, 2 with stars for underscores too, 3 with tags for emphasis.
    """
    parts: list[str] = []
    after_code = False
    for piece in block.pieces:
        if isinstance(piece, str):
            parts.append(_text(piece, paragraph, how))
            after_code = False
            continue
        template = (paragraph.last if isinstance(piece, Close) else paragraph.first)[piece.key]
        source = "".join(part if isinstance(part, str) else further[part] for part in template)
        if isinstance(piece, Open | Close) and source in _MARKS:
            if how == 2:
                source = source.replace("_", "*")
            elif how == 3:
                source = f"<{'/' * isinstance(piece, Close)}{_TAGS[_MARKS[source]]}>"
        is_code = source.startswith("`")
        parts.append(f" {source}" if is_code and after_code else source)  # else, the two would be one
        after_code = is_code
    return "".join(parts)


def is_certain(paragraph: Paragraph, pieces: Sequence[Piece], lines: Sequence[str]) -> bool:
    """Whether lines spelled with a paragraph's own escapes certainly say what its pieces do, parser or not.

    No text in them may be markup, each mark of emphasis has a word inside and a space outside, and each line
    begins as lines of paragraphs do.
    """
    around = ("", *pieces, "")
    for before, piece, after in zip(around, pieces, around[2:], strict=False):
        if isinstance(piece, str):
            if _UNCERTAIN.search(piece) or any(character in piece for character in paragraph.spelled):
                return False
            continue
        closes = isinstance(piece, Close)
        source = (paragraph.last if closes else paragraph.first)[piece.key][0]
        if source in _MARKS:
            if not (isinstance(before, str) and isinstance(after, str)):
                return False
            inside, outside = (before[-1:], after[:1]) if closes else (after[:1], before[-1:])
            if not inside.isalnum() or outside not in SPACE:  # fewer characters than `isspace` knows
                return False
        if "\n" in str(source) or str(before).endswith("!"):
            return False
    return all(map(_CERTAIN_LINE.match, lines))


def _text(text: str, paragraph: Paragraph, how: int) -> str:
    if not how and not paragraph.spelled:
        return text
    if not how:
        return "".join(paragraph.spelled.get(character, character) for character in text)
    return _SPECIAL.sub(lambda match: paragraph.spelled.get(match[0], f"\\{match[0]}"), text)


def inside_an_element(block: Block) -> str:
    """The source of a text that stands inside of an element, as the title of a link."""
    return _SPECIAL_INSIDE.sub(r"\\\g<0>", " ".join(taken(block.text).split()))


def unlike_a_block(line: str) -> str:
    """A line of a paragraph, its beginning escaped where it would begin something else."""
    if _BLOCK_START.match(line):
        return f"\\{line}"
    if name := _DEFINITION_START.match(line):  # the mark of a note stays one
        return f"{name[0]}\\{line[name.end() :]}"
    return _NUMBER_START.sub(r"\1\\\2", line, count=1)


def said(tokens: Sequence[Any]) -> tuple[str, Counter[str]]:
    """What tokens say, however they are spelled: the text, and how often each element is in it.

    The text is without white space, which goes at the beginning of a line.
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
            elements[_element_said(token)] += 1
    return "".join(text.split()), elements


def _element_said(token: Any) -> str:
    for kind, name in _TAGS.items():
        if token.type == f"{kind}_open" or token.content == f"<{name}>":
            return f"{kind}_open"
        if token.type == f"{kind}_close" or token.content == f"</{name}>":
            return f"{kind}_close"
    if token.type in ("hardbreak", "image"):
        return str(token.type) + str(token.attrs.get("src", ""))
    return f"{token.type} {token.attrs.get('href', '')} {token.content}"
