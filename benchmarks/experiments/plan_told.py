"""What an experiment tells of its rows: tables and figures."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from cotext.config.fields import Closed


class Table(Closed):
    """A row of figures for each row of the experiment, mean over seeds with the smallest and the largest."""

    title: str
    """Above it."""
    columns: dict[str, str]
    """Figure by header, as in `loss: training.nll_current:.3f`; * stands for any part, in the header too."""
    rows: tuple[str, ...] | None = None
    """All if not given."""


class Curves(Closed):
    """A figure: one panel for each kind of figure, one line for each system.

    The points of a line are rows, or what was measured of one row in its course.
    """

    title: str
    """Above it; the file has its first words."""
    across: str
    """What is on the horizontal axis."""
    panels: Annotated[dict[str, str], Field(min_length=1)]
    """Figure by label of the vertical axis, as in `BLEU: bleu.s-bleu`; where lines are of single rows, with *
    for the place on the horizontal axis, as in `loss: training.loss.at.*`."""
    lines: Annotated[dict[str, dict[float, str] | str], Field(min_length=1)]
    """Of each system: row by its place on the horizontal axis, or a single row."""

    @model_validator(mode="after")
    def _places(self) -> Self:
        single = {isinstance(line, str) for line in self.lines.values()}
        if single != {"*" in figure for figure in self.panels.values()}:
            raise ValueError(
                f"{self.title}: * in every panel and a row for every line, or rows by place and no *"
            )
        return self

    def rows(self) -> set[str]:
        """All that are drawn."""
        lines = self.lines.values()
        return {row for line in lines for row in ([line] if isinstance(line, str) else line.values())}
