"""An audit of translations: what is lost, added, out of order, left as it was, or changed."""

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
from cotext.evaluation.metrics.profile import POSITIONS, by_position
from cotext.evaluation.studies.audit.align import Aligner, Bead
from cotext.evaluation.studies.audit.drift import changed_names, drifts
from cotext.evaluation.studies.audit.figures import Audit, Finding, Position, SystemAudit
from cotext.evaluation.studies.audit.read import Text, read_text
from cotext.evaluation.studies.audit.requests import AuditRequest
from cotext.files.mechanical import Fault, MechanicalChecks, identified
from cotext.runtime.errors import CotextError
from cotext.translation.terms.terms import Glossary, TermGuide

_MOVED: Final = 2.0  # score from which a lost and an added sentence are one that was moved
_LEAST: Final = 0.5  # confidence of a finding
_WHOLE: Final = ("untranslated", "copied", "language")  # what stands there instead of a translation
_NEAR: Final = 3  # sentences between a lost one and what stands there instead
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
        self._aligner = Aligner(*sides)
        self._beads = self._aligner.beads()

    def audit(self, name: str, glossary: Glossary | None) -> SystemAudit:
        """The findings, in the order of the text."""
        texts = [self._texts(bead.source, bead.output) for bead in self._beads]
        checks = MechanicalChecks(texts, self._languages[1], [bead.score for bead in self._beads])
        faults = [checks.faults(number) for number in range(len(texts))]
        found = [*self._gaps([next((f for f in each if f.kind in _WHOLE), None) for each in faults])]
        whole = [n for n, bead in enumerate(self._beads) if bead.source and bead.output]
        pairs = [(self._source[self._beads[n].source[0]][0], *texts[n]) for n in whole]
        more = [*changed_names(pairs), *drifts(pairs, *self._languages)]
        more += [(n, fault) for n, bead in enumerate(whole) for fault in faults[bead]]
        if glossary:
            more += self._terms(glossary, whole, texts)
        for number, fault in more:
            bead = self._beads[whole[number]]
            # What is no translation of its source has no other faults.
            if fault.kind in _WHOLE or not any(each.kind in _WHOLE for each in faults[whole[number]]):
                found.append(self._finding(fault, bead.source, bead.output))
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
        self, glossary: Glossary, whole: Sequence[int], texts: Sequence[tuple[str, str]]
    ) -> Iterator[tuple[int, Fault]]:
        """Terms of the glossary that are missing, but for their inflected forms, and forbidden ones."""
        guide = TermGuide([[line for _, line in self._source]], glossary)
        for number, bead in enumerate(whole):
            text = texts[bead][1]
            wanted = [guide.constraints(0, i) for i in self._beads[bead].source]
            for group, need in Counter(group for each in wanted for group in each.required).items():
                has = sum(1 for _ in occurrences(text, group))
                if has < need and not any(_has_stems(form, text) for form in group):
                    yield number, Fault("term", 0.9, f"missing: {group[0]}")
            for _, form in occurrences(text, [form for each in wanted for form in each.forbidden]):
                yield number, Fault("term", 0.95, f"forbidden: {form}")

    def _positions(self, findings: Sequence[Finding]) -> list[Position]:
        """Findings, and chrF where there is a reference, by the place of a sentence in its document."""
        place = [n for lines in self._documents.documents for n in range(1, len(lines) + 1)]
        found = [place[max(each.sentence, 1) - 1] for each in findings]
        if self._reference:
            aligned = [""] * len(self._source)
            for bead in self._beads:
                if bead.source:
                    aligned[bead.source[0]] = self._texts(bead.source, bead.output)[1]
            rest = iter(aligned)
            sides = [
                [
                    Document(name, tuple(next(rest) for _ in lines))
                    for name, lines in zip(self._documents.names, self._documents.documents, strict=True)
                ],
                [
                    Document(*each)
                    for each in zip(self._documents.names, map(tuple, self._reference.documents), strict=True)
                ],
            ]
            buckets = by_position([sides[0]], sides[1], ["chrf"], target_language=self._languages[1] or None)
            scores = {bucket.first: bucket.scores[0][0].value for bucket in buckets}
        else:
            scores = {}
        table = []
        for first, stop in zip(POSITIONS, (*POSITIONS[1:], 1 << 60), strict=True):
            sentences = sum(first <= n < stop for n in place)
            if sentences:
                name = str(first) if stop == first + 1 else f"{first}-{stop - 1 if stop < 1 << 60 else ''}"
                count = sum(first <= n < stop for n in found)
                table.append(Position(name, sentences, count, scores.get(first)))
        return table

    def _texts(self, source: Sequence[int], output: Sequence[int]) -> tuple[str, str]:
        return (
            join_sentences([self._source[i][1] for i in source], self._languages[0]),
            join_sentences([self._output[j][1] for j in output], self._languages[1]),
        )

    def _finding(
        self, fault: Fault, source: Sequence[int], output: Sequence[int], before: int = -1
    ) -> Finding:
        first = source[0] if source else before
        name = self._source[max(first, 0)][0]
        texts = self._texts(source, output)
        where = output[0] + 1 if output else None
        return Finding(fault.kind, name, first + 1, where, round(fault.confidence, 3), *texts, fault.note)

    def _gaps(self, whole: Sequence[Fault | None]) -> Iterator[Finding]:
        """What is lost or added, or the one elsewhere, or the one in the place of the other."""
        lost: dict[int, Bead] = {}
        added: dict[int, tuple[Bead, int, Fault | None]] = {}
        before = -1
        for bead, fault in zip(self._beads, whole, strict=True):
            if not bead.output:
                lost[bead.source[0]] = bead
            elif not bead.source:
                added[bead.output[0]] = bead, before, fault
            before = bead.source[-1] if bead.source else before
        for i, j, score in self._moved(list(lost), list(added)):
            confidence = 1 - 1 / (2 + score / 2)
            del lost[i], added[j]
            yield self._finding(Fault("order", confidence, "stands elsewhere"), (i,), (j,))
        for j, (bead, before, fault) in added.items():
            near = next((i for i in lost if fault and abs(i - before) < _NEAR), None)
            if near is not None:
                del lost[near]
            what = Fault("added", bead.confidence, "stands for no source sentence")
            what = fault if fault and (near is not None or fault.kind != "copied") else what
            yield self._finding(what, () if near is None else (near,), (j,), before)
        for i, bead in lost.items():
            yield self._finding(Fault("lost", bead.confidence, "has no translation"), (i,), ())
        for bead in self._beads:
            if bead.moved:
                fault = Fault("order", bead.confidence, "changed places with its neighbour")
                yield self._finding(fault, bead.source, bead.output)
            if bead.source and bead.output:
                texts = self._texts(bead.source, bead.output)
                if texts[0].strip() and not texts[1].strip():
                    yield self._finding(
                        Fault("lost", 0.99, "its translation is empty"), bead.source, bead.output
                    )

    def _moved(self, lost: Sequence[int], added: Sequence[int]) -> list[tuple[int, int, float]]:
        """Pairs of a lost and an added sentence that belong together, each once, the surest first."""
        ways = []
        for i in lost:
            for j in added:
                if self._source[i][0] == self._source[min(j, len(self._source) - 1)][0] or abs(i - j) < 100:
                    score = float(self._aligner.score(range(i, i + 1), range(j, j + 1))[0, 0])
                    ways.append((score, i, j))
        found: list[tuple[int, int, float]] = []
        for score, i, j in sorted(ways, reverse=True):
            if score > _MOVED and not any(i == a or j == b for a, b, _ in found):
                found.append((i, j, score))
        return found


def _has_stems(form: str, text: str) -> bool:
    """Whether a text has all words of a term, but for their last letters."""
    folded = text.casefold()
    return all(word[: max(4, len(word) - _STEM_END)] in folded for word in form.casefold().split())
