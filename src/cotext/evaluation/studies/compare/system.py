"""A system of a comparison: one run, or runs that differ in their seeds alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cotext.evaluation.studies.compare.measured import MeasuredRun
from cotext.evaluation.studies.compare.recipe import missing_seeds, require_alike
from cotext.models.run_folder import checkpoint_folder, checkpoints, seed_folder, seeds_in
from cotext.runtime.errors import CotextError
from cotext.training.resume import load_progress


@dataclass(frozen=True, slots=True)
class MeasuredSystem:
    """A system with the measurements of its runs, one for each of its `seeds`.

    Of a run that is given by itself, `seeds` is empty. What all runs have in common is that of the first.
    """

    title: str
    path: Path
    runs: tuple[MeasuredRun, ...]
    seeds: tuple[int, ...] = ()

    @property
    def not_learned(self) -> int:
        """How many of its runs ended as their start."""
        return sum(run.is_start for run in self.runs)

    @property
    def label(self) -> str:
        """The title, with a mark where runs ended as their start: for tables."""
        if not self.not_learned:
            return self.title
        part = (
            f" in {self.not_learned} of {len(self.runs)} seeds" if self.not_learned < len(self.runs) else ""
        )
        return f"{self.title} (not learned{part})"

    @property
    def first_loss(self) -> tuple[float, float] | None:
        """Means of `MeasuredRun.first_loss`, where all runs have one."""
        found = [run.first_loss for run in self.runs if run.first_loss is not None]
        if len(found) < len(self.runs):
            return None
        own, there = (sum(column) / len(found) for column in zip(*found, strict=True))
        return own, there

    @property
    def first_loss_in_words(self) -> str:
        """As in 3.680 (2.290); nothing where it is not known."""
        return "" if self.first_loss is None else "{:.3f} ({:.3f})".format(*self.first_loss)

    @property
    def first(self) -> MeasuredRun:
        """Its first run, for what all have in common."""
        return self.runs[0]

    @property
    def has_model(self) -> bool:
        """Whether its model is at hand, with its size and training."""
        return self.first.parameters > 0

    @property
    def parameters_in_words(self) -> str:
        """As in 1,200; nothing where the model is not at hand."""
        return f"{self.first.parameters:,}" if self.has_model else ""

    @property
    def updates(self) -> tuple[int, int]:
        """The fewest and the most updates of a run."""
        counts = [run.updates for run in self.runs]
        return min(counts), max(counts)

    @property
    def updates_in_words(self) -> str:
        """As in 1,200, or 1,200 to 1,500; nothing where the model is not at hand."""
        counts = self.updates if self.has_model else ()
        return " to ".join(dict.fromkeys(f"{count:,}" for count in counts))

    @property
    def curve(self) -> tuple[tuple[int, float], ...]:
        """Updates and the mean development loss, where all runs have one."""
        return _mean_curve([run.curve for run in self.runs])

    @property
    def context_curve(self) -> tuple[tuple[int, float], ...]:
        """The same of context sentences; empty without any."""
        return _mean_curve([run.context_curve for run in self.runs])

    @property
    def loss_ratio(self) -> tuple[tuple[int, float], ...]:
        """Updates and the loss of current sentences over that of context sentences, where both are known.

        As in figure 3 of Lupo et al. 2022, but of all current sentences, and by token.
        """
        context = dict(self.context_curve)
        return tuple((u, loss / context[u]) for u, loss in self.curve if context.get(u, 0.0) > 0)

    def right(self, suite: str) -> dict[str, float]:
        """The share of runs that decide an example of a suite right, by its id."""
        decided = [run.decisions[suite].right for run in self.runs]
        return {example: sum(each[example] for each in decided) / len(decided) for example in decided[0]}


def _mean_curve(curves: Sequence[Sequence[tuple[int, float]]]) -> tuple[tuple[int, float], ...]:
    first, *others = [dict(curve) for curve in curves]
    shared = [update for update in first if all(update in each for each in others)]
    return tuple((u, sum(each[u] for each in (first, *others)) / len(curves)) for u in shared)


def run_folders(path: Path) -> dict[int, Path]:
    """The runs of a folder of several seeds, by seed; none where it is a run.

    Raises:
        CotextError: a run that is missing or not finished, or runs that differ in more than their seed.
    """
    folders = {seed: seed_folder(path, seed) for seed in seeds_in(path)}
    if not folders:
        return {}
    if missing := missing_seeds(path, folders):
        raise CotextError(missing)
    for run in folders.values():
        _require_finished(run)
    require_alike(path, folders)
    return folders


def _require_finished(run: Path) -> None:
    saved = checkpoints(run)
    if saved:
        progress = load_progress(checkpoint_folder(run, saved[-1]))
        if progress.finished:
            return
        where = f"it is at update {progress.update}"
    elif (run / "model.safetensors").is_file():
        return  # taken elsewhere without its checkpoints
    else:
        where = "it has no checkpoint yet"
    raise CotextError(
        f"{run}: training is not finished, {where}; the same `cotext train` command goes on with it"
    )


def runs_of(systems: Sequence[MeasuredSystem]) -> list[MeasuredRun]:
    """The runs of all systems, one after the other."""
    return [run for system in systems for run in system.runs]
