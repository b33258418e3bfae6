"""YAML catalogues of strings: Rails, vue-i18n, Symfony, and any other nested mapping of messages.

Every scalar that is a string and a value is a block, or a block for each of its lines, in the order of the
file; its place is its path of keys. Keys, comments, numbers, dates, booleans ("yes" and "no" too, as Rails
reads them), symbols (":year"), tagged values, anchors and aliases stay. A translation keeps the style of its
scalar (plain, quoted, literal, folded) where that holds it, and is quoted otherwise.
"""

import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Final

import yaml

from cotext.files.json import string_slot
from cotext.files.places import Slot, SplicedFile, decoded
from cotext.runtime.errors import CotextError

MAX_DEPTH: Final = 50
MAX_CHARACTERS: Final = 1 << 22  # the parser takes five microseconds for each
_KEY_LINE = re.compile(
    r"(?:\"[^\"]*\"|'[^']*'|[A-Za-z_][\w.-]*)\s*:(?:\s.*)?$|-(?:\s.*)?$|---.*$|\.\.\.$|[\]}],?$|%YAML"
)
_PROPERTIES: Final = re.compile(r"(?:[&!]\S*\s+)*")  # an anchor and a tag
_STRING: Final = "tag:yaml.org,2002:str"
_BLOCK_HEAD: Final = re.compile(r"[|>][^\n]*\n")
# What YAML does not take, or takes for an end of a line, but for what JSON escapes already.
_UNPRINTABLE: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_HEAD_BYTES: Final = 1 << 18
_LANGUAGE: Final = re.compile(r"[a-z]{2,3}(?:[-_][A-Za-z]{2,4})?")


@dataclass(frozen=True, slots=True)
class Yaml:
    """The format YAML, of catalogues of strings."""

    name: str = "yaml"
    suffixes: tuple[str, ...] = (".yaml", ".yml")

    def recognises(self, head: bytes) -> bool:
        """Every line that is not indented, and no comment, is a key without spaces, or an item of a list."""
        text = head.removeprefix(b"\xef\xbb\xbf").decode(errors="replace")
        lines = re.split(r"\r\n|\n|\r", text)
        if len(head) >= _HEAD_BYTES:
            lines.pop()
        bare = [line for line in lines if line.strip() and line[0] not in " \t#"]
        keyed = [line for line in bare if not line.startswith(("-", "]", "}", "."))]
        return bool(keyed) and all(_KEY_LINE.match(line) for line in bare)

    def open(self, content: bytes, name: str) -> SplicedFile:
        """Read a catalogue; raises CotextError for what is not YAML, and beyond limits."""
        source = decoded(content, name)
        if len(source.text) > MAX_CHARACTERS:
            raise CotextError(f"{name}: more than {MAX_CHARACTERS:,} characters; split the catalogue")
        reader = _Reader(source.text, name)
        slots = list(reader.slots())
        encode = partial(source.encoded, name=name)
        return SplicedFile(source.text, encode, [slots] if slots else [], reader.messages)


FORMAT = Yaml()


@dataclass(slots=True)
class _Level:
    """A mapping (with the key that is being read) or a list (with the number of its value)."""

    is_mapping: bool
    flow: bool
    in_key: bool  # inside of a key, where nothing is translated
    key: str | None = None
    wants_key: bool = True
    number: int = 0

    @property
    def step(self) -> str:
        return f".{self.key}" if self.is_mapping else f"[{self.number}]"

    def passed(self) -> None:
        """A value, or a key, has ended."""
        self.number += not self.is_mapping
        self.wants_key = not self.wants_key


