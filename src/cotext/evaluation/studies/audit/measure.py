"""An audit of translations: what is lost, added, out of order, left as it was, or changed."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from cotext.data.documents import Document
from cotext.data.languages import language_code, language_of_name
from cotext.data.splitting import join_sentences
from cotext.data.words import occurrences
from cotext.evaluation.metrics.aligned_files import name_systems
from cotext.evaluation.metrics.profile import by_position
from cotext.evaluation.studies.audit.align import Bead, align
from cotext.evaluation.studies.audit.drift import changed_names, drifts
from cotext.evaluation.studies.audit.figures import Audit, Finding, Position, SystemAudit
from cotext.evaluation.studies.audit.read import Text, read_text
from cotext.evaluation.studies.audit.requests import AuditRequest
from cotext.files.mechanical import Fault, MechanicalChecks, identified
from cotext.runtime.errors import CotextError
from cotext.translation.terms.terms import Glossary, TermGuide

_UNLIKE: Final = -9.0  # score in nats below which another text is in the place
_LEAST: Final = 0.5  # confidence of a finding
_WHOLE: Final = ("untranslated", "copied", "language")  # what stands there instead of a translation
_SAMPLE: Final = 100  # sentences by which the language of a text is identified
_STEM_END: Final = 2  # letters that an inflected form may have instead


def audit(request: AuditRequest) -> Audit:
    """Audit every output of a request.

    Raises:
        CotextError: a file that cannot be read, a reference that does not fit the source.
    """
    named = name_systems(request.output)
    origin = request.source or request.output[0]
    source = read_text(origin, "source", "", request.format)
    codes = _language(request.source_language, origin, source), ""
    reference = None
    if request.reference is not None:
        reference = read_text(request.reference, "target", request.target_language or "", request.format)
        if list(map(len, reference.documents)) != list(map(len, source.documents)):
            raise CotextError(
                f"{request.reference}: has other sentences than {origin}; give a line for each of its own"
            )
    systems, notes = [], []
    for name, path in named.items():
        output = read_text(path, "target", request.target_language or "", request.format)
        codes = codes[0], _language(request.target_language, path, output)
        if len(output.documents) != len(source.documents):
            counts = f"{len(output.documents):,} documents, and the source {len(source.documents):,}"
            notes.append(f"{name} has {counts}: read as one")
        glossary = None if request.terms is None else Glossary.read(request.terms, *codes)
        systems.append(_Auditor(source, output, reference, codes).audit(name, glossary))
    return Audit(str(origin), (codes[0], codes[1]), systems, notes)


def _language(given: str | None, path: Path, text: Text) -> str:
    """The language of a text: as a person says, or its name, or py3langid; empty where none does."""
    if given:
        return language_code(given, "--source-language or --target-language")
    sample = " ".join(line for _, line in text.lines[:_SAMPLE])
    return language_of_name(path) or (identified(sample) or ("",))[0]


class _Auditor:
    """The audit of one output; languages as codes, empty where they are not known."""

    def __init__(
        self, source: Text, output: Text, reference: Text | None, languages: tuple[str, str]
    ) -> None:
        self._source, self._output, self._languages = source.lines, output.lines, languages
        self._reference, self._documents = reference, source
        sides = [text.documents for text in (source, output, *([reference] if reference else []))]
        if len(source.documents) != len(output.documents):
            sides = [[[line for lines in side for line in lines]] for side in sides]
        # Each side alone: output sentences that are repeated or in another language, whatever their source.
        lines = [*(("", line) for _, line in self._output), *((line, "") for _, line in self._source)]
        checks = MechanicalChecks(lines, languages[1])
        faults = [checks.faults(number) for number in range(len(self._output))]
        repeated = Counter(line for _, line in self._output)
        suspects = [
            repeated[line] > 1 or any(fault.kind in _WHOLE for fault in each)
            for (_, line), each in zip(self._output, faults, strict=True)
        ]
        self._beads = align(*sides, suspects=suspects)

    def audit(self, name: str, glossary: Glossary | None) -> SystemAudit:
        """The findings, in the order of the text."""
        whole = [bead for bead in self._beads if bead.source and bead.output]
        pairs = [(self._source[bead.source[0]][0], *self._texts(bead)) for bead in whole]
        checks = MechanicalChecks(
            [pair[1:] for pair in pairs], self._languages[1], [bead.score for bead in whole]
        )
        faults = [checks.faults(number) for number in range(len(whole))]
        # What is no translation of its source has no other faults.
        replaced = [
            [fault for fault in each if fault.kind in _WHOLE] or self._unlike(bead)
            for bead, each in zip(whole, faults, strict=True)
        ]
        more = [*changed_names(pairs), *drifts(pairs, *self._languages)]
        if glossary:
            more += self._terms(glossary, whole, [pair[2] for pair in pairs])
        for number, fault in more:
            faults[number].append(fault)
        found = [
            self._finding(fault, bead)
            for bead, instead, each in zip(whole, replaced, faults, strict=True)
            for fault in instead or each
        ]
        found += self._misplaced()
        together: dict[tuple[object, ...], Finding] = {}
        for each in sorted(
            found, key=lambda each: (each.sentence, each.output_sentence or 0, -each.confidence)
        ):
            key = each.kind, each.sentence, each.output_sentence
            first = together.get(key)
            together[key] = replace(first, note=f"{first.note}; {each.note}") if first else each
        found = [each for each in together.values() if each.confidence >= _LEAST]
        merged = sum(len(bead.source) > 1 for bead in self._beads)
        divided = sum(len(bead.output) > 1 for bead in self._beads)
        positions = self._positions(found)
        return SystemAudit(name, len(self._source), len(self._output), merged, divided, found, positions)

    def _terms(
        self, glossary: Glossary, whole: Sequence[Bead], texts: Sequence[str]
    ) -> Iterator[tuple[int, Fault]]:
        """Terms of the glossary that are missing, but for their inflected forms, and forbidden ones."""
        guide = TermGuide([[line for _, line in self._source]], glossary)
        for number, (bead, text) in enumerate(zip(whole, texts, strict=True)):
            wanted = [guide.constraints(0, i) for i in bead.source]
            for group, need in Counter(group for each in wanted for group in each.required).items():
                has = sum(1 for _ in occurrences(text, group))
                if has < need and not any(_has_stems(form, text) for form in group):
                    yield number, Fault("term", 0.9, f"missing: {group[0]}")
            for _, form in occurrences(text, [form for each in wanted for form in each.forbidden]):
                yield number, Fault("term", 0.95, f"forbidden: {form}")

    def _positions(self, findings: Sequence[Finding]) -> list[Position]:
        """Return findings, and chrF if there is a reference, by the number of a sentence in its document."""
        place = [n for lines in self._documents.documents for n in range(1, len(lines) + 1)]
        counts = Counter(place[max(each.sentence, 1) - 1] for each in findings)
        texts = {bead.source[0]: self._texts(bead)[1] for bead in self._beads if bead.source}
        numbers = iter(range(len(place)))
        output = [
            Document(name, tuple(texts.get(next(numbers), "") for _ in lines))
            for name, lines in zip(self._documents.names, self._documents.documents, strict=True)
        ]
        given = self._reference and [
            Document(document.id, tuple(lines))
            for document, lines in zip(output, self._reference.documents, strict=True)
        ]
        language = self._languages[1] or None
        buckets = by_position([output] if given else [], given or output, ["chrf"], target_language=language)
        return [
            Position(
                each.name,
                each.sentences,
                sum(counts[n] for n in range(each.first, (each.last or len(place)) + 1)),
                each.scores[0][0].value if each.scores else None,
            )
            for each in buckets
        ]

    def _texts(self, bead: Bead) -> tuple[str, str]:
        return (
            join_sentences([self._source[i][1] for i in bead.source], self._languages[0]),
            join_sentences([self._output[j][1] for j in bead.output], self._languages[1]),
        )

    def _finding(self, fault: Fault, bead: Bead, before: int = -1) -> Finding:
        first = bead.source[0] if bead.source else before
        name = self._source[max(first, 0)][0]
        where = bead.output[0] + 1 if bead.output else None
        confidence = round(fault.confidence, 3)
        return Finding(fault.kind, name, first + 1, where, confidence, *self._texts(bead), fault.note)

    def _unlike(self, bead: Bead) -> list[Fault]:
        """Return the fault of a pair whose output is another text than the translation, if it is one."""
        surplus = _UNLIKE - bead.score
        if surplus < 0:
            return []
        return [Fault("lost", 1 / (1 + math.exp(-surplus)), "another text is in its place")]

    def _misplaced(self) -> Iterator[Finding]:
        """Return the findings of lost, added and moved sentences."""
        before = -1
        for bead in self._beads:
            if not bead.source:
                yield self._finding(
                    Fault("added", bead.confidence, "translates no source sentence"), bead, before
                )
            elif not bead.output:
                yield self._finding(Fault("lost", bead.confidence, "has no translation"), bead)
            elif not any(self._output[j][1].strip() for j in bead.output):
                yield self._finding(Fault("lost", 0.99, "its translation is empty"), bead)
            elif bead.moved:
                yield self._finding(Fault("order", bead.confidence, "is in another place"), bead)
            before = bead.source[-1] if bead.source else before


def _has_stems(form: str, text: str) -> bool:
    """Return whether a text has all words of a term, but for their last letters."""
    folded = text.casefold()
    return all(word[: max(4, len(word) - _STEM_END)] in folded for word in form.casefold().split())
