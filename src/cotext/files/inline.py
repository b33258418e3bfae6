"""Contents of an XML element as pieces: text, elements that enclose text, elements that stand for some."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from cotext.files.blocks import Close, Copied, Open, Piece, Point, merged
from cotext.files.strings import Markers, found_in
from cotext.files.xml_places import Element, escaped

# `encloses`: its text is translated; `begins`, `ends`: a half of what encloses text, with the key of its
# partner; `stands`: for something, without text; `copied`: its text stays.
Role = Literal["encloses", "begins", "ends", "stands", "copied"]
MAX_PAIRED: Final = 2000  # texts and elements of contents whose halves are joined
_PLACEHOLDER: Final = re.compile(r"[^\s<>%{$]*+[%{$][^\s<>]*")


@dataclass(frozen=True, slots=True)
class Kind:
    """What an inline element is; `partner` joins halves, `shown` is what it stands for."""

    role: Role
    partner: str = ""
    shown: str = ""


@dataclass(slots=True)
class _Part:
    kind: str  # text, copied, point, open, close, begins, ends
    raw: str
    text: str = ""
    partner: str = ""
    pair: int = 0  # the number of the element, of open and close


@dataclass(slots=True)
class Segment:
    """Contents between line breaks that end a block: pieces, and what their elements are written as."""

    before: str
    pieces: tuple[Piece, ...]
    after: str
    elements: dict[Piece, str] = field(default_factory=dict)

    def written(self, pieces: Sequence[Piece]) -> str:
        """The contents with other pieces, as XML."""
        return (
            self.before
            + "".join(escaped(each) if isinstance(each, str) else self.elements[each] for each in pieces)
            + self.after
        )


def segments(
    text: str, element: Element, kind_of: Callable[[Element], Kind], keep_breaks: bool
) -> list[Segment]:
    """The contents of an element; with `keep_breaks`, a line break in text not enclosed ends a segment."""
    parts: list[_Part] = []
    _gather(text, element, kind_of, parts)
    groups = _divided(parts) if keep_breaks else [parts]
    return [_segment(group, keep_breaks) for group in groups]


def _gather(text: str, element: Element, kind_of: Callable[[Element], Kind], parts: list[_Part]) -> None:
    for child in element.children:
        if not isinstance(child, Element):
            if child.meant is None:
                parts.append(_Part("point", text[child.start : child.stop]))
            else:
                _gather_text(child.meant, parts)
            continue
        kind = kind_of(child)
        whole = text[child.start : child.stop]
        if kind.role == "encloses" and child.stop > child.inner:
            parts.append(_Part("open", text[child.start : child.inner], pair=child.start))
            _gather(text, child, kind_of, parts)
            parts.append(_Part("close", text[child.after : child.stop], pair=child.start))
        elif kind.role == "copied":
            parts.append(_Part("copied", whole, child.text))
        elif kind.role in ("begins", "ends"):
            parts.append(_Part(kind.role, whole, partner=kind.partner))
        elif _PLACEHOLDER.fullmatch(kind.shown):
            parts.append(_Part("copied", whole, kind.shown))
        else:
            parts.append(_Part("point", whole))


def _gather_text(meant: str, parts: list[_Part]) -> None:
    """Text that holds markup of its own, as that of a page in a CDATA section, is taken apart too."""
    first = len(parts)
    at = 0
    for found in found_in(meant, Markers()):
        parts.append(_Part("text", "", meant[at : found.start]))
        raw = meant[found.start : found.stop]
        kind = {"opens": "begins", "closes": "ends", "copied": "copied"}.get(found.kind, "point")
        parts.append(_Part(kind, escaped(raw), raw, f"{first} {found.name}"))
        at = found.stop
    parts.append(_Part("text", "", meant[at:]))


def _divided(parts: list[_Part]) -> list[list[_Part]]:
    groups: list[list[_Part]] = [[]]
    depth = halves = 0
    for part in parts:
        depth += (part.kind == "open") - (part.kind == "close")
        halves = max(0, halves + (part.kind == "begins") - (part.kind == "ends"))
        if part.kind != "text" or depth or halves:
            groups[-1].append(part)
            continue
        for line in part.text.splitlines(keepends=True):
            groups[-1].append(_Part("text", "", line))
            if line.endswith("\n"):
                groups.append([])
    return groups


def _segment(parts: list[_Part], keep_breaks: bool) -> Segment:
    _pair(parts)
    pieces: list[Piece] = []
    elements: dict[Piece, str] = {}
    keys: dict[int, int] = {}
    for number, part in enumerate(parts):
        piece: Piece
        if part.kind == "text":
            pieces.append(part.text if keep_breaks else _on_one_line(part.text))
            continue
        if part.kind == "open":
            keys[part.pair] = number
            piece = Open(number)
        elif part.kind == "close":
            piece = Close(keys[part.pair])
        else:
            piece = Copied(number, part.text) if part.kind == "copied" else Point(number)
        pieces.append(piece)
        elements[piece] = part.raw
    before, inner, after = _outer_space(list(merged(pieces)))
    return Segment(escaped(before), tuple(inner), escaped(after), elements)


def _on_one_line(text: str) -> str:
    first, *lines = text.split("\n")
    if not lines:
        return text
    inner = [line.strip() for line in lines[:-1]]
    return " ".join([first.rstrip(" \t"), *filter(None, inner), lines[-1].lstrip()])


def _pair(parts: list[_Part]) -> None:
    """Make one element of two halves where both are there, and nested; other halves stand for themselves."""
    if len(parts) > MAX_PAIRED:
        return
    inside: list[tuple[int, _Part]] = []
    for number, part in enumerate(parts):
        if part.kind in ("open", "begins"):
            inside.append((number, part))
        elif part.kind == "close":
            while inside and inside.pop()[1].kind != "open":
                pass
        elif part.kind == "ends":
            for depth in reversed(range(len(inside))):
                first, half = inside[depth]
                if half.kind == "open":
                    break
                if half.partner == part.partner:
                    half.kind, part.kind = "open", "close"
                    half.pair = part.pair = -1 - first
                    del inside[depth:]
                    break


def _outer_space(pieces: list[Piece]) -> tuple[str, list[Piece], str]:
    before = after = ""
    if pieces and isinstance(pieces[0], str):
        stripped = pieces[0].lstrip()
        before, pieces[0] = pieces[0][: len(pieces[0]) - len(stripped)], stripped
    if pieces and isinstance(pieces[-1], str):
        stripped = pieces[-1].rstrip()
        after, pieces[-1] = pieces[-1][len(stripped) :], stripped
    return before, [piece for piece in pieces if piece != ""], after
