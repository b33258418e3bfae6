"""The report of the demonstration: one HTML page that needs nothing else, and report.json with all figures.

No scripts and no network; light and dark follow the reader's system; tables are tables, plots have
descriptions, and nothing is told by colour alone.
"""

import json
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from html import escape
from itertools import groupby
from pathlib import Path

import torch

import cotext
from cotext.comparison import PHENOMENA, Cell, Comparison, Line, Row, Sample
from cotext.data.controlled import VERSION
from cotext.files import replacing
from cotext.plots import accuracy_by_distance, legend_mark, training_curves

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
.reach { background: var(--reach); font-weight: 600; } .reach .interval { font-weight: normal; }
ol.sample { padding-left: 1.6rem; } ol.sample > li { margin: 0 0 1rem; padding-left: .3rem; }
dl { margin: 0; display: grid; grid-template-columns: max-content 1fr; gap: 0 .9rem; }
dt { color: var(--soft); font-size: .9rem; } dd { margin: 0; }
mark { background: var(--marked); color: inherit; font-weight: 600; padding: 0 .15em; border-radius: .2em; }
code, pre { font: .85rem/1.5 ui-monospace, monospace; } pre { white-space: pre-wrap; margin: .4rem 0; }
dl.facts { margin-top: .6rem; }
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

LEAD = """
Tiny systems were trained on the same small English–German world, in which some words can be translated only
with another sentence in view. It is known which sentence that is, so it is known what each system can see.
Where a system sees the clue, it should learn to use it; where it does not, it can only guess, and exactly
chance should come out.
"""
SIGHT = """
The sentence system sees one sentence. The document systems see three sentences before it, in the source and
in their own translation, and none after it. So pronouns and register more than three sentences from their
clue must stay at chance for all of them, and so must cataphora, whose clue is in the next sentence. Cohesion
has its clue in the translation alone: the source gives no hint.
"""


def write_report(out: Path, comparison: Comparison) -> None:
    """Write report.html and report.json to the folder `out`."""
    content = {"versions": versions(), **asdict(comparison)}
    page = render(comparison)
    with replacing(out / "report.json") as temporary:
        temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
    with replacing(out / "report.html") as temporary:
        temporary.write_text(page, encoding="utf-8")


