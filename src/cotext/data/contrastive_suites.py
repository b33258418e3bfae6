"""Contrastive suites: documents with one correct and several incorrect targets.

The readers are in `cotext.data.suite_files`.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from sys import intern
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from cotext.data.documents import Languages
from cotext.data.formats.streams import atomic_sinks
from cotext.runtime import CotextError

CONTROLLED = "controlled/"  # prefix of suites in which any system without context has chance accuracy
FORMAT_NAME = "cotext-contrastive"
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class ContrastiveExample:
    """A document with several candidate targets, of which exactly one is correct.

    `distance`: number of sentences from the disambiguating words (the clue) to the words that differ between
    candidates (the choice). It is 0 in the same sentence, negative if the clue follows the choice, and None
    if unknown. In a few examples of published suites, an incorrect candidate is equal to the correct one.
    `document`: name of the original document, if the suite contains it.

    Raises CotextError if the candidates do not match the source.
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
            raise CotextError(f"{where}: the source has no sentence; it needs at least one")
        if len(self.candidates) < 2:
            raise CotextError(f"{where}: a choice needs at least two candidates")
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
        """Indices of the target sentences that differ between candidates."""
        columns = zip(*self.candidates, strict=True)
        return tuple(index for index, column in enumerate(columns) if len(set(column)) > 1)

    @property
    def identical_to_correct(self) -> tuple[int, ...]:
        """Indices of the incorrect candidates that are equal to the correct candidate."""
        right = self.candidates[self.correct]
        return tuple(n for n, target in enumerate(self.candidates) if n != self.correct and target == right)


@dataclass(frozen=True, slots=True)
class ContrastiveSuite:
    """A named set of contrastive examples in one language pair. Duplicate ids raise CotextError."""

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
        """The language pair in lower case."""
        return Languages(*(language.lower() for language in (self.source_language, self.target_language)))


def write_suite(path: Path, suite: ContrastiveSuite) -> None:
    """Write a suite in the JSON of Cotext, one example per line; .gz and .xz files are compressed."""
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
                entry = asdict(example)
                if not example.document:
                    del entry["document"]
                stream.write((",\n" if number else "\n") + json.dumps(entry, ensure_ascii=False))
            stream.write("\n]}\n")
    except UnicodeEncodeError as error:
        raise CotextError(f"{path}: cannot be written: {error}") from None


def documents_of(examples: Sequence[ContrastiveExample]) -> list[int]:
    """Return the number of the document of every example, counted from 0.

    Examples of the same document are not independent in significance tests. In suites without document names,
    examples belong together if they have the same source, or are consecutive and share a source sentence.
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


# --- Pydantic models that check suites read from JSON.


def _one_line(text: str) -> str:
    if "\n" in text or "\r" in text:
        raise ValueError("contains a line break; a sentence is one line")
    return intern(text)


# Equal sentences share one string, because candidates repeat them.
Line = Annotated[str, AfterValidator(_one_line)]  # a sentence, which may be empty
Interned = Annotated[str, AfterValidator(intern)]
Text = Annotated[str, Field(min_length=1), AfterValidator(intern)]


class Entry(BaseModel):
    """A JSON object of a suite; other keys are ignored."""

    model_config = ConfigDict(strict=True)

    @classmethod
    def of(cls, value: Any, where: str) -> Self:
        """Check a JSON value; raises CotextError with its first problem."""
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            key = f"{'.'.join(map(str, problem['loc']))!r}: " if problem["loc"] else ""
            raise CotextError(f"{where}: {key}{problem['msg'].removeprefix('Value error, ')}") from None
