"""Tables for a page and a terminal, and versions of software for a page."""

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import version

from cotext.runtime import __version__
from cotext.runtime.rendering import breakable, render_rows, table


@dataclass(frozen=True, slots=True)
class Cell:
    """A table cell; `marked`: significant, in bold or with a star; `small`: lines below, on a page."""

    text: str
    small: tuple[str, ...] = ()
    marked: bool = False


Row = Sequence[str | Cell]


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a header; the first `left` columns are left-aligned, the first `heads` are row headers."""

    header: Sequence[str]
    rows: Sequence[Row]
    caption: str = ""
    left: int = 1
    heads: int = 1

    def text(self) -> str:
        """Return columns of plain text, without caption and small lines."""
        plain = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in self.rows]
        starred = {column for row in plain for column, cell in enumerate(row) if cell.marked}
        rows = [
            # A space in place of the star keeps the other cells of a column aligned.
            [
                cell.text + ("*" if cell.marked else " " * (column in starred))
                for column, cell in enumerate(row)
            ]
            for row in plain
        ]
        return render_rows([self.header, *rows], left=self.left)

    def html(self) -> str:
        rows = [[_html(cell, n < self.heads) for n, cell in enumerate(row)] for row in self.rows]
        header = list(map(breakable, self.header))
        return table(escape(self.caption), header, rows, left=self.left, heads=self.heads)


def _html(cell: str | Cell, head: bool) -> str:
    cell = cell if isinstance(cell, Cell) else Cell(cell)
    text = breakable(cell.text) if head else escape(cell.text)
    small = (f'<span class="interval">{escape(line)}</span>' for line in cell.small)
    return " ".join([f"<b>{text}</b>" if cell.marked else text, *small])


def interval(ends: tuple[float, float], form: str = "+.2f") -> str:
    """Format an interval, for example "+0.10 to +0.52"."""
    return " to ".join(format(end, form) for end in ends)


def versions() -> dict[str, str]:
    from cotext.data.controlled import VERSION

    return {
        "Cotext": __version__,
        "controlled corpus": str(VERSION),
        "PyTorch": version("torch"),
        "Python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }
