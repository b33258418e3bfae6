"""Audit of translations: sentences that are lost, added, out of order, not translated, or changed."""

import math
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from cotext.data.documents import Document
from cotext.data.languages import identified, language_code, language_of_name
from cotext.data.splitting import join_sentences
from cotext.data.words import occurrences
from cotext.evaluation.metrics.aligned_files import name_systems
from cotext.evaluation.metrics.profile import POSITIONS
from cotext.evaluation.requests import AuditRequest
from cotext.evaluation.studies.audit.align import Bead, align
from cotext.evaluation.studies.audit.drift import ENDING, changed_names, drifts, new_numbers
from cotext.evaluation.studies.audit.figures import Audit, Finding, Position, SystemAudit
from cotext.evaluation.studies.audit.read import read_text
from cotext.runtime.errors import CotextError
from cotext.translation.faults import Checks, Fault
from cotext.translation.terms.glossary import Glossary
from cotext.translation.terms.terms import TermGuide

_UNLIKE: Final = -9.0  # score in nats of a pair, below which another text replaces the translation
_LEAST: Final = 0.5  # minimum confidence of a finding
_WHOLE: Final = ("untranslated", "copied", "language")  # kinds of text that replace a translation
_OF_OUTPUT: Final = (*_WHOLE, "lost", "order")  # kinds that do not suppose that source and output correspond
_SAMPLE: Final = 100  # sentences from which the language of a text is identified
_RANGES: Final = (*(f"{a}-{b - 1}" if b > a + 1 else f"{a}" for a, b in pairwise(POSITIONS)), "65-")


def audit(request: AuditRequest) -> Audit:
    """Audit all outputs of a request.

    Raises:
        CotextError: a file cannot be read, or the reference does not have one line for each source line.
    """
    origin, given = request.source or request.output[0], request.target_language or ""
    source = read_text(origin, "source", "", request.format)
    codes = _language(request.source_language, origin, source), ""
    reference = None
    if request.reference is not None:
        reference = read_text(request.reference, "target", given, request.format)
        if list(map(len, reference)) != list(map(len, source)):
            raise CotextError(
                f"{request.reference}: is not aligned with {origin}; it needs a line for each line of it"
            )
    systems, notes = [], []
    for name, path in name_systems(request.output).items():
        output = read_text(path, "target", given, request.format)
        codes = codes[0], _language(request.target_language, path, output)
        if len(output) != len(source):
            counts = f"{len(output):,} documents, but the source has {len(source):,}"
            notes.append(f"{name} has {counts}; compared as one text")
        glossary = None if request.terms is None else Glossary.read(request.terms, *codes)
        systems.append(_Auditor(source, output, reference, codes).audit(name, glossary))
    return Audit(str(origin), codes, systems, notes)


def _language(given: str | None, path: Path, text: Sequence[Document]) -> str:
    """Return a language: as given, from the file name, or identified in the text; empty if unknown."""
    if given:
        return language_code(given, "--source-language or --target-language")
    sample = " ".join([line for document in text for line in document.sentences][:_SAMPLE])
    return language_of_name(path) or (identified(sample) or ("",))[0]


