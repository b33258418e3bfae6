"""The context that a system may read, and whether a clue lies in it."""

from dataclasses import dataclass
from typing import Final

SAME_SENTENCE: Final = "0"  # the distance of a clue in the sentence itself
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
class AccuracyCell:
    """The accuracy of one system in one group of examples, in per cent, with its 95 % interval.

    `in_window`: the clue lies within the context window. `learned`: False where every run ended as its start.
    `shown`: context use there is significant.
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
    """One phenomenon at one distance; a cell for each system, in their order, and a few words on them.

    `exact_chance`: whether guessing without the clue gives chance, and nothing else, by construction.
    """

    phenomenon: str
    distance: str
    chance: float
    cells: tuple[AccuracyCell, ...]
    verdict: str
    exact_chance: bool
