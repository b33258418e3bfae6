"""The text of subtitles: cues are cut into parts by speaker, and the parts of one sentence become one block.

A part is a whole cue, a turn in a dialogue (after a dash), a sound in brackets, or a line of a song. Line
breaks inside a part are read as white space.
"""

import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Final

from cotext.data.sentence_ends import UNSPACED_CHARACTER
from cotext.files.blocks import Block, Close, Copied, Open, Piece, Point, merged

MOST_CUES: Final = 12  # maximum in a block, because the subtitles of some films have no full stops
LONGEST_PAUSE: Final = 3000  # milliseconds between cues of one sentence
_OVERLAP: Final = 500
_SURE_PAUSE: Final = 1000  # up to this pause, a sentence may continue with a capital letter

_TAG_NAME = re.compile(r"<(/*)([a-zA-Z]+)")
_DASH = re.compile(r"\s*[-‐‑–—]+\s*(?=\S)")
_NOTES = "♪♫♩♬"
_OUTER = f"{_NOTES} \t\u00a0\u3000"
_SOUND = re.compile(r"\s*(?:\[[^\[\]]*\]|\([^()]*\)|（[^（）]*）|【[^【】]*】)\s*")
_END = re.compile(r"[.!?…。！？｡؟۔։।][\"'”’»“«)\]」』）】]*\Z")
_DOTS = re.compile(r"(?:\.\.\.|…)[\"'”’»)]*\Z")


