"""Figures of the demonstration: accuracies inside and outside the context window, and one marked document.

Everything here is figures and words; the terminal and the report lay them out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Final

from cotext.data.formats import read_documents
from cotext.evaluation.studies.contrastive.contrastive_rows import (
    CHANCE_TOLERANCE_POINTS,
    SOLVED_PERCENT,
    Row,
    SystemFigures,
    accuracy_rows,
)

SAMPLE_SENTENCES: Final = 8  # a longer document doesn't fit on a screen


@dataclass(frozen=True, slots=True)
class Expectation:
    """An expected result, whether it was met, and the figures."""

    text: str
    met: bool
    found: str


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a translation; `marked` if it differs from the other translation."""

    text: str
    marked: bool


Line = tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class SampleSentence:
    """A source sentence, the translations of two systems, and the reference."""

    source: str
    first: Line
    second: Line
    reference: str


@dataclass(frozen=True, slots=True)
class Sample:
    """A document translated by two systems, named by their titles."""

    number: int  # of the test document, from 1
    first_title: str
    second_title: str
    sentences: tuple[SampleSentence, ...]


@dataclass(frozen=True, slots=True)
class Demonstration:
    """The results of the demonstration."""

    systems: tuple[SystemFigures, ...]
    rows: tuple[Row, ...]
    expectations: tuple[Expectation, ...]
    sample: Sample
    commands: Mapping[str, str]  # by title of a system; `corpus` makes the data


def compare(
    systems: Sequence[SystemFigures], source: Path, reference: Path, commands: Mapping[str, str]
) -> Demonstration:
    """Put the systems side by side; the first is the one without context.

    `source` and `reference` hold the documents that all systems translated.
    """
    rows = accuracy_rows(systems)
    sources = [document.sentences for document in read_documents(source, "text")]
    references = [document.sentences for document in read_documents(reference, "text", "target")]
    return Demonstration(
        systems=tuple(systems),
        rows=tuple(rows),
        expectations=tuple(_expectations(systems, rows)),
        sample=_sample(systems[0], systems[-1], sources, references),
        commands=commands,
    )


def mark_difference(first: str, second: str) -> tuple[Line, Line]:
    """Split two translations into words and mark those that differ; case and punctuation count."""
    ours, theirs = first.split(), second.split()
    equal = SequenceMatcher(a=ours, b=theirs, autojunk=False).get_matching_blocks()
    same_ours = {i for block in equal for i in range(block.a, block.a + block.size)}
    same_theirs = {i for block in equal for i in range(block.b, block.b + block.size)}
    return (
        tuple(Word(word, i not in same_ours) for i, word in enumerate(ours)),
        tuple(Word(word, i not in same_theirs) for i, word in enumerate(theirs)),
    )


def bracketed(line: Line) -> str:
    """A line as plain text, marked words in brackets."""
    return " ".join(f"[{word.text}]" if word.marked else word.text for word in line)


def _expectations(systems: Sequence[SystemFigures], rows: Sequence[Row]) -> list[Expectation]:
    found = []
    for number, system in enumerate(systems):
        gaps = [
            abs(row.cells[number].percent - row.chance) for row in rows if not row.cells[number].in_window
        ]
        if gaps:
            found.append(
                Expectation(
                    f"{system.title} at chance (within {CHANCE_TOLERANCE_POINTS:g} points) where the clue "
                    "is outside its context window",
                    max(gaps) <= CHANCE_TOLERANCE_POINTS,
                    f"at most {max(gaps):.1f} points off in {len(gaps)} groups",
                )
            )
    for number, system in enumerate(systems):
        for phenomenon in ("pronoun", "register"):
            cells = [
                row.cells[number]
                for row in rows
                if row.phenomenon == phenomenon and row.distance != "0" and row.cells[number].in_window
            ]
            if cells:
                least = min(cell.percent for cell in cells)
                found.append(
                    Expectation(
                        f"{system.title} above {SOLVED_PERCENT:g} % on {phenomenon} where only "
                        "context disambiguates",
                        least > SOLVED_PERCENT,
                        f"at least {least:.1f} % in {len(cells)} groups",
                    )
                )
    return found


def _sample(
    first: SystemFigures,
    second: SystemFigures,
    sources: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
) -> Sample:
    """The document that shows most of what the second system gets right and the first does not."""

    def errors(translation: Sequence[str], reference: Sequence[str]) -> int:
        lines = (mark_difference(*pair)[0] for pair in zip(translation, reference, strict=True))
        return sum(word.marked for line in lines for word in line)

    def gain(number: int) -> tuple[bool, int, int]:
        ours, theirs = first.translations[number], second.translations[number]
        reference = references[number]
        # An error of the second system weighs double: the sample is to show one thing clearly.
        value = errors(ours, reference) - 2 * errors(theirs, reference)
        return len(reference) <= SAMPLE_SENTENCES, value, -len(reference)

    chosen = max(range(len(sources)), key=gain)
    sentences = []
    for source, ours, theirs, reference in zip(
        sources[chosen],
        first.translations[chosen],
        second.translations[chosen],
        references[chosen],
        strict=True,
    ):
        sentences.append(SampleSentence(source, *mark_difference(ours, theirs), reference))
    return Sample(chosen + 1, first.title, second.title, tuple(sentences))
