"""Contrastive suites: documents with one right and several wrong targets, as values and as files of Cotext.

`cotext.data.suite_files` reads them.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

from cotext.data.formats.streams import atomic_sinks
from cotext.data.languages import Languages
from cotext.runtime.errors import CotextError

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
