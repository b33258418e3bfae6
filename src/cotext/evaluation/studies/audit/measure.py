"""Audit of translations: sentences that are lost, added, out of order, not translated, or changed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from html import escape
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, Final

from cotext.data.documents import Document, identified, language_code, language_of_name
from cotext.data.splitting import join_sentences
from cotext.evaluation.metrics.aligned_files import name_systems
from cotext.evaluation.metrics.profile import profile
from cotext.evaluation.requests import AuditRequest
from cotext.evaluation.studies.audit.align import Bead, align, sigmoid
from cotext.evaluation.studies.audit.details import Pair, changed_names, drifts, new_numbers, wrong_terms
from cotext.evaluation.studies.tables import Table
from cotext.files.parallel import read_sentences
from cotext.runtime import CotextError, __version__
from cotext.runtime.rendering import facts, whole_page
from cotext.translation.faults import Checks, Fault
from cotext.translation.terms.terms import Glossary

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


_UNLIKE: Final = -9.0  # score in nats of a pair, below which another text replaces the translation
_RELATED: Final = 1.0  # median score of pairs, below which few words correspond
_LEAST: Final = 0.5  # minimum confidence of a finding
_WHOLE: Final = ("untranslated", "copied", "language")  # kinds of text that replace a translation
_SAMPLE: Final = 100  # sentences from which the language of a text is identified


def audit(request: AuditRequest) -> Audit:
    """Audit all outputs; raise CotextError for unreadable files, and for a reference of other lines."""
    given = request.target_language or ""
    origin, read = request.source or request.output[0], partial(read_sentences, format=request.format)
    source = read(origin, "source", "")
    codes = _language(request.source_language, origin, source), ""
    reference = read(request.reference, "target", given) if request.reference else []
    if request.reference and list(map(len, reference)) != list(map(len, source)):
        raise CotextError(f"{request.reference}: is not aligned with {origin}, line by line")
    systems, notes = [], []
    for name, path in name_systems(request.output).items():
        output = read(path, "target", given)
        codes = codes[0], _language(request.target_language, path, output)
        if len(output) != len(source):
            counts = f"{len(output):,} documents, but the source has {len(source):,}"
            notes.append(f"{name} has {counts}; compared as one text")
        glossary = None if request.terms is None else Glossary.read(request.terms, *codes)
        systems.append(_system(name, (source, output, reference), codes, glossary))
    return Audit(str(origin), codes, systems, notes)


def _language(given: str | None, path: Path, text: Sequence[Document]) -> str:
    """Return a language: as given, from the file name, or identified in the text; empty if unknown."""
    if given:
        return language_code(given, "--source-language or --target-language")
    sample = " ".join([line for document in text for line in document.sentences][:_SAMPLE])
    return language_of_name(path) or (identified(sample) or ("",))[0]


def _system(
    name: str, texts: Sequence[Sequence[Document]], languages: tuple[str, str], glossary: Glossary | None
) -> SystemAudit:
    """Audit an output. `texts`: source, output and, if given, reference; languages are empty if unknown."""
    sides = [[document.sentences for document in text] for text in texts]
    source, output, _ = lines = [[line for document in side for line in document] for side in sides]
    if len(sides[0]) != len(sides[1]):
        sides = [[tuple(text)] for text in lines]
    beads = align(*sides[: 2 + bool(texts[2])])
    places = [(d.id, n) for d in texts[0] for n in range(1, len(d) + 1)]  # of the source sentences
    pairs = [
        (
            places[bead.source[0]][0] if bead.source else "",
            join_sentences([source[i] for i in bead.source], languages[0]),
            join_sentences([output[j] for j in bead.output], languages[1]),
        )
        for bead in beads
    ]
    found, last = [], -1
    for bead, pair, faults in zip(beads, pairs, _faults(beads, pairs, languages, glossary), strict=True):
        first, last = (bead.source[0], bead.source[-1]) if bead.source else (last, last)
        for kind in dict.fromkeys(fault.kind for fault in faults):
            same = sorted((f for f in faults if f.kind == kind), key=lambda fault: -fault.confidence)
            paired = bead.confidence if kind == "tag" or kind in DETAILS else 1.0
            sure, note = round(paired * same[0].confidence, 3), "; ".join(fault.note for fault in same)
            if sure >= _LEAST:
                place = places[max(first, 0)][0], first + 1, bead.output[0] + 1 if bead.output else None
                found.append(Finding(kind, *place, sure, *pair[1:], note))
    found.sort(key=lambda each: (each.sentence, each.output_sentence or 0))
    here = [places[max(each.sentence, 1) - 1][1] for each in found]
    positions: list[dict[str, str | int]] = []
    for part in profile("position", [], texts[0], []):
        count = sum(part.first <= place <= (part.last or place) for place in here)
        positions.append({"name": part.name, "sentences": part.sentences, "findings": count})
    several = sum(len(bead.source) > 1 for bead in beads), sum(len(bead.output) > 1 for bead in beads)
    is_weak = median([bead.score for bead in beads if bead.source and bead.output] or [0.0]) < _RELATED
    return SystemAudit(name, len(source), len(output), *several, is_weak, found, positions)


def _faults(
    beads: Sequence[Bead], texts: Sequence[Pair], languages: tuple[str, str], glossary: Glossary | None
) -> list[list[Fault]]:
    """Return the faults of beads. Of a text that is no translation, only this is reported."""
    both = [n for n, bead in enumerate(beads) if bead.source and bead.output]
    pairs = [texts[n] for n in both]
    checks = Checks([pair[1:] for pair in pairs], ("", languages[1]), [beads[n].score for n in both])
    faults: list[list[Fault]] = [[] for _ in beads]
    details = new_numbers(pairs), changed_names(pairs), drifts(pairs, languages), wrong_terms(pairs, glossary)
    of_pairs = ((number, fault) for number in range(len(both)) for fault in checks.faults(number))
    for number, fault in chain(of_pairs, *details):
        faults[both[number]].append(fault)
    for bead, each, (*_, target) in zip(beads, faults, texts, strict=True):
        whole = [fault for fault in each if fault.kind in _WHOLE]
        if not bead.source:
            whole = [Fault("added", bead.confidence, "translates no source sentence")]
        elif not target.strip():
            whole = [Fault("lost", 0.99 if bead.output else bead.confidence, "has no translation")]
        elif not whole and bead.score <= _UNLIKE:
            whole = [Fault("lost", sigmoid(_UNLIKE - bead.score), "another text is in its place")]
        each[:] = whole or each
        if bead.moved:
            note = f"its translation is output sentence {bead.output[0] + 1:,}"
            each.append(Fault("order", bead.confidence, note))
    return faults
