"""Realignment of translations whose numbers of sentences differ from the reference, within documents.

The text of a system is divided again at the sentences of the reference, with the fewest edits over tokens
(`align_by_error`). No word is lost, added or moved, so scores of documents do not change. Among equally good
cuts, the ends of the system's own lines are preferred, then the later cut.

Omissions and additions are found by the words shared with a reference:

    omitted   a reference sentence whose piece of the translation has fewer than half as many words, and has
              in common with it fewer than a quarter of its words
    added     a line with fewer than a quarter of its words in the sentences that it is aligned with. Their
              pieces are longer than these sentences, by at least half the number of words in the line

Words are tokens with a letter or a digit, in lower case. Repeated words are matched one to one. With several
references, these conditions must hold for each of them.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import accumulate, pairwise
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU

from cotext.data.documents import Document, primary_language
from cotext.data.words import UNSPACED_LANGUAGES, is_boundary, is_unspaced
from cotext.evaluation.metrics.bleu import PROTOCOLS, build_metric
from cotext.runtime import CotextError, naming
from cotext.runtime.rendering import listed, render_rows

# --- Segmentation of a text at the segments of a reference, by minimum error (Matusov et al., 2005).
#
# The tokens of a hypothesis are divided into as many pieces as the reference has segments. The division
# minimises the total number of edits (insertions, deletions, substitutions) that turn pieces into segments.
# With several references, the one with the fewest edits counts for each segment. This is one dynamic
# programme over [reference tokens, hypothesis tokens], one row at a time:
#
#     row[i]  fewest edits of the segments so far and hypothesis tokens 0..i, then (among equals) fewest cuts
#             at positions that are not preferred, then the latest beginning of the present segment
#
# All three are stored in one integer, so a minimum of integers selects among them. Each reference token costs
# a few operations on a row (10,000 tokens on both sides: about a second). Memory is bounded by recomputing
# blocks of segments from the row in which they begin.

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

# Bits of an integer, from the right: begin of the segment (counted down), cuts not preferred, edits.
_START_BITS: Final = 22
_CUT_BITS: Final = 18
_CUT: Final = 1 << _START_BITS
_EDIT: Final = 1 << (_START_BITS + _CUT_BITS)
_START: Final = _CUT - 1
_NEVER: Final = 1 << 62
# Keeps sums below 2^63: _NEVER plus an edit for each token of both sides.
_MAX_TOKENS: Final = 1 << 20
_MAX_SEGMENTS: Final = 1 << _CUT_BITS
MAX_CELLS: Final = 10_000_000_000  # 100,000 tokens against as many: two minutes
_BLOCK_BYTES: Final = 1 << 26


def align_by_error(
    hypothesis: Integers, references: Sequence[Sequence[Integers]], may_cut: Flags, preferred: Flags
) -> tuple[int, ...]:
    """Return where a hypothesis, given as token numbers, is cut: at 0 and at the end of each piece.

    `references`: for each segment its tokens in every reference. `may_cut`, `preferred`: whether a piece may
    end, or preferably ends, before each token and after the last. Raises CotextError above `MAX_CELLS`.
    """
    segments = len(references)
    rows = sum(len(tokens) + 1 for segment in references for tokens in segment)
    tokens = len(hypothesis)
    if (tokens + 1) * rows > MAX_CELLS or max(tokens, rows) > _MAX_TOKENS or segments > _MAX_SEGMENTS:
        raise CotextError(
            f"{tokens:,} tokens to be aligned with {rows:,} of the reference would take too long (at most "
            f"{MAX_CELLS:,} for their product, and {_MAX_TOKENS:,} on a side); divide the document, on all "
            "sides at the same place"
        )
    if not segments:
        return (0,)
    beginning = _START - np.arange(len(hypothesis) + 1, dtype=np.int64)
    penalty, closed = np.where(preferred, 0, _CUT), np.flatnonzero(~may_cut)

    def rows_of(row: Integers, block: range) -> Iterator[Integers]:
        """Yield the rows at the ends of segments, from the row at the end of the previous segment."""
        for segment in block:
            begin = row & ~_START | beginning
            row = np.minimum.reduce([_after(begin, hypothesis, tokens) for tokens in references[segment]])
            if segment + 1 < segments:
                row += penalty
                row[closed] = _NEVER
            yield row

    # One row is stored for each segment of a block, and the row in which each block begins.
    size = max(math.isqrt(2 * segments), _BLOCK_BYTES // (4 * (len(hypothesis) + 1)))
    blocks = [range(first, min(first + size, segments)) for first in range(0, segments, size)]
    begins = [np.full(len(hypothesis) + 1, _NEVER, dtype=np.int64)]
    begins[0][0] = 0  # the first segment begins with the hypothesis
    for block in blocks[:-1]:
        row = begins[-1]
        for row in rows_of(begins[-1], block):  # noqa: B007 - the last row is used
            pass
        begins.append(row)
    cuts = [len(hypothesis)]
    for block, begin in zip(reversed(blocks), reversed(begins), strict=True):
        starts = [(_START - (row & _START)).astype(np.int32) for row in rows_of(begin, block)]
        for start in reversed(starts):
            cuts.append(int(start[cuts[-1]]))
    return tuple(reversed(cuts))


def _after(row: Integers, hypothesis: Integers, tokens: Integers) -> Integers:
    """Return the row at the end of a segment with these tokens, from the row at its beginning.

    Rows hold costs minus one edit for every hypothesis token before the position. An insertion then costs
    nothing, a deletion one edit, a substitution nothing, and a match gains one edit.
    """
    row = np.minimum.accumulate(row)
    other, gain = np.empty_like(row), np.empty(len(row) - 1, dtype=np.int64)
    for token in tokens:
        np.multiply(hypothesis == token, _EDIT, out=gain)
        np.subtract(row[:-1], gain, out=gain)
        np.add(row, _EDIT, out=other)
        np.minimum(other[1:], gain, out=other[1:])
        np.minimum.accumulate(other, out=row)
    return row


# --- Texts, their cuts, and reports.

# Text of languages without spaces may be cut between any two tokens.
_UNSPACED: Final = ("zh", "ja", *UNSPACED_LANGUAGES)
MOST_SHARED: Final = 0.25  # share of the words of an omitted sentence or added line that may be shared
LEAST_GAP: Final = 0.5  # minimum difference in words, as a share of the words of the sentence or line
# A document that keeps its lines is doubtful if they share less than this fraction of the words that the best
# cuts share. Corresponding lines always shared more, even in poor translations (docs/results/scores.md).
LEAST_SHARED: Final = 0.95
Realigned = Literal["unequal", "all"]  # documents whose numbers of sentences differ, or all
_SHOWN: Final = 20  # number of documents listed for a system

Tokens = Sequence[str]


@dataclass(frozen=True, slots=True)
class CutText:
    """A text and its tokens, in lower case.

    The text has a position before, between and after tokens, with the index of its character (`ends`).
    `may_cut`: the text may be cut there. `line_ends`: a line ends there; True at the first position. `lines`:
    numbers of the lines that have tokens, from 0.
    """

    text: str
    tokens: tuple[str, ...]
    ends: tuple[int, ...]
    may_cut: Flags
    line_ends: Flags
    lines: tuple[int, ...]

    def pieces(self, cuts: Sequence[int]) -> list[str]:
        """Return the texts between cuts, with all visible characters. The last cut is the end of the text."""
        ends = [0, *(self.ends[cut] for cut in cuts[1:-1]), len(self.text)]
        return [self.text[start:end].strip() for start, end in pairwise(ends)]


class Cutter:
    """Splits texts in a language into the tokens of BLEU for that language."""

    def __init__(self, target_language: str | None = None) -> None:
        metric = build_metric(PROTOCOLS["s-bleu"], target_language)
        assert isinstance(metric, BLEU)
        self.name = str(metric.tokenizer.signature())
        self._tokenize = metric.tokenizer
        self._divided = cache(self._divide)
        self._unspaced = primary_language(target_language or "") in _UNSPACED

    def tokens(self, sentence: str) -> tuple[str, ...]:
        """Return the tokens of a sentence, in lower case."""
        return tuple(token for word in sentence.split() for token, _ in self._divided(word))

    def text(self, lines: Sequence[str]) -> CutText:
        """Join lines into one text; raise CotextError if it has no spaces and no language is given."""
        text = ""
        tokens: list[str] = []
        ends, may_cut, line_ends = [0], [True], [True]
        filled: list[int] = []
        for number, line in enumerate(map(str.strip, lines)):
            if not line:
                continue
            before = len(tokens)
            text += " " * bool(text) + line
            start = len(text) - len(line)
            for word in re.finditer(r"\S+", line):
                for token, end in self._divided(word[0]):
                    tokens.append(token)
                    ends.append(start + word.start() + end)
                    after = word[0][end : end + 1]
                    may_cut.append(not after or (self._unspaced and is_boundary(word[0][end - 1], after)))
                    line_ends.append(False)
            if len(tokens) > before:
                line_ends[-1] = True
                filled.append(number)
        if not self._unspaced and 2 * sum(map(is_unspaced, text)) > len(text):
            raise CotextError(
                f"is written without spaces, so tokens ({self.name}) would be whole sentences; give "
                f"--target-language ({', '.join(_UNSPACED)})"
            )
        may_cut[-1] = True
        return CutText(
            text, tuple(tokens), tuple(ends), np.array(may_cut), np.array(line_ends), tuple(filled)
        )

    def _divide(self, word: str) -> list[tuple[str, int]]:
        """Return the tokens of a word (text between spaces), and the position where each ends.

        If the tokenizer has changed characters (`&quot;`), all tokens get the end position of the word.
        """
        tokens_of_word = self._tokenize(word).split()
        if "".join(tokens_of_word) != word:
            return [(token.casefold(), len(word)) for token in tokens_of_word]
        ends = np.cumsum([len(token) for token in tokens_of_word])
        return [(token.casefold(), int(end)) for token, end in zip(tokens_of_word, ends, strict=True)]


def omitted_sentences(
    text: CutText, cuts: Sequence[int], references: Sequence[Sequence[Tokens]]
) -> tuple[int, ...]:
    """Return the numbers, from 0, of omitted sentences; `references`: tokens by reference and sentence."""
    omitted = []
    for sentence, (start, end) in enumerate(pairwise(cuts)):
        piece = words(text.tokens[start:end])
        sides = [words(reference[sentence]) for reference in references]
        if all(
            len(piece) < (1 - LEAST_GAP) * len(side) and _shared(side, piece) < MOST_SHARED * len(side)
            for side in sides
        ):
            omitted.append(sentence)
    return tuple(omitted)


def added_lines(
    text: CutText, cuts: Sequence[int], references: Sequence[Sequence[Tokens]]
) -> tuple[int, ...]:
    """Return the numbers, from 0, of the lines that a text adds."""
    added = []
    ends = np.flatnonzero(text.line_ends)
    for line, (first, last) in enumerate(pairwise(ends.tolist())):
        parts = list(_parts(cuts, first, last))
        if all(_adds(text, parts, cuts, reference) for reference in references):
            added.append(text.lines[line])
    return tuple(added)


def shared_words(text: CutText, cuts: Sequence[int], reference: Sequence[Tokens]) -> int:
    """Return how many words the pieces of a text share with the sentences that they are aligned with."""
    return sum(
        _shared(words(text.tokens[start:end]), words(sentence))
        for (start, end), sentence in zip(pairwise(cuts), reference, strict=True)
    )


def words(tokens: Tokens) -> list[str]:
    """Return the tokens that have a letter or a digit."""
    return [token for token in tokens if any(map(str.isalnum, token))]


def _parts(cuts: Sequence[int], first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Yield the parts of the line from `first` to `last` by sentence: its number, the start and the end."""
    sentence = int(np.searchsorted(cuts, first, side="right")) - 1
    while sentence + 1 < len(cuts) and cuts[sentence] < last:
        start, end = max(first, cuts[sentence]), min(last, cuts[sentence + 1])
        if start < end:
            yield sentence, start, end
        sentence += 1


