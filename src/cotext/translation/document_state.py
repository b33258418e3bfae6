"""A document while it is translated: the windows that can be searched now, and the hypotheses so far.

Sentences without tokens are left out: there is nothing to translate, and nothing that could be context.
Sentence indices count the remaining sentences.
"""

import hashlib
from bisect import insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Protocol

from cotext.data.batch import Instance, RowCache, Source, SpecialSymbols, extra_rows, source_batch
from cotext.data.documents import Document
from cotext.data.nbest_lists import Candidates
from cotext.data.tokenizer import Tokenizer
from cotext.data.views import Encoded, View, cut_document, group_of, join
from cotext.search.constraints import SearchRequest, SearchSymbols, recover
from cotext.search.hypotheses import Hypothesis
from cotext.translation.terms.terms import TermGuide


@dataclass(frozen=True, slots=True)
class SentenceHypothesis:
    """The hypothesis for one sentence; `truncated`: its end was forced at the length limit.

    `text` is the decoded text; `labels` counts the tokens and the closing symbol.
    """

    tokens: tuple[int, ...]
    text: str = ""
    log_probability: float = 0.0
    truncated: bool = False
    labels: int = 0


@dataclass(frozen=True, slots=True)
class FoundWindow:
    """The hypotheses of a window; `exact`: the output had exactly the requested sentences."""

    number: int
    sentences: tuple[SentenceHypothesis, ...]
    exact: bool


class WindowLog(Protocol):
    """A record of finished windows of documents, for jobs that may be interrupted."""

    def found(self, document: int) -> Sequence[FoundWindow]:
        """Return the windows of a document that an interrupted job has finished, in order of finishing."""

    def note(self, document: int, window: FoundWindow) -> None:
        """Record a finished window."""


