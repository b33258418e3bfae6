"""Contrastive suites: documents with one right and several wrong targets, as values and as files of Cotext.

`cotext.data.suite_files` reads them.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cotext.data.formats.streams import atomic_sinks
from cotext.data.languages import Languages
from cotext.runtime.errors import CotextError, shown

CONTROLLED = "controlled/"  # how the names of suites begin in which guessing gives exactly chance
FORMAT_NAME = "cotext-contrastive"
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class ContrastiveExample:
    """A document with several candidate targets, of which exactly one is meant to be right.

    `distance` counts the sentences between clue and choice: 0 in the same sentence, negative when the clue
    comes after the choice, None when the suite does not say. A wrong candidate may be spelled like the right
    one (published suites have a few): no model can tell them apart. `document` names the document that the
    example is of, where the suite does. Raises CotextError when the parts do not fit.
    """

    id: str
    phenomenon: str
    distance: int | None
    source: tuple[str, ...]
    candidates: tuple[tuple[str, ...], ...]
    correct: int
    tags: dict[str, str] = field(default_factory=dict)
    document: str = ""

    def __post_init__(self) -> None:
        where = f"contrastive example {self.id!r}"
        if not self.source:
            raise CotextError(f"{where}: the source has no sentence; give at least one")
        if len(self.candidates) < 2:
            raise CotextError(f"{where}: {len(self.candidates)} candidate(s); a choice needs at least two")
        for number, candidate in enumerate(self.candidates):
            if len(candidate) != len(self.source):
                raise CotextError(
                    f"{where}: candidate {number} has {len(candidate)} sentences, the source has "
                    f"{len(self.source)}; each candidate is a whole target document, sentence by sentence"
                )
        if not 0 <= self.correct < len(self.candidates):
            raise CotextError(
                f"{where}: 'correct' is {self.correct}; the candidates are numbered from 0 to "
                f"{len(self.candidates) - 1}"
            )

    @property
    def differing_sentences(self) -> tuple[int, ...]:
        """Indices of the target sentences that are not the same in all candidates."""
        columns = zip(*self.candidates, strict=True)
        return tuple(index for index, column in enumerate(columns) if len(set(column)) > 1)

    @property
    def identical_to_correct(self) -> tuple[int, ...]:
        """Indices of the wrong candidates that are spelled exactly like the right one."""
        right = self.candidates[self.correct]
        return tuple(n for n, each in enumerate(self.candidates) if n != self.correct and each == right)


@dataclass(frozen=True, slots=True)
class ContrastiveSuite:
    """A named set of contrastive examples in one language pair; CotextError when an id occurs twice."""

    name: str
    source_language: str
    target_language: str
    examples: tuple[ContrastiveExample, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for example in self.examples:
            if example.id in seen:
                raise CotextError(
                    f"contrastive suite {self.name!r}: example id {example.id!r} occurs twice; ids are unique"
                )
            seen.add(example.id)

    @property
    def languages(self) -> Languages:
        """As codes; a language that is told in another way fits every code."""
        return Languages(*(language.lower() for language in (self.source_language, self.target_language)))


def write_suite(path: Path, suite: ContrastiveSuite) -> None:
    """Write a suite as the project's own JSON, one example a line; a name in .gz or .xz is compressed."""
    heading = {
        "format": FORMAT_NAME,
        "version": FORMAT_VERSION,
        "name": suite.name,
        "source_language": suite.source_language,
        "target_language": suite.target_language,
    }
    try:
        with atomic_sinks([path]) as [stream]:
            stream.write(json.dumps(heading, ensure_ascii=False)[:-1] + ', "examples": [')
            for number, example in enumerate(suite.examples):
                entry = {
                    "id": example.id,
                    "phenomenon": example.phenomenon,
                    "distance": example.distance,
                    "source": example.source,
                    "candidates": example.candidates,
                    "correct": example.correct,
                    "tags": example.tags,
                    **({"document": example.document} if example.document else {}),
                }
                stream.write((",\n" if number else "\n") + json.dumps(entry, ensure_ascii=False))
            stream.write("\n]}\n")
    except UnicodeEncodeError as error:
        raise CotextError(f"{path}: cannot be written: {error}") from None


# --- The documents of the examples of a contrastive suite: examples of one are not independent.


def documents_of(examples: Sequence[ContrastiveExample]) -> list[int]:
    """The number of its document for every example, counted from 0.

    Of one document are examples for which the suite names the same; where it names none, those of the same
    source, and consecutive examples that share a source sentence.
    """
    numbers: list[int] = []
    known: dict[str | tuple[str, ...], int] = {}
    count = 0
    for i, example in enumerate(examples):
        key = example.document or example.source
        if key not in known and i and _continues(examples[i - 1], example):
            known[key] = numbers[-1]
        elif key not in known:
            known[key] = count
            count += 1
        numbers.append(known[key])
    return numbers


def _continues(before: ContrastiveExample, example: ContrastiveExample) -> bool:
    named = bool(before.document or example.document)
    return not named and any(s.strip() and s in before.source for s in example.source)


# --- Fields of contrastive suites as files hold them: read with a message that names the example and the
# key.


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
