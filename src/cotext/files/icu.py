"""Messages of ICU with plurals and choices, as `{count, plural, one {# file} other {# files}}`.

Each branch is translated by itself. Where text stands around the braces ("You have {n, plural, ...} left"),
it is taken into every branch, so that whole sentences are translated; the keys of branches stay. A message
with two such parts side by side is not taken apart.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from cotext.files.blocks import Copied, Piece
from cotext.files.strings import CatalogueString, Markers, Paragraph, has_letters

MAX_BRANCHES: Final = 200
MAX_DEPTH: Final = 8
_CHOICE: Final = re.compile(
    r"\{\s*[\w.-]+\s*,\s*(plural|selectordinal|select)\s*,(?:\s*offset\s*:\s*\d+)?\s*"
)
_SELECTOR: Final = re.compile(r"\s*(=\d+|[\w-]+)\s*\{")
_SPECIAL: Final = re.compile(r"'[{}#|][^']*'|''|[{}]")
# A string of ICU: arguments, the number of a plural, quoted text.
_IN_BRANCHES: Final = Markers(re.compile(r"'[{}#|][^']*'|\{[^{}]*\}|#"))


@dataclass(slots=True)
class _Choice:
    """Where branches begin and end in a text, and which they are."""

    start: int
    head: str  # from the brace to the first branch
    counts: bool  # whether "#" is a number in it
    stop: int = 0
    branches: list[tuple[str, str]] = field(default_factory=list)  # what leads to a branch, the branch
    end: str = "}"


class _TooComplexError(Exception):
    """A message that is not taken apart."""


class Message:
    """A string of a catalogue, with its branches if it has some, as paragraphs in their order."""

    def __init__(self, parts: Sequence[str | CatalogueString], escape: bool) -> None:
        self._parts = parts
        self._escape = escape
        self.paragraphs: list[Paragraph] = [
            paragraph for part in parts if isinstance(part, CatalogueString) for paragraph in part.paragraphs
        ]

    def written(self, given: Sequence[Sequence[Piece]]) -> str:
        """The string with other pieces, as many as it has paragraphs."""
        texts = []
        start = 0
        for part in self._parts:
            if isinstance(part, str):
                texts.append(part)
                continue
            pieces = given[start : start + len(part.paragraphs)]
            start += len(part.paragraphs)
            texts.append(part.written([list(_escaped(each)) for each in pieces] if self._escape else pieces))
        return "".join(texts)


def message_of(text: str, markers: Markers) -> Message | None:
    """A string, taken apart; `markers` are for those without branches. None: too complex."""
    if not _CHOICE.search(text):
        return Message([CatalogueString(text, markers)], escape=False)
    parts: list[str | CatalogueString] = []
    try:
        for part in _expanded(text, 0):
            parts.append(part)
            if len(parts) > MAX_BRANCHES:
                return None
    except _TooComplexError:
        return None
    return Message(parts, escape=True)


def _expanded(text: str, depth: int) -> Iterator[str | CatalogueString]:
    """What a text of branches is written as, strings to be translated among it."""
    choices = list(_choices(text))
    if not choices:
        yield CatalogueString(text, _IN_BRANCHES)
        return
    if len(choices) > 1 or depth == MAX_DEPTH:
        raise _TooComplexError
    [choice] = choices
    before, after = text[: choice.start], text[choice.stop :]
    around = has_letters(before) or has_letters(after)
    if around and choice.counts and "#" in before + after:
        raise _TooComplexError
    yield choice.head if around else before + choice.head
    for leads, branch in choice.branches:
        yield leads
        yield from _expanded(before + branch + after if around else branch, depth + 1)
    yield choice.end if around else choice.end + after


def _choices(text: str) -> Iterator[_Choice]:
    """The plurals and choices of a text that are not inside others."""
    at = 0
    while found := _CHOICE.search(text, at):
        choice = _Choice(found.start(), found[0], found[1] != "select")
        at = found.end()
        between = ""
        while selector := _SELECTOR.match(text, at):
            stop = _closing(text, selector.end())
            choice.branches.append((between + selector[0], text[selector.end() : stop]))
            between = "}"
            at = stop + 1
        end = re.compile(r"\s*\}").match(text, at)
        if end is None or not choice.branches:
            raise _TooComplexError
        choice.end = between + end[0]
        choice.stop = at = end.end()
        yield choice


def _closing(text: str, at: int) -> int:
    """Where the brace is closed before `at`."""
    depth = 1
    for special in _SPECIAL.finditer(text, at):
        depth += {"{": 1, "}": -1}.get(special[0], 0)
        if not depth:
            return special.start()
    raise _TooComplexError


def _escaped(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Pieces whose text holds no braces of the grammar, and no quote that begins one."""
    for number, piece in enumerate(pieces):
        if isinstance(piece, str):
            text = re.sub(r"[{}]+", r"'\g<0>'", piece)
            followed = number + 1 < len(pieces) and isinstance(pieces[number + 1], Copied)
            yield text + "'" if followed and re.search(r"(?<!')'$", text) else text
        else:
            yield piece