class OpenDocument:
    """The sentences of a document, its windows, and the hypotheses so far.

    `kept`: index in the document of every sentence. `given`: for each window, the target sentences of its
    forced prefix. They are earlier hypotheses, or those of `first_pass`. A window is ready when the prefix
    exists. In a series of `sequential_windows` windows, the previous window must also be finished.
    """

    def __init__(
        self,
        index: int,
        document: Document,
        tokens: Sequence[list[int]],
        view: View,
        prefix: bool,
        first_pass: Sequence[list[int]] | None = None,
        sequential_windows: int = 1,
        guide: TermGuide | None = None,
    ) -> None:
        """Open a document, given the tokens of its sentences.

        `prefix`: whether translations are forced as target context. These are those of `first_pass` (the
        tokens of a complete translation), or else those of this search.
        """
        self.index, self.document, self.guide = index, document, guide
        self.sequential_windows = sequential_windows
        self.kept, self.windows = cut_document(view, tokens)
        self.source = [tokens[j] for j in self.kept]
        firsts = (w.current.start if prefix else w.target.start for w in self.windows)
        self.given = [range(w.target.start, first) for w, first in zip(self.windows, firsts, strict=True)]
        self.first_pass = (
            None if first_pass is None else [SentenceHypothesis(tuple(first_pass[j])) for j in self.kept]
        )
        self.log: WindowLog | None = None
        self.on_sentence: Callable[[int, str], None] = lambda sentence, text: None  # index in the document
        self.texts: dict[int, str] = {}  # finished sentences, by index in the document
        self.taken: dict[int, SentenceHypothesis] = {}  # given translations
        self.inexact: set[int] = set()  # windows without exactly the sentences requested
        self.others: dict[int, Candidates] = {}  # further translations, with decode.nbest
        self.digest = int(hashlib.sha256("\n".join(document.sentences).encode()).hexdigest(), 16)
        # Hypotheses: per window, of its target sentences; per sentence, from the window where it is current.
        self._found: dict[int, list[SentenceHypothesis]] = {}
        self._current: dict[int, SentenceHypothesis] = {}
        self._caches: dict[range, RowCache] = {}
        # A window waits for the hypotheses of its prefix and, in sequence, for the window before it.
        self._waiting: dict[int, list[int]] = {}  # per sentence, windows that await it
        self._missing: list[int] = []  # per window, number of awaited hypotheses
        for number, sentences in enumerate(self.given):
            awaited = sentences if first_pass is None else ()
            for j in awaited:
                self._waiting.setdefault(j, []).append(number)
            self._missing.append(len(awaited) + (number % sequential_windows > 0))
        self.ready = [number for number, missing in enumerate(self._missing) if not missing]

    def take(
        self, translations: Mapping[int, str], encode: Callable[[str], list[int]], forces: bool = False
    ) -> None:
        """Set the translations of some sentences, by index in the document, before any window is searched.

        They replace the output of search for these sentences. If all sentences of a window are given, it is
        not searched. `forces`: given sentences at the beginning of a chunk that is searched as a whole are
        its forced prefix.
        """
        for j, index in enumerate(self.kept):
            if (text := translations.get(index)) is not None:
                self.taken[j] = SentenceHypothesis(tuple(encode(text)), text)
                if self.first_pass is not None:
                    self.first_pass[j] = self.taken[j]
        for number, window in enumerate(self.windows if forces else ()):
            if window.target == window.current:
                leading = takewhile(self.taken.__contains__, window.target)
                self.given[number] = range(window.target.start, window.target.start + sum(1 for _ in leading))

    def finish_taken(self) -> int:
        """Finish ready windows whose sentences are all given; return the number of current sentences."""
        finished = 0
        while given := [n for n in self.ready if self.taken.keys() >= set(self.requested(n))]:
            self.ready = [n for n in self.ready if n not in given]
            for number in given:  # further windows become ready
                self.finish(number, [self.taken[j] for j in self.requested(number)])
                finished += len(self.windows[number].current)
        return finished

    @property
    def done(self) -> bool:
        return len(self._found) == len(self.windows)

    def is_finished(self, number: int) -> bool:
        return number in self._found

    def has_written(self, number: int, sentences: Sequence[SentenceHypothesis]) -> bool:
        """Whether a finished window has these hypotheses for its requested sentences."""
        own = self._found[number][len(self.given[number]) :]
        return [sentence.tokens for sentence in own] == [sentence.tokens for sentence in sentences]

    def context(self, number: int) -> list[SentenceHypothesis]:
        """Return the hypotheses of the forced prefix of a window."""
        if self.first_pass is not None:
            return [self.first_pass[j] for j in self.given[number]]
        return [self.taken[j] if j in self.taken else self._current[j] for j in self.given[number]]

    def instance(self, number: int, target: bool = False) -> Instance:
        """Return a window as a row of a batch; `target`: include its forced prefix and its hypothesis."""
        window = self.windows[number]
        hypotheses = self._found[number] if target else []
        source = [self.source[j] for j in window.source]
        return Instance(self.index, window, source, [sentence.tokens for sentence in hypotheses])

    def cache(self, number: int) -> RowCache:
        """Return the cache of a window, which windows with the same source share."""
        source = self.windows[number].source
        cache = self._caches.get(source, RowCache())
        if not self.is_finished(number):
            self._caches[source] = cache
        return cache

    def requested(self, number: int) -> range:
        """Return the target sentences of a window that search must find."""
        return self.windows[number].target[len(self.given[number]) :]

    def keep(self, log: WindowLog) -> int:
        """Reuse the finished windows of a log and record further ones; return the number of sentences reused.

        A logged window is searched again if it is not ready yet, or has other sentences.
        """
        sentences = 0
        for window in log.found(self.index):
            if window.number in self.ready and len(window.sentences) == len(self.requested(window.number)):
                self.ready.remove(window.number)
                self.finish(window.number, window.sentences, window.exact)
                sentences += len(self.windows[window.number].current)
        self.log = log
        return sentences

    def finish(self, number: int, hypothesis: Sequence[SentenceHypothesis], exact: bool = True) -> None:
        """Record the hypothesis of a window by sentence; windows that waited for it become ready.

        `exact`: it has exactly the requested sentences.
        """
        window = self.windows[number]
        if self.log is not None:
            self.log.note(self.index, FoundWindow(number, tuple(hypothesis), exact))
        if not exact:
            self.inexact.add(number)
        requested = zip(self.requested(number), hypothesis, strict=True)
        new = (self.taken.get(j, sentence) for j, sentence in requested)
        self._found[number] = [*self.context(number), *new]
        if window.target.stop == window.source.stop:  # no later window has this source
            self._caches.pop(window.source, None)
        for j in window.current:
            self._current[j] = self._found[number][j - window.target.start]
            self.texts[self.kept[j]] = self._current[j].text
            self.on_sentence(self.kept[j], self._current[j].text)
            for later in self._waiting.get(j, ()):
                self._one_less(later)
        # If windows are searched in sequence, the next window of the group has waited for this one.
        if (number + 1) % self.sequential_windows and number + 1 < len(self.windows):
            self._one_less(number + 1)

    def _one_less(self, number: int) -> None:
        self._missing[number] -= 1
        if not self._missing[number]:
            # In order of windows, so that a chunk is finished, and its cache dropped, before another begins.
            insort(self.ready, number)

    def sentences(self) -> list[SentenceHypothesis]:
        """Return the hypotheses of the document, including empty ones for sentences without tokens."""
        joined = join(self.windows, [self._found[i] for i in range(len(self.windows))])
        hypotheses = [SentenceHypothesis(())] * len(self.document.sentences)
        for index, sentence in zip(self.kept, joined, strict=True):
            hypotheses[index] = sentence
        return hypotheses


