"""Subtitles: SubRip (SRT) and WebVTT.

Only the texts of cues change: numbers, times, positions, styles, comments and blank lines are kept. A
sentence in several cues is one block, and its translation is divided among these cues. The number of lines of
a cue never grows.

The package pysubs2 is not used, because it rewrites files, without positions, styles and comments.
"""

import html
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain, pairwise
from typing import Final

from cotext.data.splitting import UNSPACED_CHARACTER
from cotext.files.blocks import (
    Block,
    Close,
    Copied,
    FileFormat,
    Item,
    Open,
    Piece,
    Point,
    inner,
    mates,
    merged,
    piece_of,
    shown_text,
    writable,
)
from cotext.files.markup import unescaped
from cotext.files.places import Edit, Slot, SplicedFile, decoded
from cotext.runtime import CotextError

# --- Parts: a whole cue, a turn in a dialogue (after a dash), a sound in brackets, or a line of a song. The
# parts of one sentence become one block. Line breaks inside a part are read as white space.

MOST_CUES: Final = 12  # maximum in a block, because the subtitles of some films have no full stops
LONGEST_PAUSE: Final = 3000  # milliseconds between cues of one sentence
_OVERLAP: Final = 500
_SURE_PAUSE: Final = 1000  # up to this pause, a sentence may continue with a capital letter

_TAG_NAME = re.compile(r"<(/*)([a-zA-Z]+)")
_DASH = re.compile(r"\s*[-‐‑–—]+\s*(?=\S)")
_LABEL = re.compile(r"\s*(?:(>>)|[^\W\d_][^:\n]{0,30}:)")  # `>>`, or a name, which must be in capitals
_NOTES = "♪♫♩♬"
_OUTER = f"{_NOTES} \t\u00a0\u3000"
_SOUND = re.compile(r"\s*(?:\[[^\[\]]*\]|\([^()]*\)|（[^（）]*）|【[^【】]*】)\s*")
_END = re.compile(r"[.!?…。！？｡؟۔։।][\"'”’»“«)\]」』）】]*\Z")
_DOTS = re.compile(r"(?:\.\.\.|…)[\"'”’»)]*\Z")


@dataclass(frozen=True, slots=True)
class Syntax:
    """The syntax of cues: tags, line breaks and escapes.

    `marks`: a pattern with the groups "tag" and "break". `enclosing`: names of tags that enclose text; the
    tag `v` begins the text of a speaker. `read` and `write` decode and encode a text.
    """

    marks: re.Pattern[str]
    enclosing: frozenset[str]
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
class Part:
    """A part of a cue; `turn`: a new speaker; `alone`: a separate block; `last`: the last of its cue."""

    cue: Cue
    items: tuple[Item, ...]
    turn: bool
    alone: bool
    last: bool

    @property
    def text(self) -> str:
        """The text without tags, as written in the file, with "\n" for line breaks."""
        return "".join("\n" if each.name == "br" else _visible([each]) for each in self.items)


def parts_of(content: str, cue: Cue, syntax: Syntax) -> Iterator[Part]:
    """Yield the parts of a cue that contain a letter or a digit."""
    lines: list[list[Item]] = [[]]
    for item in _items(content, cue, syntax):
        lines[-1].append(item)
        if item.name == "br":
            lines.append([])
    groups: list[tuple[str, list[Item]]] = []
    # A dash begins a turn if another line has a dash, too, or if the previous line ends a sentence.
    dashes = sum(bool(_DASH.match(_visible(line))) for line in lines) > 1
    for number, line in enumerate(lines):
        dialogue = dashes or (number > 0 and bool(_END.search(_visible(lines[number - 1]).rstrip())))
        kind = _kind(line, dialogue)
        before = groups[-1][0] if groups else "sound"
        if before != "sound" and (kind == "" or kind == before == "song"):
            groups[-1][1].extend(line)
        else:
            groups.append((kind, line))
    parts = []
    for kind, items in groups:
        if any(map(str.isalnum, syntax.read(_visible(items)))):
            parts.append((kind, *_inner(items)))
    for number, (kind, items, dashed) in enumerate(parts, 1):
        turn = kind in ("turn", "speaker") or dashed or (number == 1 and groups[0][0] == "speaker")
        yield Part(cue, tuple(items), turn, kind in ("song", "sound"), number == len(parts))


def _items(content: str, cue: Cue, syntax: Syntax) -> Iterator[Item]:
    at = cue.low
    for match in syntax.marks.finditer(content, cue.low, cue.high):
        if match.start() > at:
            yield Item("text", "", at, match.start(), content[at : match.start()])
        at = match.end()
        tag = _TAG_NAME.match(match[0])
        name, kind = "br" if match.lastgroup == "break" else "", "point"
        if tag and tag[2].lower() in syntax.enclosing:
            name, kind = tag[2].lower(), "close" if tag[1] else "open"
        yield Item(kind, name, *match.span(), match[0])
    if at < cue.high:
        yield Item("text", "", at, cue.high, content[at : cue.high])