class _Reader:
    """The events of a file on their way to slots."""

    def __init__(self, text: str, name: str) -> None:
        self._text, self._name = text, name
        self._break = "\r\n" if "\r\n" in text else "\n"
        self._resolver: Any = yaml.SafeLoader("")
        self._levels: list[_Level] = []
        self.messages: list[str] = []

    def slots(self) -> Iterator[Slot]:
        """Slots of all values that are strings."""
        for event in _events(self._text, self._name):
            levels = self._levels
            kind = type(event).__name__
            if kind in ("MappingStartEvent", "SequenceStartEvent"):
                if len(levels) == MAX_DEPTH:
                    line = event.start_mark.line + 1
                    raise CotextError(f"{self._name}:{line}: nested deeper than {MAX_DEPTH} levels")
                in_key = bool(levels) and (levels[-1].in_key or self._at_key())
                levels.append(_Level(kind == "MappingStartEvent", bool(event.flow_style), in_key))
            elif kind in ("MappingEndEvent", "SequenceEndEvent"):
                levels.pop()
                self._passed(None)
            elif kind == "AliasEvent":
                self._passed(None)
            elif kind == "ScalarEvent":
                at_key = self._at_key()
                if not at_key and not (levels and levels[-1].in_key):
                    slot = self._slot(event)
                    if slot is not None:
                        yield slot
                self._passed(event.value)
                if at_key and len(levels) == 1 and event.start_mark.index == self._first_key(event):
                    self.messages.append(
                        f"line {event.start_mark.line + 1}: the key {event.value!r} seems to name the "
                        "language, and stays; rename it where a program needs that"
                    )

    def _first_key(self, event: Any) -> int:
        """Where a top key stands if it is a code of a language, else nowhere."""
        return event.start_mark.index if _LANGUAGE.fullmatch(event.value) else -1

    def _at_key(self) -> bool:
        return bool(self._levels) and self._levels[-1].is_mapping and self._levels[-1].wants_key

    def _passed(self, value: str | None) -> None:
        if self._levels:
            if self._at_key():
                self._levels[-1].key = value
            self._levels[-1].passed()

    def _slot(self, event: Any) -> Slot | None:
        path = "".join(level.step for level in self._levels).lstrip(".")
        where = f"line {event.start_mark.line + 1}, {path or 'the only string'}"
        if event.tag not in (None, "!", _STRING):
            self.messages.append(f"{where}: a value tagged {event.tag} stays")
            return None
        style = event.style
        if style is None and event.tag is None and not self._is_plain_string(event.value):
            return None
        start, stop = event.start_mark.index, event.end_mark.index
        if (event.anchor or event.tag) and (properties := _PROPERTIES.match(self._text, start)):
            start = properties.end()
        raw = self._text[start:stop]
        if style in ("|", ">"):
            # Empty lines at the end, which may count, stay where they are.
            raw = raw.rstrip("\r\n\t ")
        flow = any(level.flow for level in self._levels)
        written = partial(self._written, raw=raw, style=style, flow=flow)
        return string_slot(event.value, (start, start + len(raw)), where, written, self.messages)

    def _is_plain_string(self, value: str) -> bool:
        return not re.fullmatch(r":\w+", value) and self._tag(value) == _STRING

    def _tag(self, value: str) -> str:
        return str(self._resolver.resolve(yaml.ScalarNode, value, (True, False)))

    def _written(self, text: str, raw: str, style: str | None, flow: bool) -> str:
        """A text in the style of the scalar that it replaces, or in double quotes."""
        if style in ("|", ">"):
            block = self._block(text, raw, style)
            if block is not None:
                return block
        elif style == "'" and text.isprintable():
            quoted = text.replace("'", "''")
            return f"'{quoted}'"
        elif style is None and self._stands_plain(text, flow):
            return text
        return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))

    def _stands_plain(self, text: str, flow: bool) -> bool:
        if not text.isprintable() or not self._is_plain_string(text):
            return False
        found = _scalars(f"k: [{text}]" if flow else f"k: {text}\n")
        return found == [("k", None), (text, None)]

    def _block(self, text: str, raw: str, style: str) -> str | None:
        """A literal or folded scalar with the head and the indentation of the old one."""
        head = _BLOCK_HEAD.match(raw)
        if head is None:
            return None
        content = raw[head.end() :]
        indents = [len(line) - len(line.lstrip(" ")) for line in content.splitlines() if line.strip()]
        indent = min(indents, default=0)
        lines = text.rstrip("\n").split("\n")
        between = self._break * (2 if style == ">" else 1)
        inner = between.join(" " * indent + line if line else "" for line in lines)
        written = head[0].replace("\r\n", "\n")
        found = _scalars(f"k:\n k: {written}{inner}\n")
        if indent < 2 or not found or found[-1][0].rstrip("\n") != text.rstrip("\n"):
            return None
        return head[0] + inner


def _events(text: str, name: str) -> Iterator[Any]:
    """The events of the parser, with places; nothing is built of them, and no alias is followed."""
    try:
        library = import_module("ruamel.yaml")
    except ImportError:
        raise CotextError(
            "ruamel.yaml is not installed, which reads YAML; install cotext with `pip install cotext[files]`"
        ) from None
    parser = library.YAML(typ="safe", pure=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield from parser.parse(text)
    except library.error.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark else name
        raise CotextError(f"{where}: not valid YAML: {error.problem or error.context}") from None
    except (library.error.YAMLError, ValueError, RecursionError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise CotextError(f"{name}: not valid YAML: {reason}") from None


def _scalars(text: str) -> list[tuple[str, str | None]]:
    """The scalars of a YAML text with their styles; none where it is not valid, of version 1.1 too."""
    try:
        events = list(yaml.parse(text))
    except yaml.YAMLError:
        return []
    return [(event.value, event.style) for event in events if isinstance(event, yaml.ScalarEvent)]
