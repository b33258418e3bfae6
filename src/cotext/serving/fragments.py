"""Texts of a request as blocks, with or without tags.

In plain text, each line is a block. Text with tags is read like pages (`files.markup`). XML is divided at the
given tags. With outline detection, it is also divided at other elements, unless they are next to text or
inside an element next to text. Such elements are part of a sentence.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from cotext.files.blocks import Block
from cotext.files.markup import BLOCKS, ElementRules, Markup, tokens

SplitSentences = Literal["0", "1", "nonewlines"]
_LINE_ENDS: Final = re.compile(r"(\r\n|\r|\n)")


@dataclass(frozen=True, slots=True)
class TagHandling:
    """Options for tags; `kind`: "xml" or "html"; names in lower case."""

    kind: str
    outline: bool = True
    splitting: frozenset[str] = frozenset()
    not_splitting: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()


class PlainText:
    """Text without tags: one block, or one block per line if lines end sentences."""

    def __init__(self, text: str, split: SplitSentences, place: str) -> None:
        self._parts = _LINE_ENDS.split(text) if split == "1" else [text]
        self.blocks = [
            Block((line,), place or f"line {number}", split=split != "0")
            for number, line in enumerate(self._parts[::2], 1)
        ]

    def written(self, blocks: Sequence[Block]) -> str:
        ends = [*self._parts[1::2], ""]
        return "".join(block.text + end for block, end in zip(blocks, ends, strict=True))


class TaggedText:
    """A document or fragment of XML or HTML."""

    def __init__(self, text: str, split: SplitSentences, tags: TagHandling, place: str) -> None:
        self._markup = Markup(text, tags.kind == "xml", _rules(text, split, tags))
        self.blocks = [replace(block, place=place, split=split != "0") for block in self._markup.blocks]

    def written(self, blocks: Sequence[Block]) -> str:
        return self._markup.written(blocks)


Fragment = PlainText | TaggedText


def fragment(text: str, split: SplitSentences, tags: TagHandling | None, place: str) -> Fragment:
    """Read a text of a request; `place`: its name in messages."""
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
    around: int  # index of the parent element
    has_text: bool = False  # whether text is a direct child


def _outline(text: str) -> frozenset[str]:
    """Return the names of elements that are never next to text or inside an element next to text."""
    elements = [_Element("", 0)]
    inside, names = [0], Counter[str]()
    for token in tokens(text, xml=True, html=False):
        name = token.name.lower()
        if token.kind in ("start", "empty"):
            elements.append(_Element(name, inside[-1]))
            if token.kind == "start":
                inside.append(len(elements) - 1)
                names[name] += 1
        elif token.kind == "end" and names[name]:
            while (closed := elements[inside.pop()].name) != name:
                names[closed] -= 1
            names[name] -= 1
        elif token.kind == "text" and not text[token.start : token.stop].isspace():
            elements[inside[-1]].has_text = True
    beside = [False] * len(elements)
    for number, element in enumerate(elements[1:], 1):
        beside[number] = beside[element.around] or elements[element.around].has_text
    inline = {element.name for element, is_beside in zip(elements, beside, strict=True) if is_beside}
    return frozenset(element.name for element in elements[1:]) - inline
