"""Parts of the pages that reports are made of: HTML that needs nothing else.

No scripts and no network; light and dark follow the reader's system; tables are tables, plots have
descriptions, and nothing is told by colour alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby

from cotext.analysis.comparison import Cell, Row, SystemFigures
from cotext.reports.plots import accuracy_by_distance, legend_mark, training_curves

STYLE = """
:root { color-scheme: light dark; --paper: #fdfdfb; --ink: #23262b; --soft: #5b626c; --faint: #d9dbdd;
  --reach: #e6f1ea; --good: #1a7a43; --bad: #b3261e; --marked: #ffe9a8;
  --system-0: #7a5aa6; --system-1: #c2570c; --system-2: #1668b8; --system-3: #3a7d44;
  --system-4: #a3386c; --system-5: #5d6b00; }
@media (prefers-color-scheme: dark) { :root { --paper: #17191c; --ink: #e4e6e8; --soft: #a3abb5;
  --faint: #3a3e44; --reach: #20302a; --good: #6fd39a; --bad: #ff8a80; --marked: #5c4a12;
  --system-0: #b79ae0; --system-1: #f0964e; --system-2: #6bb0f2; --system-3: #7fc98a;
  --system-4: #e58ab5; --system-5: #c3d04a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem 1rem 4rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .6rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 0; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .6rem; padding-top: .8rem; border-top: 1px solid var(--faint); }
p, ul.checks { max-width: 44rem; }
.soft, figcaption, caption { color: var(--soft); }
figure { margin: 0; } figcaption { font-size: .9rem; }
figure svg { display: block; width: 100%; height: auto; }
svg.mark { width: .8em; height: .8em; }
.curves { max-width: 34rem; }
.plots { display: grid; gap: 1.6rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 17rem), 1fr)); }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; list-style: none; padding: 0; }
ul.checks { list-style: none; padding: 0; } ul.checks li { margin: .3rem 0; padding-left: 1.6rem;
  text-indent: -1.6rem; }