def versions() -> dict[str, str]:
    """What the figures depend on beside the settings."""
    return {
        "Cotext": cotext.__version__,
        "controlled corpus": str(VERSION),
        "PyTorch": torch.__version__,
        "Python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }


def render(comparison: Comparison) -> str:
    """The page."""
    body = "\n".join(
        [
            f"<h1>What context does</h1>\n<p>{LEAD}</p>",
            _checks(comparison),
            f"<h2>Right choices</h2>\n<p>{SIGHT}</p>",
            _plots(comparison),
            _table(comparison),
            _bleu(comparison),
            "<h2>One document</h2>",
            _sample(comparison.sample),
            "<h2>Training</h2>",
            _curves(comparison),
            "<h2>How these figures came about</h2>",
            _facts(comparison),
        ]
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Cotext: what context does</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _checks(comparison: Comparison) -> str:
    items = []
    for expectation in comparison.expectations:
        kind, sign, word = (
            ("met", "✓", "as expected") if expectation.met else ("unmet", "✗", "not as expected")
        )
        items.append(
            f'<li><span class="{kind}">{sign} {word}:</span> {escape(expectation.text)} '
            f'<span class="soft">({escape(expectation.found)})</span></li>'
        )
    return f'<ul class="checks">\n{chr(10).join(items)}\n</ul>'


def _by_phenomenon(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    for phenomenon, group in groupby(rows, key=lambda row: row.phenomenon):
        yield phenomenon, list(group)


def _legend(comparison: Comparison) -> str:
    items = [f"<li>{legend_mark(i)} {escape(s.title)}</li>" for i, s in enumerate(comparison.systems)]
    return f'<ul class="legend">{"".join(items)}</ul>'


def _plots(comparison: Comparison) -> str:
    figures = []
    for phenomenon, rows in _by_phenomenon(comparison.rows):
        parts = [
            f"{system.title}: " + ", ".join(f"{row.cells[i].percent:.0f} at {row.distance}" for row in rows)
            for i, system in enumerate(comparison.systems)
        ]
        description = escape(f"{phenomenon}, per cent right by distance. {'. '.join(parts)}.")
        figures.append(
            f"<figure>{accuracy_by_distance(rows, comparison.systems, description)}"
            f"<figcaption><b>{escape(phenomenon)}</b>: {escape(PHENOMENA.get(phenomenon, ''))}</figcaption>"
            "</figure>"
        )
    return (
        f'{_legend(comparison)}\n<div class="plots">\n{chr(10).join(figures)}\n</div>\n'
        '<p class="soft">Bars are 95 % intervals. The dashed line is chance. Shaded: at least one system '
        "sees the clue.</p>"
    )


def _table(comparison: Comparison) -> str:
    titles = "".join(
        f'<th scope="col" role="columnheader">{_breakable(s.title)}</th>' for s in comparison.systems
    )
    columns = len(comparison.systems) + 3
    bodies = []
    for phenomenon, rows in _by_phenomenon(comparison.rows):
        lines = "\n".join(
            f'<tr role="row"><th scope="row" role="rowheader">{escape(row.distance)}</th>'
            f'<td role="cell">{row.chance:.1f}</td>'
            f"{''.join(_cell(cell) for cell in row.cells)}"
            f'<td role="cell" class="words">{escape(row.verdict)}</td></tr>'
            for row in rows
        )
        bodies.append(
            f'<tbody role="rowgroup"><tr class="head" role="row">'
            f'<th scope="rowgroup" role="rowheader" colspan="{columns}"><b>{escape(phenomenon)}</b>'
            f"{escape(PHENOMENA.get(phenomenon, ''))}</th></tr>\n{lines}\n</tbody>"
        )
    caption = (
        "Right choices in per cent, with 95 % intervals. Shaded: the clue lies within what the system sees. "
        "In brackets: it does not, and chance is expected. “back” counts sentences from the choice "
        "back to its clue; “ahead”: the clue is in the next sentence."
    )
    return (
        f'<table class="choices" role="table" style="--systems:{len(comparison.systems)}">'
        f'<caption>{caption}</caption>\n<thead role="rowgroup">'
        '<tr role="row"><th scope="col" role="columnheader">back</th>'
        f'<th scope="col" role="columnheader">chance</th>{titles}'
        '<th scope="col" role="columnheader" class="words">in words</th></tr></thead>\n'
        f"{''.join(bodies)}\n</table>"
    )


def _cell(cell: Cell) -> str:
    figure = f"{cell.percent:.1f}" if cell.in_reach else f"({cell.percent:.1f})"
    kind = ' class="reach"' if cell.in_reach else ""
    return (
        f'<td role="cell"{kind}>{figure} <span class="interval">{cell.low:.0f} to {cell.high:.0f}</span></td>'
    )


def _breakable(title: str) -> str:
    """A title that may be broken at its plus signs, for narrow columns."""
    return escape(title).replace("+", "+<wbr>")


def _bleu(comparison: Comparison) -> str:
    systems = comparison.systems
    titles = "".join(f'<th scope="col">{_breakable(system.title)}</th>' for system in systems)
    lines = []
    for number, score in enumerate(systems[0].scores):
        values = "".join(f"<td>{system.scores[number].value:.1f}</td>" for system in systems)
        lines.append(f'<tr><th scope="row" class="words">{escape(score.title)}</th>{values}</tr>')
    first = systems[0].scores[0]
    return (
        '<h2>BLEU</h2>\n<table class="scores"><caption>'
        f"{first.documents} test documents, {first.sentences} sentences. BLEU "
        "counts all words, and few of them depend on context; nor does it know that one rendering of a name "
        "or profession is as good as the other. It shows little of what the table above shows.</caption>\n"
        f"<thead><tr><td></td>{titles}</tr></thead>\n<tbody>{''.join(lines)}</tbody></table>"
    )


def _sample(sample: Sample) -> str:
    items = []
    for sentence in sample.sentences:
        parts = [
            ("source", f'<span lang="en">{escape(sentence.source)}</span>'),
            (sample.first_title, _marked(sentence.first)),
            (sample.second_title, _marked(sentence.second)),
        ]
        if " ".join(word.text for word in sentence.second) != sentence.reference:
            parts.append(("reference", f'<span lang="de">{escape(sentence.reference)}</span>'))
        lines = "".join(f"<dt>{escape(who)}</dt><dd>{text}</dd>" for who, text in parts)
        items.append(f"<li><dl>{lines}</dl></li>")
    return (
        f"<p>Test document {sample.number}, chosen because it shows the difference well: words that differ "
        f"between {escape(sample.first_title)} and {escape(sample.second_title)} are marked and in brackets. "
        "The reference is given where the second differs from it.</p>\n"
        f'<ol class="sample">\n{chr(10).join(items)}\n</ol>'
    )


def _marked(line: Line) -> str:
    words = [f"<mark>[{escape(w.text)}]</mark>" if w.marked else escape(w.text) for w in line]
    return f'<span lang="de">{" ".join(words)}</span>'


def _curves(comparison: Comparison) -> str:
    return (
        f'<figure class="curves">{training_curves(comparison.systems)}'
        "<figcaption>Loss of current sentences on the development set, on a logarithmic scale. The "
        "sentence system cannot get below what the words cost that it can only guess.</figcaption></figure>"
    )


def _facts(comparison: Comparison) -> str:
    parts = []
    for system in comparison.systems:
        signatures = [
            *(f"{name}: {report['signature']}" for name, report in system.accuracies.items()),
            *(score.signature for score in system.scores),
        ]
        parts.append(
            f"<h3>{escape(system.title)}</h3>\n<dl class='facts'>"
            f"<dt>recipe</dt><dd>{escape(system.recipe)}, {system.parameters:,} parameters, "
            f"{system.updates} updates</dd>"
            f"<dt>command</dt><dd><pre>{escape(comparison.commands[system.title])}</pre></dd>"
            f"<dt>model and decoding</dt><dd><code>{escape(system.signature)}</code></dd></dl>\n"
            "<details><summary>Signatures of its figures</summary>"
            f"<pre>{escape(chr(10).join(signatures))}</pre></details>"
        )
    facts = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in versions().items())
    parts.insert(
        0,
        "<h3>corpus</h3>\n<dl class='facts'><dt>command</dt>"
        f"<dd><pre>{escape(comparison.commands['corpus'])}</pre></dd></dl>",
    )
    return f'{chr(10).join(parts)}\n<h3>Versions</h3>\n<dl class="facts">{facts}</dl>'