# --- The sentences of a hypothesis, as text, with their log-probabilities.


def found_sentences(
    hypothesis: Hypothesis,
    request: SearchRequest,
    symbols: SearchSymbols,
    tokenizer: Tokenizer,
    count: int,
    from_end: bool = False,
) -> tuple[list[SentenceHypothesis], bool]:
    """Return the hypotheses of `count` sentences, and whether the output has exactly these, in order.

    `from_end`: if the output has another number of sentences, count them from the end (`recover`).
    """
    special = symbols.special
    closing, labels = {*special.separators, special.eos}, [*hypothesis.tokens, special.eos]
    first = request.first_sentence + request.closed_before(symbols)
    recovered = recover(labels, special, count, first, from_end)
    tokens: list[list[int]] = [[] for _ in range(count)]
    scores: list[list[float]] = [[] for _ in range(count)]
    found = zip(recovered.sentence, labels, hypothesis.token_log_probabilities, strict=True)
    for k, label, log_probability in found:
        scores[k].append(log_probability)
        if label not in closing:
            tokens[k].append(label)
    truncated = {recovered.sentence[i] for i in hypothesis.truncated}
    sentences = [
        SentenceHypothesis(tuple(t), tokenizer.decode(t), sum(p, 0.0), k in truncated, len(p))
        for k, (t, p) in enumerate(zip(tokens, scores, strict=True))
    ]
    return sentences, recovered.exact


# --- Groups of consecutive windows of a document, whose rows attend to each other in batch-level models.
#
#     decode.group_windows = 3     window   0 1 2 | 3 4 5 | 6
#                               group      0   |   1   | 2
#
# Groups never overlap, and the output of a group depends only on that group, so several groups can share a
# batch. The model treats every group as a separate document: its rows have the number of the group instead of
# that of the document.


@dataclass(frozen=True, slots=True)
class Row:
    """A window to search."""

    source_tokens: int
    document: OpenDocument
    number: int  # of the window in its document
    instance: Instance
    request: SearchRequest

    @property
    def current(self) -> Iterator[tuple[int, int]]:
        """The current sentences: index among the kept sentences, and among those requested."""
        requested = self.document.requested(self.number)
        return ((j, j - requested.start) for j in self.instance.window.current if j in requested)

    @property
    def tokens(self) -> int:
        """The tokens of a hypothesis in a batch; half of the limit is a generous estimate of its length."""
        return self.source_tokens + len(self.request.prefix) + sum(self.request.max_tokens) // 2


def source_of(
    windows: Sequence[tuple[OpenDocument, int]], group_windows: int, symbols: SpecialSymbols
) -> Source:
    """Return the source of windows to search, given by number, with the rest of their groups as extra rows.

    Either one window of each group is searched, or all windows.
    """
    here = set(windows)
    ordinals: dict[tuple[OpenDocument, int], int] = {}
    rows: list[Instance] = []
    others: list[Instance] = []
    for opened, number in windows:
        group = group_of(number, len(opened.windows), group_windows)
        # Windows of a group share a number, so their rows attend to each other.
        ordinal = ordinals.setdefault((opened, group.start), len(ordinals))
        rows.append(replace(opened.instance(number), document=ordinal))
        for n in group:
            if (opened, n) not in here:
                # As in training, the target of later windows is hidden.
                others.append(replace(opened.instance(n, target=n < number), document=ordinal))
    source = source_batch(rows, symbols)
    return replace(source, extra_rows=extra_rows(others, symbols)) if others else source


def group_instances(
    row: Row, target: Encoded, current: range, group_windows: int
) -> tuple[list[Instance], int]:
    """Return the group of a window with the translation `target` of its requested sentences, and its index.

    `current`: its sentences to score. As in search, the target of later windows is hidden.
    """
    opened, number = row.document, row.number
    members = []
    group = group_of(number, len(opened.windows), group_windows)
    for n in group:
        instance = opened.instance(n, target=n < number)
        if n == number:
            tokens = [*(sentence.tokens for sentence in opened.context(n)), *target]
            window = replace(instance.window, current=current)
            instance = replace(instance, window=window, target=tokens)
        elif n > number:
            instance = replace(instance, target=[()] * len(instance.window.target))
        members.append(instance)
    return members, number - group.start
