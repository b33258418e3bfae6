"""A document while it is being translated: the windows that can be searched now, and their hypotheses.

A sentence without a token is no part of it: there is nothing to translate, and nothing that it could tell as
context. Sentence indices count the sentences that are left.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from cotext.data.batch import Instance
from cotext.data.documents import Document
from cotext.data.views import View, Window, join

Encoded = Sequence[Sequence[int]]  # the tokens of the sentences of a document


@dataclass(frozen=True, slots=True)
class CutDocument:
    """The sentences of a document that are not empty, by index, and its windows, which count these alone."""

    kept: list[int]
    windows: list[Window]


def cut_document(view: View, source: Encoded, target: Encoded | None = None) -> CutDocument:
    """Cut a document in a view; sentences without a token, on both sides, are no part of it.

    The cut depends on the source alone, as while translating: a score is that of what search would write.
    """
    kept = [j for j, tokens in enumerate(source) if tokens or (target is not None and target[j])]
    return CutDocument(kept, view.split([len(source[j]) for j in kept], []))


@dataclass(frozen=True, slots=True)
class SentenceHypothesis:
    """What the model wrote for one sentence; `cut`: its limit closed it.

    `labels` counts the tokens and, where the model wrote it, the symbol that closes the sentence.
    """

    tokens: tuple[int, ...]
    log_probability: float = 0.0
    truncated: bool = False
    labels: int = 0


@dataclass(slots=True)
class OpenDocument:
    """The sentences of a document, its windows in a view, and the hypotheses so far.

    `given` holds, per window, the target sentences that are its forced prefix: earlier hypotheses, or
    those of `first_pass`, where there was one. A window is ready when they are there and, within every
    `sequential_windows` windows, the one before it is finished.
    """

    index: int
    document: Document
    kept: list[int]  # index in the document of every sentence
    source: list[list[int]]
    windows: list[Window]
    given: list[range]
    first_pass: list[SentenceHypothesis] | None = None  # a translation of the whole, per sentence
    sequential_windows: int = 1
    ready: list[int] = field(default_factory=list)
    inexact: set[int] = field(default_factory=set)  # windows that were not written exactly as asked
    _missing: list[int] = field(default_factory=list)  # per window, how much of what it waits for is to come
    _waiting: dict[int, list[int]] = field(default_factory=dict)  # per sentence, the windows that take it
    _found: dict[int, list[SentenceHypothesis]] = field(
        default_factory=dict
    )  # per window, per target sentence
    _current: dict[int, SentenceHypothesis] = field(
        default_factory=dict
    )  # per sentence, by the window that it is current in

    @classmethod
    def start(
        cls,
        index: int,
        document: Document,
        tokens: Sequence[list[int]],
        view: View,
        prefix: bool,
        first_pass: Sequence[list[int]] | None = None,
        sequential_windows: int = 1,
    ) -> "OpenDocument":
        """Cut a document, given the tokens of its sentences; `prefix`: translations become target context.

        These are those of `first_pass`, the tokens of a whole translation, or those made here.
        """
        cut = cut_document(view, tokens)
        source, windows = [tokens[j] for j in cut.kept], cut.windows
        given = [range(w.target.start, w.current.start if prefix else w.target.start) for w in windows]
        opened = cls(index, document, cut.kept, source, windows, given, sequential_windows=sequential_windows)
        if first_pass is not None:
            opened.first_pass = [SentenceHypothesis(tuple(first_pass[j])) for j in cut.kept]
        for number, sentences in enumerate(given):
            awaited = sentences if first_pass is None else ()
            for j in awaited:
                opened._waiting.setdefault(j, []).append(number)
            opened._missing.append(len(awaited) + (number % sequential_windows > 0))
        opened.ready = [number for number, missing in enumerate(opened._missing) if not missing]
        return opened

    @property
    def done(self) -> bool:
        """Whether every window has been searched."""
        return len(self._found) == len(self.windows)

    def context(self, number: int) -> list[SentenceHypothesis]:
        """The given target sentences of a window, as they were written."""
        if self.first_pass is not None:
            return [self.first_pass[j] for j in self.given[number]]
        return [self._current[j] for j in self.given[number]]

    def instance(self, number: int, target: bool = False) -> Instance:
        """A window as a row of a batch; `target`: with what it wrote, after the context that it was given."""
        window = self.windows[number]
        found = self._found[number] if target else []
        source = [self.source[j] for j in window.source]
        return Instance(self.index, window, source, [sentence.tokens for sentence in found])

    def asked(self, number: int) -> range:
        """The target sentences that a window writes."""
        return self.windows[number].target[len(self.given[number]) :]

    def write(self, number: int, written: Sequence[SentenceHypothesis]) -> None:
        """Note what a window wrote, an entry per sentence asked; windows that waited for it become ready."""
        window = self.windows[number]
        self._found[number] = [*self.context(number), *written]
        for j in window.current:
            self._current[j] = self._found[number][j - window.target.start]
            for later in self._waiting.get(j, ()):
                self._less_missing(later)
        if (number + 1) % self.sequential_windows and number + 1 < len(self.windows):
            self._less_missing(number + 1)

    def _less_missing(self, number: int) -> None:
        self._missing[number] -= 1
        if not self._missing[number]:
            self.ready.append(number)

    def sentences(self) -> list[SentenceHypothesis]:
        """The whole document, sentences without a token too."""
        written = join(self.windows, [self._found[i] for i in range(len(self.windows))])
        whole = [SentenceHypothesis(())] * len(self.document.sentences)
        for index, sentence in zip(self.kept, written, strict=True):
            whole[index] = sentence
        return whole
