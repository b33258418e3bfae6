"""Draw the curves of an experiment: means over seeds, with error bars to the smallest and the largest."""

import re
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.experiments.plan import Experiment
from benchmarks.experiments.plan_output import Curves
from benchmarks.experiments.tables import Results, measured
from cotext.runtime.files import replacing

PANEL_INCHES = (4.0, 3.0)
MARKS = ("o", "s", "^", "D", "v")


def file_of(curves: Curves) -> str:
    """Return the file name of a figure."""
    return re.sub(r"[^a-z0-9]+", "-", curves.title.lower()).strip("-") + ".png"


def draw(experiment: Experiment, results: Results, folder: Path) -> None:
    """Draw all figures for which there are results."""
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


def points(
    line: dict[float, str] | str, figure: str, results: Results
) -> list[tuple[float, float, float, float]]:
    """Return the points of a line in order: x, and mean, smallest and largest value over seeds."""
    if isinstance(line, str):
        values = _by_update(figure, measured(results, line).values())
    else:
        values = {
            place: [seed[figure] for seed in measured(results, row).values() if figure in seed]
            for place, row in line.items()
        }
    return [
        (place, statistics.mean(found), min(found), max(found))
        for place, found in sorted(values.items())
        if found
    ]


def _by_update(figure: str, seeds: Iterable[Mapping[str, float]]) -> dict[float, list[float]]:
    """Return the values of all seeds by the number that matches the star in `figure`."""
    before, _, after = figure.partition("*")
    place = re.compile(f"{re.escape(before)}([0-9]+){re.escape(after)}")
    found: dict[float, list[float]] = {}
    for seed in seeds:
        for name, value in seed.items():
            if at := place.fullmatch(name):
                found.setdefault(float(at[1]), []).append(value)
    return found