.met { color: var(--good); font-weight: 600; } .unmet { color: var(--bad); font-weight: 600; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-size: .9rem; padding-bottom: .6rem; }
th, td { padding: .25rem .5rem; text-align: right; vertical-align: top; font-weight: normal; }
thead th { font-weight: 600; border-bottom: 1px solid var(--ink); vertical-align: bottom; }
tbody th[scope=rowgroup] { text-align: left; padding-top: .9rem; }
tbody th b { margin-right: .4rem; }
tbody tr + tr td, tbody tr + tr th { border-top: 1px solid var(--faint); }
td.words, th.words { text-align: left; white-space: nowrap; }
.interval { display: block; font-size: .8rem; color: var(--soft); white-space: nowrap; }
.reach { background: var(--reach); }
ol.sample { padding-left: 1.6rem; } ol.sample > li { margin: 0 0 1rem; padding-left: .3rem; }
dl { margin: 0; display: grid; grid-template-columns: max-content 1fr; gap: 0 .9rem; }
dt { color: var(--soft); font-size: .9rem; } dd { margin: 0; }
mark { background: var(--marked); color: inherit; font-weight: 600; padding: 0 .15em; border-radius: .2em; }
code, pre { font: .85rem/1.5 ui-monospace, monospace; } pre { white-space: pre-wrap; margin: .4rem 0; }
dl.facts { margin-top: .6rem; }
dl.verdict { display: block; }
dl.verdict dt { font-weight: 600; color: var(--ink); margin-top: .8rem; font-size: 1rem; }
dl.verdict dd { max-width: 46rem; margin: .1rem 0 0; }
.wide { overflow-x: auto; margin-top: 1.2rem; } .wide th { white-space: nowrap; }
.wide table { width: auto; min-width: 50%; }
.pair { display: grid; gap: 1.6rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 24rem), 1fr)); }
.maps { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 13rem), 1fr)); }
td.left, th.left { text-align: left; } td.nowrap { white-space: nowrap; }
table { overflow-wrap: normal; }
.choices { max-width: 50rem; } .scores { max-width: 36rem; }
.choices thead th:not(.words) { width: calc(44% / var(--systems)); }
.choices thead th:nth-child(-n+2) { width: 4rem; }
@media (max-width: 40rem) {
  .choices thead th.words { display: none; }
  .choices tr:not(.head) { display: grid; align-items: end;
    grid-template-columns: 2.9rem 3.4rem repeat(var(--systems), minmax(0, 1fr)); }
  .choices tr:not(.head) > * { padding: .2rem .3rem; width: auto !important; height: 100%; }
  .choices tr td.words { grid-column: 3 / -1; text-align: right; border-top: 0; color: var(--soft); }
  table { font-size: .92rem; } .choices thead th { font-size: .85rem; }
  dl { grid-template-columns: 1fr; } dd { margin-bottom: .3rem; }
}
"""


def whole_page(title: str, body: Iterable[str]) -> str:
    """A page of parts, one after the other."""
    parts = "\n".join(body)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{parts}\n</main>\n</body>\n</html>\n"
    )


def legend(systems: Sequence[SystemFigures]) -> str:
    """Which marker is which system."""
    items = [f"<li>{legend_mark(i)} {escape(s.title)}</li>" for i, s in enumerate(systems)]
    return f'<ul class="legend">{"".join(items)}</ul>'


def choice_plots(rows: Sequence[Row], systems: Sequence[SystemFigures], about: Mapping[str, str]) -> str:
    """A plot for each phenomenon; `about` says what some of them are."""
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
        '<p class="soft">Bars are 95 % intervals. The dashed line is chance. Shaded: at least one system '
        "sees the clue.</p>"
    )


def choice_table(rows: Sequence[Row], systems: Sequence[SystemFigures], about: Mapping[str, str]) -> str:
    """The figures of the plots, with a few words on each row."""
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
        "Right choices in per cent, with 95 % intervals. Shaded: the clue lies within what the system sees. "
        "In brackets: it does not, and chance is expected. “back” counts sentences from the choice "
        "back to its clue; “ahead”: the clue is in the next sentence."
    )
    if any(cell.shown for row in rows for cell in row.cells):
        caption += " Bold: it is shown that context is used."
    return (
        f'<table class="choices" role="table" style="--systems:{len(systems)}">'
        f'<caption>{caption}</caption>\n<thead role="rowgroup">'
        '<tr role="row"><th scope="col" role="columnheader">back</th>'
        f'<th scope="col" role="columnheader">chance</th>{titles}'
        '<th scope="col" role="columnheader" class="words">in words</th></tr></thead>\n'
        f"{''.join(bodies)}\n</table>"
    )


def curves(systems: Sequence[SystemFigures], words: str) -> str:
    """The training curves, with words below them."""
    return f'<figure class="curves">{training_curves(systems)}<figcaption>{words}</figcaption></figure>'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and what they stand for; the latter is HTML."""
    items = "".join(f"<dt>{escape(name)}</dt><dd>{content}</dd>" for name, content in pairs)
    return f'<dl class="facts">{items}</dl>'


def folded(summary: str, content: str) -> str:
    """Plain text that is shown on request."""
    return f"<details><summary>{escape(summary)}</summary><pre>{escape(content)}</pre></details>"


def breakable(title: str) -> str:
    """A title that may be broken at its plus signs, for narrow columns."""
    return escape(title).replace("+", "+<wbr>")


def _by_phenomenon(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    for phenomenon, group in groupby(rows, key=lambda row: row.phenomenon):
        yield phenomenon, list(group)


def _cell(cell: Cell) -> str:
    figure = f"{cell.percent:.1f}" if cell.in_reach else f"({cell.percent:.1f})"
    if cell.shown:
        figure = f"<b>{figure}</b>"
    kind = ' class="reach"' if cell.in_reach else ""
    return (
        f'<td role="cell"{kind}>{figure} <span class="interval">{cell.low:.0f} to {cell.high:.0f}</span></td>'
    )