def _adds(
    text: CutText, parts: Sequence[tuple[int, int, int]], cuts: Sequence[int], reference: Sequence[Tokens]
) -> bool:
    size = shared = gap = 0
    for sentence, start, end in parts:
        ours, theirs = words(text.tokens[start:end]), words(reference[sentence])
        size += len(ours)
        shared += _shared(ours, theirs)
        gap += len(words(text.tokens[cuts[sentence] : cuts[sentence + 1]])) - len(theirs)
    return size > 0 and gap >= LEAST_GAP * size and shared < MOST_SHARED * size


def _shared(one: Tokens, other: Tokens) -> int:
    return (Counter(one) & Counter(other)).total()


@dataclass(frozen=True, slots=True)
class AlignedDocument:
    """The alignment of a document of a system with its reference.

    `shared_words`: number of words that the scored sentences share with the first reference. `most_shared`:
    the same for the best cuts. `omitted` sentences and `added` lines are numbered from 1.
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
    """Return a line for every document with omissions or additions, at most the worst `_SHOWN`."""
    documents = [document for document in report.documents if document.omitted or document.added]
    sizes = [len(document.omitted) + len(document.added) for document in documents]
    worst = sorted(range(len(documents)), key=lambda index: -sizes[index])[:_SHOWN]
    lines = []
    for document in (documents[index] for index in sorted(worst)):
        gaps = (("omitted sentence", document.omitted), ("added line", document.added))
        parts = [
            f"{what}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
            for what, numbers in gaps
            if numbers
        ]
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
        with naming(name):
            documents[name], reports[name] = realign(hypothesis, references, cutter, which)
    return documents, reports


def realign(
    hypothesis: Sequence[Document],
    references: Sequence[Sequence[Document]],
    cutter: Cutter,
    which: Realigned = "unequal",
) -> tuple[list[Document], AlignmentReport]:
    """Divide documents at the sentences of the references, which all have the same sentences.

    With `which` "unequal", documents with the right number of lines keep their lines. Raises CotextError if a
    document is too long, or cannot be tokenised without the target language.
    """
    documents, fits = [], []
    for document, *theirs in zip(hypothesis, *references, strict=True):
        with naming(f"document {document.id!r}"):
            lines, fit = _aligned(document, theirs, cutter, which)
        documents.append(lines)
        fits.append(fit)
    notes = []
    kept = (fit for fit in fits if not fit.realigned)
    if doubtful := [fit.id for fit in kept if fit.shared_words < LEAST_SHARED * fit.most_shared]:
        notes.append(
            f"{len(doubtful)} documents have as many lines as the reference has sentences, but they "
            f"seem misaligned ({listed(doubtful[:_SHOWN])}); --realign-all realigns them, too"
        )
    return documents, AlignmentReport(tuple(fits), cutter.name, tuple(notes))


def _aligned(
    document: Document, references: Sequence[Document], cutter: Cutter, which: Realigned
) -> tuple[Document, AlignedDocument]:
    text = cutter.text(document.sentences)
    tokens = [[cutter.tokens(sentence) for sentence in reference.sentences] for reference in references]
    numbers: dict[str, int] = {}

    def numbered(tokens: Tokens) -> Integers:
        return np.array([numbers.setdefault(token, len(numbers)) for token in tokens], dtype=np.int64)

    segments = [[numbered(sentence) for sentence in sentences] for sentences in zip(*tokens, strict=True)]
    best = align_by_error(numbered(text.tokens), segments, text.may_cut, text.line_ends)
    keeps_lines = len(document) == len(references[0]) and which == "unequal"
    lengths = (len(cutter.tokens(line)) for line in document.sentences)
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
