"""Contrastive accuracies of several systems, by phenomenon and distance of the clue."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cotext.data.contrastive_suites import CONTROLLED
from cotext.evaluation.metrics.bleu import Score
from cotext.evaluation.metrics.contrastive import DISTANCE_BUCKETS
from cotext.runtime.errors import CotextError

CHANCE_TOLERANCE_POINTS: Final = 3.0


SAME_SENTENCE: Final = "0"  # the distance of a clue in the sentence itself


SOLVED_PERCENT: Final = 90.0


OUTSIDE_WINDOW: Final = "clue not in window"


LEAK: Final = "leak? check the data"


NOT_LEARNED: Final = "not learned"


PHENOMENA: Final[Mapping[str, str]] = {
    "pronoun": "“it” is er, sie or es by the gender of the thing mentioned last",
    "register": "“you” is du or Sie by who is spoken to, told once at the beginning",
    "ellipsis": "“she did too” repeats in German the verb of an earlier sentence",
    "cohesion": "a name or profession with two renderings keeps the one chosen first: "
    "the clue is in the translation alone",
    "cataphora": "“it” announces a thing that only the next sentence names",
}


WHOLE_DOCUMENT: Final = 10**6  # sentences: what a system sees that reads whole documents


@dataclass(frozen=True, slots=True)
class ContextWindow:
    """The context sentences that a system may read: before, after, and before in its own translation."""

    before: int
    after: int
    target_before: int

    @property
    def has_context(self) -> bool:
        """Whether it has any sentence but the one that is translated."""
        return self.before + self.after + self.target_before > 0

    def contains(self, phenomenon: str, distance: str) -> bool:
        """Whether a clue in this distance bucket lies in it.

        A clue before is on both sides, that of cohesion in translations alone, one ahead in the source alone.
        """
        before = self.target_before if phenomenon == "cohesion" else max(self.before, self.target_before)
        if distance == "ahead":
            return self.after >= 1
        if distance == "unknown":
            return before + self.after >= 1
        return before > 3 if distance == ">3" else before >= int(distance)


@dataclass(frozen=True, slots=True)
class SystemFigures:
    """Figures of one trained system.

    `before` and `after` are the sentences of its context window, `target_before` those of its own
    translation, as many as `before` if None. `curve` has updates and the loss of
    current sentences on the development set, in nats a token, `context_curve` that of context sentences.
    `learned`: False where every run ended as its start.
    `accuracies` maps a suite to its contrastive report as `cotext contrastive --out` writes it.
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
    context_curve: tuple[tuple[int, float], ...] = ()
    learned: bool = True

    @property
    def loss_ratio(self) -> tuple[tuple[int, float], ...]:
        """Updates and the loss of current sentences over that of context sentences, where both are known.

        As in figure 3 of Lupo et al. 2022, but of all current sentences, and by token.
        """
        context = dict(self.context_curve)
        return tuple((u, loss / context[u]) for u, loss in self.curve if context.get(u, 0.0) > 0)

    @property
    def window(self) -> ContextWindow:
        """Its context window."""
        return ContextWindow(
            self.before, self.after, self.before if self.target_before is None else self.target_before
        )


@dataclass(frozen=True, slots=True)
class Cell:
    """The accuracy of one system in one group of examples, in per cent, with its 95 % interval.

    `in_window`: the clue lies within the context window. `shown`: context use there is significant.
    `learned` as in `SystemFigures`.
    """

    percent: float
    low: float
    high: float
    correct: float
    total: int
    in_window: bool
    learned: bool
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


def accuracy_rows(systems: Sequence[SystemFigures]) -> list[Row]:
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
                _cell(group[distance], system, system.window.contains(phenomenon, distance))
                for system, group in zip(systems, groups, strict=True)
            )
            chance = groups[0][distance]["chance_percent"]
            exact = suite.startswith(CONTROLLED)
            # Where chance is not exact, being above it tells nothing.
            blind = not any(cell.in_window for cell in cells)
            verdict = _verdict(chance, distance, cells) if exact else OUTSIDE_WINDOW if blind else ""
            rows.append(Row(phenomenon, distance, chance, cells, verdict, exact))
    if not rows:
        raise CotextError("no accuracy with a distance: the contrastive results are empty; make them again")
    return rows


def _cell(group: Mapping[str, Any], system: SystemFigures, in_window: bool) -> Cell:
    low, high = group["interval_95_percent"]
    figures = group["accuracy_percent"], low, high, group["correct"], group["total"]
    return Cell(*figures, in_window, system.learned)


def _verdict(chance: float, distance: str, cells: Sequence[Cell]) -> str:
    """A few words on a row."""
    blind = [cell for cell in cells if not cell.in_window]
    if any(abs(cell.percent - chance) > CHANCE_TOLERANCE_POINTS for cell in blind):
        return LEAK
    seeing = [cell for cell in cells if cell.in_window]
    if not seeing:
        return OUTSIDE_WINDOW
    if all(cell.learned and cell.percent > SOLVED_PERCENT for cell in seeing):
        return "needs no context" if distance == "0" else "context solves it"
    better = sum(cell.learned and cell.low > chance for cell in seeing)
    if distance == "0":
        return "partly learned" if better else NOT_LEARNED
    if better == len(seeing):
        return "context helps"
    return "context helps one" if better == 1 else "context helps some" if better else NOT_LEARNED
