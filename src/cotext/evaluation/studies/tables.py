"""Tables for a page, a terminal and LaTeX."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from cotext.runtime.html import breakable, table
from cotext.runtime.tables import render_rows

_SPECIAL: Final = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cell:
    """The content of a table cell.

    `marked`: significant; in bold on a page, with a star elsewhere. `small`: lines below the text, only on a
    page.
    """

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
        return render_rows([self.header, *self._starred("*", " ")], left=self.left)

    def html(self) -> str:
        rows = [[_html(cell, n < self.heads) for n, cell in enumerate(row)] for row in self.rows]
        header = list(map(breakable, self.header))
        return table(escape(self.caption), header, rows, left=self.left, heads=self.heads)

    def latex(self) -> str:
        """Return a tabular environment (needs booktabs), with the caption as a comment."""
        lines = [" & ".join(map(_latex, row)) + r" \\" for row in [self.header, *self._starred("$^{*}$", "")]]
        columns = "l" * self.left + "r" * (len(self.header) - self.left)
        begin = [f"\\begin{{tabular}}{{{columns}}}", r"\toprule", lines[0], r"\midrule"]
        comment = [f"% {self.caption}"] if self.caption else []
        return "\n".join([*comment, *begin, *lines[1:], r"\bottomrule", r"\end{tabular}"])

    def _starred(self, star: str, none: str) -> list[list[str]]:
        """Return the texts of all rows, with stars; `none` keeps the other cells of a column aligned."""
        plain = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in self.rows]
        starred = {column for row in plain for column, cell in enumerate(row) if cell.marked}
        return [
            [cell.text + (star if cell.marked else none if column in starred else "")
             for column, cell in enumerate(row)]
            for row in plain
        ]  # fmt: skip


def _html(cell: str | Cell, head: bool) -> str:
    cell = cell if isinstance(cell, Cell) else Cell(cell)
    text = breakable(cell.text) if head else escape(cell.text)
    small = (f'<span class="interval">{escape(line)}</span>' for line in cell.small)
    return " ".join([f"<b>{text}</b>" if cell.marked else text, *small])


def _latex(text: str) -> str:
    plain, star, _ = text.partition("$^{*}$")
    return re.sub(r"[\\&%$#_{}~^<>]", lambda match: _SPECIAL.get(match[0], f"\\{match[0]}"), plain) + star


def interval(ends: tuple[float, float], form: str = "+.2f") -> str:
    """Format an interval, for example "+0.10 to +0.52"."""
    return " to ".join(format(end, form) for end in ends)
