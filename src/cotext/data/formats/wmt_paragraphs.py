"""Paragraphs of a document of the general task of WMT: HTML, JSON (fenced or not) or plain text.

A paragraph is what stands between `<p>` and `</p>` (or other block elements), a string value of JSON, or what
empty lines part. Line breaks inside one, and `<br>`, are a space; tags inside one are left out.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from html.parser import HTMLParser
from typing import Final, Literal

from cotext.data.formats.records import OUTER_SPACE, without_breaks
from cotext.runtime.errors import CotextError
from cotext.runtime.reading import parse_json

Kind = Literal["html", "json", "text"]

_BLOCKS = """
address article aside blockquote body dd div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6
head header hr html li main nav ol p pre section table tbody td tfoot th thead title tr ul
"""
BLOCKS: Final = frozenset(_BLOCKS.split())
_SPACE: Final = f"{OUTER_SPACE}\n"
_FENCE: Final = re.compile(r"\s*```[ \t]*(?:json|html|xml|text|markdown)?[ \t]*\n", re.IGNORECASE)
_OPENING: Final = re.compile(
    rf"[ \t\r\n]*<(?:(?:{'|'.join(sorted(BLOCKS))})[\s/>]|!doctype|!--)", re.IGNORECASE
)
_PARAGRAPH_TAG: Final = re.compile(r"</?p(?:\s[^<>]*)?>", re.IGNORECASE)
_STRING: Final = re.compile(
    r'("[^"\\]*+(?:\\.[^"\\]*+)*+")(\s*:)?'
)  # of valid JSON; a key has a colon behind it
# From a character to the last before an empty line.
_TEXT_PARAGRAPH: Final = re.compile(r"[^ \t\r\n](?:[^\n]*\n[ \t\r]*(?=[^ \t\r\n]))*[^\n]*")


@dataclass(frozen=True, slots=True)
class Paragraphs:
    """The paragraphs of a document, each on one line, where they stand in it, and the kind it was read as."""

    kind: Kind
    texts: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]

    def replaced(self, text: str, translations: Sequence[str]) -> str:
        """The text with others in the places of its paragraphs, spelled as its kind has them.

        Raises:
            CotextError: not as many.
        """
        if len(translations) != len(self.texts):
            raise CotextError(f"{len(translations)} paragraphs for {len(self.texts)} of the source")
        pieces, last = [], 0
        for (start, end), translation in zip(self.spans, translations, strict=False):
            pieces += [text[last:start], _SPELLED[self.kind](translation)]
            last = end
        return "".join([*pieces, text[last:]])


_SPELLED: Final[dict[Kind, Callable[[str], str]]] = {
    "json": partial(json.dumps, ensure_ascii=False),
    "html": partial(escape, quote=False),
    "text": str,
}


def unfenced(text: str) -> tuple[str, str, str]:
    """What opens a fence (```), what is in it, what closes it; without one, the text alone."""
    opening = _FENCE.match(text)
    bare = text.rstrip()
    if opening is None or not bare.endswith("```") or len(bare) < opening.end() + 3:
        return "", text, ""
    body = text[opening.end() : len(bare) - 3]
    return opening[0], body, text[len(bare) - 3 :]


def paragraphs(text: str) -> Paragraphs:
    """The paragraphs of a text; one empty paragraph, which stands nowhere, where it has none.

    What begins as JSON and is none is plain text: so it is what a system has written.
    """
    before, body, _ = unfenced(text)
    if body.lstrip().startswith(("{", "[")):
        try:
            parse_json(body, "", numbers=False)
        except CotextError:
            pass
        else:
            strings = (match for match in _STRING.finditer(body) if not match[2])
            return _found("json", ((json.loads(each[1]), each.span(1)) for each in strings), len(before))
    if _OPENING.match(body) or _PARAGRAPH_TAG.search(body):
        return _found("html", _of_html(body), len(before))
    return _found("text", ((match[0], match.span()) for match in _TEXT_PARAGRAPH.finditer(text)), 0)


def _found(kind: Kind, found: Iterable[tuple[str, tuple[int, int]]], offset: int) -> Paragraphs:
    pairs = [(without_breaks(text), (start + offset, end + offset)) for text, (start, end) in found]
    texts, spans = (text for text, _ in pairs), (span for _, span in pairs)
    return Paragraphs(kind, tuple(texts) or ("",), tuple(spans))


def as_html(texts: tuple[str, ...]) -> str:
    """A document of these paragraphs, which `paragraphs` gives back, empty ones too."""
    return "\n".join(f"<p>{escape(text, quote=False)}</p>" for text in texts)


def _of_html(text: str) -> list[tuple[str, tuple[int, int]]]:
    reader = _Reader(text)
    reader.feed(text)
    reader.close()
    reader.end(len(text))
    return reader.found


class TextParser(HTMLParser):
    """A parser of a text fed as a whole, which looks once for the end of a comment that is not closed."""

    def __init__(self) -> None:
        """Begin a text."""
        super().__init__(convert_charrefs=True)
        self._is_unclosed = False

    def parse_comment(self, i: int, report: bool = True) -> int:
        """Return the end of a comment; -1 if it is not closed."""
        found = -1 if self._is_unclosed else super().parse_comment(i, report)
        self._is_unclosed = found < 0
        return found


class _Reader(TextParser):
    """The text between block elements: a `<p>` is a paragraph even if empty, other text if there is some."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[int, int]]] = []
        self._whole = text
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]
        self._text: list[str] = []
        self._from = 0
        self._in_paragraph = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "br":
            self._text.append("\n")
        elif tag in BLOCKS:
            self.end(self._offset, len(self.get_starttag_text() or ""))
            self._in_paragraph = tag == "p"

    def handle_endtag(self, tag: str) -> None:
        if tag in BLOCKS:
            closed = self._whole.find(">", self._offset)
            self.end(self._offset, closed + 1 - self._offset if closed >= 0 else 0)

    def handle_data(self, data: str) -> None:
        self._text.append(data)

    @property
    def _offset(self) -> int:
        line, column = self.getpos()
        return self._lines[line - 1] + column

    def end(self, at: int, tag_characters: int = 0) -> None:
        """End what is a paragraph at the tag of a block, which stands there."""
        text = without_breaks("".join(self._text))
        if text or self._in_paragraph:
            inside = self._whole[self._from : at]
            before = len(inside) - len(inside.lstrip(_SPACE))
            start = self._from + before
            self.found.append((text, (start, start + len(inside.strip(_SPACE)))))
        self._text.clear()
        self._from = at + tag_characters
        self._in_paragraph = False
