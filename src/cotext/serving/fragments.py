"""Texts of a request as blocks, and their translations with everything else where it was.

Plain text is a block a line; text with tags is read as pages are (`files.markup`). Without outline detection,
XML is divided by the tags named alone. With it, elements are paragraphs, and those around them their
sections, unless they stand beside text: what stands there, and what is in it, belongs to a sentence.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from cotext.files.blocks import Block
from cotext.files.markup import BLOCKS, ElementRules, Markup, tokens
from cotext.files.places import read_markup
from cotext.runtime.errors import CotextError
from cotext.serving.errors import RequestError

SplitSentences = Literal["0", "1", "nonewlines"]
_LINE_ENDS: Final = re.compile(r"(\r\n|\r|\n)")
_PROLOGUE: Final = re.compile(r"\s*<[?!]")


@dataclass(frozen=True, slots=True)
class TagHandling:
    """What tags mean: `kind` is "xml" or "html", names are in small letters; `strict`: no malformed XML."""

    kind: str
    strict: bool = False
    outline: bool = True
    splitting: frozenset[str] = frozenset()
    not_splitting: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()

    @property
    def version(self) -> str:
        """Its name in answers."""
        return "v2" if self.strict else "v1"


class PlainText:
    """Text without tags; if its lines end sentences, a block each, called by its number without a `place`."""

    def __init__(self, text: str, split: SplitSentences, place: str) -> None:
        self._parts = _LINE_ENDS.split(text) if split == "1" else [text]
        self.blocks = [
            Block((line,), place or f"line {number}", split=split != "0")
            for number, line in enumerate(self._parts[::2], 1)
        ]

    def written(self, blocks: Sequence[Block]) -> str:
        """The text with other lines."""
        ends = [*self._parts[1::2], ""]
        return "".join(block.text + end for block, end in zip(blocks, ends, strict=True))


class TaggedText:
    """Text with tags, XML or HTML, whole or a part of it."""

    def __init__(self, text: str, split: SplitSentences, tags: TagHandling, place: str) -> None:
        if tags.kind == "xml" and tags.strict:
            _check(text, place)
        self._markup = Markup(text, tags.kind == "xml", _rules(text, split, tags))
        self.blocks = [replace(block, place=place, split=split != "0") for block in self._markup.blocks]

    def written(self, blocks: Sequence[Block]) -> str:
        """The text with other sentences between its tags."""
        return self._markup.written(blocks)


Fragment = PlainText | TaggedText


def fragment(text: str, split: SplitSentences, tags: TagHandling | None, place: str) -> Fragment:
    """A text of a request; `place` names it in messages.

    Raises:
        RequestError: 400, XML that is malformed, where tags are handled strictly.
    """
    return PlainText(text, split, place) if tags is None else TaggedText(text, split, tags, place)


def _rules(text: str, split: SplitSentences, tags: TagHandling) -> ElementRules:
    if tags.kind == "html":
        blocks = (BLOCKS | tags.splitting) - tags.not_splitting
        return ElementRules(blocks, ignored=tags.ignored, attributes=False, lines=split == "1")
    outline = _outline(text) if tags.outline else frozenset()
    nothing: frozenset[str] = frozenset()
    return ElementRules(
        (outline | tags.splitting) - tags.not_splitting,
        copied=nothing,
        left=nothing,
        ignored=tags.ignored,
        attributes=False,
        spaced=True,
        lines=split == "1",
        html=False,
    )


@dataclass(slots=True)
class _Element:
    name: str
    around: int  # the number of the element that it is in
    has_text: bool = False  # of its own


def _outline(text: str) -> frozenset[str]:
    """The names of elements that never stand beside text, nor within one that does."""
    found = [_Element("", 0)]
    inside, names = [0], Counter[str]()
    for token in tokens(text, xml=True, html=False):
        name = token.name.lower()
        if token.kind in ("start", "empty"):
            found.append(_Element(name, inside[-1]))
            if token.kind == "start":
                inside.append(len(found) - 1)
                names[name] += 1
        elif token.kind == "end" and names[name]:
            while (closed := found[inside.pop()].name) != name:
                names[closed] -= 1
            names[name] -= 1
        elif token.kind == "text" and not text[token.start : token.stop].isspace():
            found[inside[-1]].has_text = True
    beside = [False] * len(found)
    for number, element in enumerate(found[1:], 1):
        beside[number] = beside[element.around] or found[element.around].has_text
    inline = {element.name for element, is_beside in zip(found, beside, strict=True) if is_beside}
    return frozenset(element.name for element in found[1:]) - inline


def _check(text: str, place: str) -> None:
    """Raise RequestError where XML is malformed; it may be a part of a document, with several elements."""
    try:
        read_markup(text if _PROLOGUE.match(text) else f"<t>{text}</t>", place)
    except CotextError as error:
        reason = str(error).rpartition(": ")[2]  # without the place, which counts what is around it here
        raise RequestError(
            400, f"tag_handling: {place}: {reason}; mend it, or leave out tag_handling_version=v2"
        ) from None
