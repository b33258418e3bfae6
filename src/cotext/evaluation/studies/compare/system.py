"""A system of a comparison: one run, or runs that differ only in their seeds."""

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

    `seeds` is empty for a single run. Properties that all runs share are taken from the first run.
    """

    title: str
    runs: tuple[MeasuredRun, ...]
    seeds: tuple[int, ...] = ()

    @property
    def not_learned(self) -> int:
        """Return the number of runs whose final model is the initial model."""
        return sum(run.is_start for run in self.runs)

    @property
    def label(self) -> str:
        """Return the title for tables, with a note on runs whose final model is the initial model."""
        if not self.not_learned:
            return self.title
        some = self.not_learned < len(self.runs)
        part = f" in {self.not_learned} of {len(self.runs)} seeds" if some else ""
        return f"{self.title} (not learned{part})"

    @property
    def first(self) -> MeasuredRun:
        return self.runs[0]

    @property
    def updates(self) -> tuple[int, int]:
        """Return the fewest and the most updates of a run."""
        counts = [run.updates for run in self.runs]
        return min(counts), max(counts)

    def right(self, suite: str) -> dict[str, float]:
        """Return the share of runs that decide an example of a suite right, by its id."""
        decided = [run.decisions[suite].right for run in self.runs]
        return {example: sum(right[example] for right in decided) / len(decided) for example in decided[0]}


def run_folders(path: Path) -> dict[int, Path]:
    """Return the runs of a folder of several seeds, by seed; none if it is a run.

    Raises:
        CotextError: a run is missing or not finished, or runs differ in more than their seed.
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
        return  # copied without its checkpoints
    else:
        where = "it has no checkpoint yet"
    raise CotextError(f"{run}: training is not finished, {where}; the same `cotext train` command resumes it")


def runs_of(systems: Sequence[MeasuredSystem]) -> list[MeasuredRun]:
    """Return the runs of all systems in order."""
    return [run for system in systems for run in system.runs]
