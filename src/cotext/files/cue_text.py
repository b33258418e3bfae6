"""The text of subtitles: cues cut into parts by who speaks, and parts of one sentence joined to a block.

A part is a stretch of a cue that flows: all of it, or a turn of a dialogue, which begins with a dash, or a
line of another kind (a sound in brackets, a song). Line breaks inside a part are white space to whoever
translates.
"""

import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Final

from cotext.data.sentence_ends import UNSPACED_CHARACTER
from cotext.files.blocks import Block, Close, Copied, Open, Piece, Point, merged

MOST_CUES: Final = 12  # in one block: a film without full stops is no single sentence
LONGEST_PAUSE: Final = 3000  # milliseconds between cues of one sentence
_OVERLAP: Final = 500
_SURE_PAUSE: Final = 1000  # up to which a capital letter may go on with a sentence

_DASH = re.compile(r"\s*[-‐‑–—]+\s*(?=\S)")
_NOTES = "♪♫♩♬"
_OUTER = f"{_NOTES} \t\u00a0\u3000"
_SOUND = re.compile(r"\s*(?:\[[^\[\]]*\]|\([^()]*\)|（[^（）]*）|【[^【】]*】)\s*")
_END = re.compile(r"[.!?…。！？｡؟۔։।][\"'”’»“«)\]」』）】]*\Z")
_DOTS = re.compile(r"(?:\.\.\.|…)[\"'”’»)]*\Z")


@dataclass(frozen=True, slots=True)
class Syntax:
    """How a format writes inside a cue: tags, line breaks, and characters that stand for others.

    `marks` has the groups "tag" and "break"; `line_break` is written for a break, that of the file if empty.
    `opens`: the name of the element that a tag opens, empty if it opens none; `closes`: likewise. `speaker`:
    whether a tag names who speaks from there on.
    """

    marks: re.Pattern[str]
    opens: Callable[[str], str]
    closes: Callable[[str], str]
    speaker: Callable[[str], bool]
    read: Callable[[str], str]
    write: Callable[[str], str]
    line_break: str = ""


@dataclass(frozen=True, slots=True)
class Cue:
    """A cue of a file: its number from 1, milliseconds, where its text is; a block has one `track`."""

    number: int
    start: int
    end: int
    low: int
    high: int
    track: str = ""


@dataclass(frozen=True, slots=True)
class Token:
    """A stretch of a cue: text, a tag or a line break."""

    kind: str
    raw: str
    low: int

    @property
    def high(self) -> int:
        """Where it ends."""
        return self.low + len(self.raw)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a cue as its tokens, of which the outer ones are left away; `turn`: a dash is before it."""

    cue: Cue
    tokens: tuple[Token, ...]
    turn: bool
    alone: bool
    last: bool

    @property
    def text(self) -> str:
        """What is read of it, as it is written in the file."""
        return "".join(" " if t.kind == "break" else t.raw for t in self.tokens if t.kind != "tag")

    @property
    def lines(self) -> list[int]:
        """The lengths of its lines."""
        lines = [0]
        for token in self.tokens:
            if token.kind == "break":
                lines.append(0)
            elif token.kind == "text":
                lines[-1] += len(token.raw)
        return lines


def parts_of(content: str, cue: Cue, syntax: Syntax) -> Iterator[Part]:
    """The parts of a cue that have a letter or a digit."""
    lines: list[list[Token]] = [[]]
    for token in _tokens(content, cue, syntax):
        lines[-1].append(token)
        if token.kind == "break":
            lines.append([])
    groups: list[tuple[str, list[Token]]] = []
    # A dash begins a turn where another line has one, or behind the end of a sentence.
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
    found = []
    for kind, tokens in groups:
        inner, dashed = _inner(tokens, syntax)
        if any(map(str.isalnum, syntax.read(_visible(inner)))):
            found.append((kind, inner, dashed))
    for number, (kind, inner, dashed) in enumerate(found, 1):
        turn = kind in ("turn", "speaker") or dashed or (number == 1 and groups[0][0] == "speaker")
        yield Part(cue, tuple(inner), turn, kind in ("song", "sound"), number == len(found))


def _tokens(content: str, cue: Cue, syntax: Syntax) -> Iterator[Token]:
    text, at = content[cue.low : cue.high], 0
    for match in syntax.marks.finditer(text):
        if match.start() > at:
            yield Token("text", text[at : match.start()], cue.low + at)
        yield Token(str(match.lastgroup), match[0], cue.low + match.start())
        at = match.end()
    if at < len(text):
        yield Token("text", text[at:], cue.low + at)


def _visible(tokens: Sequence[Token]) -> str:
    return "".join(token.raw for token in tokens if token.kind == "text")


def _kind(line: Sequence[Token], dialogue: bool, syntax: Syntax) -> str:
    """What a line begins (a turn, a speaker, a sound, a song); empty where it goes on with the one before."""
    text = _visible(line)
    if dialogue and _DASH.match(text):
        return "turn"
    if any(token.kind == "tag" and syntax.speaker(token.raw) for token in line[:1]):
        return "speaker"
    if _SOUND.fullmatch(text):
        return "sound"
    return "song" if set(text) & set(_NOTES) else ""


def _inner(tokens: Sequence[Token], syntax: Syntax) -> tuple[list[Token], bool]:
    """The tokens without what stands at their ends and is not translated, and whether a dash was before them.

    Tags without partner among them, pairs around all of them, dashes, notes, white space and line breaks.
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
    """Where tags that open an element stand, and those that close it: of properly nested pairs alone."""
    pairs: dict[int, int] = {}
    waiting: list[tuple[str, int]] = []
    for token in tokens:
        if token.kind != "tag":
            continue
        if name := syntax.opens(token.raw):
            waiting.append((name, token.low))
        elif (name := syntax.closes(token.raw)) and waiting and waiting[-1][0] == name:
            pairs[waiting.pop()[1]] = token.low
    return pairs


