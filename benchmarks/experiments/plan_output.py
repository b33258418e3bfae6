"""The tables and figures of an experiment: the sections `tables` and `figures` of its file."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from cotext.runtime.sections import Closed


class Table(Closed):
    """A table with a line for each row: the mean over seeds, with the smallest and the largest."""

    title: str
    columns: dict[str, str]
    """Figure with a number format by header, such as `loss: training.nll_current:.3f`. A `*` matches any part
    of the name, which replaces the `*` of the header."""
    rows: tuple[str, ...] | None = None
    """Default: all rows."""


class Curves(Closed):
    """A figure with a panel for each measured value and a line for each system.

    The points of a line are rows, or the updates of a single row.
    """

    title: str
    """Title; the file is named after it."""
    across: str
    """Label of the horizontal axis."""
    panels: Annotated[dict[str, str], Field(min_length=1)]
    """Figure by label of the vertical axis, such as `BLEU: bleu.s-bleu`. If lines are of single rows, `*`
    matches the update, as in `loss: training.loss.at.*`."""
    lines: Annotated[dict[str, dict[float, str] | str], Field(min_length=1)]
    """Line by name: rows by their place on the horizontal axis, or a single row."""

    @model_validator(mode="after")
    def _places(self) -> Self:
        single = {isinstance(line, str) for line in self.lines.values()}
        if single != {"*" in figure for figure in self.panels.values()}:
            raise ValueError(
                f"{self.title}: give * in every panel and a row for every line, or rows by place and no *"
            )
        return self

    def rows(self) -> set[str]:
        """Return the names of all drawn rows."""
        lines = self.lines.values()
        return {row for line in lines for row in ([line] if isinstance(line, str) else line.values())}