@dataclass(frozen=True, slots=True)
class Syntax:
    """The syntax of cues: tags, line breaks and escapes.

    `marks` has the groups "tag" and "break". `enclosing`: names of tags that enclose text. `speaker`: the tag
    that names the next speaker, or empty. `read` and `write` decode and encode a text.
    """

    marks: re.Pattern[str]
    enclosing: frozenset[str]
    speaker: str
    read: Callable[[str], str]
    write: Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Cue:
    """A cue: number (from 1), times in milliseconds, and the span of its text."""

    number: int
    start: int
    end: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Token:
    """Text, a tag or a line break in a cue."""

    kind: str
    raw: str
    low: int

    @property
    def high(self) -> int:
        """End position in the file."""
        return self.low + len(self.raw)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a cue, without outer tokens; `turn`: a new speaker; `alone`: a separate block."""

    cue: Cue
    tokens: tuple[Token, ...]
    turn: bool
    alone: bool
    last: bool

    @property
    def text(self) -> str:
        """The text without tags, as written in the file."""
        return "".join(" " if t.kind == "break" else t.raw for t in self.tokens if t.kind != "tag")

    @property
    def lines(self) -> list[int]:
        """The lengths of the lines."""
        lines = [0]
        for token in self.tokens:
            if token.kind == "break":
                lines.append(0)
            elif token.kind == "text":
                lines[-1] += len(token.raw)
        return lines


def parts_of(content: str, cue: Cue, syntax: Syntax) -> Iterator[Part]:
    """Yield the parts of a cue that contain a letter or a digit."""
    lines: list[list[Token]] = [[]]
    for token in _tokens(content, cue, syntax):
        lines[-1].append(token)
        if token.kind == "break":
            lines.append([])
    groups: list[tuple[str, list[Token]]] = []
    # A dash begins a turn if another line has one too, or if the line before it ends a sentence.
    dashes = sum(bool(_DASH.match(_visible(line))) for line in lines) > 1
    for number, line in enumerate(lines):
        dialogue = dashes or (number > 0 and bool(_END.search(_visible(lines[number - 1]).rstrip())))
        kind = _kind(line, dialogue, syntax)
        if (
            groups
            and (kind == "" or (kind == "song" and groups[-1][0] == "song"))
            and groups[-1][0] != "sound"
        ):
            groups[-1][1].extend(line)
        else:
            groups.append((kind, line))
    parts = []
    for kind, tokens in groups:
        inner, dashed = _inner(tokens, syntax)
        if any(map(str.isalnum, syntax.read(_visible(inner)))):
            parts.append((kind, inner, dashed))
    for number, (kind, inner, dashed) in enumerate(parts, 1):
        turn = kind in ("turn", "speaker") or dashed or (number == 1 and groups[0][0] == "speaker")
        yield Part(cue, tuple(inner), turn, kind in ("song", "sound"), number == len(parts))


def _tokens(content: str, cue: Cue, syntax: Syntax) -> Iterator[Token]:
    text, position = content[cue.low : cue.high], 0
    for match in syntax.marks.finditer(text):
        if match.start() > position:
            yield Token("text", text[position : match.start()], cue.low + position)
        yield Token(str(match.lastgroup), match[0], cue.low + match.start())
        position = match.end()
    if position < len(text):
        yield Token("text", text[position:], cue.low + position)


def _visible(tokens: Sequence[Token]) -> str:
    return "".join(token.raw for token in tokens if token.kind == "text")


def _kind(line: Sequence[Token], dialogue: bool, syntax: Syntax) -> str:
    """Return the kind of part that a line begins (turn, speaker, sound, song); "" if it begins none."""
    text = _visible(line)
    if dialogue and _DASH.match(text):
        return "turn"
    if line and syntax.speaker and _tag(line[0]) == (syntax.speaker, False):
        return "speaker"
    if _SOUND.fullmatch(text):
        return "sound"
    return "song" if set(text) & set(_NOTES) else ""


def _inner(tokens: Sequence[Token], syntax: Syntax) -> tuple[list[Token], bool]:
    """Remove outer tokens that are not translated; return the others, and whether they followed a dash.

    Removed are unpaired tags, pairs of tags around all tokens, dashes, notes, white space and line breaks.
    """
    pairs = _pairs(tokens, syntax)
    closing = set(pairs.values())
    inner, dashed = deque(tokens), False
    while inner:
        first, last = inner[0], inner[-1]
        if first.kind == "text":
            kept = first.raw.lstrip(_OUTER)
            if not dashed and (dash := _DASH.match(kept)):
                kept, dashed = kept[dash.end() :], True
            if len(kept) < len(first.raw):
                inner.popleft()
                inner.extendleft([Token("text", kept, first.high - len(kept))] if kept else [])
                continue
        elif first.kind == "break" or first.low not in pairs:
            inner.popleft()
            continue
        elif pairs[first.low] == last.low:
            inner.popleft()
            inner.pop()
            continue
        if last.kind == "text" and (kept := last.raw.rstrip(_OUTER)) != last.raw:
            inner.pop()
            inner.extend([Token("text", kept, last.low)] if kept else [])
        elif last.kind == "break" or (last.kind == "tag" and last.low not in closing):
            inner.pop()
        else:
            break
    return list(inner), dashed


def _pairs(tokens: Sequence[Token], syntax: Syntax) -> dict[int, int]:
    """Map the positions of opening tags to those of closing tags, for properly nested pairs."""
    pairs: dict[int, int] = {}
    waiting: list[tuple[str, int]] = []
    for token in tokens:
        name, closes = _tag(token)
        if name in syntax.enclosing and not closes:
            waiting.append((name, token.low))
        elif closes and waiting and waiting[-1][0] == name:
            pairs[waiting.pop()[1]] = token.low
    return pairs


def _tag(token: Token) -> tuple[str, bool]:
    """Return the name of the element of a tag, in lower case, and whether the tag closes it."""
    match = _TAG_NAME.match(token.raw) if token.kind == "tag" else None
    return (match[2].lower(), bool(match[1])) if match else ("", False)


@dataclass(frozen=True, slots=True)
class Flow:
    """The parts of a block, its tags in the file by key, and the keys of points between parts."""

    parts: tuple[Part, ...]
    block: Block
    raw: dict[int, tuple[str, str]]
    borders: frozenset[int]


def flows_of(parts: Sequence[Part], syntax: Syntax) -> Iterator[Flow]:
    """Join the parts of each sentence, which may continue from cue to cue, to a block."""
    flow: list[Part] = []
    for part in parts:
        if flow and not (len(flow) < MOST_CUES and _continues(flow[-1], part)):
            yield _flow(flow, syntax)
            flow = []
        flow.append(part)
    if flow:
        yield _flow(flow, syntax)


def _continues(before: Part, after: Part) -> bool:
    """Return whether the last part of a cue and the first part of the next belong to one sentence."""
    one, two = before.cue, after.cue
    if before.alone or after.alone or after.turn or not before.last or two.number == one.number:
        return False
    if not -_OVERLAP <= two.start - one.end <= LONGEST_PAUSE:
        return False
    text, following = before.text.rstrip(), after.text.lstrip(" .…\"'“„»«(")
    if _DOTS.search(text):
        return following[:1].islower()
    if _END.search(text):
        return False
    return following[:1].islower() or two.start - one.end <= _SURE_PAUSE


def _flow(parts: Sequence[Part], syntax: Syntax) -> Flow:
    keys = count()
    raw: dict[int, tuple[str, str]] = {}
    borders: set[int] = set()
    pieces: list[Piece] = []
    before = ""  # the last character
    for part in parts:
        if pieces:
            pieces += [_space(before, part.text[:1]), Point(key := next(keys))]
            borders.add(key)
        pairs = _pairs(part.tokens, syntax)
        tags = {token.low: token.raw for token in part.tokens}
        opened: dict[int, int] = {}
        for place, token in enumerate(part.tokens):
            if token.kind == "text":
                pieces.append(text := syntax.read(token.raw))
                before = text[-1:] or before
            elif token.kind == "break":
                following = next((t.raw for t in part.tokens[place:] if t.kind == "text"), "")
                pieces.append(space := _space(before, following[:1]))
                before = space or before
            elif token.low in opened:
                pieces.append(Close(opened[token.low]))
            else:
                end = pairs.get(token.low)
                raw[key := next(keys)] = (token.raw, "" if end is None else tags[end])
                pieces.append(Point(key) if end is None else Open(key))
                if end is not None:
                    opened[end] = key
    first, last = parts[0].cue.number, parts[-1].cue.number
    place_name = f"cue {first}" if first == last else f"cues {first} to {last}"
    return Flow(tuple(parts), Block(merged(pieces), place_name), raw, frozenset(borders))


def _space(before: str, after: str) -> str:
    """Return the space that replaces a line break between two characters."""
    unspaced = all(map(UNSPACED_CHARACTER.match, (before, after))) if before and after else False
    return "" if unspaced or before.isspace() else " "


# --- Division of a translation among cues and into lines.
#
# The aim for a border between cues is the mean of two positions: the position of its marker in the
# translation, and the share of time, which gives all cues the same reading speed. The border is placed
# between the two words nearest to the aim. Places after a comma, and the place of the marker, are preferred.
# Each cue has at least one word if there are enough.

_WORD = re.compile(r"(?<=\s)\S")
_UNSPACED_SCRIPT = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")  # Thai, Lao, Burmese, Khmer
_COMBINING = re.compile(
    "[\u0e31\u0e33-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ecd\u102b-\u103e\u17b4-\u17d3]"
)
_NOT_FIRST = frozenset("、。，．：；？！）」』】〉》”’…ー々ぁぃぅぇぉっゃゅょァィゥェォッャュョ,.!?:;)]%")
_PAUSE = frozenset([*",.;:!?…，、。；：！？"])
_PREFERRED: Final = 0.08  # a preferred place may be farther from the aim by this share of the text


def divided(flow: Flow, pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Divide the translated pieces of a block among its parts.

    Elements across a border are closed before it and opened again after it.
    """
    tokens = [p for p in pieces if not (isinstance(p, Point) and p.key in flow.borders)]
    text, marked = "", []
    for piece in pieces:
        if isinstance(piece, str | Copied):
            text += piece if isinstance(piece, str) else piece.text
        elif isinstance(piece, Point) and piece.key in flow.borders:
            marked.append(len(text))
    cuts = _cuts(text, sorted(marked), [max(1, part.cue.end - part.cue.start) for part in flow.parts])
    return _cut(tokens, cuts)


