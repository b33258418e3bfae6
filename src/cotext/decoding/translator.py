"""Documents in, documents out: which sentence is translated when, and in what context.

    independent   every window alone: the sentence view, pieces of documents written whole, source context
                  alone, and `regenerate`, which writes whole windows
    prefix        sentence after sentence; the translations already made are forced as target context: windows
                  with target context, and pieces of documents whose sentences are searched by themselves

What a window takes from earlier translations is given to it; it is searched as soon as that is there.
Documents are open side by side and fill one batch; a document that ends makes room for the next. A document's
translation depends on that document alone.

Another system may translate every document first: its translations then are the target context, and no window
waits for one. Windows that see each other (`window_groups.py`) are searched one after the other, each
beside the others of its group, or all of a group at once.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from cotext.config.recipe import Config
from cotext.data.batch import Instance
from cotext.data.batching import pack
from cotext.data.collate import source_batch
from cotext.data.documents import Document
from cotext.data.tokenizer import Tokenizer
from cotext.decoding.beam_search import Hypothesis
from cotext.decoding.constraints import SearchRequest, SearchSymbols
from cotext.decoding.document_state import OpenDocument, SentenceHypothesis
from cotext.decoding.plan import DecodingPlan
from cotext.decoding.scorer import DocumentScorer
from cotext.decoding.sentence_recovery import recover
from cotext.decoding.window_groups import source_of
from cotext.models.interface import Model
from cotext.runtime.errors import CotextError

BATCHES_AHEAD = 4


@dataclass(frozen=True, slots=True)
class Translation:
    """One translated document and what is to be known about it.

    `log_probabilities` has one entry per sentence, of the tokens that were written for it, the symbol that
    closes it included; `tokens` counts these. Sentences are counted from 0: `cut` are those that the length
    limit closed, `long` those that are longer than any the model was trained on, `shed` those that had less
    context than the view asks for, as their windows would not have fitted into `view.max_tokens`, `missing`,
    possible in free search alone, those that the model left without text, and `otherwise` those whose text
    the tokenizer splits into other subwords than were written: a score of the text is not that of what was
    written for these, nor for sentences in whose context they stand. `pieces` has, of every window that was
    written (of the document view, a sub-document), whether it was recovered: no current sentence is missing,
    and the model wrote exactly as many as it was asked for, in order.
    """

    document: Document
    log_probabilities: tuple[float, ...]
    truncated: tuple[int, ...] = ()
    long: tuple[int, ...] = ()
    shed: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    pieces: tuple[bool, ...] = (True,)
    tokens: tuple[int, ...] = ()
    resegmented: tuple[int, ...] = ()

    @property
    def recovered(self) -> bool:
        """Whether every piece was."""
        return all(self.pieces)


@dataclass(frozen=True, slots=True)
class _Row:
    """A window about to be searched."""

    cost: int  # places that its beams take in a batch
    document: OpenDocument
    number: int  # of the window in its document
    instance: Instance
    request: SearchRequest


class DocumentTranslator(DocumentScorer):
    """Translates and scores documents with one model; `config` says how.

    `first_pass` translates every document before, in its own way; `name` is what signatures of systems call
    this one whose first pass it is.

    Raises:
        CotextError: as `DecodingPlan.of`.
    """

    def __init__(
        self,
        model: Model,
        config: Config,
        tokenizer: Tokenizer,
        device: torch.device,
        first_pass: "DocumentTranslator | None" = None,
        name: str = "unnamed",
    ) -> None:
        before = None if first_pass is None else first_pass.plan
        plan = DecodingPlan.of(config, tokenizer, model, before, name)
        super().__init__(model, config, tokenizer, device, plan)
        self.first_pass = first_pass

    def check(self, documents: Iterable[Document]) -> int:
        """Count sentences; refuse a document that could not be translated before any work is done.

        Raises:
            CotextError: a sentence longer than `decode.max_source_tokens`, here or in the first pass; else as
                `DecodingPlan.check_passes`.
        """
        self.plan.check_passes()
        sentences = 0
        for document in documents:
            if self.first_pass is not None:
                self._check_first_pass(self.first_pass, document)
            self._encoded(document.id, document.sentences)
            sentences += len(document.sentences)
        return sentences

    def translate(
        self, documents: Iterable[Document], on_sentences: Callable[[int], None] = lambda count: None
    ) -> Iterator[tuple[int, Translation]]:
        """Translate documents; yields each with its place in the input as soon as it is complete.

        Raises:
            CotextError: as `check`.
        """
        self.plan.check_passes()
        waiting = self._after_first_pass(documents)
        open_documents: list[OpenDocument] = []
        # Several batches' worth, so that sentences of like length find each other.
        wanted = max(1, BATCHES_AHEAD * self.config.decode.max_tokens // self.plan.options.beam)
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

    @cached_property
    def _non_content_ids(self) -> tuple[int, ...]:
        """The pieces that show nothing alone, but may together: single bytes of a character."""
        return tuple(i for i in range(self.tokenizer.pieces) if not self.tokenizer.decode([i]))

    def _check_first_pass(self, first_pass: "DocumentTranslator", document: Document) -> None:
        try:
            first_pass.check([document])
        except CotextError as error:
            raise CotextError(f"decode.first_pass = {self.config.decode.first_pass}: {error}") from None

    def _after_first_pass(
        self, documents: Iterable[Document]
    ) -> Iterator[tuple[int, Document, Sequence[str] | None]]:
        """Documents with their place in the input and, where there is a first pass, what it wrote."""
        if self.first_pass is None:
            yield from ((index, document, None) for index, document in enumerate(documents))
            return
        read: dict[int, Document] = {}

        def noted() -> Iterator[Document]:
            for index, document in enumerate(documents):
                read[index] = document
                yield document

        for index, translation in self.first_pass.translate(noted()):
            yield index, read.pop(index), translation.document.sentences

    def _opened(self, index: int, document: Document, first_pass: Sequence[str] | None) -> OpenDocument:
        source = self._encoded(document.id, document.sentences)
        before = None if first_pass is None else self.tokenizer.encode_batch(first_pass)
        return OpenDocument.start(
            index,
            document,
            source,
            self.plan.searched_view,
            self.plan.forces_prefix,
            before,
            self.plan.sequential_windows,
        )

    def _ready_tokens(self, opened: OpenDocument) -> int:
        beside = self.plan.symbols.per_source_sentence
        return sum(len(opened.source[j]) + beside for n in opened.ready for j in opened.windows[n].source)

    def _advance(self, open_documents: Sequence[OpenDocument], on_sentences: Callable[[int], None]) -> None:
        """Translate all ready windows of the open documents, longest first."""
        rows: list[_Row] = []
        for opened in open_documents:
            rows += [self._row(opened, number) for number in opened.ready]
            opened.ready = []
        together = self._together(rows)
        # Longest last, then first: what does not fit into memory fails at once.
        together.sort(
            key=lambda group: max((r.cost, r.instance.source_tokens(self.plan.symbols)) for r in group)
        )
        costs = [[row.cost for row in group] for group in together]
        for groups in reversed(pack(costs, self.config.decode.max_tokens)):
            self._translate_batch([row for g in groups for row in together[g]], on_sentences)

    def _together(self, rows: Sequence[_Row]) -> list[list[_Row]]:
        """The rows that must share a batch: those of a group that is not written in turn."""
        if self.plan.sequential_windows == self.plan.group_windows:
            return [[row] for row in rows]
        groups: dict[tuple[int, int], list[_Row]] = {}
        for row in rows:
            groups.setdefault((row.document.index, row.number // self.plan.group_windows), []).append(row)
        return list(groups.values())

    def _translate_batch(self, batch: Sequence[_Row], on_sentences: Callable[[int], None]) -> None:
        """Write the windows of a batch; constrained, none shows nothing for a current sentence."""
        blank: list[_Row] = []
        for row, hypothesis in zip(batch, self._search(batch, self.plan.search_symbols), strict=True):
            if self.plan.options.align == "constrained" and not self._shows(row, hypothesis):
                blank.append(row)
            else:
                self._write(row, hypothesis)
        # Bytes that form no character: once more, with pieces that show something by themselves, each beside
        # what those before it have written.
        for row in sorted(blank, key=lambda row: row.number):
            [hypothesis] = self._search([row], replace(self.plan.search_symbols, blank=self._non_content_ids))
            self._write(row, hypothesis)
        on_sentences(sum(len(row.instance.window.current) for row in batch))

    def _write(self, row: _Row, hypothesis: Hypothesis) -> None:
        written, exact = self._recovered(row, hypothesis)
        if not exact:
            row.document.inexact.add(row.number)
        row.document.write(row.number, written)

    def _row(self, opened: OpenDocument, number: int) -> _Row:
        instance = opened.instance(number)
        request = self._request(opened, number)
        # Half of the limit is a generous guess at how much will be written.
        cost = instance.source_tokens(self.plan.symbols) + len(request.prefix) + sum(request.max_tokens) // 2
        return _Row(cost * self.plan.options.beam, opened, number, instance, request)

    def _request(self, opened: OpenDocument, number: int) -> SearchRequest:
        """The sentences of a window after those that are given."""
        decode, window = self.config.decode, opened.windows[number]
        first = window.target.start - window.source.start
        prefix: list[int] = []
        for k, sentence in enumerate(opened.context(number), start=first):
            prefix += (*sentence.tokens, self.plan.symbols.separator(k))
        limits = (int(decode.max_ratio * len(opened.source[j])) for j in opened.asked(number))
        # Every sentence takes a word and what closes it, whatever the limit.
        most = tuple(max(limit + decode.max_extra, 2) for limit in limits)
        return SearchRequest(prefix, first, most, window.source.start)

    def _search(self, batch: Sequence[_Row], symbols: SearchSymbols) -> list[Hypothesis]:
        if self.plan.sees_other_rows:
            windows = [(row.document, row.number) for row in batch]
            source = source_of(windows, self.plan.group_windows, self.plan.symbols)
        else:
            source = source_batch([row.instance for row in batch], self.plan.symbols)
        requests = [row.request for row in batch]
        return self.plan.kind.search(self.model, source.to(self.device), requests, symbols, self.plan.options)

    def _shows(self, row: _Row, hypothesis: Hypothesis) -> bool:
        """Whether every current sentence holds a visible character."""
        written, _ = self._recovered(row, hypothesis)
        asked = row.document.asked(row.number)
        return all(
            self.tokenizer.decode(written[j - asked.start].tokens) for j in row.instance.window.current
        )

    def _recovered(self, row: _Row, hypothesis: Hypothesis) -> tuple[list[SentenceHypothesis], bool]:
        """What was written for each sentence asked, and whether it came exactly as asked."""
        request, window = row.request, row.instance.window
        asked = row.document.asked(row.number)
        labels = [*hypothesis.tokens, self.plan.symbols.eos]
        first = request.first_sentence + request.closed_before(self.plan.search_symbols)
        recovered = recover(
            labels, self.plan.symbols, len(asked), first, from_end=window.current.start > asked.start
        )
        closing = {*self.plan.symbols.separators, self.plan.symbols.eos}
        tokens: list[list[int]] = [[] for _ in asked]
        log_probabilities = [0.0] * len(asked)
        labels_of = Counter(recovered.sentence)
        for k, label, log_probability in zip(
            recovered.sentence, labels, hypothesis.token_log_probabilities, strict=True
        ):
            log_probabilities[k] += log_probability
            if label not in closing:
                tokens[k].append(label)
        cut = {recovered.sentence[place] for place in hypothesis.truncated}
        written = [
            SentenceHypothesis(tuple(t), p, k in cut, labels_of[k])
            for k, (t, p) in enumerate(zip(tokens, log_probabilities, strict=True))
        ]
        return written, recovered.exact

    def _translation(self, opened: OpenDocument) -> Translation:
        written = opened.sentences()
        sentences = tuple(self.tokenizer.decode(sentence.tokens) for sentence in written)
        longest = self.config.view.max_tokens - self.plan.symbols.per_source_sentence
        missing = tuple(j for j in opened.kept if not sentences[j])
        as_text = self.tokenizer.encode_batch(sentences)
        return Translation(
            document=Document(opened.document.id, sentences),
            log_probabilities=tuple(sentence.log_probability for sentence in written),
            truncated=tuple(j for j, sentence in enumerate(written) if sentence.truncated),
            long=tuple(
                j for j, tokens in zip(opened.kept, opened.source, strict=True) if len(tokens) > longest
            ),
            shed=tuple(opened.kept[j] for window in opened.windows if window.shed for j in window.current),
            missing=missing,
            pieces=tuple(
                number not in opened.inexact and all(sentences[opened.kept[j]] for j in window.current)
                for number, window in enumerate(opened.windows)
            ),
            tokens=tuple(sentence.labels for sentence in written),
            resegmented=tuple(j for j in opened.kept if tuple(as_text[j]) != written[j].tokens),
        )
