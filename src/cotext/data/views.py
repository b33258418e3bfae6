"""Views: how a document becomes instances, and how their results become a document again.

The only place where a window exists: training, decoding and scoring all ask the same object.

    window view, before=2 after=1, document of 4 sentences (c = current, x = context, . = not seen)

    source   0 1 2 3      target   0 1 2 3
    j = 0    c x . .               c . . .
    j = 1    x c x .               x c . .
    j = 2    x x c x               x x c .
    j = 3    . x x c               . x x c

Laws: joining the references of a split gives the document back; no window leaves its document; every
sentence is current exactly once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from cotext.errors import CotextError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Window:
    """Ranges of sentences of one document: what an instance reads, writes, and answers for.

    `current` lies inside both `source` and `target`.
    """

    source: range
    target: range
    current: range


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
class WindowView:
    """Sliding windows of `before` + 1 sentences (sKtoK: K = before + 1), source and target.

    Lupo et al. 2022, section 2.2. At the start of a document there are fewer. `after` adds future sentences
    to the source side alone: on the target side they would come after the current sentence, where a
    left-to-right decoder could not use them.

    A window that exceeds `max_tokens` on a side (the symbol after every sentence included) sheds its future
    sentences, where the source exceeds it, then its past ones from the farthest, until both sides fit; the
    current sentence always stays.
    """

    before: int
    after: int = 0
    max_tokens: int | None = None

    @property
    def sentences(self) -> int:
        """Sentences of a full source window."""
        return self.before + 1 + self.after

    def split(self, source_lengths: Sequence[int], target_lengths: Sequence[int]) -> list[Window]:
        """One window per sentence, current in the place that its context leaves it."""
        count = len(source_lengths)
        windows = []
        for j in range(count):
            first, stop = max(0, j - self.before), min(count, j + 1 + self.after)
            while stop > j + 1 and not self._fits(source_lengths[first:stop]):
                stop -= 1
            while first < j and not (
                self._fits(source_lengths[first:stop]) and self._fits(target_lengths[first : j + 1])
            ):
                first += 1
            windows.append(
                Window(source=range(first, stop), target=range(first, j + 1), current=range(j, j + 1))
            )
        return windows

    def _fits(self, lengths: Sequence[int]) -> bool:
        return self.max_tokens is None or sum(lengths) + len(lengths) <= self.max_tokens