@dataclass(frozen=True, slots=True)
class Flow:
    """The parts of one block, what its elements are in the file by key, and the keys of borders of parts."""

    parts: tuple[Part, ...]
    block: Block
    raw: dict[int, tuple[str, str]]
    borders: frozenset[int]


def flows_of(parts: Sequence[Part], syntax: Syntax) -> Iterator[Flow]:
    """The parts put together to blocks: those of one sentence, which goes on from cue to cue."""
    flow: list[Part] = []
    for part in parts:
        if flow and not (len(flow) < MOST_CUES and _goes_on(flow[-1], part)):
            yield _flow(flow, syntax)
            flow = []
        flow.append(part)
    if flow:
        yield _flow(flow, syntax)


def _goes_on(before: Part, after: Part) -> bool:
    """Whether the last part of a cue and the first of the next are of one sentence."""
    one, two = before.cue, after.cue
    if before.alone or after.alone or after.turn or not before.last or two.number == one.number:
        return False
    if one.track != two.track or not -_OVERLAP <= two.start - one.end <= LONGEST_PAUSE:
        return False
    said, following = before.text.rstrip(), after.text.lstrip(" .…\"'“„»«(")
    if _DOTS.search(said):
        return following[:1].islower()
    if _END.search(said):
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
    """What stands for a line break between two characters."""
    unspaced = all(map(UNSPACED_CHARACTER.match, (before, after))) if before and after else False
    return "" if unspaced or before.isspace() else " "


# --- The translation of a block of subtitles divided among its cues, and into their lines.
#
# A border between cues is moved to the place between two words that is nearest to the mean of two others:
# where its marker stands in the translation, near the words that are spoken there, and where the share of
# time is, which gives all cues the same reading speed. Places behind a comma, and that of the marker, are
# preferred. Each cue has a word, where there are as many.

_WORD = re.compile(r"(?<=\s)\S")
_UNSPACED_SCRIPT = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")  # Thai, Lao, Burmese, Khmer
_COMBINING = re.compile(
    "[\u0e31\u0e33-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ecd\u102b-\u103e\u17b4-\u17d3]"
)
_NOT_FIRST = frozenset("、。，．：；？！）」』】〉》”’…ー々ぁぃぅぇぉっゃゅょァィゥェォッャュョ,.!?:;)]%")
_PAUSE = frozenset([*",.;:!?…，、。；：！？"])
_PREFERRED: Final = 0.08  # of the text, that a border at a preferred place may be farther away


