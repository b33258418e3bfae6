"""Findings of an audit: as text, as JSON, and as a page."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, Final

from cotext.evaluation.studies.tables import Table
from cotext.runtime.html import facts, whole_page
from cotext.runtime.version import __version__

# Kinds of findings, with a title for several: faults of whole sentences, and details that may be right.
TITLES: Final = {
    "lost": "lost",
    "added": "added",
    "order": "out of order",
    "untranslated": "untranslated",
    "copied": "copied from another sentence",
    "language": "in another language",
    "tag": "with changed tags or placeholders",
    "number": "numbers",
    "separator": "table separators",
    "name": "names",
    "quote": "quotation marks",
    "term": "glossary terms",
    "drift": "inconsistencies",
}
DETAILS: Final = ("number", "separator", "name", "quote", "term", "drift")
_PRINTED: Final = 20  # findings of an output that are printed
_SHOWN: Final = 500  # findings of an output that a page shows
_ABOUT: Final = """<p>A finding is a reason to check a sentence, not a verdict. The number in brackets is the
confidence, from 0 to 1. Good human translations have 1 to 3 details to check in 100 sentences, and many of
these are right. Where sentences are merged or divided, findings are less reliable. An audit cannot
notice a fluent sentence with another meaning. Sentences are numbered over the whole text.</p>"""


@dataclass(frozen=True, slots=True)
class Finding:
    """A place in an output that may be wrong.

    `sentence`: number of the source sentence, from 1 over the whole text; for an added sentence, that of the
    sentence before it (0: none). `output_sentence`: number in the output, or None. `confidence`: 0 to 1.
    """

    kind: str
    document: str
    sentence: int
    output_sentence: int | None
    confidence: float
    source: str
    output: str
    note: str


@dataclass(frozen=True, slots=True)
class SystemAudit:
    """The findings of an output in the order of the text.

    `merged`: output sentences that translate several source sentences. `divided`: the reverse. `is_weak`: few
    words correspond. `positions`: name, sentences and findings of similar positions in the documents.
    """

    name: str
    sentences: int
    output_sentences: int
    merged: int
    divided: int
    is_weak: bool
    findings: Sequence[Finding]
    positions: Sequence[Mapping[str, str | int]]

    @property
    def counts(self) -> Counter[str]:
        return Counter(finding.kind for finding in self.findings)

    @property
    def summary(self) -> str:
        counts = self.counts
        text = f"{self.sentences:,} source sentences became {self.output_sentences:,}"
        if self.merged or self.divided:
            text += f" (merged in {self.merged:,} places, divided in {self.divided:,})"
        if self.is_weak:
            text += "; few words correspond: the text is too short, very free, or another one"
        if not counts:
            return f"{text}, and no fault was found."
        faults = ", ".join(f"{counts[k]:,} {TITLES[k]}" for k in TITLES if counts[k] and k not in DETAILS)
        details = ", ".join(f"{TITLES[k]} ({counts[k]:,})" for k in TITLES if counts[k] and k in DETAILS)
        text += f"; faults: {faults}" if faults else "; no sentence is lost, added, moved or untranslated"
        return text + (f"; details to check: {details}." if details else ".")


@dataclass(frozen=True, slots=True)
class Audit:
    """Outputs of one source; `notes` state how the texts were read."""

    source: str
    languages: tuple[str, str]
    systems: Sequence[SystemAudit]
    notes: Sequence[str]

    def render(self) -> str:
        """The summary and the first findings of each output, faults before details."""
        lines = [*self.notes]
        for system in self.systems:
            lines.append(f"{system.name}: {system.summary}")
            for each in sorted(system.findings, key=lambda each: each.kind in DETAILS)[:_PRINTED]:
                where = f"document {each.document}, sentence {each.sentence} of the text"
                lines.append(f"  {each.kind}, {where} ({each.confidence:.2f}): {each.note}")
            if (more := len(system.findings) - _PRINTED) > 0:
                lines.append(f"  ... and {more:,} more (--out for a page, --json for all)")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        figures = asdict(self)
        systems: dict[str, dict[str, Any]] = {each.pop("name"): each for each in figures.pop("systems")}
        findings = [{"system": name, **each} for name, own in systems.items() for each in own.pop("findings")]
        for system in self.systems:
            systems[system.name] |= {"summary": system.summary, "counts": dict(system.counts)}
        about = {"format": "cotext-audit", "version": 1, "cotext": __version__}
        return {**about, **figures, "systems": systems, "findings": findings}

    def page(self) -> str:
        systems = self.systems
        body = [f"<h1>Audit of {'translations' if systems[1:] else 'a translation'}</h1>"]
        body += [f"<p><b>{escape(system.name)}</b>: {escape(system.summary)}</p>" for system in systems]
        body += [*(f'<p class="soft">{escape(note)}.</p>' for note in self.notes), _ABOUT]
        counts = [(title, *(f"{s.counts[kind]:,}" for s in systems)) for kind, title in TITLES.items()]
        body += ["<h2>Findings by kind</h2>", Table(("", *(s.name for s in systems)), counts).html()]
        for system in systems:
            rows = [
                (
                    f"{'' if each.source else 'after '}{each.sentence:,}, in document {each.document}",
                    f"{TITLES[each.kind]}: {each.note} ({each.confidence:.2f})",
                    each.source or "(nothing)",
                    each.output or "(nothing)",
                )
                for each in sorted(system.findings, key=lambda each: each.kind in DETAILS)[:_SHOWN]
            ]
            heads = ("sentence", "what is wrong", "source", "output")
            title = f"{system.name}: findings" + f" (the first {_SHOWN})" * (len(system.findings) > _SHOWN)
            body += [f"<h2>{escape(title)}</h2>", Table(heads, rows, left=4).html()]
        columns = ("sentence of its document", "sentences", *(f"findings in {s.name}" for s in systems))
        places = zip(*(system.positions for system in systems), strict=True)
        numbers = [[*first.values(), *(each["findings"] for each in others)] for first, *others in places]
        positions = Table(columns, [list(map(str, row)) for row in numbers])
        body += ["<h2>Findings by position in the document</h2>", positions.html()]
        languages = " to ".join(code or "unknown" for code in self.languages)
        about = [("source", self.source), ("languages", languages), ("Cotext", __version__)]
        body += ["<h2>About this page</h2>", facts((name, escape(value)) for name, value in about)]
        return whole_page("Cotext: audit", body)
