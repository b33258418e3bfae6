"""The page of `cotext audit`: what is wrong with each output in a sentence, then every place."""

from collections.abc import Iterator
from html import escape
from itertools import groupby
from typing import Final

from cotext.evaluation.studies.audit.figures import KINDS, Audit, Finding, SystemAudit
from cotext.evaluation.studies.tables import Row, Table
from cotext.runtime.html import facts, table, whole_page
from cotext.runtime.version import __version__

SHOWN: Final = 500  # findings of an output; all are in the JSON file
STYLE: Final = """<style>
body { max-width: 84rem; }
.findings table { table-layout: fixed; width: 100%; overflow-wrap: anywhere; }
.findings :is(td, th) { text-align: left; } .findings :is(td, th):nth-child(-n+3) { width: 7.5rem; }
.findings .nothing { color: var(--bad); font-style: italic; }
.verdict { font-size: 1.1rem; }
</style>"""
ABOUT: Final = """Confidence is a number from 0 to 1: of lost and added sentences, the probability of the
alignment; of drift, a share of sentences. A finding is a reason to look, not a verdict. The meaning of words
is not checked: a fluent sentence with another meaning is not found."""


def render_audit(found: Audit) -> str:
    """The page."""
    many = len(found.systems) > 1
    body = [
        STYLE,
        f"<h1>Audit of {len(found.systems)} translations</h1>" if many else "<h1>Audit of a translation</h1>",
    ]
    body += [
        f'<p class="verdict"><b>{escape(system.name)}</b>: {escape(system.summary)}</p>'
        for system in found.systems
    ]
    body += [f'<p class="soft">{escape(note)}.</p>' for note in found.notes]
    body += [
        "<h2>Findings by kind</h2>",
        _counts(found),
        f"<p>{ABOUT}</p>",
        "<h2>By place in the document</h2>",
        _positions(found),
    ]
    for number, system in enumerate(found.systems):
        body += [f'<h2 id="system-{number}">{escape(system.name)}: every finding</h2>', *_findings(system)]
    told = [
        ("source", found.source),
        ("languages", " to ".join(code or "unknown" for code in found.languages)),
    ]
    body += [
        "<h2>How this came about</h2>",
        facts((n, escape(v)) for n, v in [*told, ("Cotext", __version__)]),
    ]
    return whole_page("Cotext: audit", body)


def _counts(found: Audit) -> str:
    rows: list[Row] = [
        (
            f"sentences {what}",
            *(f"{system.counts[kind]:,}" if system.counts[kind] else "-" for system in found.systems),
        )
        for kind, what in KINDS.items()
    ]
    rows.append(("output sentences that merge several", *(f"{s.merged:,}" for s in found.systems)))
    rows.append(("source sentences that were divided", *(f"{s.divided:,}" for s in found.systems)))
    return Table(
        ("", *(system.name for system in found.systems)), rows, "Findings, and how sentences correspond."
    ).html()


def _positions(found: Audit) -> str:
    first, scored = (
        found.systems[0].positions,
        any(p.score is not None for s in found.systems for p in s.positions),
    )
    rows: list[Row] = []
    for number, place in enumerate(first):
        cells = []
        for system in found.systems:
            own = system.positions[number]
            cells += [
                f"{100 * own.findings / own.sentences:.1f}",
                *([f"{own.score or 0:.1f}"] if scored else []),
            ]
        rows.append((place.name, f"{place.sentences:,}", *cells))
    heads = [title for s in found.systems for title in (s.name, *([f"{s.name} chrF"] if scored else []))]
    return Table(
        ("sentence", "sentences", *heads), rows, "Findings in 100 sentences, by their number in the document."
    ).html()


def _findings(system: SystemAudit) -> Iterator[str]:
    """A table for each document."""
    if not system.findings:
        yield "<p>No fault was found.</p>"
    for document, each in groupby(system.findings[:SHOWN], key=lambda finding: finding.document):
        rows = [_row(finding) for finding in each]
        heads = ("sentence", "kind", "confidence", "source", "output", "what is wrong")
        yield f'<div class="findings">{table(f"Document {escape(document)}", heads, rows, left=6)}</div>'
    if len(system.findings) > SHOWN:
        yield f"<p>{len(system.findings) - SHOWN:,} further findings are in the figures of --json.</p>"


def _row(finding: Finding) -> tuple[str, ...]:
    sides = [
        escape(text) if text else '<span class="nothing">nothing</span>'
        for text in (finding.source, finding.output)
    ]
    where = f"{finding.sentence}" if finding.source else f"after {finding.sentence}"
    return where, finding.kind, f"{finding.confidence:.2f}", *sides, escape(finding.note)
