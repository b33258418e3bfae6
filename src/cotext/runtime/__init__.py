"""The version of Cotext, errors that a user can correct, and the reading of untrusted files."""

import json
import math
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from difflib import get_close_matches
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from reprlib import Repr
from typing import Any, Final

import yaml

__version__ = "0.2.0"
SHOWN_CHARACTERS = 100

_REPR = Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = SHOWN_CHARACTERS


class CotextError(Exception):
    """An error that the user can correct. The message states what is wrong, where, and what to do.

    The command line prints only the message, without a traceback, and exits with code 2.
    """


@contextmanager
def naming(*places: object) -> Iterator[None]:
    """Add the first place, such as a file, to errors of the block that begin with none of the places."""
    try:
        yield
    except CotextError as error:
        place = "" if str(error).startswith(tuple(map(str, places))) else f"{places[0]}: "
        raise CotextError(f"{place}{error}") from None


def optional_module(name: str, extra: str, what: str) -> Any:
    """Return a module that `what` needs; if it is missing, raise CotextError that names its `extra`."""
    try:
        return import_module(name)
    except ImportError as error:
        missing = (error.name or name).partition(".")[0]
        raise CotextError(
            f"{what} needs {missing}: pip install '.[{extra}]' in Cotext's repository"
        ) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out. On a CPU, torch reports this only in the text of a RuntimeError."""
    text = str(error)
    return isinstance(error, MemoryError) or "can't allocate memory" in text or "out of memory" in text


def shown(value: object) -> str:
    """Return the `repr` of a value for a message, with the middle of long values left out.

    Lone surrogates, which a terminal may be unable to print, are escaped.
    """
    try:
        text = _REPR.repr(value)
    except ValueError:  # an integer with more digits than Python converts to text
        return f"a number of more than {SHOWN_CHARACTERS} digits"
    half = SHOWN_CHARACTERS
    return text if len(text) <= 2 * half else f"{text[:half]}...{text[-half:]}"


def visible(line: str) -> str:
    """Escape control characters, lone surrogates and characters that change the direction of text."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


def nearest(word: str, known: Iterable[str], count: int = 1) -> list[str]:
    """Return the known words most similar to `word`, best first; an empty list if none is similar.

    `word` may lack the sections of a key, or the folder of a recipe.
    """
    words = list(known)
    spellings = {re.split("[./]", name)[-1]: name for name in reversed(words)}
    spellings |= {name: name for name in words}
    # The time of the comparison grows with the length, and such a long word is unlike all known words.
    matches = get_close_matches(word[:SHOWN_CHARACTERS], spellings, count)
    return list(dict.fromkeys(spellings[match] for match in matches))


def nearest_known(word: str, known: Iterable[str]) -> str:
    """Return a hint with the nearest known word, to append to a message; empty if no word is similar."""
    near = nearest(word, known)
    return f"; the nearest known one is '{near[0]}'" if near else ""


# --- Reading of untrusted files within limits: descriptions, configurations, JSON and YAML.
#
# In a downloaded folder, a file may be a device or endless. A small text may be parsed to a huge object, or
# contain a number of any length. Corpora are read as streams and have separate limits: see
# `cotext.data.formats.streams`.


MAX_DESCRIPTION_BYTES: Final = 1 << 20  # of a file that describes others, such as a report
MAX_YAML_CHARACTERS: Final = 1 << 16  # of a configuration; 40 times the longest recipe of the package
MAX_YAML_DEPTH: Final = 20
MAX_YAML_NUMBER: Final = 40  # characters
MAX_JSON_WHOLE: Final = 2**63  # integers of 64 bits
PART: Final = 1 << 18  # characters; a substitution in a text of this length takes at most 20 ms

