"""The page of `cotext audit`: a sentence about each output, counts by kind, and all findings."""

from collections.abc import Iterator
from html import escape
from typing import Final

from cotext.evaluation.studies.audit.figures import DETAILS, FAULTS, Audit, Finding, SystemAudit
from cotext.evaluation.studies.tables import Row, Table
from cotext.runtime.html import facts, table, whole_page
from cotext.runtime.version import __version__

SHOWN: Final = 500  # findings of an output
TITLES: Final = FAULTS | DETAILS
STYLE: Final = """<style>
body { max-width: 84rem; }
.findings table { table-layout: fixed; width: 100%; overflow-wrap: anywhere; }
.findings :is(td, th) { text-align: left; } .findings :is(td, th):nth-child(1) { width: 8.5rem; }
.findings :is(td, th):nth-child(2) { width: 16rem; } .findings .soft { font-size: .85rem; }
.findings .nothing { color: var(--bad); font-style: italic; }
.verdict { font-size: 1.1rem; max-width: 60rem; }
</style>"""
ABOUT: Final = """<p>A finding is a reason to check a sentence, not a verdict. The number in brackets is the
confidence, from 0 to 1. Good human translations have 1 to 3 details to check in 100 sentences, and many of
these are right. Where sentences are merged or divided, findings are less reliable. An audit cannot
notice a fluent sentence with another meaning. Sentences are numbered over the whole text.</p>"""


def render_audit(audit: Audit) -> str:
    """Return the page."""
    several = len(audit.systems) > 1
    body = [
        STYLE,
        f"<h1>Audit of {f'{len(audit.systems)} translations' if several else 'a translation'}</h1>",
    ]
    for system in audit.systems:
        body.append(f'<p class="verdict"><b>{escape(system.name)}</b>: {escape(system.summary)}</p>')
    body += [*(f'<p class="soft">{escape(note)}.</p>' for note in audit.notes), ABOUT]
    if several:
        body += ["<h2>Findings by kind</h2>", _counts(audit)]
    for system in audit.systems:
        body += _findings(system)
    languages = " to ".join(code or "unknown" for code in audit.languages)
    about = [("source", audit.source), ("languages", languages), ("Cotext", __version__)]
    body += ["<h2>Findings by position in the document</h2>", _positions(audit)]
    body += ["<h2>About this page</h2>", facts((name, escape(value)) for name, value in about)]
    return whole_page("Cotext: audit", body)


def _counts(audit: Audit) -> str:
    rows: list[Row] = [
        (title, *(f"{s.counts[kind]:,}" if s.counts[kind] else "-" for s in audit.systems))
        for kind, title in TITLES.items()
    ]
    rows.append(("no fault: output sentences that merge several", *(f"{s.merged:,}" for s in audit.systems)))
    rows.append(("no fault: source sentences that were divided", *(f"{s.divided:,}" for s in audit.systems)))
    return Table(("", *(system.name for system in audit.systems)), rows).html()


def _positions(audit: Audit) -> str:
    rows = [
        (first.name, f"{first.sentences:,}", *(f"{p.findings:,}" for p in places))
        for places in zip(*(system.positions for system in audit.systems), strict=True)
        for first in places[:1]
    ]
    heads = ("sentence of its document", "sentences", *(f"findings in {s.name}" for s in audit.systems))
    return Table(heads, rows).html()


def _findings(system: SystemAudit) -> Iterator[str]:
    """Yield the tables of the faults and the details of an output."""
    yield f"<h2>{escape(system.name)}: all findings</h2>"
    heads = ("sentence", "what is wrong", "source", "output")
    for title, kinds in (("Faults", FAULTS), ("Details to check", DETAILS)):
        rows = [_row(finding) for finding in system.findings if finding.kind in kinds]
        caption = f"<b>{title}</b>: {len(rows):,}" + (f"; the first {SHOWN}" if len(rows) > SHOWN else "")
        if rows:
            yield f'<div class="findings">{table(caption, heads, rows[:SHOWN], left=4)}</div>'


def _row(finding: Finding) -> tuple[str, ...]:
    sides = [
        escape(text) if text else '<span class="nothing">nothing</span>'
        for text in (finding.source, finding.output)
    ]
    after = "" if finding.source else "after "
    output = "" if finding.output_sentence is None else f"output {finding.output_sentence:,}, "
    place = f'<br><span class="soft">{output}document {escape(finding.document)}</span>'
    wrong = f"<b>{TITLES[finding.kind]}</b>: {escape(finding.note)} ({finding.confidence:.2f})"
    return f"{after}{finding.sentence:,}{place}", wrong, *sides
