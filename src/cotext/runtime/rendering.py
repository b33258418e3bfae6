"""Figures as text, and building blocks of self-contained HTML pages without scripts or network access.

The light or dark scheme follows the settings of the system. Plots have descriptions, and no information is
shown only by colour.
"""

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from html import escape
from pathlib import Path


def render_p(p: float) -> str:
    """Format a p-value with four decimals."""
    return f"{p:.4f}" if p >= 0.0001 else "<0.0001"


def listed(parts: Sequence[str]) -> str:
    """Join parts to "a, b and c"; separate them by semicolons if a part contains a comma."""
    joint = "; " if any("," in part for part in parts) else ", "
    if len(parts) < 2:
        return "".join(parts)
    return f"{joint.join(parts[:-1])}{';' if joint == '; ' else ''} and {parts[-1]}"


def render_rows(rows: Sequence[Sequence[str]], left: int) -> str:
    """Align rows in columns: the first `left` columns to the left, all other columns to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def marked(text: str, other: str, mark: str = "<mark>{}</mark>") -> str:
    """Return a text as HTML in which words that differ from the other text are marked."""
    words, others = text.split(), other.split()
    html = [mark.format(escape(word)) for word in words]
    for block in SequenceMatcher(None, words, others, autojunk=False).get_matching_blocks():
        same = slice(block.a, block.a + block.size)
        html[same] = map(escape, words[same])
    return " ".join(html)


def in_bytes(count: int) -> str:
    """Format a number of bytes, such as "4.5 MB"."""
    number, units = float(count), ["bytes", "kB", "MB", "GB", "TB"]
    while number >= 1000 and len(units) > 1:
        number, units = number / 1000, units[1:]
    return f"{number:.3g} {units[0]}" if count >= 1000 else f"{count} bytes"


STYLE = "\n" + Path(__file__).with_name("page.css").read_text(encoding="utf-8")


def whole_page(title: str, body: Iterable[str]) -> str:
    parts = "\n".join(body)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{parts}\n</main>\n</body>\n</html>\n"
    )


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Return a definition list; names are plain text, contents HTML."""
    items = "".join(f"<dt>{escape(name)}</dt><dd>{content}</dd>" for name, content in pairs)
    return f'<dl class="facts">{items}</dl>'


def folded(summary: str, content: str) -> str:
    """Return a collapsed block of plain text."""
    return f"<details><summary>{escape(summary)}</summary><pre>{escape(content)}</pre></details>"


def breakable(title: str) -> str:
    """Escape a title and allow line breaks after its plus signs, for narrow columns."""
    return escape(title).replace("+", "+<wbr>")


def table(
    caption: str, header: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1, heads: int = 1
) -> str:
    """Return a table of HTML cells. The first `heads` columns are headers, the first `left` left-aligned."""
    titles = "".join(
        f'<th scope="col"{_class(column, left)}>{title}</th>' if title else "<td></td>"
        for column, title in enumerate(header)
    )
    lines = []
    for row in rows:
        cells = [
            f'<th scope="row"{_class(column, left)}>{cell}</th>'
            if column < heads
            else f"<td{_class(column, left)}>{cell}</td>"
            for column, cell in enumerate(row)
        ]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<div class="wide"><table><caption>{caption}</caption>\n<thead><tr>{titles}</tr></thead>\n'
        f"<tbody>{chr(10).join(lines)}</tbody></table></div>"
    )


def _class(column: int, left: int) -> str:
    return ' class="left"' if column < left else ""