def _cuts(text: str, marked: Sequence[int], durations: Sequence[int]) -> list[int]:
    """Return the start of each part except the first."""
    # Move markers after the white space.
    marks = [mark + len(text[mark:]) - len(text[mark:].lstrip()) for mark in marked]
    aims, at = [], 0
    for mark, duration in zip(marked, durations, strict=False):
        at += duration
        aims.append((mark + len(text) * at / sum(durations)) / 2)
    places = _places(text, len(aims))
    if len(places) <= len(aims):
        # Not more than one word per cue; the last cues may be empty.
        return [*places, *[len(text)] * (len(aims) - len(places))]
    return _near(len(text), _gains(text, places, marks), places, aims)


def _gains(text: str, places: Sequence[int], marks: Sequence[int] = ()) -> dict[int, float]:
    """Return by place how much farther from the aim it may be, as a share of the text; most: nothing.

    Preferred are places after a pause mark, such as a comma, and those of `marks`.
    """
    gains: dict[int, float] = {}
    for place in places:
        after_pause = text[max(0, place - 2) : place].strip()[-1:] in _PAUSE
        if preferred := after_pause + (place in marks):
            gains[place] = preferred * _PREFERRED
    return gains


def _near(size: int, gains: Mapping[int, float], places: Sequence[int], aims: Sequence[float]) -> list[int]:
    """Choose a place near each aim, in order; there have to be as many places as aims."""
    preferred, chosen = list(gains), [-1]
    for number, aim in enumerate(aims):
        highest = places[number - len(aims)]  # leaves a place for each later aim
        near = {*_nearest(places, chosen[-1], highest, aim), *_nearest(preferred, chosen[-1], highest, aim)}
        chosen.append(min(near, key=lambda place: (abs(place - aim) / size - gains.get(place, 0), place)))
    return chosen[1:]


