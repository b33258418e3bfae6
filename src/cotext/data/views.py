"""Views: the split of documents into windows, and the join of results by window into documents.

Windows are made here alone: training, decoding and scoring all use the same object.

    window view, before=2 after=1, document of 4 sentences (c = current, x = context, . = not seen)

    source   0 1 2 3      target   0 1 2 3
    j = 0    c x . .               c . . .
    j = 1    x c x .               x c . .
    j = 2    x x c x               x x c .
    j = 3    . x x c               . x x c

    document view: pieces of at most max_tokens and max_sentences, here cut into equal parts (parts=2)

    source   0 1 | 2 3    target   0 1 | 2 3          every sentence of its piece is current

    cumulative view: every sentence with all those before it in its piece, the target alone

    j = 2    x x c .               . . c .

Laws: joining the references of a split gives the document back; no window leaves its document; every
sentence is current exactly once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol, TypeVar

from numpy.random import Generator

from cotext.runtime.errors import CotextError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Window:
    """Ranges of sentences of one document: what an instance reads, writes, and answers for.

    `current` lies inside both `source` and `target`. `shed` counts the context sentences of the source that
    were left out for length; a window without them is the same window.
    """

    source: range
    target: range
    current: range
    shed: int = field(default=0, compare=False)


class View(Protocol):
    """Splits documents into windows and joins what was made of them."""

    @property
    def sentences(self) -> int:
        """The largest number of sentences on one side of a window."""

    def split(self, source_lengths: Sequence[int], target_lengths: Sequence[int]) -> list[Window]:
        """Split a document, given the number of tokens of each of its sentences, in document order.

        `target_lengths` may be empty where no translation exists yet.
        """


def join(windows: Sequence[Window], hypotheses: Sequence[Sequence[T]]) -> list[T]:
    """Take the current sentences out of `hypotheses[i]`, one entry per target sentence of `windows[i]`.

    Raises:
        CotextError: a hypothesis does not have one entry per target sentence, or the windows do not cover
            a document (every sentence current exactly once).
    """
    sentences: dict[int, T] = {}
    for window, hypothesis in zip(windows, hypotheses, strict=True):
        if len(hypothesis) != len(window.target):
            raise CotextError(
                f"a window of {len(window.target)} target sentences came back with {len(hypothesis)}"
            )
        for j in window.current:
            if j in sentences:
                raise CotextError(f"sentence {j + 1} is current in two windows")
            sentences[j] = hypothesis[j - window.target.start]
    if sorted(sentences) != list(range(len(sentences))):
        raise CotextError("the windows leave sentences of the document out")
    return [sentences[j] for j in range(len(sentences))]


@dataclass(frozen=True, slots=True)
class SentenceView:
    """Every sentence alone."""

    @property
    def sentences(self) -> int:
        """Always 1."""
        return 1

    def split(self, source_lengths: Sequence[int], target_lengths: Sequence[int]) -> list[Window]:
        """One window per sentence."""
        single = (range(j, j + 1) for j in range(len(source_lengths)))
        return [Window(source=r, target=r, current=r) for r in single]


@dataclass(frozen=True, slots=True)
class Limit:
    """The length limit of a side of a window, in tokens, separators and brackets included.

    And how many sentences; None: any number.
    """

    max_tokens: int | None = None
    per_source_sentence: int = 1  # symbols; on the target side one closes every sentence
    max_sentences: int | None = None

    @property
    def sentences(self) -> int:
        """The most sentences of a side, where tokens are limited: each has a token and its symbols."""
        most = max(1, (self.max_tokens or 0) // (1 + self.per_source_sentence))
        return most if self.max_sentences is None else min(most, self.max_sentences)

    def fits(self, source_lengths: Sequence[int], target_lengths: Sequence[int]) -> bool:
        """Whether both sides hold at most `max_tokens` in at most `max_sentences`."""
        if self.max_sentences is not None and len(source_lengths) > self.max_sentences:
            return False
        if self.max_tokens is None:
            return True
        source = sum(source_lengths) + self.per_source_sentence * len(source_lengths)
        return max(source, sum(target_lengths) + len(target_lengths)) <= self.max_tokens


@dataclass(frozen=True, slots=True)
class WindowView:
    """Sliding windows of `before` + 1 sentences (sKtoK: K = before + 1), source and target.

    Lupo et al. 2022, section 2.2. At the start of a document there are fewer. `after` adds future sentences
    to the source side alone: on the target side they would come after the current sentence, where a
    left-to-right decoder could not use them. `target_before`, where given, is the context of the target: with
    0 a window is Doc2Sent, Li et al. 2022, section III-D.

    A window that exceeds the limit on a side sheds its future sentences, where the source exceeds it, then
    its past ones from the farthest, until both sides fit; the current sentence always stays. Windows know how
    many they have shed.
    """

    before: int
    after: int = 0
    limit: Limit = Limit()
    target_before: int | None = None

    @property
    def sentences(self) -> int:
        """Sentences of a full source window."""
        return self.before + 1 + self.after

    def split(self, source_lengths: Sequence[int], target_lengths: Sequence[int]) -> list[Window]:
        """One window per sentence, the current one, after its past and before its future context."""
        count = len(source_lengths)
        context = self.before if self.target_before is None else self.target_before
        windows = []
        for j in range(count):
            first, stop = max(0, j - self.before), min(count, j + 1 + self.after)
            target = max(first, j - context)
            asked = stop - first
            while stop > j + 1 and not self.limit.fits(source_lengths[first:stop], ()):
                stop -= 1
            while first < j and not self.limit.fits(
                source_lengths[first:stop], target_lengths[target : j + 1]
            ):
                first += 1
                target = max(first, target)
            source = range(first, stop)
            windows.append(Window(source, range(target, j + 1), range(j, j + 1), shed=asked - len(source)))
        return windows


@dataclass(frozen=True, slots=True)
class DocumentView:
    """Documents in pieces as long as the limit allows, never cut inside a sentence, each cut into `parts`.

    With one part, sub-documents as in Li et al. 2022, section IV-A; with 2, 4, 8 ... the resolutions of Sun
    et al. 2022. Parts are equal in sentences, as far as that goes; a piece that has fewer falls into single
    ones. A sentence that exceeds the limit by itself is a piece of its own.
    """

    limit: Limit
    parts: int = 1

    @property
    def sentences(self) -> int:
        """As many as the limit allows."""
        return self.limit.sentences

    def split(self, source_lengths: Sequence[int], target_lengths: Sequence[int]) -> list[Window]:
        """One window per part; all its sentences are current."""
        ranges = (
            part
            for piece in _pieces(source_lengths, target_lengths, self.limit)
            for part in _equal_parts(piece, self.parts)
        )
        return [Window(source=r, target=r, current=r) for r in ranges]


@dataclass(frozen=True, slots=True)
class SentenceBySentence:
    """The sentences of every window of a view one by one, each with the whole window as context.

    That is the whole source of the window, and the target sentences before it.
    """

    view: View

    @property
    def sentences(self) -> int:
        """As in the view."""
        return self.view.sentences

    def split(self, source_lengths: Sequence[int], target_lengths: Sequence[int]) -> list[Window]:
        """One window per sentence."""
        return [
            Window(whole.source, range(whole.target.start, j + 1), range(j, j + 1), whole.shed)
            for whole in self.view.split(source_lengths, target_lengths)
            for j in whole.current
        ]


@dataclass(frozen=True, slots=True)
class CumulativeView:
    """Every sentence alone on the target side, with all those before it in its part on the source side.

    The document-to-sentence counterpart of `DocumentView`: the sentence to translate is the last of the row.
    """

    limit: Limit
    parts: int = 1

    @property
    def sentences(self) -> int:
        """As in `DocumentView`."""
        return self.limit.sentences

    def split(self, source_lengths: Sequence[int], target_lengths: Sequence[int]) -> list[Window]:
        """One window per sentence."""
        # Each target stands alone, so that only the source says where a piece must end.
        whole = DocumentView(self.limit, self.parts).split(source_lengths, ())
        return [
            Window(source=range(part.source.start, j + 1), target=range(j, j + 1), current=range(j, j + 1))
            for part in whole
            for j in part.current
        ]


def _pieces(source_lengths: Sequence[int], target_lengths: Sequence[int], limit: Limit) -> list[range]:
    """Cut a document into runs of sentences, each as long as the limit allows."""
    starts = [0]
    for j in range(1, len(source_lengths)):
        piece = slice(starts[-1], j + 1)
        if not limit.fits(source_lengths[piece], target_lengths[piece]):
            starts.append(j)
    bounds = [*starts, len(source_lengths)] if source_lengths else []
    return [range(first, stop) for first, stop in pairwise(bounds)]


def _equal_parts(piece: range, parts: int) -> list[range]:
    """Cut a run of sentences into `parts` whose numbers of sentences differ by one at most."""
    count = min(parts, len(piece))
    bounds = [piece.start + i * len(piece) // count for i in range(count + 1)]
    return [range(first, stop) for first, stop in pairwise(bounds)]


@dataclass(frozen=True, slots=True)
class Mixture:
    """The instances of several views, each drawn `weight` times on average, on which a model is trained.

    A window that two views have in common counts for the first alone: with weights of 1 the mixture is the
    union of their instances.
    """

    parts: tuple[tuple[View, float], ...]

    def draw(
        self, source_lengths: Sequence[int], target_lengths: Sequence[int], random: Generator
    ) -> list[Window]:
        """The windows of one document for one epoch; nothing is random where all weights are whole."""
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
        """The windows of one document, view by view, with how often each is drawn on average."""
        found: list[tuple[list[Window], float]] = []
        seen: set[Window] = set()
        for view, weight in self.parts:
            windows = [w for w in view.split(source_lengths, target_lengths) if w not in seen]
            seen.update(windows)
            found.append((windows, weight))
        return found
