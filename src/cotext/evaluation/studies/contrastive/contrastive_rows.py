"""The context that a system may use, and whether a clue is in it."""

from dataclasses import dataclass
from typing import Final

SAME_SENTENCE: Final = "0"  # the distance of a clue in the sentence itself
WHOLE_DOCUMENT: Final = 10**6  # sentences in the window of a system that reads whole documents


@dataclass(frozen=True, slots=True)
class ContextWindow:
    """The context sentences that a system may use: before, after, and before in its own translation."""

    before: int
    after: int
    target_before: int

    @property
    def has_context(self) -> bool:
        return self.before + self.after + self.target_before > 0

    def contains(self, phenomenon: str, distance: str) -> bool:
        """Return whether a clue in this distance bucket is in the window.

        A clue before is on both sides; for cohesion only in translations, and ahead only in the source.
        """
        before = self.target_before if phenomenon == "cohesion" else max(self.before, self.target_before)
        if distance == "ahead":
            return self.after >= 1
        if distance == "unknown":
            return before + self.after >= 1
        return before > 3 if distance == ">3" else before >= int(distance)


@dataclass(frozen=True, slots=True)
class AccuracyCell:
    """The accuracy of one system in one group of examples, in per cent, with its 95 % interval.

    `in_window`: the clue is in the context window. `learned`: False if every run ended as its start. `shown`:
    context use is significant.
    """

    percent: float
    low: float
    high: float
    total: int
    in_window: bool
    learned: bool
    shown: bool


@dataclass(frozen=True, slots=True)
class AccuracyRow:
    """One phenomenon at one distance: a cell for each system, in their order, and a short verdict.

    `exact_chance`: without the clue, guessing has exactly chance accuracy by construction.
    """

    phenomenon: str
    distance: str
    chance: float
    cells: tuple[AccuracyCell, ...]
    verdict: str
    exact_chance: bool
