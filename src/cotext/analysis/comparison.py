"""What systems do with context, side by side: accuracies in and out of their sight, and one marked document.

Everything here is figures and words; the terminal and the report lay them out.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Final

from cotext.data.contrastive_suites import CONTROLLED
from cotext.data.formats import read_documents
from cotext.metrics.bleu import Score
from cotext.metrics.contrastive import DISTANCE_BUCKETS
from cotext.runtime.errors import CotextError
from cotext.runtime.integrity import sealed_lines, unsealed

CHANCE_TOLERANCE_POINTS: Final = 3.0
WITHIN: Final = "0"  # the distance of a clue in the sentence itself
SOLVED_PERCENT: Final = 90.0
OUT_OF_SIGHT: Final = "out of sight"
LEAK: Final = "leak? look into it"
SAMPLE_SENTENCES: Final = 8  # a longer document doesn't fit on a screen

PHENOMENA: Final[Mapping[str, str]] = {
    "pronoun": "“it” is er, sie or es by the gender of the thing mentioned last",
    "register": "“you” is du or Sie by who is spoken to, told once at the beginning",
    "ellipsis": "“she did too” repeats in German the verb of an earlier sentence",
    "cohesion": "a name or profession with two renderings keeps the one chosen first: "
    "the clue is in the translation alone",
    "cataphora": "“it” announces a thing that only the next sentence names",
}
EVERYTHING: Final = 10**6  # sentences: what a system sees that reads whole documents


@dataclass(frozen=True, slots=True)
class Sight:
    """How many sentences a system may see at most: before and after, and before in its own translation."""

    before: int
    after: int
    target_before: int

    @property
    def context(self) -> bool:
        """Whether it sees any sentence but the one that is translated."""
        return self.before + self.after > 0

    def reaches(self, phenomenon: str, distance: str) -> bool:
        """Whether a clue in this distance bucket lies within; that of cohesion is in translations alone."""
        before = min(self.before, self.target_before) if phenomenon == "cohesion" else self.before
        if distance == "ahead":
            return self.after >= 1
        if distance == "unknown":
            return before + self.after >= 1
        return before > 3 if distance == ">3" else before >= int(distance)


@dataclass(frozen=True, slots=True)
class SystemFigures:
    """What is known of one trained system.

    `before` and `after` are the sentences of context that it sees, `target_before` those of its own
    translation, as many as `before` if None. `curve` has updates and the loss of
    current sentences on the development set, in nats a token. `accuracies` maps a suite to its contrastive
    report as `cotext contrastive --out` writes it.
    """

    title: str
    recipe: str
    before: int
    after: int
    parameters: int
    updates: int
    curve: tuple[tuple[int, float], ...]
    accuracies: Mapping[str, Mapping[str, Any]]
    scores: tuple[Score, ...]
    translations: tuple[tuple[str, ...], ...]
    signature: str
    target_before: int | None = None

    @property
    def sight(self) -> Sight:
        """How far it sees."""
        return Sight(
            self.before, self.after, self.before if self.target_before is None else self.target_before
        )


@dataclass(frozen=True, slots=True)
class Cell:
    """The accuracy of one system in one group of examples, in per cent, with its 95 % interval.

    `in_reach`: the clue lies within what the system sees. `shown`: so is that it uses context there.
    """

    percent: float
    low: float
    high: float
    correct: int
    total: int
    in_reach: bool
    shown: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One phenomenon at one distance; a cell for each system, in their order.

    `exact_chance`: whether guessing without the clue gives chance, and nothing else, by construction.
    """

    phenomenon: str
    distance: str
    chance: float
    cells: tuple[Cell, ...]
    verdict: str
    exact_chance: bool


