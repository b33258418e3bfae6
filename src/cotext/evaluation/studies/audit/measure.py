"""Audit of translations: sentences that are lost, added, out of order, not translated, or changed."""

from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Final

from cotext.data.documents import Document
from cotext.data.languages import identified, language_code, language_of_name
from cotext.data.splitting import join_sentences
from cotext.evaluation.metrics.aligned_files import name_systems
from cotext.evaluation.metrics.profile import profile
from cotext.evaluation.requests import AuditRequest
from cotext.evaluation.studies.audit.align import Bead, align, sigmoid
from cotext.evaluation.studies.audit.details import Pair, changed_names, drifts, new_numbers, wrong_terms
from cotext.evaluation.studies.audit.report import DETAILS, Audit, Finding, SystemAudit
from cotext.files.parallel import read_sentences
from cotext.runtime.errors import CotextError
from cotext.translation.faults import Checks, Fault
from cotext.translation.terms.glossary import Glossary

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
