"""Plots as SVG elements of a page, and as separate image files.

In a page, colours are CSS variables (`--ink`, `--system-0` ...) for light and dark mode; image files use the
light colours. Up to four systems also differ by marker, so that no information depends on colour.
"""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import matplotlib
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

if TYPE_CHECKING:  # `cotext attention` draws its maps without the modules of a comparison
    from cotext.evaluation.studies.compare.comparison import AccuracyRow

# matplotlib does not support CSS variables: each has a placeholder colour, replaced in the finished SVG.
_VARIABLES: Final = {
    "#000001": "var(--ink)",
    "#000002": "var(--faint)",
    "#000003": "var(--window)",
    **{f"#00000{4 + i}": f"var(--system-{i})" for i in range(6)},
}
_INK, _FAINT, _WINDOW, *_SYSTEMS = _VARIABLES
# Marker, and the marker as SVG for the legend of the page.
_MARKS: Final = (
    ("o", '<circle cx="7" cy="7" r="5"/>'),
    ("s", '<rect x="2.5" y="2.5" width="9" height="9"/>'),
    ("^", '<path d="M7 1.5 12.5 12h-11z"/>'),
    ("D", '<path d="M7 1 13 7 7 13 1 7z"/>'),
)


def accuracy_by_distance(rows: "Sequence[AccuracyRow]", description: str) -> str:
    """Plot accuracies of a phenomenon with 95 % intervals; distances within the widest window are shaded."""
    with _style():
        figure = Figure(figsize=(3.5, 2.6), layout="constrained")
        axes = figure.add_subplot()
        within = [i for i, row in enumerate(rows) if any(cell.in_window for cell in row.cells)]
        if within:
            axes.axvspan(within[0] - 0.5, within[-1] + 0.5, color=_WINDOW, linewidth=0)
        chance = rows[0].chance
        axes.axhline(chance, color=_INK, linewidth=1, linestyle=(0, (2, 2)))
        axes.text(
            len(rows) - 0.52, chance - 11, f"chance {chance:.0f}", color=_INK, ha="right", va="top", size=9
        )
        for number in range(len(rows[0].cells)):
            cells = [row.cells[number] for row in rows]
            offset = min(0.2, 0.8 / len(rows[0].cells)) * (number - (len(rows[0].cells) - 1) / 2)
            axes.errorbar(
                [i + offset for i in range(len(rows))],
                [cell.percent for cell in cells],
                yerr=[
                    [max(cell.percent - cell.low, 0.0) for cell in cells],
                    [max(cell.high - cell.percent, 0.0) for cell in cells],
                ],
                elinewidth=1.5,
                color=_SYSTEMS[number % len(_SYSTEMS)],
                marker=_MARKS[number % len(_MARKS)][0],
                markersize=5,
                linestyle="none",
            )
        axes.set_xticks(range(len(rows)), [row.group.distance for row in rows])
        axes.set_xlim(-0.5, len(rows) - 0.5)
        axes.set_ylim(0, 104)
        axes.set_yticks(range(0, 101, 25))
        axes.set_ylabel("accuracy, %")
        axes.set_xlabel(
            "sentences back to the clue"
            if rows[0].group.distance != "ahead"
            else "the clue is in the next sentence"
        )
        return _svg(figure, f"distance-{rows[0].group.title}", description)


@contextmanager
def _style(ink: str = _INK, faint: str = _FAINT) -> Iterator[None]:
    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "cotext",
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 10,
        "figure.facecolor": "none",
        "axes.facecolor": "none",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.axisbelow": True,
        "grid.color": faint,
        "grid.linewidth": 0.7,
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.edgecolor": ink,
        "axes.linewidth": 0.8,
        "xtick.color": ink,
        "ytick.color": ink,
    }
    with matplotlib.rc_context(settings):
        yield


