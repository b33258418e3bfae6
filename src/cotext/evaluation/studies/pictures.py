"""Pictures that stand alone: probing, attention between sentences, and gates, as matplotlib figures."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from torch import Tensor

from cotext.evaluation.studies.attention.gates import GateOpenness, HeadGates
from cotext.evaluation.studies.plots import MARKS, _style
from cotext.evaluation.studies.probing.probing import MAX_DISTANCE, NEAR
from cotext.evaluation.studies.probing.probing_summary import Measured, TaskSummary

# For a picture: the light colours of the page.
_PICTURE_INK: Final = "#23262b"


_PICTURE_FAINT: Final = "#d9dbdd"


_PICTURE_SYSTEMS: Final = ("#1668b8", "#c2570c", "#7a5aa6", "#3a7d44", "#a3386c", "#5d6b00")


# Of absolute positions: answers that are nearly right.
_NEAR: Final[dict[str, Any]] = {"linewidth": 1.3, "linestyle": (0, (4, 2)), "markerfacecolor": "white"}


# What a token says of its position without its state.
_ALONE: Final[dict[str, Any]] = {"linewidth": 1, "linestyle": (0, (1, 2))}


def probed_by_layer(runs: Sequence[tuple[str, TaskSummary]]) -> Figure:
    """Accuracy of absolute positions over the layers of some named runs; as figure 1 of Li et al. 2022."""
    with _style(_PICTURE_INK, _PICTURE_FAINT):
        figure = Figure(figsize=(5.8, 3.6), layout="constrained", facecolor="white")
        axes = figure.add_subplot()
        for number, (name, found) in enumerate(runs):
            colour, marker = _picture_mark(number)
            exact = [layer.accuracy for layer in found.layers]
            near = [layer.near for layer in found.layers if layer.near is not None]
            line: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 6}
            axes.plot([v.mean for v in exact], linewidth=2, label=name, **line)
            axes.plot([v.mean for v in near], **{**line, **_NEAR})
            for values in (exact, near):
                if any(v.spread for v in values):
                    means, spreads = [v.mean for v in values], [v.spread for v in values]
                    axes.errorbar(range(len(values)), means, spreads, fmt="none", ecolor=colour, capsize=3)
            axes.axhline(found.token_alone.accuracy.mean, color=colour, **_ALONE)
        last = max(len(found.layers) for _, found in runs) - 1
        axes.set_xticks(range(last + 1), ["0\n(input)", *map(str, range(1, last + 1))])
        axes.set_xlim(-0.25, last + 0.25)
        axes.set_xlabel("encoder layer")
        _percent_axis(axes)
        axes.plot([], [], color=_PICTURE_INK, marker="o", markersize=6, label=f"within {NEAR}", **_NEAR)
        _picture_legend(figure, axes)
        return figure


def probed_by_distance(runs: Sequence[tuple[str, TaskSummary]]) -> Figure:
    """Accuracy over the distance of two tokens; as figures 2 and 3 of Li et al. 2022.

    Of one run all layers, its top layer in front; of several, the top layer of each.
    """
    with _style(_PICTURE_INK, _PICTURE_FAINT):
        figure = Figure(figsize=(6.4, 3.9), layout="constrained", facecolor="white")
        axes = figure.add_subplot()
        for number, (name, found) in enumerate(runs):
            colour, marker = _picture_mark(number)
            top = len(found.layers) - 1
            lower = found.layers[:-1] if len(runs) == 1 else ()
            for layer, summary in enumerate(lower):
                line: dict[str, Any] = {"linestyle": "solid" if layer else (0, (5, 1.5)), "linewidth": 1.3}
                line["color"] = _shade(colour, layer / top)
                label = f"layer {layer}" if layer else "layer 0 (input)"
                _distance_line(axes, found.reliable(summary), label, line)
            line = {"color": colour, "linewidth": 2.2, "marker": marker, "markersize": 4.5}
            label = f"{name}, layer {top}"
            _distance_line(axes, found.reliable(found.layers[-1]), label, line)
            _distance_line(axes, found.reliable(found.token_alone), None, {"color": colour, **_ALONE})
        _percent_axis(axes)
        if not any(found.reliable(found.layers[-1]) for _, found in runs):
            axes.text(0, 75, "too few pairs at any distance", ha="center")
        elif axes.dataLim.y1 < 50:
            axes.set_ylim(0, 10 * math.ceil(axes.dataLim.y1 / 10 + 0.1))
            axes.set_yticks(range(0, round(axes.get_ylim()[1]) + 1, 10))
        if runs[0][1].classes == 2:
            axes.axhline(50, color=_PICTURE_INK, linewidth=0.8)
            axes.text(-MAX_DISTANCE - 0.4, 50.6, "chance", size=9)
            axes.set_ylim(bottom=min(44.0, axes.dataLim.y0 - 3))
        axes.set_xlim(-MAX_DISTANCE - 0.5, MAX_DISTANCE + 0.5)
        axes.set_xticks([-1, 1, *(d for d in range(-MAX_DISTANCE, MAX_DISTANCE + 1, 5) if d)])
        axes.set_xlabel("i − j, tokens")
        _picture_legend(figure, axes)
        return figure


def sentence_map(
    title: str, numbers: Sequence[int], mean: NDArray[np.float64], share: NDArray[np.float64]
) -> Figure:
    """Two maps of the attention between sentences, [N, N] each: mean weights of token pairs, and shares.

    As figure 8 of Wu et al. 2023; `numbers` name the sentences. Not a number: outside the context window,
    drawn in grey.
    """
    with _style(_PICTURE_INK, _PICTURE_FAINT):
        side = min(3.2 + 0.05 * len(numbers), 7.0)
        figure = Figure(figsize=(2 * side + 1.2, side + 0.5), layout="constrained", facecolor="white")
        shades = ("#ffffff", _PICTURE_SYSTEMS[0], "#06203c")
        colours = LinearSegmentedColormap.from_list("share", shades).with_extremes(bad=_PICTURE_FAINT)
        every = next(step for step in (1, 2, 5, 10, 20, 50, 100, len(numbers)) if len(numbers) / step <= 16)
        shown = [i for i, number in enumerate(numbers) if number % every == 0 or every == 1]
        panels = (("mean weight of a pair of tokens", mean), ("share of a token's attention", share))
        for axes, (name, values) in zip(figure.subplots(1, 2), panels, strict=True):
            image = axes.imshow(values, cmap=colours, vmin=0, aspect="equal", interpolation="nearest")
            axes.set_title(name, fontsize=10)
            axes.grid(False)
            axes.set_xticks(shown, [str(numbers[i]) for i in shown])
            axes.set_yticks(shown, [str(numbers[i]) for i in shown])
            axes.set_xlabel("sentence attended to")
            axes.set_ylabel("sentence that attends")
            figure.colorbar(image, ax=axes, shrink=0.85)
        figure.suptitle(f"{title}; grey: outside the context window", fontsize=11)
        return figure


def gate_openness(numbers: Sequence[int], gates: Sequence[tuple[str, GateOpenness, Tensor]]) -> Figure:
    """Mean gate values by sentence, and gate value times attention share by distance."""
    with _style(_PICTURE_INK, _PICTURE_FAINT):
        figure = Figure(figsize=(9.0, 3.6), layout="constrained", facecolor="white")
        by_sentence, by_distance = figure.subplots(1, 2)
        for number, (name, gate, share) in enumerate(gates):
            colour, marker = _picture_mark(number)
            line: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4.5, "linewidth": 1.5}
            by_sentence.plot(numbers, gate.openness.tolist(), label=name, **line)
            found = gate.by_distance(share)
            by_distance.plot(list(found), [at.passed for at in found.values()], label=name, **line)
        by_sentence.set_ylim(-0.02, 1.02)
        for axes in (by_sentence, by_distance):
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        by_sentence.set_xlabel("sentence")
        by_sentence.set_ylabel("mean gate value")
        by_distance.set_ylim(bottom=0)
        by_distance.set_xlabel("sentences back (below zero: ahead)")
        by_distance.set_ylabel("gate value × share of attention")
        figure.legend(
            *by_sentence.get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False
        )
        return figure


def head_gates(gates: Mapping[str, HeadGates]) -> Figure:
    """Gates to other sentences by attention and head, and what passes them by distance, a line per kind."""
    with _style(_PICTURE_INK, _PICTURE_FAINT):
        figure = Figure(figsize=(9.0, 1.8 + 0.25 * len(gates)), layout="constrained", facecolor="white")
        by_head, by_distance = figure.subplots(1, 2)
        values = np.stack([each.open.numpy() for each in gates.values()])
        image = by_head.imshow(values, cmap="RdBu", vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
        by_head.grid(False)
        by_head.set_xticks(range(values.shape[1]), [str(head + 1) for head in range(values.shape[1])])
        by_head.set_yticks(range(len(gates)), list(gates))
        by_head.set_xlabel("head")
        figure.colorbar(image, ax=by_head, label="tanh of the gate")
        for number, kind in enumerate(dict.fromkeys(each.kind for each in gates.values())):
            of_kind = [each.by_distance for each in gates.values() if each.kind == kind]
            distances = sorted({distance for each in of_kind for distance in each})
            passed = [
                sum(float(each[d].mean()) for each in of_kind if d in each) / len(of_kind) for d in distances
            ]
            colour, marker = _picture_mark(number)
            by_distance.plot(distances, passed, label=kind, color=colour, marker=marker, markersize=4.5)
        by_distance.xaxis.set_major_locator(MaxNLocator(integer=True))
        by_distance.set_ylim(bottom=0)
        by_distance.set_xlabel("sentences back (below zero: ahead)")
        by_distance.set_ylabel("attention weight × |gate|")
        by_distance.legend(frameon=False)
        return figure


def lines_of_systems(
    lines: Mapping[str, tuple[Sequence[int], Sequence[float]]], x_label: str, y_label: str
) -> Figure:
    """A line for each name, through points whose x are whole numbers."""
    with _style(_PICTURE_INK, _PICTURE_FAINT):
        figure = Figure(figsize=(5.8, 3.6), layout="constrained", facecolor="white")
        axes = figure.add_subplot()
        for number, (name, (x, y)) in enumerate(lines.items()):
            colour, marker = _picture_mark(number)
            axes.plot(x, y, color=colour, marker=marker, markersize=6, linewidth=2, label=name)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        figure.legend(loc="outside upper center", ncols=2, frameon=False)
        return figure


def two_over_settings(settings: Sequence[str], x_label: str, lines: Mapping[str, Sequence[float]]) -> Figure:
    """Two figures of the same systems, each on an axis of its own, over what sets the systems apart."""
    with _style(_PICTURE_INK, _PICTURE_FAINT):
        figure = Figure(figsize=(5.8, 3.6), layout="constrained", facecolor="white")
        left = figure.add_subplot()
        right = left.twinx()
        right.grid(False)
        right.spines["right"].set_visible(True)
        for number, (axes, (name, values)) in enumerate(zip((left, right), lines.items(), strict=True)):
            colour, marker = _picture_mark(number)
            axes.plot(range(len(values)), values, color=colour, marker=marker, markersize=6, linewidth=2)
            axes.set_ylabel(name, color=colour)
        left.set_xticks(range(len(settings)), settings)
        left.set_xlabel(x_label)
        return figure


def _distance_line(
    axes: Any, accuracy: Mapping[int, Measured], label: str | None, line: Mapping[str, Any]
) -> None:
    """A line for each sign, as no two tokens are 0 apart; a line with markers has a band for the spread."""
    for sign in (-1, 1):
        points = [(d, value) for d, value in accuracy.items() if d * sign > 0]
        x, means = [d for d, _ in points], [value.mean for _, value in points]
        axes.plot(x, means, label=label if sign > 0 else None, **line)
        if "marker" in line and any(value.spread for _, value in points):
            low, high = ([v.mean + side * v.spread for _, v in points] for side in (-1, 1))
            axes.fill_between(x, low, high, color=line["color"], alpha=0.2, linewidth=0)


def _picture_legend(figure: Figure, axes: Any) -> None:
    axes.plot([], [], color=_PICTURE_INK, label="token alone", **_ALONE)
    figure.legend(loc="outside upper center", ncols=3, frameon=False)


def _picture_mark(number: int) -> tuple[str, str]:
    colour = _PICTURE_SYSTEMS[number % len(_PICTURE_SYSTEMS)]
    return colour, MARKS[number % len(MARKS)][0]


def _shade(colour: str, strength: float) -> tuple[float, float, float]:
    """The colour, paler the lower the strength (0 to 1)."""
    share = 0.3 + 0.5 * strength
    red, green, blue = (1 - share * (1 - part) for part in to_rgb(colour))
    return red, green, blue


def _percent_axis(axes: Any) -> None:
    axes.set_ylim(0, 103)
    axes.set_yticks(range(0, 101, 25))
    axes.set_ylabel("accuracy, %")
