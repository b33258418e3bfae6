"""Probing accuracies over several seeds: means with their spread, as a table and as plain data."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import mean, stdev
from typing import Any, Final

from cotext.evaluation.studies.probing.probing import NEAR, Figures, Probed, Task

SHOWN_DISTANCES: Final = (1, 2, 5, 10, 20)
# A distance with fewer pairs, over all seeds, is left out of tables and pictures: its accuracy is noise.
MIN_PAIRS: Final = 50


@dataclass(frozen=True, slots=True)
class Measured:
    """Percentages of several seeds."""

    seeds: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Their mean."""
        return mean(self.seeds)

    @property
    def spread(self) -> float:
        """Their standard deviation; 0 for a single one."""
        return stdev(self.seeds) if len(self.seeds) > 1 else 0.0

    def __str__(self) -> str:
        return f"{self.mean:.1f}" + (f" ±{self.spread:.1f}" if len(self.seeds) > 1 else "")

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"mean": self.mean, "spread": self.spread, "seeds": list(self.seeds)}


@dataclass(frozen=True, slots=True)
class Summary:
    """`Figures` over seeds, in per cent."""

    accuracy: Measured
    near: Measured | None
    by_distance: dict[int, Measured]

    @staticmethod
    def of(figures: Sequence[Figures]) -> "Summary":
        """Collect the figures of all seeds; a distance counts where it occurs."""

        def percent(values: Sequence[float | None]) -> Measured:
            return Measured(tuple(100 * value for value in values if value is not None))

        groups = [f.by_distance or {} for f in figures]
        distances = sorted({d for group in groups for d in group})
        near = percent([f.near for f in figures])
        return Summary(
            percent([f.accuracy for f in figures]),
            near if near.seeds else None,
            {d: percent([group.get(d) for group in groups]) for d in distances},
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data; keys that do not apply are left out."""
        content: dict[str, Any] = {"accuracy": self.accuracy.as_dict()}
        if self.near is not None:
            content[f"within_{NEAR}"] = self.near.as_dict()
        if self.by_distance:
            content["by_distance"] = {str(d): each.as_dict() for d, each in self.by_distance.items()}
        return content


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """One task on one run."""

    task: Task
    classes: int
    train_examples: int
    test_examples: int
    pairs: dict[int, int]  # test examples of all seeds, by distance
    layers: tuple[Summary, ...]  # 0 .. L
    token_alone: Summary
    chance: Summary

    @staticmethod
    def of(task: Task, probed: Sequence[Probed]) -> "TaskSummary":
        """Collect what all seeds found."""
        return TaskSummary(
            task=task,
            classes=probed[0].classes,
            train_examples=probed[0].train_examples,
            test_examples=probed[0].test_examples,
            pairs=dict(sorted(sum((Counter(p.pairs) for p in probed), Counter()).items())),
            layers=tuple(Summary.of(layer) for layer in zip(*(p.layers for p in probed), strict=True)),
            token_alone=Summary.of([p.token_alone for p in probed]),
            chance=Summary.of([p.chance for p in probed]),
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "classes": self.classes,
            "train_examples": self.train_examples,
            "test_examples": self.test_examples,
            **({"pairs": {str(d): count for d, count in self.pairs.items()}} if self.pairs else {}),
            "layers": [{"layer": i, **layer.as_dict()} for i, layer in enumerate(self.layers)],
            "token_alone": self.token_alone.as_dict(),
            "chance": self.chance.as_dict(),
        }

    def reliable(self, summary: Summary) -> dict[int, Measured]:
        """Accuracy by distance, where there are enough pairs."""
        return {d: each for d, each in summary.by_distance.items() if self.pairs[d] >= MIN_PAIRS}

    def table(self) -> str:
        """One line per layer; chance is that of the constant answer which is right most often."""
        absolute = self.task == "absolute"
        heading = (f"within {NEAR}",) if absolute else tuple(f"at ±{d}" for d in SHOWN_DISTANCES)
        rows = [("layer", "accuracy", *heading)]
        named = [(str(i), layer) for i, layer in enumerate(self.layers)]
        for name, summary in (*named, ("token alone", self.token_alone)):
            rest = [summary.near] if absolute else [self._both_signs(summary, d) for d in SHOWN_DISTANCES]
            rows.append((name, str(summary.accuracy), *("-" if cell is None else str(cell) for cell in rest)))
        # Over distances, a constant answer is all or nothing.
        rest = [self.chance.near] if absolute else []
        rows.append(
            ("chance", str(self.chance.accuracy), *map(str, rest), *[""] * (len(heading) - len(rest)))
        )
        first, *others = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = (
            [row[0].ljust(first), *(cell.rjust(width) for cell, width in zip(row[1:], others, strict=True))]
            for row in rows
        )
        return "\n".join("  ".join(line).rstrip() for line in lines)

    def _both_signs(self, summary: Summary, distance: int) -> Measured | None:
        """The mean over j before and j after i; None where there are too few pairs of either."""
        known = self.reliable(summary)
        if not {-distance, distance} <= known.keys():
            return None
        pairs = zip(known[-distance].seeds, known[distance].seeds, strict=False)
        return Measured(tuple(mean(pair) for pair in pairs))


@dataclass(frozen=True, slots=True)
class Part:
    """The size of a set of documents."""

    documents: int
    rows: int
    tokens: int
    longest_row: int


@dataclass(frozen=True, slots=True)
class RunSummary:
    """All tasks on one run, and what was probed."""

    name: str
    run: str
    signature: str
    view: dict[str, Any]
    model: dict[str, Any]
    data: str
    tokenizer: str
    parts: dict[str, Part]  # train, held_out, test
    tasks: dict[Task, TaskSummary]

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        content = {
            key: getattr(self, key)
            for key in ("name", "run", "signature", "view", "model", "data", "tokenizer")
        }
        return {
            **content,
            "parts": {name: asdict(part) for name, part in self.parts.items()},
            "tasks": {name: task.as_dict() for name, task in self.tasks.items()},
        }
