"""Views: the split of documents into windows, and the join of results into documents.

Training, decoding and scoring all use the windows of this module.

    window view, before=2 after=1, document of 4 sentences (c = current, x = context, . = not in the window)

    source   0 1 2 3      target   0 1 2 3
    j = 0    c x . .               c . . .
    j = 1    x c x .               x c . .
    j = 2    x x c x               x x c .
    j = 3    . x x c               . x x c

    document view: pieces of at most max_tokens and max_sentences, here cut into equal parts (parts=2)

    source   0 1 | 2 3    target   0 1 | 2 3          all sentences of a piece are current

    cumulative view: a sentence and, on the source side, all sentences before it in its piece (or part)

    j = 2    x x c .               . . c .

Invariants: joining the references of a split gives the document. No window crosses the borders of a document.
Every sentence is current in exactly one window.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol, TypeVar

from numpy.random import Generator

from cotext.runtime import CotextError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Window:
    """Ranges of sentences of one document: source, target and current sentences of one window.

    `current` is inside both `source` and `target`. `shed` is the number of context sentences of the source
    that were dropped because of the length limit; it is ignored when windows are compared.
    """

    source: range
    target: range
    current: range
    shed: int = field(default=0, compare=False)


class View(Protocol):
    """Splits documents into windows."""

    @property
    def sentences(self) -> int:
        """The maximum number of sentences on one side of a window."""

    def split(self, source_lengths: Sequence[int], target_lengths: Sequence[int]) -> list[Window]:
        """Split a document, given the number of tokens of each sentence; return its windows in order.

        `target_lengths` may be empty if the document has no translation yet.
        """


def join(windows: Sequence[Window], hypotheses: Sequence[Sequence[T]]) -> list[T]:
    """Join the current sentences of all windows to a document.

    `hypotheses[i]` has one entry per target sentence of `windows[i]`.

    Raises CotextError unless every hypothesis has one entry per target sentence, and every sentence of the
    document is current in exactly one window.
    """
    sentences: dict[int, T] = {}
    for window, hypothesis in zip(windows, hypotheses, strict=True):
        if len(hypothesis) != len(window.target):
            raise CotextError(
                f"the translation of a window of {len(window.target)} target sentences has {len(hypothesis)}"
            )
        for j in window.current:
            if j in sentences:
                raise CotextError(f"sentence {j + 1} is current in two windows")
            sentences[j] = hypothesis[j - window.target.start]
    if sorted(sentences) != list(range(len(sentences))):
        raise CotextError("the windows leave sentences of the document out")
    return [sentences[j] for j in range(len(sentences))]


Encoded = Sequence[Sequence[int]]  # the tokens of the sentences of a document


def cut_document(
    view: View, source: Encoded, target: Encoded | None = None
) -> tuple[list[int], list[Window]]:
    """Return the indices of non-empty sentences, and windows whose numbers are positions among these indices.

    Empty sentences have no tokens on either side. As in translation, windows depend only on the source, so
    scores of an output equal its scores in search.
    """
    kept = [j for j, tokens in enumerate(source) if tokens or (target is not None and target[j])]
    return kept, view.split([len(source[j]) for j in kept], [])


def group_of(number: int, windows: int, group_windows: int) -> range:
    """Return the numbers of all windows in the group of window `number`."""
    first = number - number % group_windows
    return range(first, min(first + group_windows, windows))


@dataclass(frozen=True, slots=True)
class Limit:
    """Limits for each side of a window: tokens, including separators and brackets, and sentences."""

    max_tokens: int | None = None
    per_source_sentence: int = 1  # separators and brackets; a target sentence has one
    max_sentences: int | None = None

    @property
    def sentences(self) -> int:
        """The largest possible number of sentences with at least one source token, and their symbols."""
        most = max(1, (self.max_tokens or 0) // (1 + self.per_source_sentence))
        return most if self.max_sentences is None else min(most, self.max_sentences)

    def fits(self, source_lengths: Sequence[int], target_lengths: Sequence[int]) -> bool:
        """Return whether both sides have at most `max_tokens` tokens and `max_sentences` sentences."""
        if self.max_sentences is not None and len(source_lengths) > self.max_sentences:
            return False
        if self.max_tokens is None:
            return True
        source = sum(source_lengths) + self.per_source_sentence * len(source_lengths)
        return max(source, sum(target_lengths) + len(target_lengths)) <= self.max_tokens


@dataclass(frozen=True, slots=True)
class WindowView:
    """Sliding windows of `before` + 1 sentences (sKtoK with K = before + 1; Lupo et al. 2022, section 2.2).

    At the start of a document, windows are shorter. Without `before`, windows are single sentences. `after`
    adds future sentences on the source side only: a left-to-right decoder cannot use sentences after the
    current sentence. `target_before` is the number of context sentences on the target side, if it differs;
    0 is Doc2Sent (Li et al. 2022, section III-D).

    Context is dropped from a window over the limit until both sides fit. If the source is too long, the last
    future sentences are dropped first; then the first past sentences. The current sentence is always kept.
    """

    before: int
    after: int = 0
    limit: Limit = Limit()
    target_before: int | None = None

    @property
    def sentences(self) -> int:
        return self.before + 1 + self.after

    def split(self, source_lengths: Sequence[int], target_lengths: Sequence[int]) -> list[Window]:
        count = len(source_lengths)
        context = self.before if self.target_before is None else self.target_before
        windows = []
        for j in range(count):
            first, stop = max(0, j - self.before), min(count, j + 1 + self.after)
            target = max(first, j - context)
            requested = stop - first
            while stop > j + 1 and not self.limit.fits(source_lengths[first:stop], ()):
                stop -= 1
            while first < j and not self.limit.fits(
                source_lengths[first:stop], target_lengths[target : j + 1]
            ):
                first += 1
                target = max(first, target)
            source = range(first, stop)
            shed = requested - len(source)
            windows.append(Window(source, range(target, j + 1), range(j, j + 1), shed))
        return windows


@dataclass(frozen=True, slots=True)
class DocumentView:
    """Pieces of documents that are as long as the limit allows, each cut into `parts`.

    With one part, the pieces are the sub-documents of Li et al. 2022, section IV-A. With 2, 4, 8 ... parts,
    they are the resolutions of Sun et al. 2022. The parts of a piece differ by at most one sentence. A piece
    with fewer sentences than `parts` is cut into single sentences. A sentence over the limit is a separate
    piece.
    """

    limit: Limit
    parts: int = 1

    @property
    def sentences(self) -> int:
        return self.limit.sentences

    def split(self, source_lengths: Sequence[int], target_lengths: Sequence[int]) -> list[Window]:
        starts, count = [0], len(source_lengths)
        for j in range(1, count):
            longer = slice(starts[-1], j + 1)
            if not self.limit.fits(source_lengths[longer], target_lengths[longer]):
                starts.append(j)
        ranges: list[range] = []
        for piece in _ranges([*starts, count] if count else []):
            parts = min(self.parts, len(piece))
            bounds = [piece.start + i * len(piece) // parts for i in range(parts + 1)]
            ranges += _ranges(bounds)
        return [Window(source=r, target=r, current=r) for r in ranges]


def _ranges(bounds: Sequence[int]) -> list[range]:
    return [range(first, stop) for first, stop in pairwise(bounds)]


@dataclass(frozen=True, slots=True)
class SentenceBySentence:
    """One window for each current sentence of another view's window.

    It has the full source of the other window, and its target up to this sentence.
    """

    view: View

    @property
    def sentences(self) -> int:
        return self.view.sentences

    def split(self, source_lengths: Sequence[int], target_lengths: Sequence[int]) -> list[Window]:
        return [
            Window(whole.source, range(whole.target.start, j + 1), range(j, j + 1), whole.shed)
            for whole in self.view.split(source_lengths, target_lengths)
            for j in whole.current
        ]


@dataclass(frozen=True, slots=True)
class CumulativeView(DocumentView):
    """Document-to-sentence counterpart of `DocumentView`.

    The target is one sentence. The source has this sentence and all sentences before it in its part.
    """

    def split(self, source_lengths: Sequence[int], target_lengths: Sequence[int]) -> list[Window]:
        # A target is one sentence, so the pieces are limited only by the source.
        whole = DocumentView.split(self, source_lengths, ())
        return [
            Window(source=range(part.source.start, j + 1), target=range(j, j + 1), current=range(j, j + 1))
            for part in whole
            for j in part.current
        ]


@dataclass(frozen=True, slots=True)
class Mixture:
    """The windows of several views for training, each drawn `weight` times per epoch on average.

    A window that several views have in common is used only for the first of them. So with weights of 1, the
    mixture is the union of their windows.
    """

    parts: tuple[tuple[View, float], ...]

    def draw(
        self, source_lengths: Sequence[int], target_lengths: Sequence[int], random: Generator
    ) -> list[Window]:
        """Return the windows of one document for one epoch; integer weights need no random numbers."""
        drawn: list[Window] = []
        for windows, weight in self.weighted(source_lengths, target_lengths):
            copies, rest = divmod(weight, 1)
            drawn += windows * int(copies)
            if rest:
                drawn += [
                    w for w, chance in zip(windows, random.random(len(windows)), strict=True) if chance < rest
                ]
        return drawn

    def weighted(
        self, source_lengths: Sequence[int], target_lengths: Sequence[int]
    ) -> list[tuple[list[Window], float]]:
        """Return the windows of one document for each view, with the weight of the view."""
        by_view: list[tuple[list[Window], float]] = []
        seen: set[Window] = set()
        for view, weight in self.parts:
            windows = [w for w in view.split(source_lengths, target_lengths) if w not in seen]
            seen.update(windows)
            by_view.append((windows, weight))
        return by_view