@dataclass(frozen=True, slots=True)
class Expectation:
    """Something that should hold, whether it does, and the figures that say so."""

    text: str
    met: bool
    found: str


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a translation; `marked` if it differs from the translation beside it."""

    text: str
    marked: bool


Line = tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class SampleSentence:
    """A source sentence, what two systems made of it, and the reference."""

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
class Comparison:
    """All that the demonstration shows."""

    systems: tuple[SystemFigures, ...]
    rows: tuple[Row, ...]
    expectations: tuple[Expectation, ...]
    sample: Sample
    commands: Mapping[str, str]  # by title of a system; `corpus` makes the data


def compare(
    systems: Sequence[SystemFigures], source: Path, reference: Path, commands: Mapping[str, str]
) -> Comparison:
    """Put the systems side by side; the first is the one without context.

    `source` and `reference` hold the documents that all systems translated.
    """
    rows = choice_rows(systems)
    sources = [document.sentences for document in read_documents(source, "text")]
    references = [document.sentences for document in read_documents(reference, "text", "target")]
    return Comparison(
        systems=tuple(systems),
        rows=tuple(rows),
        expectations=tuple(_expectations(systems, rows)),
        sample=_sample(systems[0], systems[-1], sources, references),
        commands=commands,
    )


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl that are whole; none if the run hasn't reported yet."""
    found: list[dict[str, Any]] = []
    for line in sealed_lines(run / "metrics.jsonl"):
        with suppress(ValueError):
            found.append(unsealed(line))
    return [entry for entry in found if entry.keys() >= {"kind", "update"}]


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


def choice_rows(systems: Sequence[SystemFigures]) -> list[Row]:
    """Accuracies of all systems side by side, by suite and distance, those of the controlled corpus first.

    Raises:
        CotextError: no suite has a distance.
    """
    first = systems[0]
    rows: list[Row] = []
    controlled = [f"{CONTROLLED}{name}" for name in PHENOMENA]
    for suite in [*(name for name in controlled if name in first.accuracies), *first.accuracies]:
        phenomenon = suite.removeprefix(CONTROLLED)
        if any(row.phenomenon == phenomenon for row in rows):
            continue
        groups = [system.accuracies[suite]["by_distance"] for system in systems]
        for distance in [bucket for bucket in DISTANCE_BUCKETS if bucket in groups[0]]:
            cells = tuple(
                _cell(group[distance], system.sight.reaches(phenomenon, distance))
                for system, group in zip(systems, groups, strict=True)
            )
            chance = groups[0][distance]["chance_percent"]
            exact = suite.startswith(CONTROLLED)
            # Where chance is not exact, being above it tells nothing.
            blind = not any(cell.in_reach for cell in cells)
            verdict = _verdict(chance, distance, cells) if exact else OUT_OF_SIGHT if blind else ""
            rows.append(Row(phenomenon, distance, chance, cells, verdict, exact))
    if not rows:
        raise CotextError("no accuracy with a distance: the contrastive results are empty; make them again")
    return rows


def _cell(group: Mapping[str, Any], in_reach: bool) -> Cell:
    low, high = group["interval_95_percent"]
    return Cell(group["accuracy_percent"], low, high, group["correct"], group["total"], in_reach)


def _verdict(chance: float, distance: str, cells: Sequence[Cell]) -> str:
    """A few words on a row."""
    blind = [cell for cell in cells if not cell.in_reach]
    if any(abs(cell.percent - chance) > CHANCE_TOLERANCE_POINTS for cell in blind):
        return LEAK
    seeing = [cell for cell in cells if cell.in_reach]
    if not seeing:
        return OUT_OF_SIGHT
    if all(cell.percent > SOLVED_PERCENT for cell in seeing):
        return "needs no context" if distance == "0" else "context solves it"
    better = sum(cell.low > chance for cell in seeing)
    if distance == "0":
        return "partly learned" if better else "not learned"
    if better == len(seeing):
        return "context helps"
    return "context helps one" if better == 1 else "context helps some" if better else "not learned"


def _expectations(systems: Sequence[SystemFigures], rows: Sequence[Row]) -> list[Expectation]:
    found = []
    for number, system in enumerate(systems):
        gaps = [abs(row.cells[number].percent - row.chance) for row in rows if not row.cells[number].in_reach]
        if gaps:
            found.append(
                Expectation(
                    f"{system.title} at chance (within {CHANCE_TOLERANCE_POINTS:g} points) where it can't "
                    "see the clue",
                    max(gaps) <= CHANCE_TOLERANCE_POINTS,
                    f"at most {max(gaps):.1f} points off in {len(gaps)} groups",
                )
            )
    for number, system in enumerate(systems):
        for phenomenon in ("pronoun", "register"):
            cells = [
                row.cells[number]
                for row in rows
                if row.phenomenon == phenomenon and row.distance != "0" and row.cells[number].in_reach
            ]
            if cells:
                least = min(cell.percent for cell in cells)
                found.append(
                    Expectation(
                        f"{system.title} above {SOLVED_PERCENT:g} % on {phenomenon} where only context tells",
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
