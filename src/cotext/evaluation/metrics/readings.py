"""Decisions and log-probabilities on a contrastive suite by context: true, none, and of other documents."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

CONTEXTS: Final = ("true", "none", "foreign")
_DIGITS: Final = 5


@dataclass(frozen=True, slots=True)
class Reading:
    """Decisions in one kind of context, right or not, and log-probabilities of the right candidates (nats).

    Both by the id of the example.
    """

    right: Mapping[str, bool]
    nats: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Readings:
    """One for each of CONTEXTS; `tokens`: how many the log-probabilities are of, by the id of the example."""

    by_context: Mapping[str, Reading]
    tokens: Mapping[str, int]

    def as_dict(self) -> dict[str, Any]:
        """For a JSON file; null: the right candidate is held impossible."""
        contexts = {
            kind: {
                "decisions": {id: "right" if right else "wrong" for id, right in each.right.items()},
                "nats": {
                    id: None if value == -float("inf") else round(value, _DIGITS)
                    for id, value in each.nats.items()
                },
            }
            for kind, each in self.by_context.items()
        }
        return {**contexts, "tokens": dict(self.tokens)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Readings":
        """Read what `as_dict` made.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: something else.
        """
        by_context = {
            kind: Reading(
                {id: outcome == "right" for id, outcome in content[kind]["decisions"].items()},
                {
                    id: -float("inf") if value is None else float(value)
                    for id, value in content[kind]["nats"].items()
                },
            )
            for kind in CONTEXTS
        }
        return cls(by_context, {id: int(count) for id, count in content["tokens"].items()})
