"""Realignment of translations whose numbers of sentences differ from the reference, within documents.

The text of a system is divided again at the sentences of the reference, with the fewest edits over tokens
(`error_alignment.py`). No word is lost, added or moved, so that scores of documents do not change. Among
equally good cuts, the ends of the system's own lines are preferred, then the later cut.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any, Final, Literal

import numpy as np

from cotext.data.documents import Document
from cotext.evaluation.metrics.aligned_files import located
from cotext.evaluation.metrics.error_alignment import align_by_error
from cotext.evaluation.metrics.token_cuts import (
    Cutter,
    CutText,
    added_lines,
    omitted_sentences,
    shared_words,
    words,
)
from cotext.runtime.tables import listed, render_rows

# A document that keeps its lines is doubtful if they share less than this fraction of the words that the best
# cuts share. Lines that correspond were never below it, even in poor translations (docs/results/scores.md).
LEAST_SHARED: Final = 0.95
Realigned = Literal["unequal", "all"]  # documents whose numbers of sentences differ, or all
_SHOWN: Final = 20  # number of documents listed for a system


@dataclass(frozen=True, slots=True)
class AlignedDocument:
    """The alignment of a document of a system with its reference.

    `shared_words` counts the scored sentences, `most_shared` those of the best cuts. `omitted` sentences and
    `added` lines are numbered from 1 (`token_cuts.py`). Words are those of the first reference.
    """

    id: str
    lines: int
    sentences: int
    realigned: bool
    shared_words: int
    most_shared: int
    words: int
    reference_words: int
    omitted: tuple[int, ...]
    added: tuple[int, ...]

    @property
    def doubtful(self) -> bool:
        """Return whether lines that match the number of sentences seem to do so by accident."""
        return self.shared_words < LEAST_SHARED * self.most_shared


@dataclass(frozen=True, slots=True)
class AlignmentReport:
    """The aligned documents of a system; `notes` are warnings."""

    documents: tuple[AlignedDocument, ...]
    tokens: str
    notes: tuple[str, ...]

    @property
    def realigned(self) -> int:
        return sum(document.realigned for document in self.documents)

    @property
    def omitted(self) -> int:
        return sum(len(document.omitted) for document in self.documents)

    @property
    def added(self) -> int:
        """Return the number of added lines, which correspond to no sentence."""
        return sum(len(document.added) for document in self.documents)

    @property
    def length_ratio(self) -> float:
        """Return the words of the system per word of the reference."""
        return sum(d.words for d in self.documents) / max(1, sum(d.reference_words for d in self.documents))

    @property
    def signature(self) -> str:
        """Return the signature entry for scores of sentences; empty if no document was realigned."""
        if not self.realigned:
            return ""
        return f"|realign:least-edits-{self.tokens}-lc-{self.realigned}-of-{len(self.documents)}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "tokens": self.tokens,
            "realigned_documents": self.realigned,
            "omitted_sentences": self.omitted,
            "added_lines": self.added,
            "length_ratio": self.length_ratio,
            "notes": list(self.notes),
            "documents": [asdict(document) for document in self.documents],
        }


def render_alignment(reports: Mapping[str, AlignmentReport]) -> str:
    """Format as text: a line for every system, then omissions, additions and warnings."""
    rows = [("", "realigned", "omitted", "added", "length")]
    rows += [
        (
            name,
            f"{report.realigned} of {len(report.documents)}",
            f"{report.omitted}",
            f"{report.added}",
            f"{report.length_ratio:.2f}",
        )
        for name, report in reports.items()
    ]
    blocks = [render_rows(rows, left=1)]
    for name, report in reports.items():
        blocks += [f"{name}: {line}" for line in [*document_lines(report), *report.notes]]
    return "\n".join(blocks)


def document_lines(report: AlignmentReport) -> list[str]:
    """Return a line for every document with omissions or additions, at most `_SHOWN`."""
    documents = [document for document in report.documents if document.omitted or document.added]
    lines = []
    for document in documents[:_SHOWN]:
        gaps = (("sentences", document.omitted, "omitted"), ("lines", document.added, "added"))
        parts = [f"{what} {', '.join(map(str, numbers))} {verb}" for what, numbers, verb in gaps if numbers]
        lines.append(f"document {document.id}: {'; '.join(parts)}")
    if more := len(documents[_SHOWN:]):
        lines.append(f"{more} more documents with omissions or additions (see --json)")
    return lines


def realign_systems(
    systems: Mapping[str, Sequence[Document]],
    references: Sequence[Sequence[Document]],
    target_language: str | None,
    which: Realigned,
) -> tuple[dict[str, list[Document]], dict[str, AlignmentReport]]:
    """Realign the documents of every system with the references; see `realign`."""
    cutter = Cutter(target_language)
    documents, reports = {}, {}
    for name, hypothesis in systems.items():
        with located(name):
            documents[name], reports[name] = realign(hypothesis, references, cutter, which)
    return documents, reports


def realign(
    hypothesis: Sequence[Document],
    references: Sequence[Sequence[Document]],
    cutter: Cutter,
    which: Realigned = "unequal",
) -> tuple[list[Document], AlignmentReport]:
    """Divide documents at the sentences of the references, which all have the same sentences.

    With `which` "unequal", documents that have the right number of sentences keep theirs. Raises CotextError
    for a document that is too long, or that needs the target language to be tokenised.
    """
    documents, fits = [], []
    for document, *theirs in zip(hypothesis, *references, strict=True):
        with located(f"document {document.id!r}"):
            lines, fit = _aligned(document, theirs, cutter, which)
        documents.append(lines)
        fits.append(fit)
    notes = []
    if doubtful := [document.id for document in fits if not document.realigned and document.doubtful]:
        notes.append(
            f"{len(doubtful)} documents have as many lines as the reference has sentences, but others "
            f"seem to belong together ({listed(doubtful[:_SHOWN])}); --realign-all cuts them anew, too"
        )
    return documents, AlignmentReport(tuple(fits), cutter.name, tuple(notes))


def _aligned(
    document: Document, references: Sequence[Document], cutter: Cutter, which: Realigned
) -> tuple[Document, AlignedDocument]:
    text = cutter.text(document.sentences)
    tokens = [[cutter.tokens(sentence) for sentence in reference.sentences] for reference in references]
    best = _best_cuts(text, tokens)
    keeps_lines = len(document) == len(references[0]) and which == "unequal"
    lengths = (len(cutter.text([line]).tokens) for line in document.sentences)
    cuts = tuple(accumulate(lengths, initial=0)) if keeps_lines else best
    pieces = document.sentences if keeps_lines else tuple(text.pieces(cuts))
    return Document(document.id, pieces), AlignedDocument(
        id=document.id,
        lines=len(document),
        sentences=len(references[0]),
        realigned=not keeps_lines,
        shared_words=shared_words(text, cuts, tokens[0]),
        most_shared=shared_words(text, best, tokens[0]),
        words=len(words(text.tokens)),
        reference_words=sum(len(words(sentence)) for sentence in tokens[0]),
        omitted=tuple(1 + number for number in omitted_sentences(text, cuts, tokens)),
        added=tuple(1 + number for number in added_lines(text, cuts, tokens)),
    )


def _best_cuts(text: CutText, references: Sequence[Sequence[Sequence[str]]]) -> tuple[int, ...]:
    numbers: dict[str, int] = {}

    def numbered(tokens: Sequence[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.array([numbers.setdefault(token, len(numbers)) for token in tokens], dtype=np.int64)

    segments = [[numbered(sentence) for sentence in sentences] for sentences in zip(*references, strict=True)]
    return align_by_error(numbered(text.tokens), segments, text.may_cut, text.line_ends)
