"""Documents in, documents out: which sentence is translated when, and in what context.

    independent   every window alone: the sentence view, pieces of documents written whole, source context
                  alone, and `regenerate`, which writes whole windows
    prefix        sentence after sentence; the translations already made are forced as target context

What a window takes from earlier translations is given to it; it is searched as soon as that is there.
Documents are open side by side and fill one batch; a document that ends makes room for the next. A document's
translation depends on that document alone.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from cotext.config import Config
from cotext.constraints import Request, SearchSymbols, check_align
from cotext.data.batch import Instance, source_batch
from cotext.data.documents import Document, ParallelDocument
from cotext.data.sampling import pack
from cotext.data.tokenizer import Tokenizer
from cotext.errors import CotextError
from cotext.models.base import AutoregressiveModel
from cotext.open_document import OpenDocument, Written
from cotext.recovery import recover
from cotext.scoring import SentenceScore, require_finite, score_instances
from cotext.search import Hypothesis, SearchOptions, search
from cotext.systems import build_view, describe_cut, special_symbols

BATCHES_AHEAD = 4


@dataclass(frozen=True, slots=True)
class Translation:
    """One translated document and what is to be known about it.

    `log_probabilities` has one entry per sentence, of the tokens that were written for it, the symbol that
    closes it included. Sentences are counted from 0: `cut` are those that the length limit closed, `long`
    those that are longer than any the model was trained on, and `missing`, possible in free search alone,
    those that the model left without text. `recovered`: none is missing, and the model wrote exactly as many
    as it was asked for, in order.
    """

    document: Document
    log_probabilities: tuple[float, ...]
    cut: tuple[int, ...] = ()
    long: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    recovered: bool = True


@dataclass(frozen=True, slots=True)
class _Row:
    """A window about to be searched."""

    cost: int  # places that its beams take in a batch
    document: OpenDocument
    number: int  # of the window in its document
    instance: Instance
    request: Request


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
        self.symbols = special_symbols(tokenizer, config.view)
        decode = config.decode
        check_align(decode.align, self.symbols.bracket)
        self.options = SearchOptions(decode.beam, decode.length_penalty, decode.align)
        self.search_symbols = SearchSymbols(
            self.symbols,
            tokenizer.unk,
            blank=tuple(tokenizer.blank()),
            # Brackets have no separator between them.
            unused=(tokenizer.sep,) if self.symbols.bracket else (),
        )

    @property
    def signature(self) -> str:
        """How documents are decoded, for reports."""
        view, decode = self.config.view, self.config.decode
        whole = "" if view.kind == "sentence" else f"-{view.max_tokens}"
        parts = [f"view:{describe_cut(view)}{whole}"]
        if view.kind != "sentence":
            parts.append(f"separators:{view.separators}")
        parts += [f"align:{decode.align}", f"beam:{decode.beam}", f"lp:{decode.length_penalty:g}"]
        parts.append(f"limit:{decode.max_ratio:g}x+{decode.max_extra}")
        if view.kind == "window" and view.target_before != 0:
            parts.append(f"target:{decode.target_context}")
        return "|".join(parts)

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
        open_documents: list[OpenDocument] = []
        # Several batches' worth, so that sentences of like length find each other.
        wanted = max(1, BATCHES_AHEAD * self.config.decode.max_tokens // self.options.beam)
        while True:
            ready = sum(self._ready_tokens(opened) for opened in open_documents)
            while ready < wanted and (entry := next(waiting, None)) is not None:
                open_documents.append(self._opened(*entry))
                ready += 1 + self._ready_tokens(open_documents[-1])
                on_sentences(len(entry[1].sentences) - len(open_documents[-1].source))
            if not open_documents:
                return
            self._advance(open_documents, on_sentences)
            for finished in [d for d in open_documents if d.done]:
                yield finished.index, self._translation(finished)
            open_documents = [d for d in open_documents if not d.done]

    def score(self, documents: Sequence[ParallelDocument]) -> list[list[SentenceScore]]:
        """Score every sentence of every document in its context.

        A sentence that is empty on both sides is no part of its document, as in translation: 0, of 0 tokens.
        """
        return self._score([(document, range(len(document.source))) for document in documents])

    def score_sentences(
        self, documents: Sequence[tuple[ParallelDocument, Sequence[int]]]
    ) -> list[SentenceScore]:
        """Score the chosen sentences of every document in their context, and add them up per document."""
        return [
            SentenceScore(sum(s.log_probability for s in members), sum(s.tokens for s in members))
            for members in self._score(documents)
        ]

    def _score(
        self, documents: Sequence[tuple[ParallelDocument, Sequence[int]]]
    ) -> list[list[SentenceScore]]:
        """The scores of the chosen sentences of every document."""
        scores: list[dict[int, SentenceScore]] = [{} for _ in documents]
        instances: list[Instance] = []
        places: list[list[int]] = []  # per instance, where its current sentences stand in the document
        for index, (document, chosen) in enumerate(documents):
            source = self.tokenizer.encode_batch(document.source)
            target = self.tokenizer.encode_batch(document.target)
            kept = [j for j in range(len(source)) if source[j] or target[j]]
            source, target = [source[j] for j in kept], [target[j] for j in kept]
            wanted = {i for i, j in enumerate(kept) if j in chosen}
            # As translation cuts it, whatever the translation: a score is that of what search would write.
            for w in self.view.split([len(s) for s in source], []):
                if not wanted.isdisjoint(w.current):
                    sides = [source[j] for j in w.source], [target[j] for j in w.target]
                    instances.append(Instance(index, w, *sides))
                    places.append([kept[j] for j in w.current])
        budget = self.config.decode.max_tokens
        found = score_instances(self.model, instances, self.symbols, budget, self.device)
        for instance, current, members in zip(instances, places, found, strict=True):
            require_finite(members)
            scores[instance.document] |= zip(current, members, strict=True)
        empty = SentenceScore(0.0, 0)
        return [[s.get(j, empty) for j in chosen] for s, (_, chosen) in zip(scores, documents, strict=True)]

    @cached_property
    def _silent(self) -> tuple[int, ...]:
        """The pieces that show nothing alone, but may together: single bytes of a character."""
        return tuple(i for i in range(self.tokenizer.pieces) if not self.tokenizer.decode([i]))

    def _opened(self, index: int, document: Document) -> OpenDocument:
        source = self.tokenizer.encode_batch(document.sentences)
        for number, tokens in enumerate(source):
            self._check_length(document, number, len(tokens))
        prefix = self.config.decode.target_context == "prefix"
        return OpenDocument.start(index, document, source, self.view, prefix)

    def _ready_tokens(self, opened: OpenDocument) -> int:
        beside = self.symbols.per_source_sentence
        return sum(len(opened.source[j]) + beside for n in opened.ready for j in opened.windows[n].source)

    def _check_length(self, document: Document, number: int, tokens: int) -> None:
        limit = self.config.decode.max_source_tokens
        if tokens > limit:
            raise CotextError(
                f"document {document.id}, sentence {number + 1}: {tokens} tokens, at most {limit} are taken; "
                f"split it, or raise decode.max_source_tokens (the model was trained on up to "
                f"{self.config.view.max_tokens} tokens)"
            )

    def _advance(self, open_documents: Sequence[OpenDocument], on_sentences: Callable[[int], None]) -> None:
        """Translate all ready windows of the open documents, longest first."""
        rows: list[_Row] = []
        for opened in open_documents:
            rows += [self._row(opened, number) for number in opened.ready]
            opened.ready = []
        rows.sort(key=lambda row: (row.cost, row.instance.source_tokens(self.symbols)))
        groups = pack([row.cost for row in rows], self.config.decode.max_tokens)
        for group in reversed(groups):  # longest first: what does not fit into memory fails at once
            batch = [rows[i] for i in group]
            for row, hypothesis in zip(batch, self._search(batch), strict=True):
                written, exact = self._recovered(row, hypothesis)
                row.document.exact &= exact
                row.document.write(row.number, written)
                on_sentences(len(row.instance.window.current))

    def _row(self, opened: OpenDocument, number: int) -> _Row:
        window = opened.windows[number]
        instance = Instance(opened.index, window, [opened.source[j] for j in window.source], [])
        request = self._request(opened, number)
        # Half of the limit is a generous guess at how much will be written.
        cost = instance.source_tokens(self.symbols) + len(request.prefix) + sum(request.max_tokens) // 2
        return _Row(cost * self.options.beam, opened, number, instance, request)

    def _request(self, opened: OpenDocument, number: int) -> Request:
        """The sentences of a window after those that are given."""
        decode, window = self.config.decode, opened.windows[number]
        first = window.target.start - window.source.start
        prefix: list[int] = []
        for k, sentence in enumerate(opened.context(number), start=first):
            prefix += (*sentence.tokens, self.symbols.separator(k))
        limits = (int(decode.max_ratio * len(opened.source[j])) for j in opened.asked(number))
        # Every sentence takes a word and what closes it, whatever the limit.
        most = tuple(max(limit + decode.max_extra, 2) for limit in limits)
        return Request(prefix, first, most, window.source.start)

    def _search(self, batch: Sequence[_Row]) -> list[Hypothesis]:
        """The hypotheses of a batch; constrained, none shows nothing for a current sentence."""

        def found(rows: Sequence[_Row], symbols: SearchSymbols) -> list[Hypothesis]:
            source = source_batch([row.instance for row in rows], self.symbols).to(self.device)
            return search(self.model, source, [row.request for row in rows], symbols, self.options)

        hypotheses = found(batch, self.search_symbols)
        if self.options.align == "constrained":
            for i, row in enumerate(batch):
                if not self._shows(row, hypotheses[i]):
                    # Bytes that form no character: once more, with pieces that show something by themselves.
                    hypotheses[i] = found([row], replace(self.search_symbols, blank=self._silent))[0]
        return hypotheses

    def _shows(self, row: _Row, hypothesis: Hypothesis) -> bool:
        """Whether every current sentence holds a visible character."""
        written, _ = self._recovered(row, hypothesis)
        asked = row.document.asked(row.number)
        return all(
            self.tokenizer.decode(written[j - asked.start].tokens) for j in row.instance.window.current
        )

    def _recovered(self, row: _Row, hypothesis: Hypothesis) -> tuple[list[Written], bool]:
        """What was written for each sentence asked, and whether it came exactly as asked."""
        request, window = row.request, row.instance.window
        asked = row.document.asked(row.number)
        labels = [*hypothesis.tokens, self.symbols.eos]
        first = request.first_sentence + request.closed_before(self.search_symbols)
        recovered = recover(
            labels, self.symbols, len(asked), first, from_end=window.current.start > asked.start
        )
        closing = {*self.symbols.separators, self.symbols.eos}
        tokens: list[list[int]] = [[] for _ in asked]
        log_probabilities = [0.0] * len(asked)
        for k, label, log_probability in zip(
            recovered.sentence, labels, hypothesis.token_log_probabilities, strict=True
        ):
            log_probabilities[k] += log_probability
            if label not in closing:
                tokens[k].append(label)
        cut = {recovered.sentence[place] for place in hypothesis.cut}
        written = [
            Written(tuple(t), p, k in cut)
            for k, (t, p) in enumerate(zip(tokens, log_probabilities, strict=True))
        ]
        return written, recovered.exact

    def _translation(self, opened: OpenDocument) -> Translation:
        written = opened.sentences()
        sentences = tuple(self.tokenizer.decode(sentence.tokens) for sentence in written)
        longest = self.config.view.max_tokens - self.symbols.per_source_sentence
        missing = tuple(j for j in opened.kept if not sentences[j])
        return Translation(
            document=Document(opened.document.id, sentences),
            log_probabilities=tuple(sentence.log_probability for sentence in written),
            cut=tuple(j for j, sentence in enumerate(written) if sentence.cut),
            long=tuple(
                j for j, tokens in zip(opened.kept, opened.source, strict=True) if len(tokens) > longest
            ),
            missing=missing,
            recovered=opened.exact and not missing,
        )