def _visible(items: Sequence[Item]) -> str:
    return "".join(item.text for item in items if item.kind == "text")


def _kind(line: Sequence[Item], dialogue: bool) -> str:
    """Return the kind of part that a line begins (turn, speaker, sound, song); "" if it begins no part."""
    text = _visible(line)
    label = _LABEL.match(text)
    if (dialogue and _DASH.match(text)) or (label and (label[1] or label[0].isupper() > text.isupper())):
        return "turn"
    if line and line[0].kind == "open" and line[0].name == "v":
        return "speaker"
    if _SOUND.fullmatch(text):
        return "sound"
    return "song" if set(text) & set(_NOTES) else ""


def _inner(items: Sequence[Item]) -> tuple[list[Item], bool]:
    """Remove outer items that are not translated; return the others, and whether they followed a dash.

    Removed are unpaired tags, pairs of tags around all other items, dashes, notes, white space and line
    breaks. At least one item must have a letter or a digit.
    """
    found, ends, dashed = list(items), mates(items), False
    low, high = inner(found, ends, _OUTER)
    while (first := found[low]).kind == "text":
        kept = first.text.lstrip(_OUTER)
        if not dashed and (dash := _DASH.match(kept)):
            kept, dashed = kept[dash.end() :].lstrip(_OUTER), True
        found[low] = first._replace(start=first.stop - len(kept), text=kept)
        if kept:
            break
        low, high = inner(found, ends, _OUTER)  # only notes follow the dash
    last = found[high - 1]
    if last.kind == "text":
        kept = last.text.rstrip(_OUTER)
        found[high - 1] = last._replace(stop=last.start + len(kept), text=kept)
    return found[low:high], dashed


@dataclass(frozen=True, slots=True)
class Flow:
    """The parts of a block; `raw`: its tags with their end tags, by key. Other points separate parts."""

    parts: tuple[Part, ...]
    block: Block
    raw: dict[int, tuple[str, str]]


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
    text, following = before.text.rstrip(), after.text.lstrip(" \n.…\"'“„»«(")
    if _DOTS.search(text):
        return following[:1].islower()
    if _END.search(text):
        return False
    return following[:1].islower() or two.start - one.end <= _SURE_PAUSE


def _flow(parts: Sequence[Part], syntax: Syntax) -> Flow:
    raw: dict[int, tuple[str, str]] = {}
    pieces: list[Piece] = []
    key = 0
    before = ""  # the last character
    for part in parts:
        if pieces:
            pieces += [_space(before, part.text[:1]), Point(key := key + 1)]
        first = key + 1  # key of the first item
        partners = {first + a: first + b for a, b in mates(part.items).items()}
        # For each item, the text of the next text item.
        texts = accumulate(
            reversed(part.items), lambda text, item: item.text if item.kind == "text" else text, initial=""
        )
        for key, (item, following) in enumerate(zip(part.items, [*texts][-2::-1], strict=True), first):
            if item.kind == "text":
                pieces.append(text := syntax.read(item.text))
                before = text[-1:] or before
            elif item.name == "br":
                pieces.append(space := _space(before, following[:1]))
                before = space or before
            else:
                pieces.append(piece_of(key, item, partners))
                end = part.items[partners[key] - first].text if key in partners else ""
                raw[key] = item.text, end
    first_cue, last_cue = parts[0].cue.number, parts[-1].cue.number
    place = f"cue {first_cue}" if first_cue == last_cue else f"cues {first_cue} to {last_cue}"
    return Flow(tuple(parts), Block(merged(pieces), place), raw)


def _space(before: str, after: str) -> str:
    """Return the space that replaces a line break between two characters."""
    unspaced = all(map(UNSPACED_CHARACTER.match, (before, after))) if before and after else False
    return "" if unspaced or before.isspace() else " "


# --- Division of a translation among cues and into lines.
#
# The aim for a border between cues is the mean of two positions: that of its marker in the translation, and
# the one that gives all cues the same reading speed. The border is placed between the two words nearest to
# the aim. Places after a comma, and that of the marker, are preferred. Each cue has a word, if possible.

_WORD = re.compile(r"(?<=\s)\S")
# Thai, Lao, Burmese and Khmer, without characters that are combined with the one before.
_UNSPACED_SCRIPT = re.compile(
    "(?![\u0e31\u0e33-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ecd\u102b-\u103e\u17b4-\u17d3])"
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"
)
_NOT_FIRST = frozenset("、。，．：；？！）」』】〉》”’…ー々ぁぃぅぇぉっゃゅょァィゥェォッャュョ,.!?:;)]%")
_PAUSE = frozenset([*",.;:!?…，、。；：！？"])
_PREFERRED: Final = 0.08  # a preferred place may be farther from the aim by this share of the text


