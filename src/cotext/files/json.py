"""JSON catalogues of strings: i18next, vue-i18n, Flutter (ARB), and any other nested object of messages.

Every string that is a value is a block, or a block for each of its lines, in the order of the file; its place
is its path of keys. Keys, numbers, white space and the way in which characters are escaped stay. Entries of
ARB whose key begins with "@" describe others and stay. Plural and select messages of ICU are translated by
their branches; see `cotext.files.icu`.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from cotext.files.blocks import Block
from cotext.files.icu import Message, message_of
from cotext.files.places import Edit, Lines, Slot, SplicedFile, decoded
from cotext.files.strings import Markers
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.reading import parse_json

MAX_DEPTH: Final = 100
MAX_ADDRESS: Final = 300  # characters
_TOKEN = re.compile(r'("[^"\\]*+(?:\\.[^"\\]*+)*+")|([\[\]{}:,])|[^\s"\[\]{}:,]+')
_OBJECT = re.compile(rb'\s*\{\s*(?:"(?:[^"\\]|\\.)*"\s*:|\}\s*$)')
_LIST = re.compile(rb'\s*\[\s*(?:["\[{]|\]\s*$)')
_CORPUS_KEYS: Final = ("sentences", "source", "target", "tgt_lang", "src_text", "hypothesis")
_HEAD_BYTES: Final = 1 << 18
_ADDRESS = re.compile(
    r"\s*(?:[a-z][a-z0-9+.-]*://|mailto:|www\.)\S+\s*|\s*\S[^\s@]*+@\S+\.\w+\s*", re.IGNORECASE
)
# {{name}}, {name}, %{name}, ${name}, $t(key), @:key, %s, %1$d
MARKERS: Final = Markers(
    re.compile(
        r"\{\{[^{}]*\}\}|[%$]?\{[^{}]*\}|\$t\([^()]*\)|@(?:\.\w+)?:(?:\([\w.-]+\)|[\w.-]*\w)"
        r"|%(?:\d+\$)?[-+#0]*(?:[1-9]\d*)?(?:\.\d+)?(?:l{1,2}|h)?[diouxXeEfgGcs@](?![^\W\d_])|%\([^()]*\)[a-z]"
    )
)


@dataclass(frozen=True, slots=True)
class Json:
    """The format JSON, of catalogues of strings."""

    name: str = "json"
    suffixes: tuple[str, ...] = (".json", ".arb")

    def recognises(self, head: bytes) -> bool:
        """An object or a list, unless its lines are the documents of a corpus or of a shared task."""
        head = head.removeprefix(b"\xef\xbb\xbf")
        if head.startswith((b"\xff\xfe", b"\xfe\xff")):
            head = head.decode("utf-16", "ignore").encode()
        if not _OBJECT.match(head) and not _LIST.match(head):
            return False
        first, *others = head.strip().split(b"\n", 1)
        try:
            value = json.loads(first)
        except (ValueError, RecursionError):
            # Over several lines, or on one that is cut or damaged.
            return _OBJECT.match(head) is not None or len(head) >= _HEAD_BYTES or _is_json(head)
        return not others and not (isinstance(value, dict) and any(key in value for key in _CORPUS_KEYS))

    def open(self, content: bytes, name: str) -> SplicedFile:
        """Read a catalogue; raises CotextError for what is not JSON, and where it is nested too deep."""
        source = decoded(content, name)
        parse_json(source.text, name, numbers=False)
        messages: list[str] = []
        slots = list(_slots(source.text, name, messages))
        return SplicedFile(
            source.text, partial(source.encoded, name=name), [slots] if slots else [], messages
        )


FORMAT = Json()


def _is_json(head: bytes) -> bool:
    try:
        json.loads(head)
    except (ValueError, RecursionError):
        return False
    return True


@dataclass(slots=True)
class _Level:
    """An object (with the key that is being read) or a list (with the number of its value)."""

    is_object: bool
    key: str = ""
    number: int = 0
    wants_key: bool = False

    @property
    def step(self) -> str:
        return f".{self.key}" if self.is_object else f"[{self.number}]"


def _strings(text: str, name: str) -> Iterator[tuple[re.Match[str], list[_Level]]]:
    """String values of a valid JSON text, with where they are."""
    levels: list[_Level] = []
    for token in _TOKEN.finditer(text):
        mark = token[2]
        if mark in ("{", "["):
            if len(levels) == MAX_DEPTH:
                line = Lines(text).of(token.start())
                raise CotextError(f"{name}:{line}: nested deeper than {MAX_DEPTH} levels")
            levels.append(_Level(mark == "{", wants_key=mark == "{"))
        elif mark in ("}", "]"):
            levels.pop()
        elif mark == ",":
            levels[-1].number += 1
            levels[-1].wants_key = levels[-1].is_object
        elif token[1] is not None:
            if levels and levels[-1].wants_key:
                levels[-1].key, levels[-1].wants_key = json.loads(token[1]), False
            else:
                yield token, levels


def _slots(text: str, name: str, messages: list[str]) -> Iterator[Slot]:
    lines = Lines(text)
    as_ascii = text.isascii() and "\\u" in text
    for token, levels in _strings(text, name):
        path = "".join(level.step for level in levels).lstrip(".")
        if levels and levels[0].is_object and levels[0].key.startswith("@"):
            if path == "@@locale":
                messages.append(f"@@locale stays {token[1]}; name the language of the translation there")
            continue
        quoted = partial(_quoted, as_ascii=as_ascii, slashes="\\/" in token[1])
        place = f"line {lines.of(token.start())}, {path or 'the only string'}"
        slot = string_slot(json.loads(token[1]), token.span(), place, quoted, messages)
        if slot is not None:
            yield slot


def _quoted(text: str, as_ascii: bool, slashes: bool) -> str:
    quoted = json.dumps(text, ensure_ascii=as_ascii)
    return quoted.replace("/", "\\/") if slashes else quoted


def string_slot(
    text: str, place: tuple[int, int], where: str, quoted: Callable[[str], str], messages: list[str]
) -> Slot | None:
    """The slot of a string at a place of its file; None where it has nothing to translate."""
    if len(text) <= MAX_ADDRESS and _ADDRESS.fullmatch(text):
        return None
    message = message_of(text, MARKERS)
    if message is None:
        messages.append(
            f"{where}: a message of several plurals or choices in one sentence stays: {shown(text)}"
        )
        return None
    blocks = tuple(Block(paragraph.pieces, where) for paragraph in message.paragraphs)
    return Slot(blocks, partial(_edits, message, place, quoted)) if blocks else None


def _edits(
    message: Message, place: tuple[int, int], quoted: Callable[[str], str], blocks: Sequence[Block]
) -> Iterator[Edit]:
    yield *place, quoted(message.written([block.pieces for block in blocks]))
