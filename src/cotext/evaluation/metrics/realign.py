"""Translations of other numbers of sentences than the reference, brought to its sentences within documents.

Systems that write whole documents merge, split, omit and add sentences. Their words are cut anew at the
sentences of the reference, by least edits over tokens (`cotext.evaluation.metrics.error_alignment`); no word
is lost, added or moved past another, so that scores of documents stay as they are. Where several cuts are as
good, the ends of the system's own lines are preferred, then the later cut.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

import numpy as np

from cotext.data.documents import Document
from cotext.evaluation.metrics.error_alignment import ErrorAlignment, align_by_error
from cotext.evaluation.metrics.interface import Measurement
from cotext.evaluation.metrics.token_cuts import (
    Cutter,
    CutText,
    added_lines,
    omitted_sentences,
    shared_words,
    words,
)
from cotext.runtime.errors import CotextError
from cotext.runtime.tables import listed, render_rows

# A document whose lines are kept is in doubt where they share less than this of what the best cuts share.
# Of lines that belong together none ever was, however poor the translation (docs/results/scores.md).
LEAST_SHARED: Final = 0.95
Realigned = Literal["unequal", "all"]  # which documents: with other numbers of sentences, or every one
_SHOWN: Final = 20  # documents of a system in a table


@dataclass(frozen=True, slots=True)
class AlignedDocument:
    """How a document of a system fits its reference.

    `edits` and `shared_words` are those of its sentences as they are scored, `least_edits` and `most_shared`
    those of the best cuts; edits are of tokens. `omitted` numbers sentences of the reference, `added` lines
    of the system, from 1 (see `cotext.evaluation.metrics.token_cuts`). Of several references, words and
    tokens are those of the first.
    """

    id: str
    lines: int
    sentences: int
    realigned: bool
    edits: int
    least_edits: int
    shared_words: int
    most_shared: int
    reference_tokens: int
    words: int
    reference_words: int
    omitted: tuple[int, ...]
    added: tuple[int, ...]

    @property
    def doubtful(self) -> bool:
        """Whether as many lines as sentences seem to be so by accident."""
        return self.shared_words < LEAST_SHARED * self.most_shared


@dataclass(frozen=True, slots=True)
class AlignmentReport:
    """The documents of a system, and how they were aligned; `notes` say what looks wrong."""

    documents: tuple[AlignedDocument, ...]
    tokens: str
    notes: tuple[str, ...]

    @property
    def realigned(self) -> int:
        """How many documents were cut anew."""
        return sum(document.realigned for document in self.documents)

    @property
    def omitted(self) -> int:
        """Sentences of the reference that are left out."""
        return sum(len(document.omitted) for document in self.documents)

    @property
    def added(self) -> int:
        """Lines that stand for no sentence."""
        return sum(len(document.added) for document in self.documents)

    @property
    def length_ratio(self) -> float:
        """Words of the system for every word of the reference."""
        return sum(d.words for d in self.documents) / max(1, sum(d.reference_words for d in self.documents))

    @property
    def error_rate(self) -> float:
        """Edits for every 100 tokens of the reference."""
        edits = sum(document.edits for document in self.documents)
        return 100.0 * edits / max(1, sum(document.reference_tokens for document in self.documents))

    @property
    def signature(self) -> str:
        """What scores of sentences say of it; nothing where every document stayed as it was."""
        if not self.realigned:
            return ""
        return f"|realign:least-edits-{self.tokens}-lc-{self.realigned}-of-{len(self.documents)}"

    def as_dict(self) -> dict[str, Any]:
        """Everything, for a JSON file."""
        return {
            "tokens": self.tokens,
            "realigned_documents": self.realigned,
            "omitted_sentences": self.omitted,
            "added_lines": self.added,
            "length_ratio": self.length_ratio,
            "error_rate": self.error_rate,
            "notes": list(self.notes),
            "documents": [asdict(document) for document in self.documents],
        }


@dataclass(frozen=True, slots=True)
class AlignmentReports:
    """Reports by system; `of_documents`: no score of them is of sentences."""

    systems: Mapping[str, AlignmentReport]
    of_documents: bool

    def as_dict(self) -> dict[str, Any]:
        """Everything, for a JSON file."""
        return {name: report.as_dict() for name, report in self.systems.items()}

    def render(self) -> str:
        """A line for every system, then its documents with omissions or additions, and what looks wrong."""
        rows = [("", "realigned", "omitted", "added", "length", "errors")]
        rows += [
            (
                name,
                f"{report.realigned} of {len(report.documents)}",
                f"{report.omitted}",
                f"{report.added}",
                f"{report.length_ratio:.2f}",
                f"{report.error_rate:.1f}",
            )
            for name, report in self.systems.items()
        ]
        blocks = [render_rows(rows, left=1)]
        for name, report in self.systems.items():
            blocks += [f"{name}: {line}" for line in [*document_lines(report), *report.notes]]
        if self.of_documents:
            blocks += ["", "these scores are of documents, and the same wherever sentences end"]
        return "\n".join(blocks)


def document_lines(report: AlignmentReport) -> list[str]:
    """What is left out and added, a line for every document that has any; of many, the worst."""
    found = [document for document in report.documents if document.omitted or document.added]
    worst = sorted(found, key=lambda d: -len(d.omitted) - len(d.added))[:_SHOWN]
    lines = [f"document {d.id}: {_gaps(d)}" for d in found if d in worst]
    if len(found) > len(worst):
        lines.append(f"{len(found) - len(worst)} more documents with omissions or additions (see --json)")
    return lines


def _gaps(document: AlignedDocument) -> str:
    told = [
        f"{what} {', '.join(map(str, numbers))} {verb}"
        for what, numbers, verb in (
            ("sentences", document.omitted, "omitted"),
            ("lines", document.added, "added"),
        )
        if numbers
    ]
    return "; ".join(told)


def realign_systems(
    systems: Mapping[str, Sequence[Document]],
    references: Sequence[Sequence[Document]],
    target_language: str | None,
    which: Realigned,
) -> tuple[dict[str, list[Document]], dict[str, AlignmentReport]]:
    """Bring the documents of every system to the sentences of the references; see `realign`."""
    cutter = Cutter(target_language)
    documents, reports = {}, {}
    for name, hypothesis in systems.items():
        try:
            documents[name], reports[name] = realign(hypothesis, references, cutter, which)
        except CotextError as error:
            raise CotextError(f"{name}: {error}") from None
    return documents, reports


def signed(measurement: Measurement, signature: str) -> Measurement:
    """The measurement, whose signature says how documents were cut anew, where that makes a difference."""
    return measurement if measurement.statistics.unit == "document" else measurement.signed(signature)


def realign(
    hypothesis: Sequence[Document],
    references: Sequence[Sequence[Document]],
    cutter: Cutter,
    which: Realigned = "unequal",
) -> tuple[list[Document], AlignmentReport]:
    """Bring documents to the sentences of the references, which all have the same ones.

    Those that have as many sentences keep them, unless all are to be cut anew.

    Raises:
        CotextError: a document that is too long, or whose language has no tokens without its name.
    """
    documents, found = [], []
    for document, *theirs in zip(hypothesis, *references, strict=True):
        try:
            lines, fit = _aligned(document, theirs, cutter, which)
        except CotextError as error:
            raise CotextError(f"document {document.id!r}: {error}") from None
        documents.append(lines)
        found.append(fit)
    return documents, AlignmentReport(
        tuple(found), cutter.name, (*_order_notes(hypothesis, references[0], cutter), *_doubts(found))
    )


def _aligned(
    document: Document, references: Sequence[Document], cutter: Cutter, which: Realigned
) -> tuple[Document, AlignedDocument]:
    text = cutter.text(document.sentences)
    tokens = [[cutter.tokens(sentence) for sentence in each.sentences] for each in references]
    best = _least_edits(text, tokens)
    kept = len(document) == len(references[0]) and which == "unequal"
    scored = _of_lines(document, text, tokens, cutter) if kept else best
    pieces = document.sentences if kept else tuple(text.pieces(scored.cuts))
    return Document(document.id, pieces), AlignedDocument(
        id=document.id,
        lines=len(document),
        sentences=len(references[0]),
        realigned=not kept,
        edits=scored.edits,
        least_edits=best.edits,
        shared_words=shared_words(text, scored.cuts, tokens[0]),
        most_shared=shared_words(text, best.cuts, tokens[0]),
        reference_tokens=sum(map(len, tokens[0])),
        words=len(words(text.tokens)),
        reference_words=sum(len(words(sentence)) for sentence in tokens[0]),
        omitted=tuple(1 + number for number in omitted_sentences(text, scored.cuts, tokens)),
        added=tuple(1 + number for number in added_lines(text, scored.cuts, tokens)),
    )


def _least_edits(text: CutText, references: Sequence[Sequence[Sequence[str]]]) -> ErrorAlignment:
    numbers: dict[str, int] = {}

    def numbered(tokens: Sequence[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.array([numbers.setdefault(token, len(numbers)) for token in tokens], dtype=np.int64)

    segments = [[numbered(sentence) for sentence in each] for each in zip(*references, strict=True)]
    return align_by_error(numbered(text.tokens), segments, text.may_cut, text.line_ends)


def _of_lines(
    document: Document, text: CutText, references: Sequence[Sequence[Sequence[str]]], cutter: Cutter
) -> ErrorAlignment:
    """The alignment that lines already are."""
    cuts, edits = [0], 0
    for number, line in enumerate(document.sentences):
        own = cutter.text([line])
        cuts.append(cuts[-1] + len(own.tokens))
        edits += _least_edits(own, [[reference[number]] for reference in references]).edits
    assert cuts[-1] == len(text.tokens)
    return ErrorAlignment(tuple(cuts), edits)


def _doubts(documents: Sequence[AlignedDocument]) -> list[str]:
    doubtful = [document.id for document in documents if not document.realigned and document.doubtful]
    if not doubtful:
        return []
    return [
        f"{len(doubtful)} documents have as many lines as the reference has sentences, but others seem to "
        f"belong together ({listed(doubtful[:_SHOWN])}); --realign-all cuts them anew, too"
    ]


def _order_notes(hypothesis: Sequence[Document], reference: Sequence[Document], cutter: Cutter) -> list[str]:
    """Documents that are more like another document of the reference than like their own.

    The other one is that with most of the words that one document of the reference alone has.
    """
    references = [_word_counts(document, cutter) for document in reference]
    found_in = Counter(word for counts in references for word in counts)
    owners = {word: n for n, counts in enumerate(references) for word in counts if found_in[word] == 1}
    strange = []
    for number, document in enumerate(hypothesis):
        own = _word_counts(document, cutter)
        votes = Counter(owners[word] for word in own if word in owners)
        other = max(sorted(votes), key=votes.__getitem__, default=number)
        if _likeness(own, references[other]) > _likeness(own, references[number]):
            strange.append(f"{document.id} is most like {reference[other].id}")
    if not strange:
        return []
    return [
        f"{len(strange)} documents are more like another document of the reference than like their own "
        f"({'; '.join(strange[:5])}{'; ...' if len(strange) > 5 else ''}); check the order"
    ]


def _word_counts(document: Document, cutter: Cutter) -> Counter[str]:
    return Counter(word for sentence in document.sentences for word in words(cutter.tokens(sentence)))


def _likeness(one: Counter[str], other: Counter[str]) -> float:
    """The share of words that two documents have in common (Dice, 1945)."""
    return 2 * (one & other).total() / max(1, one.total() + other.total())
