"""An audit of translations: what is lost, added, out of order, left as it was, or changed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cotext.data.languages import language_code, language_of_name
from cotext.data.splitting import join_sentences
from cotext.evaluation.metrics.aligned_files import name_systems
from cotext.evaluation.studies.audit.align import Aligner, Bead
from cotext.evaluation.studies.audit.figures import Audit, Finding, Position, SystemAudit
from cotext.evaluation.studies.audit.read import Text, read_text
from cotext.evaluation.studies.audit.requests import AuditRequest
from cotext.files.mechanical import Fault, MechanicalChecks
from cotext.runtime.errors import CotextError

_MOVED: Final = 4.0  # score from which a lost and an added sentence are one that was moved
_LEAST: Final = 0.5  # confidence of a finding
_WHOLE: Final = ("untranslated", "copied", "language")  # what stands there instead of a translation
_PARTS: Final = 5  # of documents, for findings by position


@dataclass(frozen=True, slots=True)
class _Place:
    """A source sentence, or those of a bead, and what stands for it."""

    source: tuple[int, ...]
    output: tuple[int, ...]


def audit(request: AuditRequest) -> Audit:
    """Audit every output of a request.

    Raises:
        CotextError: a file that cannot be read, a reference that does not fit the source.
    """
    named = name_systems(request.output)
    target = request.target_language or language_of_name(request.output[0])
    target = target and language_code(target, "--target-language")
    origin = request.source or request.output[0]
    source = read_text(origin, "source", language_of_name(origin), request.format)
    reference = request.reference and read_text(request.reference, "target", target, request.format)
    if reference and list(map(len, reference.documents)) != list(map(len, source.documents)):
        raise CotextError(
            f"{request.reference}: has other sentences than {origin}; give a line for each of its lines"
        )
    systems, notes = [], []
    for name, path in named.items():
        output = read_text(path, "target", target, request.format)
        if len(output.documents) != len(source.documents):
            notes.append(
                f"{name} has {len(output.documents):,} documents, and the source {len(source.documents):,}: read as one"
            )
        systems.append(_SystemAuditor(source, output, reference, target).audit(name))
    return Audit(str(origin), systems, notes)


class _SystemAuditor:
    """The audit of one output."""

    def __init__(self, source: Text, output: Text, reference: Text | None, target_language: str) -> None:
        self._source, self._output, self._language = source.lines, output.lines, target_language
        sides = [source.documents, output.documents, reference.documents if reference else None]
        if len(source.documents) != len(output.documents):
            sides = [side and [[line for lines in side for line in lines]] for side in sides]
        aligner = Aligner(*sides)
        self._beads = aligner.beads()
        self._aligner = aligner

    def audit(self, name: str) -> SystemAudit:
        """The findings, in the order of the text."""
        pairs = [self._texts(bead.source, bead.output) for bead in self._beads]
        checks = MechanicalChecks(pairs, self._language)
        whole = [next((f for f in checks.faults(n) if f.kind in _WHOLE), None) for n in range(len(pairs))]
        found = [*self._gaps(whole)]
        for number, bead in enumerate(self._beads):
            if bead.source and bead.output:
                found += [self._finding(fault, bead.source, bead.output) for fault in checks.faults(number)]
            if bead.moved:
                found.append(
                    self._finding(
                        Fault("order", bead.confidence, "changed places with its neighbour"),
                        bead.source,
                        bead.output,
                    )
                )
        found = [each for each in found if each.confidence >= _LEAST]
        found.sort(key=lambda each: (each.sentence, each.output_sentence or 0))
        merged = sum(len(bead.source) > 1 for bead in self._beads)
        divided = sum(len(bead.output) > 1 for bead in self._beads)
        return SystemAudit(name, len(self._source), len(self._output), merged, divided, found)

    def _texts(self, source: Sequence[int], output: Sequence[int]) -> tuple[str, str]:
        return (
            join_sentences([self._source[i][1] for i in source], ""),
            join_sentences([self._output[j][1] for j in output], self._language),
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
        """What is lost or added; where both are in one place, or one is the other elsewhere, what happened."""
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
            near = next((i for i in lost if abs(i - before) < 3), None) if fault else None
            if fault:
                source = (near,) if near is not None else ()
                lost.pop(near if near is not None else -1, None)
                yield self._finding(fault, source, (j,), before)
            else:
                yield self._finding(
                    Fault("added", bead.confidence, "stands for no source sentence"), (), (j,), before
                )
        for i, bead in lost.items():
            yield self._finding(Fault("lost", bead.confidence, "has no translation"), (i,), ())
        for bead in self._beads:
            if bead.source and bead.output:
                source, output = self._texts(bead.source, bead.output)
                if source.strip() and not output.strip():
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
