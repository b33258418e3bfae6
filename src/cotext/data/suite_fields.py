"""Fields of contrastive suites as files hold them: read with a message that names the example and the key."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite
from cotext.runtime.errors import CotextError, shown


def gathered(
    path: Path, name: str, source_language: str, target_language: str, examples: Iterable[ContrastiveExample]
) -> ContrastiveSuite:
    """Gather the examples; what the types refuse is reported with the file it stands in."""
    try:
        return ContrastiveSuite(name, source_language, target_language, tuple(examples))
    except CotextError as error:
        message = str(error)
        raise CotextError(message if message.startswith(str(path)) else f"{path}: {message}") from None


def sharing() -> Callable[[str], str]:
    """A function that gives equal strings back as one object: candidates repeat their document."""
    seen: dict[str, str] = {}
    return lambda sentence: seen.setdefault(sentence, sentence)


def sentences_of(value: Any, key: str, where: str, share: Callable[[str], str]) -> tuple[str, ...]:
    """A list of sentences; raises CotextError for anything else."""
    if not isinstance(value, list):
        raise CotextError(f"{where}: {key!r} must be a list of sentences, found {kind_of(value)}")
    return tuple(sentence_of(each, f"{key}[{number}]", where, share) for number, each in enumerate(value))


def sentence_of(value: Any, key: str, where: str, share: Callable[[str], str]) -> str:
    """A sentence, which may be empty; raises CotextError for what is no string, or not one line."""
    if not isinstance(value, str):
        raise CotextError(f"{where}: {key!r} must be a string, found {kind_of(value)}")
    if "\n" in value or "\r" in value:
        raise CotextError(f"{where}: {key!r} contains a line break; a sentence is one line")
    return share(value)


def text_of(entry: dict[str, Any], key: str, where: str) -> str:
    """A text that is not empty; raises CotextError where it is, or is missing."""
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        raise CotextError(f"{where}: {key!r} must be a string that is not empty, found {shown(value)}")
    return value


def refuse_unknown_keys(entry: dict[str, Any], known: frozenset[str], where: str) -> None:
    """Raise CotextError for a key that is not known."""
    unknown = sorted(entry.keys() - known)
    if unknown:
        raise CotextError(f"{where}: unknown key {shown(unknown[0])}; known: {', '.join(sorted(known))}")


def number_of(entry: dict[str, Any], key: str, where: str) -> int | None:
    """A whole number, or None where it is null or missing; raises CotextError for anything else."""
    value = entry.get(key)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise CotextError(f"{where}: {key!r} must be a whole number or null, found {shown(value)}")
    return value


def kind_of(value: Any) -> str:
    """A value of JSON by its kind, for a message."""
    names = {type(None): "nothing", str: "a string", list: "a list", dict: "an object", bool: "true or false"}
    return names.get(type(value), "a number")
