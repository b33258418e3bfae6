"""A document while it is being translated: which of its windows can be searched now, and what they made.

A sentence without a token is no part of it: there is nothing to translate, and nothing that a neighbour could
learn from it. All places here count the sentences that are left.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from cotext.data.batch import Instance
from cotext.data.documents import Document
from cotext.data.views import View, Window, join


@dataclass(frozen=True, slots=True)
class SentenceHypothesis:
    """What the model wrote for one sentence; `cut`: its limit closed it.

    `labels` counts the tokens and, where the model wrote it, the symbol that closes the sentence.
    """

    tokens: tuple[int, ...]
    log_probability: float = 0.0
    cut: bool = False
    labels: int = 0


@dataclass(slots=True)
class OpenDocument:
    """The sentences of a document, the windows that a view makes of them, and what was written so far.

    `given` holds, per window, the target sentences that are not written with it but taken from before: those
    of `first_pass`, where there was one. A window is ready when they are there and, of every `in_turn`
    windows, the one before it is written.
    """

    index: int
    document: Document
    kept: list[int]  # places in the document
    source: list[list[int]]
    windows: list[Window]
    given: list[range]
    first_pass: list[SentenceHypothesis] | None = None  # a translation of the whole, per sentence
    in_turn: int = 1
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
        in_turn: int = 1,
    ) -> "OpenDocument":
        """Cut a document, given the tokens of its sentences; `prefix`: translations become target context.

        These are those of `first_pass`, the tokens of a whole translation, or those made here.
        """
        kept = [j for j, sentence in enumerate(tokens) if sentence]
        source = [tokens[j] for j in kept]
        windows = view.split([len(s) for s in source], [])
        given = [range(w.target.start, w.current.start if prefix else w.target.start) for w in windows]
        opened = cls(index, document, kept, source, windows, given, in_turn=in_turn)
        if first_pass is not None:
            opened.first_pass = [SentenceHypothesis(tuple(first_pass[j])) for j in kept]
        for number, sentences in enumerate(given):
            awaited = sentences if first_pass is None else ()
            for j in awaited:
                opened._waiting.setdefault(j, []).append(number)
            opened._missing.append(len(awaited) + (number % in_turn > 0))
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
        if (number + 1) % self.in_turn and number + 1 < len(self.windows):
            self._less_missing(number + 1)

    def _less_missing(self, number: int) -> None:
        self._missing[number] -= 1
        if not self._missing[number]:
            self.ready.append(number)

    def sentences(self) -> list[SentenceHypothesis]:
        """The whole document, sentences without a token too."""
        written = join(self.windows, [self._found[i] for i in range(len(self.windows))])
        whole = [SentenceHypothesis(())] * len(self.document.sentences)
        for place, sentence in zip(self.kept, written, strict=True):
            whole[place] = sentence
        return whole
