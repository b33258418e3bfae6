"""Paragraphs of a document of the general task of WMT: HTML, JSON (fenced or not) or plain text.

A paragraph is what stands between `<p>` and `</p>` (or other block elements), a string value of JSON, or what
empty lines part. Line breaks inside one, and `<br>`, are a space; tags inside one are left out.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from html.parser import HTMLParser
from typing import Any, Final, Literal

from cotext.data.formats.records import OUTER_SPACE, without_breaks
from cotext.runtime.errors import CotextError
from cotext.runtime.reading import parse_json

Kind = Literal["html", "json", "text"]

_BLOCKS = """
address article aside blockquote body dd div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6
head header hr html li main nav ol p pre section table tbody td tfoot th thead title tr ul
"""
BLOCKS: Final = frozenset(_BLOCKS.split())
_FENCE: Final = re.compile(r"\s*```[ \t]*(?:json|html|xml|text|markdown)?[ \t]*\n", re.IGNORECASE)
_OPENING: Final = re.compile(rf"\s*<(?:(?:{'|'.join(sorted(BLOCKS))})[\s/>]|!doctype|!--)", re.IGNORECASE)
_PARAGRAPH_TAG: Final = re.compile(r"</?p(?:\s[^<>]*)?>", re.IGNORECASE)
_EMPTY_LINES: Final = re.compile(r"\n(?:[ \t\r]*\n)+")


@dataclass(frozen=True, slots=True)
class Paragraphs:
    """The paragraphs of a document, each on one line, and the kind that it was read as."""

    kind: Kind
    texts: tuple[str, ...]


def unfenced(text: str) -> tuple[str, str, str]:
    """What opens a fence (```), what is in it, what closes it; without one, the text alone."""
    opening = _FENCE.match(text)
    bare = text.rstrip()
    if opening is None or not bare.endswith("```") or len(bare) < opening.end() + 3:
        return "", text, ""
    body = text[opening.end() : len(bare) - 3]
    return opening[0], body, text[len(bare) - 3 :]


def paragraphs(text: str) -> Paragraphs:
    """The paragraphs of a text; one empty paragraph where it has none.

    What begins as JSON and is none is plain text: so it is what a system has written.
    """
    _, body, _ = unfenced(text)
    if body.lstrip().startswith(("{", "[")):
        try:
            value = parse_json(body, "", numbers=False)
        except CotextError:
            pass
        else:
            return Paragraphs("json", tuple(map(without_breaks, strings(value))) or ("",))
    if _OPENING.match(body) or _PARAGRAPH_TAG.search(body):
        return Paragraphs("html", tuple(_of_html(body)) or ("",))
    parts = (without_breaks(part) for part in _EMPTY_LINES.split(text))
    return Paragraphs("text", tuple(filter(None, parts)) or ("",))


def as_html(texts: tuple[str, ...]) -> str:
    """A document of these paragraphs, which `paragraphs` gives back, empty ones too."""
    return "\n".join(f"<p>{escape(text, quote=False)}</p>" for text in texts)


def strings(value: Any) -> Iterator[str]:
    """The string values of JSON in the order of the text; keys are none."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            waiting.extend(reversed(each.values()))
        elif isinstance(each, list):
            waiting.extend(reversed(each))


def _of_html(text: str) -> Iterator[str]:
    reader = _Reader()
    reader.feed(text)
    reader.close()
    reader.end()
    yield from reader.found


class _Reader(HTMLParser):
    """The text between block elements: a `<p>` is a paragraph even if empty, other text if there is some."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self._text: list[str] = []
        self._in_paragraph = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "br":
            self._text.append("\n")
        elif tag in BLOCKS:
            self.end()
            self._in_paragraph = tag == "p"

    def handle_endtag(self, tag: str) -> None:
        if tag in BLOCKS:
            self.end()

    def handle_data(self, data: str) -> None:
        self._text.append(data)

    def end(self) -> None:
        text = without_breaks("".join(self._text)).strip(OUTER_SPACE)
        if text or self._in_paragraph:
            self.found.append(text)
        self._text.clear()
        self._in_paragraph = False
