"""Findings of an audit."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from cotext.runtime.version import __version__

# Kinds of findings, with a title for several: faults of whole sentences, and details that may be right.
FAULTS: Final = {
    "lost": "lost",
    "added": "added",
    "order": "out of order",
    "untranslated": "untranslated",
    "copied": "copied from another sentence",
    "language": "in another language",
    "tag": "with changed tags or placeholders",
}
DETAILS: Final = {
    "number": "numbers",
    "separator": "table separators",
    "name": "names",
    "quote": "quotation marks",
    "term": "glossary terms",
    "drift": "inconsistencies",
}
_SHOWN: Final = 20  # findings of an output that are printed


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
class Position:
    """The sentences at similar positions of their documents, and the number of findings in them."""

    name: str
    sentences: int
    findings: int


@dataclass(frozen=True, slots=True)
class SystemAudit:
    """The findings of an output in the order of the text.

    `merged`: output sentences that translate several source sentences. `divided`: the reverse.
    """

    name: str
    sentences: int
    output_sentences: int
    merged: int
    divided: int
    findings: Sequence[Finding]
    positions: Sequence[Position]

    @property
    def counts(self) -> Counter[str]:
        """Findings by kind."""
        return Counter(finding.kind for finding in self.findings)

    @property
    def summary(self) -> str:
        """One sentence about the output."""
        counts = self.counts
        text = f"{self.sentences:,} source sentences became {self.output_sentences:,}"
        if self.merged or self.divided:
            text += f" (merged in {self.merged:,} places, divided in {self.divided:,})"
        if not counts:
            return f"{text}, and no fault was found."
        faults = ", ".join(f"{counts[kind]:,} {title}" for kind, title in FAULTS.items() if counts[kind])
        details = ", ".join(f"{title} ({counts[kind]:,})" for kind, title in DETAILS.items() if counts[kind])
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
            for each in sorted(system.findings, key=lambda each: each.kind in DETAILS)[:_SHOWN]:
                where = f"document {each.document}, sentence {each.sentence} of the text"
                lines.append(f"  {each.kind}, {where} ({each.confidence:.2f}): {each.note}")
            if (more := len(system.findings) - _SHOWN) > 0:
                lines.append(f"  ... and {more:,} more (--out for a page, --json for all)")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """All figures, for JSON."""
        figures = asdict(self)
        systems: dict[str, dict[str, Any]] = {each.pop("name"): each for each in figures.pop("systems")}
        findings = [{"system": name, **each} for name, own in systems.items() for each in own.pop("findings")]
        for system in self.systems:
            systems[system.name] |= {"summary": system.summary, "counts": dict(system.counts)}
        about = {"format": "cotext-audit", "version": 1, "cotext": __version__}
        return {**about, **figures, "systems": systems, "findings": findings}
