"""Style sheet and building blocks of self-contained HTML pages, without scripts or network access.

The light or dark scheme follows the settings of the system. Plots have descriptions, and no information is
shown only by colour.
"""

from collections.abc import Iterable, Sequence
from html import escape

STYLE = """
:root { color-scheme: light dark; --paper: #fdfdfb; --ink: #23262b; --soft: #5b626c; --faint: #d9dbdd;
  --window: #e6f1ea; --good: #1a7a43; --bad: #b3261e; --marked: #ffe9a8;
  --up: #1668b8; --down: #c2570c;
  --system-0: #7a5aa6; --system-1: #c2570c; --system-2: #1668b8; --system-3: #3a7d44;
  --system-4: #a3386c; --system-5: #5d6b00; }
@media (prefers-color-scheme: dark) { :root { --paper: #17191c; --ink: #e4e6e8; --soft: #a3abb5;
  --faint: #3a3e44; --window: #20302a; --good: #6fd39a; --bad: #ff8a80; --marked: #5c4a12;
  --up: #6bb0f2; --down: #f0964e;
  --system-0: #b79ae0; --system-1: #f0964e; --system-2: #6bb0f2; --system-3: #7fc98a;
  --system-4: #e58ab5; --system-5: #c3d04a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem 1rem 4rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .6rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 0; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .6rem; padding-top: .8rem; border-top: 1px solid var(--faint); }
p { max-width: 44rem; }
.soft, figcaption, caption { color: var(--soft); }
figure { margin: 0; } figcaption { font-size: .9rem; }
figure svg { display: block; width: 100%; height: auto; }
svg.mark { width: .8em; height: .8em; }
.plots { display: grid; gap: 1.6rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 17rem), 1fr)); }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; list-style: none; padding: 0; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-size: .9rem; padding-bottom: .6rem; }
th, td { padding: .25rem .5rem; text-align: right; vertical-align: top; font-weight: normal; }
thead th { font-weight: 600; border-bottom: 1px solid var(--ink); vertical-align: bottom; }
tbody tr + tr td, tbody tr + tr th { border-top: 1px solid var(--faint); }
td.words, th.words { text-align: left; }
.interval { display: block; font-size: .8rem; color: var(--soft); white-space: nowrap; }
dl { margin: 0; display: grid; grid-template-columns: max-content 1fr; gap: 0 .9rem; }
dt { color: var(--soft); font-size: .9rem; } dd { margin: 0; }
mark { background: var(--marked); color: inherit; font-weight: 600; padding: 0 .15em; border-radius: .2em; }
code, pre { font: .85rem/1.5 ui-monospace, monospace; } pre { white-space: pre-wrap; margin: .4rem 0; }
dl.facts { margin-top: .6rem; }
dl.verdict { display: block; }
dl.verdict dt { font-weight: 600; color: var(--ink); margin-top: .8rem; font-size: 1rem; }
dl.verdict dd { max-width: 46rem; margin: .1rem 0 0; }
.wide { margin-top: 1.2rem; } .wide table { width: auto; min-width: 50%; }
.pair { display: grid; gap: 1.6rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 24rem), 1fr)); }
.maps { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 13rem), 1fr)); }
td.left, th.left { text-align: left; }
table { overflow-wrap: normal; }
article { margin: 1.6rem 0 0; padding-top: 1rem; border-top: 1px solid var(--faint); }
article h3 { margin: 0 0 .3rem; } article dl { grid-template-columns: 11rem 1fr; gap: .15rem .9rem; }
dd.words { line-height: 1.9; } table a { color: inherit; }
.w { border-radius: .2em; padding: .1em .2em; } .w small { font-size: .7em; padding-left: .2em; }
.up { background: color-mix(in srgb, var(--up) var(--shade), transparent); }
.down { background: color-mix(in srgb, var(--down) var(--shade), transparent); }
.down.strong { text-decoration: underline dotted; text-underline-offset: .2em; }
.from { display: block; font-size: .85rem; line-height: 1.4; }
details { margin: .3rem 0; } summary { color: var(--soft); cursor: pointer; font-size: .9rem; }
table.map { font-size: .85rem; } table.map :is(td, th) { padding: .2rem; border: 0; }
table.map td { min-width: 2.2rem; border: 1px solid var(--paper); }
@media (max-width: 40rem) {
  table { font-size: .92rem; }
  dl, article dl { grid-template-columns: 1fr; } dd { margin-bottom: .3rem; }
}
/* As wide as the window if necessary; wider tables scroll, with a shadow at the hidden side. */
@media screen {
  .wide { width: max-content; min-width: 100%; max-width: calc(100vw - 2rem); margin-left: 50%;
    translate: -50%; overflow-x: auto; background:
    linear-gradient(to left, var(--paper) 50%, transparent) right / 3rem 100% no-repeat local,
    linear-gradient(to left, var(--soft), transparent) right 1px top / .5rem 100% no-repeat scroll; }
}
@media print {
  :root { font-size: 11.5px; } body { max-width: none; padding: 0; }
  th, td { padding: .2rem .3rem; } .interval { white-space: normal; } tr { break-inside: avoid; }
  table.map { font-size: .8rem; } table.map :is(td, th) { padding: .1rem; min-width: 0; }
}
"""


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
