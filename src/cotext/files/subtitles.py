"""Subtitles: SubRip (SRT) and WebVTT.

Only the texts of cues change: numbers, times, positions, styles, comments and blank lines are kept. A
sentence in several cues is one block, and its translation is divided among these cues (`cue_text.divided`).
The number of lines of a cue never grows.

The package pysubs2 is not used, because it writes files anew, without positions, styles and comments.
"""

import html
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Final

from cotext.files.blocks import Block, Close, Copied, FileFormat, Piece, shown_text, writable
from cotext.files.cue_text import Cue, Flow, Part, Syntax, Token, breaks, divided, flows_of, parts_of
from cotext.files.markup import unescaped
from cotext.files.places import Edit, Slot, SplicedFile
from cotext.files.text import BYTE_ORDER_MARK, decoded
from cotext.runtime.errors import CotextError

MOST_CHARACTERS: Final = 5000  # limit of a cue; longer cues are not translated
_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\n|\r|\Z)")
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
    speaker="",
    read=str,
    write=lambda text: text.replace("-->", "→"),
)
VTT: Final = Syntax(
    marks=re.compile(r"(?P<tag><[^<>\r\n]*>)|(?P<break>\r\n|\n|\r)"),
    enclosing=frozenset({"i", "b", "u", "c", "v", "lang", "ruby", "rt"}),
    speaker="v",
    read=unescaped,
    write=lambda text: html.escape(text, quote=False),
)


def _lines(content: str, start: int) -> list[Token]:
    """Return the lines of a text, without line endings."""
    matches = _LINE.finditer(content, start)
    return [Token("line", match[0].rstrip("\r\n"), match.start()) for match in matches if match[0]]


def _milliseconds(numbers: Sequence[str | None]) -> int:
    hours, minutes, seconds, parts = (number or "0" for number in numbers)
    return ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1000 + int(parts.ljust(3, "0"))


def _timed(match: re.Match[str]) -> tuple[int, int]:
    groups = match.groups()
    return _milliseconds(groups[:4]), _milliseconds(groups[4:])


def _srt_cues(lines: list[Token]) -> Iterator[Cue]:
    """Yield SubRip cues; the text ends at the number of the next cue, and may contain blank lines."""
    times = [(number, match) for number, line in enumerate(lines) if (match := _SRT_TIME.match(line.raw))]
    for count, (number, match) in enumerate(times, 1):
        stop = times[count][0] if count < len(times) else len(lines)
        text = lines[number + 1 : stop]
        counted = [place for place, line in enumerate(text) if line.raw.strip()][-1:]
        # The number of the next cue, after a blank line.
        if count < len(times) and counted and text[counted[0]].raw.strip().isdigit():
            before = text[counted[0] - 1].raw.strip() if counted[0] else ""
            text = text if before else text[: counted[0]]
        while text and not text[-1].raw.strip():
            text.pop()
        if text:
            yield Cue(count, *_timed(match), text[0].low, text[-1].high)


def _vtt_cues(lines: list[Token]) -> Iterator[Cue]:
    """Yield WebVTT cues; the text ends at the next blank line."""
    number, count = 0, 0
    while number < len(lines):
        match = _VTT_TIME.match(lines[number].raw)
        number += 1
        if not match:
            continue
        count += 1
        first = number
        while number < len(lines) and lines[number].raw and not _VTT_TIME.match(lines[number].raw):
            number += 1
        if number > first:
            yield Cue(count, *_timed(match), lines[first].low, lines[number - 1].high)


def _kind(text: str) -> tuple[Syntax, Callable[[list[Token]], Iterator[Cue]]] | None:
    """Return the syntax and the reader of cues of subtitles, detected from their first lines."""
    head = text.removeprefix(BYTE_ORDER_MARK)[:4096].lstrip("\r\n\t ")
    if re.match(r"WEBVTT(?:[ \t\r\n]|\Z)", head):
        return VTT, _vtt_cues
    if re.match(rf"(?:\d+[ \t]*(?:\r\n|\n|\r))?{_SRT_TIME.pattern}", head):
        return SRT, _srt_cues
    return None


def _open(content: bytes, name: str) -> SplicedFile:
    """Read subtitles as one document; raise CotextError for other files, and if they are not UTF-8."""
    text = decoded(content, name)
    kind = _kind(text)
    if kind is None:
        raise CotextError(f"{name}: not in a known subtitle format; use SubRip (srt) or WebVTT")
    syntax, read_cues = kind
    ends = re.search(r"\r\n|\n|\r", text)
    messages = []
    parts: list[Part] = []
    start = len(BYTE_ORDER_MARK) if text.startswith(BYTE_ORDER_MARK) else 0
    for cue in read_cues(_lines(text, start)):
        if cue.high - cue.low > MOST_CHARACTERS:
            messages.append(f"cue {cue.number}: not translated: more than {MOST_CHARACTERS:,} characters")
        else:
            parts += parts_of(text, cue, syntax)
    edits = partial(_edits, syntax=syntax, line_break=ends[0] if ends else "\n")
    slots = [Slot((flow.block,), partial(edits, flow)) for flow in flows_of(parts, syntax)]
    return SplicedFile(text, str.encode, [slots], messages)


def _edits(flow: Flow, blocks: Sequence[Block], syntax: Syntax, line_break: str) -> Iterator[Edit]:
    [block] = blocks
    for part, pieces in zip(flow.parts, divided(flow, writable(block).pieces), strict=True):
        text = _written(flow, part, pieces, syntax, line_break)
        yield part.tokens[0].low, part.tokens[-1].high, text


def _written(flow: Flow, part: Part, pieces: Sequence[Piece], syntax: Syntax, line_break: str) -> str:
    """Return the text of a part of a cue, with tags and line breaks."""
    waiting = breaks(shown_text(pieces), part)
    texts: list[str] = []
    position = 0
    for piece in pieces:
        if isinstance(piece, str | Copied):
            text = piece if isinstance(piece, str) else piece.text
            inner = [place for place in waiting if position <= place < position + len(text)]
            waiting = waiting[len(inner) :]
            rows = [
                text[a - position : b - position]
                for a, b in pairwise([position, *inner, position + len(text)])
            ]
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
    lambda head: _kind(head.decode(errors="ignore")) is not None,
    _open,
)