class _Auditor:
    """Audit of one output; languages are codes, empty if unknown."""

    def __init__(
        self,
        source: Sequence[Document],
        output: Sequence[Document],
        reference: Sequence[Document] | None,
        languages: tuple[str, str],
    ) -> None:
        texts = [[d.sentences for d in text] for text in (source, output, reference or [])]
        self._source, self._output, other = ([line for d in text for line in d] for text in texts)
        self._names = [document.id for document in source for _ in document.sentences]
        self._places = [n for document in source for n in range(1, len(document) + 1)]
        self._languages = languages
        if len(source) != len(output):
            texts = [[tuple(self._source)], [tuple(self._output)], [tuple(other)]]
        # Without an alignment: output sentences that are repeated or in another language.
        lines = [*(("", line) for line in self._output), *((line, "") for line in self._source)]
        checks = Checks(lines, ("", languages[1]))
        repeated = Counter(self._output)
        suspects = [
            repeated[line] > 1 or any(fault.kind in _WHOLE for fault in checks.faults(number))
            for number, line in enumerate(self._output)
        ]
        self._beads = align(*texts[: 2 + (reference is not None)], suspects=suspects)

    def audit(self, name: str, glossary: Glossary | None) -> SystemAudit:
        """Return the findings, in the order of the text."""
        found = sorted(self._findings(glossary), key=lambda each: (each.sentence, each.output_sentence or 0))
        buckets = [bisect(POSITIONS, place) - 1 for place in self._places]
        counts = Counter(buckets[max(each.sentence, 1) - 1] for each in found)
        positions = [Position(_RANGES[b], size, counts[b]) for b, size in sorted(Counter(buckets).items())]
        merged = sum(len(bead.source) > 1 for bead in self._beads)
        divided = sum(len(bead.output) > 1 for bead in self._beads)
        return SystemAudit(name, len(self._source), len(self._output), merged, divided, found, positions)

    def _findings(self, glossary: Glossary | None) -> Iterator[Finding]:
        """Yield the findings of every bead, those of a kind as one."""
        aligned = iter(self._faults([bead for bead in self._beads if bead.source and bead.output], glossary))
        before = -1
        for bead in self._beads:
            if not bead.source:
                faults = [Fault("added", bead.confidence, "translates no source sentence")]
            elif not bead.output:
                faults = [Fault("lost", bead.confidence, "has no translation")]
            else:
                faults = next(aligned)
            before = bead.source[0] if bead.source else before
            where = bead.output[0] + 1 if bead.output else None
            for kind in dict.fromkeys(fault.kind for fault in faults):
                same = sorted((f for f in faults if f.kind == kind), key=lambda fault: -fault.confidence)
                paired = bead.confidence if bead.source and bead.output and kind not in _OF_OUTPUT else 1.0
                sure, note = round(paired * same[0].confidence, 3), "; ".join(fault.note for fault in same)
                if sure >= _LEAST:
                    name = self._names[max(before, 0)]
                    yield Finding(kind, name, before + 1, where, sure, *self._texts(bead), note)
            before = bead.source[-1] if bead.source else before

    def _faults(self, beads: Sequence[Bead], glossary: Glossary | None) -> list[list[Fault]]:
        """Return the faults of beads with both sides. A text that is no translation has only one."""
        pairs = [(self._names[bead.source[0]], *self._texts(bead)) for bead in beads]
        scores = [bead.score for bead in beads]
        checks = Checks([pair[1:] for pair in pairs], ("", self._languages[1]), scores)
        faults = [checks.faults(number) for number in range(len(beads))]
        replaced = set()
        for number, (bead, each) in enumerate(zip(beads, faults, strict=True)):
            if any(fault.kind in _WHOLE for fault in each):
                replaced.add(number)
            elif not pairs[number][2].strip():
                each[:] = [Fault("lost", 0.99, "its translation is empty")]
            elif bead.score <= _UNLIKE:
                each[:] = [
                    Fault("lost", 1 / (1 + math.exp(bead.score - _UNLIKE)), "another text is in its place")
                ]
                replaced.add(number)
            if bead.moved:
                note = f"its translation is output sentence {bead.output[0] + 1:,}"
                each.append(Fault("order", bead.confidence, note))
        more = [*new_numbers(pairs), *changed_names(pairs), *drifts(pairs, *self._languages)]
        if glossary:
            more += self._terms(glossary, beads, [pair[2] for pair in pairs])
        for number, fault in more:
            if number not in replaced:
                faults[number].append(fault)
        return faults

    def _terms(
        self, glossary: Glossary, beads: Sequence[Bead], texts: Sequence[str]
    ) -> Iterator[tuple[int, Fault]]:
        """Yield glossary terms that are missing, also in inflected forms, and forbidden translations."""
        guide = TermGuide([self._source], glossary)
        for number, (bead, text) in enumerate(zip(beads, texts, strict=True)):
            wanted = [guide.constraints(0, i) for i in bead.source]
            for group, need in Counter(group for each in wanted for group in each.required).items():
                has = sum(1 for _ in occurrences(text, group))
                if has < need and not any(_has_stems(form, text) for form in group):
                    yield number, Fault("term", 0.9, f"missing: {group[0]}")
            for _, form in occurrences(text, [form for each in wanted for form in each.forbidden]):
                yield number, Fault("term", 0.95, f"forbidden: {form}")

    def _texts(self, bead: Bead) -> tuple[str, str]:
        return (
            join_sentences([self._source[i] for i in bead.source], self._languages[0]),
            join_sentences([self._output[j] for j in bead.output], self._languages[1]),
        )


def _has_stems(form: str, text: str) -> bool:
    """Return whether a text has all words of a term, except for their last letters."""
    folded = text.casefold()
    return all(word[: max(4, len(word) - ENDING)] in folded for word in form.casefold().split())