def _nearest(places: Sequence[int], low: int, high: int, aim: float) -> Sequence[int]:
    """Return the nearest places before and after the aim that are above `low` and at most `high`."""
    first, stop = bisect_right(places, low), bisect_right(places, high)
    at = bisect_left(places, aim, first, stop)
    return places[max(first, at - 1) : min(at + 1, stop)]


def _places(text: str, wanted: int) -> list[int]:
    """Return the places where a line or cue may begin: words, and characters of unspaced scripts."""
    places = {match.start() for match in _WORD.finditer(text)}
    unspaced = (
        UNSPACED_CHARACTER
        if len(places) >= wanted
        else re.compile(f"{UNSPACED_CHARACTER.pattern}|{_UNSPACED_SCRIPT.pattern}")
    )
    for match in unspaced.finditer(text):
        at = match.start()
        if (
            at
            and match[0] not in _NOT_FIRST
            and not _COMBINING.match(match[0])
            and not text[at - 1].isspace()
        ):
            places.add(at)
    begins = len(text) - len(text.lstrip())
    return sorted(place for place in places if place > begins)


def _cut(tokens: Sequence[Piece], cuts: Sequence[int]) -> list[list[Piece]]:
    parts: list[list[Piece]] = [[]]
    inside: list[Open] = []
    waiting, at = list(cuts), 0

    def border() -> None:
        waiting.pop(0)
        parts[-1].extend(Close(element.key) for element in reversed(inside))
        parts.append(list(inside))

    for token in tokens:
        if isinstance(token, str | Copied):
            text = token if isinstance(token, str) else token.text
            while waiting and waiting[0] < at + len(text):
                head, text = text[: waiting[0] - at], text[waiting[0] - at :]
                at = waiting[0]
                parts[-1].append(head)
                border()
            parts[-1].append(text)
            at += len(text)
            continue
        while waiting and waiting[0] == at and not isinstance(token, Close):
            border()
        parts[-1].append(token)
        if isinstance(token, Open):
            inside.append(token)
        elif isinstance(token, Close):
            inside = [element for element in inside if element.key != token.key]
    while waiting:
        border()
    return [_stripped(part) for part in parts]


def _stripped(pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces without outer white space and without empty texts."""
    stripped = list(pieces)
    for numbers, strip in ((range(len(stripped)), str.lstrip), (reversed(range(len(stripped))), str.rstrip)):
        for number in numbers:
            if isinstance(piece := stripped[number], str):
                stripped[number] = strip(piece)
                if stripped[number]:
                    break
    return [piece for piece in stripped if piece != ""]


def breaks(text: str, part: Part) -> list[int]:
    """Return where the lines of a translated part begin, except the first.

    The number of lines is the smallest for which no line is longer than the longest original line, and at
    most the original number. Lines have similar lengths.
    """
    lengths = part.lines
    if len(lengths) == 1 or len(text) <= max(lengths):
        return []
    places = _places(text, len(lengths) - 1)
    gains = _gains(text, places)
    # With fewer lines, at least one would be longer.
    lines = min(len(lengths), max(2, -(-len(text) // (max(lengths) + 1))))
    while True:
        aims = [len(text) * number / lines for number in range(1, lines)]
        chosen = _near(len(text), gains, places, aims[: len(places)])
        longest = max(b - a for a, b in pairwise([0, *chosen, len(text)]))
        if longest <= max(lengths) + 1 or lines == len(lengths):
            return chosen
        # If there are many lines, only some numbers are tried, so that the time stays linear.
        lines = min(len(lengths), lines + 1 + lines // 16)
