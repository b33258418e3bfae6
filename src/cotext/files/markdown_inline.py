"""Inline elements of a Markdown paragraph with their spelling, and the source of a translated paragraph.

The tokens of the parser have no positions, so each token is searched for in the source after the previous
one. If this fails, the caller keeps the paragraph unchanged.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cotext.files.blocks import Block, Close, Copied, Item, Open, Piece, Point, mates, merged
from cotext.runtime.xml import taken

FOOTNOTE = re.compile(r"\[\^[^\]\s]+\]")
_INSIDE = r"(?:[^()\s\\]|\\.|\((?:[^()\s\\]|\\.)*\))*"
_TITLE = r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\((?:\\.|[^()\\])*\)"
_TARGET = re.compile(rf"\]\(\s*+(?:<(?:\\.|[^<>\n\\])*>|{_INSIDE})(\s+(?P<title>{_TITLE}))?\s*\)")
_REFERENCE = re.compile(r"\](?:\[(?:\\.|[^\[\]\\])*\])?")
_HTML_NAME = re.compile(r"<(/?)([A-Za-z][\w-]*)")
_SPECIAL = re.compile(r"[\\`*_\[\]<>&~|!^]")
_SPECIAL_INSIDE = re.compile(r"[\\`*_\[\]<&~|!^\"'()]")
_BLOCK_START = re.compile(
    r"[-+*](?=\s|$)|[#>|:]|=+\s*$|`{3,}[^`]*$|~{3,}|(?:-[\s-]*|(?:\*\s*){3,}|(?:_\s*){3,})$"
)
_DEFINITION_START = re.compile(r"\[(?:\\.|[^\[\]\\])*\](?=:)")
_MARKS: Final = {"*": "em", "_": "em", "**": "strong", "__": "strong", "~~": "s"}
_TAGS: Final = {"em": "em", "strong": "strong", "s": "del"}
_NUMBER_START = re.compile(r"(\d{1,9})([.)])(?=\s|$)")

Template = list[str | int]  # source text, and numbers of further blocks whose text is inserted


class NotFoundError(Exception):
    """A token of the parser was not found in the source."""


@dataclass(slots=True)
class Paragraph:
    """The pieces of a paragraph, and how they are written in the source.

    `first`: by key, the source of start tags and of pieces without end tag. `last`: by key, the source of end
    tags. `spelled`: spelling of characters that were escaped or written as entities. `further`: kind and
    content of texts inside elements, such as link titles.
    """

    pieces: list[Piece] = field(default_factory=list)
    first: dict[int, Template] = field(default_factory=dict)
    last: dict[int, Template] = field(default_factory=dict)
    spelled: dict[str, str] = field(default_factory=dict)
    further: list[tuple[str, str]] = field(default_factory=list)


class Scanner:
    """Search for the tokens of a paragraph in its source."""

    def __init__(self, source: str) -> None:
        self.source, self.at = source, 0
        self.found = Paragraph()
        self._open: list[tuple[str, int, int]] = []  # kind, key, start of the text inside
        self._key = 0

    def scan(self, tokens: Sequence[Any]) -> Paragraph:
        """Return the paragraph of these tokens; raise NotFoundError if the source does not contain them."""
        mates = html_mates(tokens)
        skipped = 0
        for number, token in enumerate(tokens):
            if skipped:
                skipped -= 1
            elif token.type == "html_inline" and number in mates:
                self._element(token.content, mates[number] > number, "html")
            elif token.type == "link_open" and token.info == "auto":
                content = tokens[number + 1].content
                self._copied(self._taken(f"<{content}>"), content)
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
            self._copied(whole, token.content)
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

    def _copied(self, source: str, text: str) -> None:
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
        """Return the end of a link: its target, in which the title is translated.

        A reference without a label gets its source text as label, because the text changes.
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
    """Return whether a text inside an element can be translated: it has letters, and no markup."""
    return any(map(str.isalpha, text)) and not _SPECIAL.search(text) and "\n" not in text and '"' not in text


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


def _mark(paragraph: Paragraph, piece: Open | Close) -> str:
    template = paragraph.first[piece.key]
    return template[0] if isinstance(template[0], str) else ""


def element_key(paragraph: Paragraph, piece: Open | Close) -> str:
    """Return the key by which `content_of` counts a mark of emphasis, such as `em_open`."""
    return f"{_MARKS[_mark(paragraph, piece)]}_{'open' if isinstance(piece, Open) else 'close'}"


def spelled(paragraph: Paragraph, block: Block, further: Sequence[str], how: int) -> str:
    """Return the source of a block with the elements of a paragraph.

    `how`: 0: escape what the source escapes; 1: escape all special characters; 2: also write emphasis with
    stars, not underscores; 3: write emphasis as HTML tags.
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
        parts.append(f" {source}" if is_code and after_code else source)  # adjacent code would be joined
        after_code = is_code
    return "".join(parts)


def _text(text: str, paragraph: Paragraph, how: int) -> str:
    if not how and not paragraph.spelled:
        return text
    if not how:
        return "".join(paragraph.spelled.get(character, character) for character in text)
    return _SPECIAL.sub(lambda match: paragraph.spelled.get(match[0], f"\\{match[0]}"), text)


def inside_an_element(block: Block) -> str:
    """Return the source of a text inside an element, such as a link title."""
    return _SPECIAL_INSIDE.sub(r"\\\g<0>", " ".join(taken(block.text).split()))


def unlike_a_block(line: str) -> str:
    """Escape the start of a line if it would begin another kind of block."""
    if _BLOCK_START.match(line):
        return f"\\{line}"
    if name := _DEFINITION_START.match(line):  # footnote marks are kept
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
