"""Plots, tables and legends of several systems, as parts of a page."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby

from cotext.evaluation.studies.contrastive.contrastive_rows import Cell, Row, SystemFigures
from cotext.evaluation.studies.plots import accuracy_by_distance, legend_mark, loss_ratios, training_curves
from cotext.runtime.html import breakable


def legend(systems: Sequence[SystemFigures]) -> str:
    """The markers of the systems."""
    items = [f"<li>{legend_mark(i)} {escape(s.title)}</li>" for i, s in enumerate(systems)]
    return f'<ul class="legend">{"".join(items)}</ul>'


def accuracy_plots(rows: Sequence[Row], systems: Sequence[SystemFigures], about: Mapping[str, str]) -> str:
    """A plot of accuracies for each phenomenon; `about` explains some of them."""
    figures = []
    for phenomenon, group in _by_phenomenon(rows):
        parts = [
            f"{system.title}: " + ", ".join(f"{row.cells[i].percent:.0f} at {row.distance}" for row in group)
            for i, system in enumerate(systems)
        ]
        description = escape(f"{phenomenon}, per cent right by distance. {'. '.join(parts)}.")
        words = f": {escape(about[phenomenon])}" if phenomenon in about else ""
        figures.append(
            f"<figure>{accuracy_by_distance(group, systems, description)}"
            f"<figcaption><b>{escape(phenomenon)}</b>{words}</figcaption></figure>"
        )
    return (
        f'{legend(systems)}\n<div class="plots">\n{chr(10).join(figures)}\n</div>\n'
        '<p class="soft">Bars are 95 % intervals. The dashed line is chance. Shaded: the clue '
        "is within the context window of at least one system.</p>"
    )


def accuracy_table(rows: Sequence[Row], systems: Sequence[SystemFigures], about: Mapping[str, str]) -> str:
    """The accuracies of the plots as a table, with a few words on each row."""
    titles = "".join(f'<th scope="col" role="columnheader">{breakable(s.title)}</th>' for s in systems)
    columns = len(systems) + 3
    bodies = []
    for phenomenon, group in _by_phenomenon(rows):
        lines = "\n".join(
            f'<tr role="row"><th scope="row" role="rowheader">{escape(row.distance)}</th>'
            f'<td role="cell">{row.chance:.1f}</td>'
            f"{''.join(_cell(cell) for cell in row.cells)}"
            f'<td role="cell" class="words">{escape(row.verdict)}</td></tr>'
            for row in group
        )
        bodies.append(
            f'<tbody role="rowgroup"><tr class="head" role="row">'
            f'<th scope="rowgroup" role="rowheader" colspan="{columns}"><b>{escape(phenomenon)}</b>'
            f"{escape(about.get(phenomenon, ''))}</th></tr>\n{lines}\n</tbody>"
        )
    caption = (
        "Contrastive accuracy in per cent, with 95 % intervals. Shaded: the clue is within the context "
        "window of the system. In brackets: it is outside, and chance is expected. Distance: sentences back "
        "to the clue; “ahead”: the clue is in the next sentence."
    )
    if any(cell.shown for row in rows for cell in row.cells):
        caption += " Bold: context use is significant."
    return (
        f'<div class="wide"><table class="contrastive" role="table" style="--systems:{len(systems)}">'
        f'<caption>{caption}</caption>\n<thead role="rowgroup">'
        '<tr role="row"><th scope="col" role="columnheader">distance</th>'
        f'<th scope="col" role="columnheader">chance</th>{titles}'
        '<th scope="col" role="columnheader" class="words">in words</th></tr></thead>\n'
        f"{''.join(bodies)}\n</table></div>"
    )


def curves(systems: Sequence[SystemFigures], words: str) -> str:
    """The training curves, with words below them."""
    return f'<figure class="curves">{training_curves(systems)}<figcaption>{words}</figcaption></figure>'


def ratios(systems: Sequence[SystemFigures], words: str) -> str:
    """The ratio of losses over training, with words below it; nothing without a system that has one."""
    if not any(system.loss_ratio for system in systems):
        return ""
    return f'<figure class="curves">{loss_ratios(systems)}<figcaption>{words}</figcaption></figure>'


def _by_phenomenon(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    for phenomenon, group in groupby(rows, key=lambda row: row.phenomenon):
        yield phenomenon, list(group)


def _cell(cell: Cell) -> str:
    figure = f"{cell.percent:.1f}" if cell.in_window else f"({cell.percent:.1f})"
    if cell.shown:
        figure = f"<b>{figure}</b>"
    kind = ' class="window"' if cell.in_window else ""
    return (
        f'<td role="cell"{kind}>{figure} <span class="interval">{cell.low:.0f} to {cell.high:.0f}</span></td>'
    )