def _svg(figure: Figure, name: str, description: str) -> str:
    """Return the figure as an SVG element that scales with the page; `name` makes its ids unique."""
    name = re.sub(r"[^A-Za-z0-9-]", "-", name)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' (?:width|height)="[^"]*"', "", text, count=2)  # of the element itself
    text = text.replace("<svg", f'<svg role="img" aria-label="{description}"', 1)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'((?:xlink:)?href="#|url\(#)', rf"\1{name}-", text)
    # Use the font of the reader's system.
    text = re.sub(r"'DejaVu Sans'[^;\"]*", "system-ui, sans-serif", text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, variable)
    return text.strip()


# Colours of image files: the light colours of the page.
_PICTURE_INK: Final = "#23262b"
_PICTURE_FAINT: Final = "#d9dbdd"
_PICTURE_SHADE: Final = "#1668b8"


def sentence_map(
    title: str, numbers: Sequence[int], mean: NDArray[np.float64], share: NDArray[np.float64]
) -> Figure:
    """Draw two maps of the attention between sentences, [N, N]: mean weights of token pairs, and shares.

    This is figure 8 of Wu et al. (2023). NaN, outside the context window, is grey.
    """
    with _style(_PICTURE_INK, _PICTURE_FAINT):
        side = min(3.2 + 0.05 * len(numbers), 7.0)
        figure = Figure(figsize=(2 * side + 1.2, side + 0.5), layout="constrained", facecolor="white")
        shades = ("#ffffff", _PICTURE_SHADE, "#06203c")
        colours = LinearSegmentedColormap.from_list("share", shades).with_extremes(bad=_PICTURE_FAINT)
        every = next(step for step in (1, 2, 5, 10, 20, 50, 100, len(numbers)) if len(numbers) / step <= 16)
        ticks = [i for i, number in enumerate(numbers) if number % every == 0 or every == 1]
        panels = (("mean weight of a pair of tokens", mean), ("share of a token's attention", share))
        for axes, (name, values) in zip(figure.subplots(1, 2), panels, strict=True):
            image = axes.imshow(values, cmap=colours, vmin=0, aspect="equal", interpolation="nearest")
            axes.set_title(name, fontsize=10)
            axes.grid(False)
            axes.set_xticks(ticks, [str(numbers[i]) for i in ticks])
            axes.set_yticks(ticks, [str(numbers[i]) for i in ticks])
            axes.set_xlabel("sentence attended to")
            axes.set_ylabel("sentence that attends")
            figure.colorbar(image, ax=axes, shrink=0.85)
        figure.suptitle(f"{title}; grey: outside the context window", fontsize=11)
        return figure


def legend(titles: Sequence[str]) -> str:
    items = []
    for number, title in enumerate(titles):
        colour = f"var(--system-{number % len(_SYSTEMS)})"
        shape = _MARKS[number % len(_MARKS)][1]
        svg = f'<svg class="mark" viewBox="0 0 14 14" aria-hidden="true" style="fill:{colour}">{shape}</svg>'
        items.append(f"<li>{svg} {escape(title)}</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


def accuracy_plots(rows: "Sequence[AccuracyRow]", titles: Sequence[str], about: Mapping[str, str]) -> str:
    """Return a plot of accuracies for each phenomenon; `about` explains some phenomena."""
    figures = []
    for title, members in groupby(rows, key=lambda row: row.group.title):
        group = list(members)
        parts = [
            f"{name}: " + ", ".join(f"{row.cells[i].percent:.0f} at {row.group.distance}" for row in group)
            for i, name in enumerate(titles)
        ]
        description = escape(f"{title}, per cent right by distance. {'. '.join(parts)}.")
        words = f": {escape(about[title])}" if group[0].group.exact_chance and title in about else ""
        figures.append(
            f"<figure>{accuracy_by_distance(group, description)}"
            f"<figcaption><b>{escape(title)}</b>{words}</figcaption></figure>"
        )
    return (
        f'{legend(titles)}\n<div class="plots">\n{chr(10).join(figures)}\n</div>\n'
        '<p class="soft">Bars are 95 % intervals. The dashed line is chance. Shaded: the clue '
        "is within the context window of at least one system.</p>"
    )