_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
SURROGATE = re.compile("[\ud800-\udfff]")  # lone surrogates cannot be encoded
# In YAML 1.1, 010 is 8, 1:30 is 90, and no (Norwegian) is false. Here they are texts, as in YAML 1.2.
_TEXTS = re.compile(r"[-+]?0[0-7_]+|.*:.*|(?i:yes|no|on|off)")
# Dates would become objects, which are invalid for all settings; << would merge mappings; = is an error.
_UNRESOLVED = {f"tag:yaml.org,2002:{name}" for name in ("timestamp", "merge", "value")}


def read_bytes(path: Path, max_bytes: int = MAX_DESCRIPTION_BYTES) -> bytes:
    """Return the content of a regular file.

    Raises CotextError if it is missing, a folder, a pipe or a device, not readable, or longer than
    `max_bytes`.
    """
    try:
        if path.exists() and not path.is_file():
            what = "a folder" if path.is_dir() else "not a regular file"
            raise CotextError(f"{path}: cannot be read: it is {what}")
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise CotextError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(content) > max_bytes:
        raise CotextError(
            f"{path}: cannot be read: longer than the {max_bytes:,} bytes that such a file may have"
        )
    return content


def read_text(path: Path, max_bytes: int = MAX_DESCRIPTION_BYTES) -> str:
    """Return the text of a file; raises CotextError like `read_bytes`, and if it is not UTF-8."""
    try:
        return read_bytes(path, max_bytes).decode()
    except UnicodeDecodeError:
        raise CotextError(f"{path}: cannot be read: not a text in UTF-8") from None


def read_json(path: Path, max_bytes: int = MAX_DESCRIPTION_BYTES) -> dict[str, Any]:
    """Return the JSON object in a regular file; raise CotextError if it contains anything else."""
    content = parse_json(read_text(path, max_bytes), str(path))
    if not isinstance(content, dict):
        raise CotextError(f"{path}: damaged: not a JSON object")
    return content