def divided(flow: Flow, pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Divide the translated pieces of a block among its parts.

    Elements across a border are closed before it and opened again after it.
    """
    tokens = [p for p in pieces if not isinstance(p, Point) or p.key in flow.raw]
    text, marked = "", []
    for piece in pieces:
        if isinstance(piece, str | Copied):
            text += piece if isinstance(piece, str) else piece.text
        elif isinstance(piece, Point) and piece.key not in flow.raw:
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
        # Each cue gets at most one word; the last cues may be empty.
        return [*places, *[len(text)] * (len(aims) - len(places))]
    return _near(len(text), _gains(text, places, marks), places, aims)


def _gains(text: str, places: Sequence[int], marks: Sequence[int] = ()) -> dict[int, float]:
    """Return how much farther from the aim preferred places may be, as a share of the text.

    Places after a pause mark, such as a comma, and the places in `marks` are preferred.
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
    scripts = [UNSPACED_CHARACTER] if len(places) >= wanted else [UNSPACED_CHARACTER, _UNSPACED_SCRIPT]
    for match in chain.from_iterable(script.finditer(text) for script in scripts):
        at = match.start()
        if at and match[0] not in _NOT_FIRST and not text[at - 1].isspace():
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
    for numbers, strip in ((range(len(stripped)), str.lstrip), (range(len(stripped))[::-1], str.rstrip)):
        texts = ((number, piece) for number in numbers if isinstance(piece := stripped[number], str))
        for number, text in texts:
            stripped[number] = strip(text)
            if stripped[number]:
                break
    return [piece for piece in stripped if piece != ""]


def breaks(text: str, part: Part) -> list[int]:
    """Return where the lines of a translated part begin, except the first.

    The number of lines is the smallest for which no line is longer than the longest original line, and at
    most the original number. Lines have similar lengths.
    """
    lengths = list(map(len, part.text.split("\n")))
    if len(lengths) == 1 or len(text) <= max(lengths):
        return []
    places = _places(text, len(lengths) - 1)
    gains = _gains(text, places)
    # With fewer lines, at least one line would be too long.
    lines = min(len(lengths), max(2, -(-len(text) // (max(lengths) + 1))))
    while True:
        aims = [len(text) * number / lines for number in range(1, lines)]
        chosen = _near(len(text), gains, places, aims[: len(places)])
        longest = max(b - a for a, b in pairwise([0, *chosen, len(text)]))
        if longest <= max(lengths) + 1 or lines == len(lengths):
            return chosen
        # If there are many lines, only some numbers are tried, so that the time stays linear.
        lines = min(len(lengths), lines + 1 + lines // 16)


# --- Files.

MOST_CHARACTERS: Final = 5000  # limit of a cue; longer cues are not translated
_LINE: Final = re.compile(r"([^\r\n]*)(?:\r\n|\n|\r|\Z)")
_SRT_CLOCK = r"(\d{1,3}):(\d{1,2}):(\d{1,2})[,.](\d{1,3})"
_SRT_TIME: Final = re.compile(rf"[ \t]*{_SRT_CLOCK}[ \t]*-->[ \t]*{_SRT_CLOCK}")
_VTT_TIME: Final = re.compile(
    r"[ \t]*(?:(\d{2,}):)?(\d\d):(\d\d)\.(\d{3})[ \t]+-->[ \t]+(?:(\d{2,}):)?(\d\d):(\d\d)\.(\d{3})(?=\s|\Z)"
)


SRT: Final = Syntax(
    marks=re.compile(
        r"(?P<tag></?(?:i|b|u|s|font)(?:\s[^<>\r\n]*)?>|\{\\[^{}\r\n]*\})|(?P<break>\r\n|\n|\r)", re.I
    ),
    enclosing=frozenset({"i", "b", "u", "s", "font"}),
    read=str,
    write=lambda text: text.replace("-->", "→"),
)
VTT: Final = Syntax(
    marks=re.compile(r"(?P<tag><rt>[^<>\r\n]*(?:</rt>|(?=</ruby>))|<[^<>\r\n]*>)|(?P<break>\r\n|\n|\r)"),
    enclosing=frozenset({"i", "b", "u", "c", "v", "lang", "ruby"}),
    read=unescaped,
    write=lambda text: html.escape(text, quote=False),
)


def _milliseconds(numbers: Sequence[str | None]) -> int:
    hours, minutes, seconds, parts = (number or "0" for number in numbers)
    return ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1000 + int(parts.ljust(3, "0"))


def _times_of(match: re.Match[str]) -> tuple[int, int]:
    groups = match.groups()
    return _milliseconds(groups[:4]), _milliseconds(groups[4:])


def _srt_cues(lines: list[re.Match[str]]) -> Iterator[Cue]:
    """Yield SubRip cues; the text ends at the number of the next cue, and may contain blank lines."""
    times = [(number, match) for number, line in enumerate(lines) if (match := _SRT_TIME.match(line[1]))]
    for count, (number, match) in enumerate(times, 1):
        is_last = count == len(times)
        text = lines[number + 1 : None if is_last else times[count][0]]
        filled = [place for place, line in enumerate(text) if line[1].strip()]
        # The number of the next cue, after a blank line or not.
        last = text[filled[-1]][1].strip() if filled and not is_last else ""
        if last == str(count + 1) or (last.isdigit() and filled[-1] - 1 not in filled[-2:]):
            filled.pop()
        if filled:
            yield Cue(count, *_times_of(match), text[0].start(1), text[filled[-1]].end(1))


def _vtt_cues(lines: list[re.Match[str]]) -> Iterator[Cue]:
    """Yield WebVTT cues; the text ends at the next blank line."""
    number, count = 0, 0
    while number < len(lines):
        match = _VTT_TIME.match(lines[number][1])
        number += 1
        if not match:
            continue
        count += 1
        first = number
        while number < len(lines) and lines[number][1] and not _VTT_TIME.match(lines[number][1]):
            number += 1
        if number > first:
            yield Cue(count, *_times_of(match), lines[first].start(1), lines[number - 1].end(1))


def _syntax_of(text: str) -> tuple[Syntax, Callable[[list[re.Match[str]]], Iterator[Cue]]] | None:
    """Return the syntax and the reader of cues of subtitles, detected from their first lines."""
    head = text[:4096].lstrip("\r\n\t ")
    if re.match(r"WEBVTT(?:[ \t\r\n]|\Z)", head):
        return VTT, _vtt_cues
    if re.match(rf"(?:\d+[ \t]*(?:\r\n|\n|\r))?{_SRT_TIME.pattern}", head):
        return SRT, _srt_cues
    return None


def _open(content: bytes, name: str) -> SplicedFile:
    """Read subtitles as one document; raise CotextError if a file is not in UTF-8, or not of this format."""
    source = decoded(content, name)
    kind = _syntax_of(source.text)
    if kind is None:
        raise CotextError(f"{name}: not in a known subtitle format; use SubRip (srt) or WebVTT")
    syntax, read_cues = kind
    ends = re.search(r"\r\n|\n|\r", source.text)
    messages = []
    parts: list[Part] = []
    for cue in read_cues([line for line in _LINE.finditer(source.text) if line[0]]):
        if cue.high - cue.low > MOST_CHARACTERS:
            messages.append(f"cue {cue.number}: not translated: more than {MOST_CHARACTERS:,} characters")
        else:
            parts += parts_of(source.text, cue, syntax)
    edits = partial(_edits, syntax=syntax, line_break=ends[0] if ends else "\n")
    slots = [Slot((flow.block,), partial(edits, flow)) for flow in flows_of(parts, syntax)]
    return SplicedFile(source, [slots], messages)


def _edits(flow: Flow, blocks: Sequence[Block], syntax: Syntax, line_break: str) -> Iterator[Edit]:
    [block] = blocks
    for part, pieces in zip(flow.parts, divided(flow, writable(block).pieces), strict=True):
        text = _written(flow, part, pieces, syntax, line_break)
        yield part.items[0].start, part.items[-1].stop, text


def _written(flow: Flow, part: Part, pieces: Sequence[Piece], syntax: Syntax, line_break: str) -> str:
    """Return the text of a part of a cue, with tags and line breaks."""
    waiting = breaks(shown_text(pieces), part)
    texts: list[str] = []
    position = 0
    for piece in pieces:
        if isinstance(piece, str | Copied):
            text = piece if isinstance(piece, str) else piece.text
            here = [place for place in waiting if position <= place < position + len(text)]
            waiting = waiting[len(here) :]
            edges = pairwise([position, *here, position + len(text)])
            rows = [text[a - position : b - position] for a, b in edges]
            written = [syntax.write(" ".join(row.splitlines())) for row in rows]
            texts.append(line_break.join([*(row.rstrip(" ") for row in written[:-1]), written[-1]]))
            position += len(text)
            continue
        if waiting and waiting[0] == position and not isinstance(piece, Close):
            texts[-1:] = [texts[-1].rstrip(" "), line_break]
            del waiting[0]
        opening, closing = flow.raw[piece.key]
        texts.append(closing if isinstance(piece, Close) else opening)
    return "".join(texts)


FORMAT: Final = FileFormat(
    "subtitles",
    (".srt", ".vtt"),
    lambda head: _syntax_of(head.decode("utf-8-sig", "ignore")) is not None,
    _open,
)
