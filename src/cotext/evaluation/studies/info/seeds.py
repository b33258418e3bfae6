"""A summary of runs of several seeds: what all have in common once, and what each has for itself."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cotext.evaluation.studies.compare.recipe import missing_seeds, require_alike
from cotext.evaluation.studies.info.run import RunInfo, render_info, run_info, size_of
from cotext.models.run_folder import seed_folder, seeds_in
from cotext.runtime.errors import CotextError
from cotext.runtime.tables import in_bytes, listed, render_rows

# Labels of a run's rows.
_IN_TABLE: Final = ("training", "best loss", "best BLEU", "best checkpoint", "final model", "on disk")
_HEADER: Final = (
    "seed", "training", "update", "best loss", "at update", "best BLEU", "at update", "final loss",
    "final BLEU", "on disk",
)  # fmt: skip
_UNKNOWN: Final = "-"


@dataclass(slots=True)
class SeedsInfo:
    """The content of a folder with runs of several seeds, by seed; `size` in bytes.

    `problems`: what keeps the runs from being one system. Each run has problems of its own.
    """

    folder: Path
    runs: dict[int, RunInfo] = field(default_factory=dict)
    size: int = 0
    problems: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "format": "cotext-seeds",
            "version": 1,
            "folder": str(self.folder),
            "seeds": list(self.runs),
            "runs": [run.as_dict() for run in self.runs.values()],
            "bytes": self.size,
            "problems": self.problems,
        }

    def render(self) -> str:
        """What all runs have in common, a table with a line for each, and what else differs."""
        rows = {
            seed: [row for row in run.rows() if row[0] not in _IN_TABLE] for seed, run in self.runs.items()
        }
        # A run that tells nothing of its system is no reason to repeat what the others share.
        told = [rows[seed] for seed, run in self.runs.items() if run.system] or list(rows.values())
        shared = [row for row in told[0] if all(row in each for each in told)]
        lines = [
            f"{self.folder}: runs of the seeds {listed([str(seed) for seed in self.runs])}",
            *render_info([*shared, ("on disk", in_bytes(self.size))]),
            "",
            render_rows([_HEADER, *(_table_row(seed, run) for seed, run in self.runs.items())], left=2),
        ]
        for seed, run in self.runs.items():
            own = [row for row in rows[seed] if row not in shared]
            own += [("problem", problem) for problem in run.problems]
            if own:
                lines += ["", f"seed {seed}", *render_info(own)]
        if self.problems:
            lines += ["", *render_info([("problem", problem) for problem in self.problems])]
        return "\n".join(lines)


def seeds_info(folder: Path) -> SeedsInfo:
    """Read what the runs of a folder of several seeds say of themselves; damage is listed in `problems`."""
    folders = {seed: seed_folder(folder, seed) for seed in seeds_in(folder)}
    info = SeedsInfo(folder, {seed: run_info(run) for seed, run in folders.items()}, size_of(folder))
    if missing := missing_seeds(folder, folders):
        info.problems.append(missing)
    described = {seed: folders[seed] for seed, run in info.runs.items() if run.description is not None}
    if described:
        try:
            require_alike(folder, described)
        except CotextError as error:
            info.problems.append(str(error))
    return info


def _table_row(seed: int, run: RunInfo) -> tuple[str, ...]:
    scores = run.scores
    state = "finished" if scores.get("finished") else "not finished" if scores else "not known"
    final = scores.get("final") or {}
    return (
        str(seed),
        state,
        f"{scores['update']:,}" if scores else _UNKNOWN,
        *_best(scores.get("best_loss")),
        *_best(scores.get("best_bleu")),
        _number(final.get("loss")),
        _number(final.get("bleu")),
        in_bytes(run.sizes["all"]),
    )


def _best(found: dict[str, Any] | None) -> tuple[str, str]:
    return (_UNKNOWN, _UNKNOWN) if found is None else (_number(found["value"]), f"{found['update']:,}")


def _number(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.4g}"
