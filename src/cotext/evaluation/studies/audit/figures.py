"""What an audit finds."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from cotext.runtime.version import __version__

# Kinds of findings, and what a reader calls sentences of that kind.
KINDS: Final = {
    "lost": "lost",
    "added": "added",
    "order": "out of order",
    "untranslated": "untranslated",
    "copied": "copied from another sentence",
    "language": "in the wrong language",
    "tag": "with changed tags or placeholders",
    "number": "with changed numbers",
    "name": "with changed names",
    "quote": "without their quotation marks",
    "term": "with another term than the glossary has",
    "drift": "that drift from the rest of their document",
}
_SHOWN: Final = 20  # findings of an output that are printed


@dataclass(frozen=True, slots=True)
class Finding:
    """A place where an output needs a look.

    `sentence` counts source sentences over the whole text, from 1; of an added one, it is the one before it
    (0: none). `output_sentence` counts those of the output; None where there is none. `confidence`: from 0 to
    1, how likely it is a fault.
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
    """A part of the documents: findings in it, sentences, and chrF where there is a reference."""

    name: str
    sentences: int
    findings: int
    score: float | None = None


@dataclass(frozen=True, slots=True)
class SystemAudit:
    """The findings of an output, most confident first; `merged`: output sentences of several source ones."""

    name: str
    sentences: int
    output_sentences: int
    merged: int
    divided: int
    findings: Sequence[Finding]
    positions: Sequence[Position] = ()

    @property
    def counts(self) -> Counter[str]:
        """Findings by kind."""
        return Counter(finding.kind for finding in self.findings)

    @property
    def summary(self) -> str:
        """One sentence that says what is wrong."""
        counts = self.counts
        told = [f"{counts[kind]:,} {what}" for kind, what in KINDS.items() if counts[kind]]
        sizes = f"{self.sentences:,} source sentences became {self.output_sentences:,}"
        if self.merged:
            sizes += f", of which {self.merged:,} merge several"
        if not told:
            return f"{sizes}, and no fault was found."
        return f"{sizes}; to look at: {', '.join(told)}."


@dataclass(frozen=True, slots=True)
class Audit:
    """Outputs of one source side by side; `notes` say how the text was read, and what was not checked."""

    source: str
    languages: tuple[str, str]
    systems: Sequence[SystemAudit]
    notes: Sequence[str] = field(default_factory=list)

    @property
    def kinds(self) -> set[str]:
        """The kinds of findings of any output."""
        return {kind for system in self.systems for kind in system.counts}

    def render(self) -> str:
        """A sentence for every output, and the first findings of each."""
        lines = [*self.notes]
        for system in self.systems:
            lines.append(f"{system.name}: {system.summary}")
            for each in system.findings[:_SHOWN]:
                where = f"document {each.document}, sentence {each.sentence}"
                lines.append(f"  {each.kind}, {where} ({each.confidence:.2f}): {each.note}")
            if len(system.findings) > _SHOWN:
                lines.append(
                    f"  ... and {len(system.findings) - _SHOWN:,} more (--out for a page, --json for all)"
                )
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Everything, for a JSON file."""
        figures = asdict(self)
        systems: dict[str, dict[str, Any]] = {each.pop("name"): each for each in figures.pop("systems")}
        findings = [{"system": name, **each} for name, own in systems.items() for each in own.pop("findings")]
        for system in self.systems:
            systems[system.name] |= {"summary": system.summary, "counts": dict(system.counts)}
        about = {"format": "cotext-audit", "version": 1, "cotext": __version__}
        return {**about, **figures, "systems": systems, "findings": findings}
