"""Contrastive suites: documents with one right and several wrong targets, and where to read them from.

The project's own format is described in docs/contrastive-format.md; two published suites are read as they come.
"""

import gzip
import json
import lzma
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO, cast

from cotext.errors import CotextError

FORMAT_NAME = "cotext-contrastive"
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class ContrastiveExample:
    """A document with several candidate targets, of which exactly one is right.

    `distance` counts the sentences between clue and choice: 0 in the same sentence, negative when the clue
    comes after the choice, None when the suite does not say. Raises CotextError when the parts do not fit.
    """

    id: str
    phenomenon: str
    distance: int | None
    source: tuple[str, ...]
    candidates: tuple[tuple[str, ...], ...]
    correct: int
    tags: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        where = f"contrastive example {self.id!r}"
        if not self.source:
            raise CotextError(f"{where}: the source has no sentence; give at least one")
        if len(self.candidates) < 2:
            raise CotextError(f"{where}: {len(self.candidates)} candidate(s); a choice needs at least two")
        for number, candidate in enumerate(self.candidates):
            if len(candidate) != len(self.source):
                raise CotextError(
                    f"{where}: candidate {number} has {len(candidate)} sentences, the source {len(self.source)}; "
                    "each candidate is a whole target document, sentence by sentence"
                )
        if not 0 <= self.correct < len(self.candidates):
            raise CotextError(
                f"{where}: correct is {self.correct}, but the candidates are numbered 0 to {len(self.candidates) - 1}"
            )
        if self.candidates.count(self.candidates[self.correct]) > 1:
            raise CotextError(f"{where}: a wrong candidate is identical to the correct one; remove it")

    @property
    def differing_sentences(self) -> tuple[int, ...]:
        """Indices of the target sentences that are not the same in all candidates."""
        columns = zip(*self.candidates, strict=True)
        return tuple(index for index, column in enumerate(columns) if len(set(column)) > 1)


@dataclass(frozen=True, slots=True)
class ContrastiveSuite:
    """A named set of contrastive examples in one language pair; CotextError when an example id occurs twice."""

    name: str
    source_language: str
    target_language: str
    examples: tuple[ContrastiveExample, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for example in self.examples:
            if example.id in seen:
                raise CotextError(f"contrastive suite {self.name!r}: example id {example.id!r} occurs twice")
            seen.add(example.id)


def read_suite(path: Path) -> ContrastiveSuite:
    """Read a contrastive suite, in the project's own JSON (plain, .gz or .xz)."""
    with _open_read(path) as stream:
        document: dict[str, Any] = json.load(stream)
    return ContrastiveSuite(
        name=document["name"],
        source_language=document["source_language"],
        target_language=document["target_language"],
        examples=tuple(
            ContrastiveExample(
                id=entry["id"],
                phenomenon=entry["phenomenon"],
                distance=entry.get("distance"),
                source=tuple(entry["source"]),
                candidates=tuple(tuple(candidate) for candidate in entry["candidates"]),
                correct=entry["correct"],
                tags=dict(entry.get("tags", {})),
            )
            for entry in document["examples"]
        ),
    )


def write_suite(path: Path, suite: ContrastiveSuite) -> None:
    """Write a suite as the project's own JSON, one example a line; a name in .gz or .xz is compressed."""
    heading = {
        "format": FORMAT_NAME,
        "version": FORMAT_VERSION,
        "name": suite.name,
        "source_language": suite.source_language,
        "target_language": suite.target_language,
    }
    with _open_write(path) as stream:
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
            }
            stream.write((",\n" if number else "\n") + json.dumps(entry, ensure_ascii=False))
        stream.write("\n]}\n")


def _open_read(path: Path) -> TextIO:
    if path.suffix == ".xz":
        return cast(TextIO, lzma.open(path, "rt", encoding="utf-8"))
    if path.suffix == ".gz":
        return cast(TextIO, gzip.open(path, "rt", encoding="utf-8"))
    return path.open(encoding="utf-8")


@contextmanager
def _open_write(path: Path) -> Iterator[TextIO]:
    """Text stream whose content appears under `path` only when everything has been written."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        opener = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)
        with cast(TextIO, opener(unfinished, "wt", encoding="utf-8")) as stream:
            yield stream
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
