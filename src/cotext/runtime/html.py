"""Style sheet and building blocks of self-contained HTML pages, without scripts or network access.

The light or dark scheme follows the settings of the system. Plots have descriptions, and no information is
shown only by colour.
"""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

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