def parse_json(text: str, where: str, numbers: bool = True, unique: bool = False) -> Any:
    """Parse a JSON text; `where` names it in messages. Without `numbers`, every number is read as 0.

    `unique`: reject duplicate keys, which JSON parsers treat differently. Raises CotextError if the text is
    not JSON or nested too deep, or contains a lone surrogate, NaN, infinity or an integer over 64 bits.
    """
    try:
        value = (_JSON_UNIQUE if unique else _JSON if numbers else _JSON_WITHOUT_NUMBERS).decode(text)
        # Only an escape can produce a surrogate, so the value is searched only if the text has one.
        has_escape = _ESCAPED_SURROGATE.search(text)
        has_surrogate = has_escape and SURROGATE.search(json.dumps(value, ensure_ascii=False))
    except json.JSONDecodeError as error:
        line = f"line {error.lineno} " if "\n" in text else ""
        raise CotextError(f"{where}: not valid JSON, {line}column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise CotextError(f"{where}: not valid JSON: nested too deep") from None
    except ValueError as error:
        raise CotextError(f"{where}: not valid JSON: {error}") from None
    if has_surrogate:
        raise CotextError(f"{where}: contains half a character (a lone surrogate); correct its \\u escapes")
    return value


def _whole(digits: str) -> int:
    # The length is compared first, because Python does not convert thousands of digits.
    if len(digits) > len(str(MAX_JSON_WHOLE)) + 1 or not -MAX_JSON_WHOLE <= int(digits) < MAX_JSON_WHOLE:
        raise ValueError(f"the number {shown(digits)} does not fit into 64 bits")
    return int(digits)


def _finite(number: str) -> float:
    if not math.isfinite(float(number)):
        raise ValueError(f"the number {shown(number)} is not finite")
    return float(number)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for key, value in pairs:
        if key in mapping:
            raise ValueError(f"the key {shown(key)} is duplicated")
        mapping[key] = value
    return mapping


_NUMBERS: Final[dict[str, Any]] = {"parse_int": _whole, "parse_float": _finite, "parse_constant": _finite}
_ZEROS: Final[dict[str, Any]] = dict.fromkeys(_NUMBERS, lambda number: 0)
_JSON = json.JSONDecoder(**_NUMBERS)
_JSON_UNIQUE = json.JSONDecoder(**_NUMBERS, object_pairs_hook=_unique)
_JSON_WITHOUT_NUMBERS = json.JSONDecoder(**_ZEROS)


def substituted(pattern: re.Pattern[str], replacement: str, text: str) -> str:
    """Return `pattern.sub(replacement, text)`, computed in parts: a single call would block all threads.

    This works only for patterns that match one character or a run of characters of one kind. A part ends
    after a run, or at the maximum length if there is no run.
    """
    parts, start = [], 0
    while start < len(text):
        stop = start + 2 * PART
        if first := pattern.search(text, start + PART, stop):
            run = pattern.match(text, first.start())
            stop = run.end() if run else stop
        parts.append(pattern.sub(replacement, text[start:stop]))
        start = stop
    return "".join(parts)


def leaves(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a nested mapping with their dotted keys."""
    for key, value in content.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def parse_yaml(text: str, where: str) -> Any:
    """Parse a YAML text of mappings, lists, texts, numbers, true, false and null.

    Dates, 010, 1:30, yes, no, on and off are texts. Messages begin with `where`. Raises CotextError if the
    text is not YAML, is too long or is nested too deeply. Also rejected: anchors, aliases, tags, duplicate
    keys, lone surrogates, NUL and very long numbers.
    """
    if len(text) > MAX_YAML_CHARACTERS:
        raise CotextError(f"{where} is not valid YAML: more than {MAX_YAML_CHARACTERS:,} characters")
    try:
        return deepcopy(_value_of_yaml(text))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where_in_text = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        raise CotextError(f"{where} is not valid YAML: {where_in_text}{error.problem}") from None
    except yaml.YAMLError as error:
        raise CotextError(f"{where} is not valid YAML: {str(error).splitlines()[0]}") from None


@lru_cache(maxsize=256)
def _value_of_yaml(text: str) -> Any:
    """Parse a YAML text; cached, because all files of a run contain the same configuration.

    The cache holds all shipped recipes, which are read together to find the recipe of a run.
    """
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


_RESOLVERS = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _UNRESOLVED]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Loader(yaml.SafeLoader):
    """A YAML loader without anchors, tags and other constructs that expand a text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.yaml_implicit_resolvers = _RESOLVERS
        self._depth = 0

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> Any:
        if kind is yaml.ScalarNode and _TEXTS.fullmatch(value):
            return self.DEFAULT_SCALAR_TAG
        return super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if event.anchor is not None:
            raise _refusal("anchors and aliases (& and *) are not supported; write the values instead", event)
        if event.tag is not None:
            raise _refusal("tags (!) are not supported", event)
        if self._depth == MAX_YAML_DEPTH:
            raise _refusal("nested too deep", event)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        mapping = super().construct_mapping(node, deep)
        if len(mapping) < len(node.value):
            seen: set[Hashable] = set()
            for key_node, _ in node.value:
                key = self.construct_object(key_node, deep=True)
                if key in seen:
                    raise _refusal(f"the key {shown(key)} is duplicated", key_node)
                seen.add(key)
        return mapping

    def construct_scalar(self, node: Any) -> Any:
        text = super().construct_scalar(node)
        if node.tag != self.DEFAULT_SCALAR_TAG and len(text) > MAX_YAML_NUMBER:
            raise _refusal("a number that long is not supported", node)
        if "\0" in text or SURROGATE.search(text):
            raise _refusal("half a character (a lone surrogate), or NUL; correct the escapes", node)
        return text

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except ValueError as error:  # such as 0x_, which is resolved as a number
            raise _refusal(str(error), node) from None


def _refusal(problem: str, node: Any) -> yaml.YAMLError:
    """Return an error with the position of an event or a node."""
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
