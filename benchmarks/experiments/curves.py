"""Figures of an experiment as pictures: rows as points, their means over seeds with the extremes."""

import re
import statistics
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.experiments.plan import Curves, Experiment
from benchmarks.experiments.tables import Results, measured
from cotext.runtime.files import replacing

PANEL_INCHES = (4.0, 3.0)
MARKS = ("o", "s", "^", "D", "v")


def file_of(curves: Curves) -> str:
    """The name of its picture."""
    return re.sub(r"[^a-z0-9]+", "-", curves.title.lower()).strip("-") + ".png"


def draw(experiment: Experiment, results: Results, folder: Path) -> None:
    """Draw all figures of which anything is measured."""
    for curves in experiment.figures:
        found = {
            label: {name: points(line, figure, results) for name, line in curves.lines.items()}
            for label, figure in curves.panels.items()
        }
        panels = {label: lines for label, lines in found.items() if any(lines.values())}
        if not panels:
            continue
        width, height = PANEL_INCHES
        figure = Figure(figsize=(width * len(panels), height + 0.3), layout="constrained")
        figure.suptitle(curves.title)
        for axes, (label, lines) in zip(
            figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
        ):
            for mark, (name, line) in zip(MARKS * len(lines), lines.items(), strict=False):
                if not line:
                    continue
                middle = [mean for _, mean, _, _ in line]
                error = [[m - low for _, m, low, _ in line], [high - m for _, m, _, high in line]]
                axes.errorbar([x for x, *_ in line], middle, yerr=error, marker=mark, capsize=2, label=name)
            axes.set_xlabel(curves.across)
            axes.set_ylabel(label)
            axes.legend()
        with replacing(folder / file_of(curves)) as temporary:
            figure.savefig(temporary, format="png", dpi=160)


def points(line: dict[float, str], figure: str, results: Results) -> list[tuple[float, float, float, float]]:
    """Place, mean, smallest and largest over seeds of every row that is measured, in order."""
    found = []
    for place, row in sorted(line.items()):
        values = [seed[figure] for seed in measured(results, row).values() if figure in seed]
        if values:
            found.append((place, statistics.mean(values), min(values), max(values)))
    return found
