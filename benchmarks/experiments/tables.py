"""The page of an experiment in Markdown: its tables, and a list of its rows."""

import json
import re
import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.experiments.measures import without_comet
from benchmarks.experiments.plan import Experiment
from benchmarks.experiments.plan_output import Table

Results = dict[str, Any]  # the content of results.json
DIGITS = ".1f"


def render(experiment: Experiment, results: Results) -> str:
    """Return the page: title, tables, rows with recipe, settings and signatures, versions."""
    parts = [f"# {experiment.title}", experiment.about.strip()]
    for table in experiment.tables:
        parts += [f"## {table.title}", *_table(table, experiment, results)]
    asked = [m.translation.comet for m in experiment.measures.values() if m.translation is not None]
    if any("comet" in figure for table in experiment.tables for figure in table.columns.values()):
        reasons = dict.fromkeys(reason for model in asked if (reason := without_comet(model)))
        parts += [f"COMET is left out: {reason}" for reason in reasons]
    parts += ["## Rows", "\n".join(_rows(experiment, results))]
    if experiment.settings:
        parts.append(f"Every training:{_settings(experiment.settings)}")
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    return "\n\n".join(part for part in (*parts, versions) if part) + "\n"


def _table(table: Table, experiment: Experiment, results: Results) -> Iterator[str]:
    names = [name for name in table.rows or experiment.rows if measured(results, name)]
    if not names:
        yield "Nothing measured yet."
        return
    found = {name: list(measured(results, name).values()) for name in names}
    columns = dict(_columns(table, [figures for each in found.values() for figures in each]))
    lines = [["", *columns], ["---"] * (len(columns) + 1)]
    for name, seeds in found.items():
        cells = [_cell([s[figure] for s in seeds if figure in s], form) for figure, form in columns.values()]
        lines.append([name if len(seeds) == 1 else f"{name} ({len(seeds)} seeds)", *cells])
    yield "\n".join(f"| {' | '.join(line)} |" for line in lines)


def measured(results: Results, name: str) -> dict[str, dict[str, float]]:
    """Return the figures MEASURE.FIGURE of a row by seed; seeds without figures are left out."""
    seeds = {}
    for seed, entry in results["rows"].get(name, {}).items():
        figures = {
            f"{measure}.{figure}": value
            for measure, done in entry.get("measures", {}).items()
            for figure, value in done["figures"].items()
        }
        if figures:
            seeds[seed] = figures
    return seeds


def _columns(table: Table, seeds: list[dict[str, float]]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield header, figure and format of each column; a figure with `*` gives a column for each match."""
    for header, column in table.columns.items():
        figure, _, form = column.partition(":")
        form = form or DIGITS
        if "*" not in figure:
            yield header, (figure, form)
            continue
        pattern = re.compile(re.escape(figure).replace(r"\*", "(.+?)"))
        there = {name: found[1] for each in seeds for name in each if (found := pattern.fullmatch(name))}
        for name, part in sorted(there.items(), key=lambda item: _by_number(item[1])):
            yield header.replace("*", part), (name, form)


def _by_number(part: str) -> tuple[float, str]:
    return (float(part), "") if part.isdecimal() else (float("inf"), part)


def _cell(values: list[float], form: str) -> str:
    """Return the mean; with several seeds also the smallest and the largest value."""
    if not values:
        return ""
    mean = format(statistics.mean(values), form)
    return mean if len(values) == 1 else f"{mean} ({min(values):{form}}-{max(values):{form}})"


def _rows(experiment: Experiment, results: Results) -> Iterator[str]:
    for name, row in experiment.rows.items():
        entries: Mapping[str, Any] = results["rows"].get(name, {})
        what = row.recipe or f"{row.changed}, with other settings"
        size = f", size {row.size or experiment.size}" if row.recipe and (row.size or experiment.size) else ""
        start = f", from {row.start}" if row.start else ""
        yield f"* **{name}**: {what}{size}{start}{_settings(row.settings)}"
        for seed, entry in entries.items():
            state = entry.get("failed") or entry.get("signature") or "not trained to the end"
            yield f"  * seed {seed}: {state}"


def _settings(settings: Mapping[str, object]) -> str:
    return "".join(f" `{key}={json.dumps(value)}`" for key, value in settings.items())