def divided(flow: Flow, pieces: Sequence[Piece]) -> list[list[Piece]]:
    """The translated pieces of a block, a list for each of its parts.

    Elements that go over a border are closed before it and opened again behind it.
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
    """Where each part but the first begins, in order."""
    # Behind the white space at a marker.
    marks = [mark + len(text[mark:]) - len(text[mark:].lstrip()) for mark in marked]
    wanted, at = [], 0
    for mark, duration in zip(marked, durations, strict=False):
        at += duration
        wanted.append((mark + len(text) * at / sum(durations)) / 2)
    places = _places(text, len(wanted))
    if len(places) <= len(wanted):
        # At most a word for each cue; the last ones may have none.
        return [*places, *[len(text)] * (len(wanted) - len(places))]
    size, gains = len(text), [_gain(text, place) for place in places]
    number_of = {place: number for number, place in enumerate(places, 1)}
    # What it costs at least to have chosen so many borders, the last of them at each place.
    costs, before = [0.0] * (len(places) + 1), []
    for aim, mark in zip(wanted, marks, strict=True):
        row, best = [float("inf")], float("inf")
        for cost, place, gain in zip(costs, places, gains, strict=False):
            best = cost if cost < best else best
            row.append(best + (abs(place - aim) / size - gain))
        before.append(costs)
        costs = row
        if mark in number_of:
            costs[number_of[mark]] -= _PREFERRED
    chosen = []
    for rest in reversed(before):
        number = min(range(len(costs)), key=costs.__getitem__)
        chosen.append(places[number - 1])
        costs = rest[:number]
    return chosen[::-1]


def _gain(text: str, place: int) -> float:
    """How much better a place is than others, in shares of the text: behind a comma and the like."""
    return _PREFERRED if text[max(0, place - 2) : place].strip()[-1:] in _PAUSE else 0


def _places(text: str, wanted: int) -> list[int]:
    """Where a line or a cue may begin: at words, and between characters of scripts without spaces."""
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
        parts[-1].extend(Close(each.key) for each in reversed(inside))
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
            inside = [each for each in inside if each.key != token.key]
    while waiting:
        border()
    return [_stripped(part) for part in parts]


def _stripped(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces without white space at the ends of their text, and without elements that enclose nothing."""
    found = list(pieces)
    for places, strip in ((range(len(found)), str.lstrip), (range(len(found) - 1, -1, -1), str.rstrip)):
        for place in places:
            piece = found[place]
            if isinstance(piece, str):
                found[place] = strip(piece)
                if found[place]:
                    break
    return [piece for piece in found if piece != ""]


def breaks(text: str, part: Part) -> list[int]:
    """Where lines but the first begin in the text of a part.

    As few lines as keep within the longest that it had, and at most as many as it had, of like lengths.
    """
    had = part.lines
    if len(had) == 1 or len(text) <= max(had):
        return []
    places = _places(text, len(had) - 1)
    paused = [place for place in places if _gain(text, place)]
    # In fewer lines, one at least would be longer.
    lines = min(len(had), max(2, -(-len(text) // (max(had) + 1))))
    while True:
        chosen = _even(text, places, paused, lines)
        longest = max(b - a for a, b in pairwise([0, *chosen, len(text)]))
        if longest <= max(had) + 1 or lines == len(had):
            return chosen
        # Of many lines not every number is tried, so that all together take time by the length of the text.
        lines = min(len(had), lines + 1 + lines // 16)


def _even(text: str, places: Sequence[int], paused: Sequence[int], lines: int) -> list[int]:
    """The places nearest to equal shares of the text, each once; those behind a comma are `paused`."""
    chosen: list[int] = []
    for number in range(1, lines):
        aim = len(text) * number / lines
        later = [*_nearest(places, chosen, aim), *_nearest(paused, chosen, aim)]
        if not later:
            break
        _, best = min((abs(place - aim) / len(text) - _gain(text, place), place) for place in later)
        chosen.append(best)
    return chosen


def _nearest(places: Sequence[int], chosen: Sequence[int], aim: float) -> Iterator[int]:
    """The places behind all chosen ones that are nearest to an aim on both sides."""
    first = bisect_right(places, chosen[-1]) if chosen else 0
    at = bisect_left(places, aim, first)
    yield from places[max(first, at - 1) : at + 1]
