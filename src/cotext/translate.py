"""Documents in, documents out: which sentence is translated when, and in what context.

    independent   every window alone: the sentence view, and `regenerate`, which writes whole windows
    prefix        sentence after sentence; the translations already made are forced as target context

What a window takes from earlier translations is `given`; it is searched as soon as that is there. Documents
are open side by side and fill one batch; a document that ends makes room for the next. A document's
translation depends on that document alone.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch

from cotext.config import Config
from cotext.data.batch import Instance, source_batch
from cotext.data.documents import Document, ParallelDocument
from cotext.data.sampling import pack
from cotext.data.tokenizer import Tokenizer
from cotext.data.views import Window, join
from cotext.errors import CotextError
from cotext.models.base import AutoregressiveModel
from cotext.scoring import SentenceScore, require_finite, score_instances
from cotext.search import Hypothesis, Request, SearchOptions, SearchSymbols, search
from cotext.systems import build_view, special_symbols

BATCHES_AHEAD = 4


@dataclass(frozen=True, slots=True)
class Translation:
    """One translated document and what is to be known about it.

    `log_probabilities` has one entry per sentence, of the tokens that were written for it: with `regenerate`
    that is its whole window. `cut` lists sentences (counted from 0) that the length limit closed, and
    `long` those that are longer than any the model was trained on.
    """

    document: Document
    log_probabilities: tuple[float, ...]
    cut: tuple[int, ...] = ()
    long: tuple[int, ...] = ()


@dataclass(slots=True)
class _Open:
    """A document being translated.

    `given` holds, per window, the target sentences that are not written with it but taken from before.
    """

    index: int
    document: Document
    source: list[list[int]]
    windows: list[Window]
    given: list[range]
    ready: list[int] = field(default_factory=list)  # windows that can be searched now
    hypotheses: dict[int, list[list[int]]] = field(default_factory=dict)  # per window, per target sentence
    found: dict[int, Hypothesis] = field(default_factory=dict)  # per window that was searched

    @property
    def done(self) -> bool:
        return len(self.hypotheses) == len(self.windows)

    @property
    def ready_tokens(self) -> int:
        return sum(len(self.source[j]) + 1 for number in self.ready for j in self.windows[number].source)

    def context(self, number: int) -> list[list[int]]:
        """The given target sentences of a window, as they were written."""
        # A window per sentence (the views' law), and its current sentence is the last that it writes.
        return [self.hypotheses[j][-1] for j in self.given[number]]

    def write(self, number: int, hypothesis: list[list[int]]) -> None:
        """Note the target sentences of a window; windows that waited for nothing else become ready."""
        self.hypotheses[number] = hypothesis
        for later in range(number + 1, len(self.windows)):
            if self.windows[later].target.start > number:
                break
            if number in self.given[later] and all(j in self.hypotheses for j in self.given[later]):
                self.ready.append(later)


@dataclass(frozen=True, slots=True)
class _Row:
    """A window about to be searched."""

    cost: int  # places that its beams take in a batch
    document: _Open
    number: int  # of the window in its document
    instance: Instance
    request: Request

    def answer(self, hypothesis: Hypothesis, separator: int) -> list[list[int]]:
        """The target sentences of the window, forced context included."""
        return _split_at([*self.request.prefix, *hypothesis.tokens], separator)


class DocumentTranslator:
    """Translates and scores documents with one model; `config` says how."""

    def __init__(
        self, model: AutoregressiveModel, config: Config, tokenizer: Tokenizer, device: torch.device
    ) -> None:
        self.model = model
        self.config = config
        self.tokenizer = tokenizer
        self.device = device
        self.view = build_view(config.view)
        self.symbols = special_symbols(tokenizer)
        self.options = SearchOptions(config.decode.beam, config.decode.length_penalty)
        self.search_symbols = SearchSymbols(
            pad=tokenizer.pad,
            bos=tokenizer.bos,
            eos=tokenizer.eos,
            sep=tokenizer.sep,
            unk=tokenizer.unk,
            blank=tuple(tokenizer.blank()),
        )

    @property
    def signature(self) -> str:
        """How documents are decoded, for reports."""
        view, decode = self.config.view, self.config.decode
        seen = "sentence" if view.kind == "sentence" else f"window-{view.before}+1+{view.after}"
        context = "" if view.kind == "sentence" else f"|target:{decode.target_context}"
        return f"view:{seen}|beam:{decode.beam}|lp:{decode.length_penalty:g}{context}"

    def check(self, documents: Iterable[Document]) -> int:
        """Count sentences; refuse a document that could not be translated before any work is done.

        Raises:
            CotextError: a sentence longer than `decode.max_source_tokens`.
        """
        sentences = 0
        for document in documents:
            for number, tokens in enumerate(self.tokenizer.encode_batch(document.sentences)):
                self._check_length(document, number, len(tokens))
            sentences += len(document.sentences)
        return sentences

    def translate(
        self, documents: Iterable[Document], on_sentences: Callable[[int], None] = lambda count: None
    ) -> Iterator[tuple[int, Translation]]:
        """Translate documents; yields each with its place in the input as soon as it is complete."""
        waiting = enumerate(documents)
        open_documents: list[_Open] = []
        # Several batches' worth, so that sentences of like length find each other.
        wanted = max(1, BATCHES_AHEAD * self.config.decode.max_tokens // self.options.beam)
        while True:
            ready = sum(opened.ready_tokens for opened in open_documents)
            while ready < wanted and (entry := next(waiting, None)) is not None:
                open_documents.append(self._opened(*entry))
                ready += open_documents[-1].ready_tokens
            if not open_documents:
                return
            self._advance(open_documents, on_sentences)
            for finished in [d for d in open_documents if d.done]:
                yield finished.index, self._translation(finished)
            open_documents = [d for d in open_documents if not d.done]

    def score(self, documents: Sequence[ParallelDocument]) -> list[list[SentenceScore]]:
        """Score every sentence of every document in its context."""
        instances = [self._scored_instances(i, d, range(len(d.source))) for i, d in enumerate(documents)]
        scores = iter(self._score([i for group in instances for i in group]))
        return [[next(scores) for _ in group] for group in instances]

    def score_sentences(
        self, documents: Sequence[tuple[ParallelDocument, Sequence[int]]]
    ) -> list[SentenceScore]:
        """Score the chosen sentences of every document in their context, and add them up per document."""
        groups = [self._scored_instances(i, d, chosen) for i, (d, chosen) in enumerate(documents)]
        scores = iter(self._score([i for group in groups for i in group]))
        totals = []
        for group in groups:
            members = [next(scores) for _ in group]
            log_probability = sum(s.log_probability for s in members)
            totals.append(SentenceScore(log_probability, sum(s.tokens for s in members)))
        return totals

    def _score(self, instances: Sequence[Instance]) -> list[SentenceScore]:
        budget = self.config.decode.max_tokens
        scores = score_instances(self.model, instances, self.symbols, budget, self.device)
        require_finite(scores)
        return scores

    def _scored_instances(
        self, index: int, document: ParallelDocument, chosen: Sequence[int]
    ) -> list[Instance]:
        source = self.tokenizer.encode_batch(document.source)
        target = self.tokenizer.encode_batch(document.target)
        windows = self.view.split([len(s) for s in source], [len(s) for s in target])
        return [
            Instance(index, w, [source[j] for j in w.source], [target[j] for j in w.target])
            for w in windows
            if any(j in chosen for j in w.current)
        ]

    @cached_property
    def _silent(self) -> tuple[int, ...]:
        """The pieces that show nothing alone, but may together: single bytes of a character."""
        return tuple(i for i in range(self.tokenizer.pieces) if not self.tokenizer.decode([i]))

    def _opened(self, index: int, document: Document) -> _Open:
        source = self.tokenizer.encode_batch(document.sentences)
        for number, tokens in enumerate(source):
            self._check_length(document, number, len(tokens))
        windows = self.view.split([len(s) for s in source], [])
        given = [self._given(window, source) for window in windows]
        ready = [number for number, sentences in enumerate(given) if not sentences]
        return _Open(index, document, source, windows, given, ready)

    def _given(self, window: Window, source: Sequence[Sequence[int]]) -> range:
        """The target sentences that a window takes from before: all its context, or with `regenerate` none.

        Search leaves no sentence empty, so that an empty one in the context, and what stands before it, is
        given even then.
        """
        first, current = window.target.start, window.current.start
        if not any(source[j] for j in window.current):
            return range(first, first)
        if self.config.decode.target_context == "prefix":
            return range(first, current)
        return range(first, 1 + max((j for j in range(first, current) if not source[j]), default=first - 1))

    def _check_length(self, document: Document, number: int, tokens: int) -> None:
        limit = self.config.decode.max_source_tokens
        if tokens > limit:
            raise CotextError(
                f"document {document.id}, sentence {number + 1}: {tokens} tokens, at most {limit} are taken; "
                f"split it, or raise decode.max_source_tokens (the model was trained on up to "
                f"{self.config.view.max_tokens} tokens)"
            )

    def _advance(self, open_documents: Sequence[_Open], on_sentences: Callable[[int], None]) -> None:
        """Translate all ready windows of the open documents, longest first."""
        rows: list[_Row] = []
        for opened in open_documents:
            numbers, opened.ready = opened.ready, []
            for number in numbers:
                window = opened.windows[number]
                if any(opened.source[j] for j in window.current):
                    rows.append(self._row(opened, number))
                else:
                    # Nothing to translate: an empty sentence stays one.
                    opened.write(number, [[] for _ in window.target])
                    on_sentences(len(window.current))
        rows.sort(key=lambda row: (row.cost, row.instance.source_tokens))
        groups = pack([row.cost for row in rows], self.config.decode.max_tokens)
        for group in reversed(groups):  # longest first: what does not fit into memory fails at once
            batch = [rows[i] for i in group]
            for row, hypothesis in zip(batch, self._search(batch), strict=True):
                row.document.found[row.number] = hypothesis
                row.document.write(row.number, row.answer(hypothesis, self.tokenizer.sep))
                on_sentences(len(row.instance.window.current))

    def _row(self, opened: _Open, number: int) -> _Row:
        window = opened.windows[number]
        instance = Instance(opened.index, window, [opened.source[j] for j in window.source], [])
        request = self._request(opened, number)
        # Half of the limit is a generous guess at how much will be written.
        cost = instance.source_tokens + len(request.prefix) + request.max_tokens // 2
        return _Row(cost * self.options.beam, opened, number, instance, request)

    def _request(self, opened: _Open, number: int) -> Request:
        """The sentences of a window after those that are given."""
        decode, window = self.config.decode, opened.windows[number]
        context = opened.context(number)
        written = window.target[len(context) :]
        limit = int(decode.max_ratio * sum(len(opened.source[j]) for j in written))
        return Request(
            prefix=[token for sentence in context for token in (*sentence, self.tokenizer.sep)],
            first_sentence=window.target.start - window.source.start,
            sentences=len(written),
            # Every sentence takes a word and what closes it, whatever the limit.
            max_tokens=max(limit + decode.max_extra * len(written), 2 * len(written)),
        )

    def _search(self, batch: Sequence[_Row]) -> list[Hypothesis]:
        """The hypotheses of a batch; none shows nothing for the current sentence."""

        def found(rows: Sequence[_Row], symbols: SearchSymbols) -> list[Hypothesis]:
            source = source_batch([row.instance for row in rows], self.symbols).to(self.device)
            return search(self.model, source, [row.request for row in rows], symbols, self.options)

        hypotheses = found(batch, self.search_symbols)
        for i, row in enumerate(batch):
            if not self._shows(row, hypotheses[i]):
                # Bytes that form no character: once more, with a piece that shows something by itself.
                hypotheses[i] = found([row], replace(self.search_symbols, blank=self._silent))[0]
        return hypotheses

    def _shows(self, row: _Row, hypothesis: Hypothesis) -> bool:
        window, sentences = row.instance.window, row.answer(hypothesis, self.tokenizer.sep)
        return all(
            self.tokenizer.decode(sentences[j - window.target.start]) or not row.document.source[j]
            for j in window.current
        )

    def _translation(self, opened: _Open) -> Translation:
        hypotheses = [opened.hypotheses[i] for i in range(len(opened.windows))]
        sentences = [self.tokenizer.decode(tokens) for tokens in join(opened.windows, hypotheses)]
        limit = self.config.view.max_tokens
        return Translation(
            document=Document(opened.document.id, tuple(sentences)),
            log_probabilities=tuple(
                opened.found[i].log_probability if i in opened.found else 0.0
                for i in range(len(opened.windows))
            ),
            cut=tuple(i for i in sorted(opened.found) if not opened.found[i].complete),
            long=tuple(i for i, tokens in enumerate(opened.source) if len(tokens) >= limit),
        )


def _split_at(labels: Sequence[int], separator: int) -> list[list[int]]:
    """Cut labels into sentences at the separators."""
    sentences: list[list[int]] = [[]]
    for label in labels:
        if label == separator:
            sentences.append([])
        else:
            sentences[-1].append(label)
    return sentences
