"""Translation of documents: when each window is searched, and with which target context.

    independent   no window waits for another: the sentence view, whole pieces of documents, source context
                  alone, and `regenerate`, which searches whole windows
    prefix        finished translations are the forced prefix of later windows: windows with target context,
                  and pieces of documents whose sentences are searched one by one

A window is searched as soon as its forced prefix is finished. Several documents are open together and fill
one batch; when one is finished, the next is opened. The translation of a document depends on that document
alone.

With a first pass, another system translates every document before; its translations are the target context,
and no window waits. Windows that see each other (`window_groups.py`) are searched one after the other, with
the others of their group as extra rows, or all of a group together.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch

from cotext.config.decoding import DecodeConfig
from cotext.config.recipe import Config
from cotext.data.batch import Instance
from cotext.data.batching import pack
from cotext.data.collate import source_batch
from cotext.data.documents import Document
from cotext.data.tokenizer import Tokenizer, choose_languages, require_languages
from cotext.decoding.beam_search import Hypothesis
from cotext.decoding.constraints import SearchRequest, SearchSymbols
from cotext.decoding.document_state import OpenDocument, SentenceHypothesis, WindowLog
from cotext.decoding.found_sentences import found_sentences
from cotext.decoding.lexical_requests import constrained, constrained_anew
from cotext.decoding.lexical_search import search_width
from cotext.decoding.plan import DecodingPlan
from cotext.decoding.scorer import DocumentScorer
from cotext.decoding.spelling import Spelling
from cotext.decoding.substitution import Draft, Substitution
from cotext.decoding.window_groups import source_of
from cotext.files.guide import Guide
from cotext.models.interface import Engine, Model
from cotext.runtime.errors import CotextError

BATCHES_AHEAD = 4


@dataclass(frozen=True, slots=True)
class Translation:
    """One translated document, with scores and what is remarkable about its sentences.

    `log_probabilities` has one entry per sentence: of its output tokens and the symbol that closes it, which
    `tokens` counts. Other fields hold indices of sentences, from 0:

        truncated     `eos` or a separator was forced at the length limit
        long          the source is longer than any that the model was trained on
        shed          with less context than the view has, to keep the window within `view.max_tokens`
        missing       without text, possible in free search alone
        resegmented   the tokenizer splits the text into other subwords than the output had: scores of the
                      text differ for these, and for sentences in whose context they are

    `pieces` says of every window (in the document view, every sub-document) whether it was recovered: no
    current sentence is missing, and the output had exactly the sentences requested, in order.
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
        """Whether every piece was recovered."""
        return all(self.pieces)


@dataclass(frozen=True, slots=True)
class _Row:
    """A window about to be searched."""

    width: int  # of its beam
    tokens: int  # that each hypothesis takes in a batch
    source_tokens: int
    document: OpenDocument
    number: int  # of the window in its document
    instance: Instance
    request: SearchRequest


def _speaking(tokenizer: Tokenizer, decode: DecodeConfig) -> Tokenizer:
    """The tokenizer for the languages that are asked for, or else those that it comes with."""
    try:
        chosen = choose_languages(tokenizer, decode.source_language, decode.target_language)
    except CotextError as error:
        raise CotextError(f"decode.source_language and decode.target_language: {error}") from None
    require_languages(chosen, "decode.source_language and decode.target_language")
    return chosen


class DocumentTranslator(DocumentScorer):
    """A system that translates and scores documents, as its configuration and plan say.

    `first_pass` translates every document before; `name` is that of this system in signatures of others whose
    first pass it is.

    Raises:
        CotextError: no language is chosen of a tokenizer of many, or one that it has no symbol of; else as
            `DecodingPlan.of`.
    """

    def __init__(
        self,
        model: Model | Engine,
        config: Config,
        tokenizer: Tokenizer,
        device: torch.device,
        first_pass: "DocumentTranslator | None" = None,
        name: str = "unnamed",
    ) -> None:
        before = None if first_pass is None else first_pass.plan
        tokenizer = _speaking(tokenizer, config.decode)
        plan = DecodingPlan.of(config, tokenizer, model, before, name)
        super().__init__(model, plan.config, tokenizer, device, plan)
        self.first_pass = first_pass

    @property
    def takes_guides(self) -> bool:
        """Whether search keeps lexical constraints: of autoregressive models, where it is constrained."""
        return self.plan.kind.lexical and self.plan.options.align == "constrained"

    def check(self, documents: Iterable[Document]) -> int:
        """The number of sentences, all of which can be translated.

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
        self,
        documents: Iterable[Document],
        on_sentences: Callable[[int], None] = lambda count: None,
        guide: Guide | None = None,
        taken: Mapping[int, Mapping[int, str]] | None = None,
        log: WindowLog | None = None,
    ) -> Iterator[tuple[int, Translation]]:
        """Translations, each with the index of its document in the input, as soon as they are complete.

        `on_sentences` is called with the number of sentences that were finished; `guide` has the lexical
        constraints of sentences, which `takes_guides` says whether this system can keep. `taken` are
        translations that are given, by document and sentence: they are not searched, and are target context.
        `log`: the windows found before, and where others are noted, if each is searched by itself.

        Raises:
            CotextError: as `check`, or a guide for a system that takes none.
        """
        self.plan.check_passes()
        if guide is not None and not self.takes_guides:
            raise CotextError(
                "terms and copied text are kept in the search of systems that write from left to right, "
                "with decode.align = constrained: leave the glossary out, or take a run that keeps it"
            )
        waiting = self._after_first_pass(documents, guide)
        open_documents: list[OpenDocument] = []
        # Several batches' worth, so that windows of like length can share a batch.
        wanted = max(1, BATCHES_AHEAD * self.config.decode.max_tokens // self.plan.options.beam)
        while True:
            ready = sum(self._ready_tokens(opened) for opened in open_documents)
            while ready < wanted and (entry := next(waiting, None)) is not None:
                open_documents.append(self._opened(*entry, guide))
                if taken and entry[0] in taken:
                    open_documents[-1].take(taken[entry[0]], partial(self.tokenizer.encode, side="target"))
                ready += 1 + self._ready_tokens(open_documents[-1])
                on_sentences(len(entry[1].sentences) - len(open_documents[-1].source))
                if log is not None and self.plan.group_windows == 1:
                    on_sentences(open_documents[-1].keep(log))
            if not open_documents:
                return
            self._advance(open_documents, on_sentences)
            for finished in [d for d in open_documents if d.done]:
                yield finished.index, self._translation(finished)
            open_documents = [d for d in open_documents if not d.done]

    @cached_property
    def _showing_symbols(self) -> SearchSymbols:
        """The symbols of search, with all subwords as blank that decode to an empty string alone.

        Such are single bytes of a character too.
        """
        blank = (i for i in range(self.tokenizer.pieces) if not self.tokenizer.decode([i]))
        return replace(self.plan.search_symbols, blank=tuple(blank))

    def _check_first_pass(self, first_pass: "DocumentTranslator", document: Document) -> None:
        try:
            first_pass.check([document])
        except CotextError as error:
            raise CotextError(f"decode.first_pass = {self.config.decode.first_pass}: {error}") from None

    @cached_property
    def _spelling(self) -> Spelling:
        return Spelling(self.tokenizer)

    @cached_property
    def _substitution(self) -> Substitution:
        return Substitution(self, self._spelling, self._showing_symbols)

    def _after_first_pass(
        self, documents: Iterable[Document], guide: Guide | None
    ) -> Iterator[tuple[int, Document, Sequence[str] | None]]:
        """Documents with their index in the input and, where there is a first pass, its translation."""
        if self.first_pass is None:
            yield from ((index, document, None) for index, document in enumerate(documents))
            return
        read: dict[int, Document] = {}

        def remembered() -> Iterator[Document]:
            for index, document in enumerate(documents):
                read[index] = document
                yield document

        own = guide if self.first_pass.takes_guides else None
        for index, translation in self.first_pass.translate(remembered(), guide=own):
            yield index, read.pop(index), translation.document.sentences

    def _opened(
        self, index: int, document: Document, first_pass: Sequence[str] | None, guide: Guide | None
    ) -> OpenDocument:
        source = self._encoded(document.id, document.sentences)
        before = None if first_pass is None else self.tokenizer.encode_batch(first_pass, side="target")
        return OpenDocument.start(
            index,
            document,
            source,
            self.plan.searched_view,
            self.plan.forces_prefix,
            before,
            self.plan.sequential_windows,
            guide,
            # Of a group that is searched together, no window waits.
            waits=not self.plan.searches_groups,
        )

    def _ready_tokens(self, opened: OpenDocument) -> int:
        symbols = self.plan.symbols.per_source_sentence
        return sum(len(opened.source[j]) + symbols for n in opened.ready for j in opened.windows[n].source)

    def _advance(self, open_documents: Sequence[OpenDocument], on_sentences: Callable[[int], None]) -> None:
        """Translate all ready windows of the open documents, longest first."""
        rows: list[_Row] = []
        for opened in open_documents:
            # A group that is searched together is in one batch, whatever is given of it.
            if opened.taken and not self.plan.searches_groups:
                on_sentences(opened.finish_taken())
            rows += [self._row(opened, number) for number in opened.ready]
            opened.ready = []
        together = self._together(rows)
        # Longest last, then first: what does not fit into memory fails at once.
        together.sort(key=lambda group: max((row.tokens * row.width, row.source_tokens) for row in group))
        widths = [max(row.width for row in group) for group in together]
        # A row is searched as wide as by itself, whatever others have to keep.
        for width in sorted(set(widths)):
            alike = [group for group, own in zip(together, widths, strict=True) if own == width]
            costs = [[row.tokens * width for row in group] for group in alike]
            for groups in reversed(pack(costs, self.config.decode.max_tokens)):
                self._translate_batch([row for g in groups for row in alike[g]], on_sentences)

    def _together(self, rows: Sequence[_Row]) -> list[list[_Row]]:
        """The rows that must share a batch: those of a group that is searched together."""
        if not self.plan.searches_groups:
            return [[row] for row in rows]
        groups: dict[tuple[int, int], list[_Row]] = {}
        for row in rows:
            groups.setdefault((row.document.index, row.number // self.plan.group_windows), []).append(row)
        return list(groups.values())

    def _translate_batch(self, batch: Sequence[_Row], on_sentences: Callable[[int], None]) -> None:
        """Search the windows of a batch; constrained, every current sentence gets a visible character."""
        blank: list[_Row] = []
        drafts: list[Draft] = []
        for row, hypothesis in zip(batch, self._search(batch, self.plan.search_symbols), strict=True):
            found, exact = self._recovered(row, hypothesis)
            if (anew := self._anew(row, found)) is not None:
                row = anew
                [hypothesis] = self._search([row], self.plan.search_symbols)
                found, exact = self._recovered(row, hypothesis)
            if self.plan.options.align == "constrained" and not self._shows(row, found):
                blank.append(row)
            else:
                self._finish(row, found, exact, drafts)
        # Bytes that form no character: searched once more, with subwords that show something by themselves;
        # in document order, as the extra rows of each hold the hypotheses before it.
        for row in sorted(blank, key=lambda row: row.number):
            [hypothesis] = self._search([row], self._showing_symbols)
            self._finish(row, *self._recovered(row, hypothesis), drafts)
        if drafts:
            self._substitution.mend(drafts)
        for draft in drafts:
            draft.opened.finish(draft.number, draft.found)
        on_sentences(sum(len(row.instance.window.current) for row in batch))

    def _finish(self, row: _Row, found: list[SentenceHypothesis], exact: bool, drafts: list[Draft]) -> None:
        """Finish the window of a row, or put it to the drafts, where it was searched without constraints."""
        if row.document.guide is None or self.plan.sees_other_rows:
            row.document.finish(row.number, found, exact)
        else:
            drafts.append(Draft(row.document, row.number, row.instance, row.request, found))

    def _anew(self, row: _Row, found: Sequence[SentenceHypothesis]) -> _Row | None:
        """The row to be searched again, where its sentences decide on each other's constraints."""
        if row.document.guide is None or len(found) == 1 or not self.plan.sees_other_rows:
            return None
        request = constrained_anew(row.request, row.document, row.number, found, self._spelling)
        return None if request is None else replace(row, request=request)

    def _row(self, opened: OpenDocument, number: int) -> _Row:
        instance = opened.instance(number)
        request = self._request(opened, number)
        # Half of the limit is a generous guess at the length of the output.
        source_tokens = instance.source_tokens(self.plan.symbols)
        tokens = source_tokens + len(request.prefix) + sum(request.max_tokens) // 2
        width = search_width(self.plan.options.beam, request.automata)
        return _Row(width, tokens, source_tokens, opened, number, instance, request)

    def _request(self, opened: OpenDocument, number: int) -> SearchRequest:
        """The sentences of a window after its forced prefix."""
        decode, window = self.config.decode, opened.windows[number]
        first = window.target.start - window.source.start
        prefix: list[int] = []
        for k, sentence in enumerate(opened.context(number), start=first):
            prefix += (*sentence.tokens, self.plan.symbols.separator(k))
        limits = (int(decode.max_ratio * len(opened.source[j])) for j in opened.requested(number))
        # Every sentence takes a token and the symbol that closes it, whatever the limit.
        most = tuple(max(limit + decode.max_extra, 2) for limit in limits)
        request = SearchRequest(prefix, first, most, window.source.start)
        if opened.guide is None or not self.plan.sees_other_rows:
            return request
        return constrained(request, opened, number, self._spelling)

    def _search(self, batch: Sequence[_Row], symbols: SearchSymbols) -> list[Hypothesis]:
        if self.plan.sees_other_rows:
            windows = [(row.document, row.number) for row in batch]
            source = source_of(windows, self.plan.group_windows, self.plan.symbols)
        else:
            source = source_batch([row.instance for row in batch], self.plan.symbols)
        requests = [row.request for row in batch]
        return self.plan.kind.search(self.model, source.to(self.device), requests, symbols, self.plan.options)

    def _shows(self, row: _Row, found: Sequence[SentenceHypothesis]) -> bool:
        """Whether every current sentence, of those requested that were found, holds a visible character."""
        requested = row.document.requested(row.number)
        return all(found[j - requested.start].text for j in row.instance.window.current)

    def _recovered(self, row: _Row, hypothesis: Hypothesis) -> tuple[list[SentenceHypothesis], bool]:
        """The hypothesis of each sentence requested, and whether it has exactly these sentences, in order."""
        requested = row.document.requested(row.number)
        from_end = row.instance.window.current.start > requested.start
        symbols, count = self.plan.search_symbols, len(requested)
        return found_sentences(hypothesis, row.request, symbols, self.tokenizer, count, from_end)

    def _translation(self, opened: OpenDocument) -> Translation:
        hypotheses = opened.sentences()
        sentences = tuple(sentence.text for sentence in hypotheses)
        longest = self.config.view.max_tokens - self.plan.symbols.per_source_sentence
        missing = tuple(j for j in opened.kept if not sentences[j])
        as_text = self.tokenizer.encode_batch(sentences, side="target")
        return Translation(
            document=Document(opened.document.id, sentences),
            log_probabilities=tuple(sentence.log_probability for sentence in hypotheses),
            truncated=tuple(j for j, sentence in enumerate(hypotheses) if sentence.truncated),
            long=tuple(
                j for j, tokens in zip(opened.kept, opened.source, strict=True) if len(tokens) > longest
            ),
            shed=tuple(opened.kept[j] for window in opened.windows if window.shed for j in window.current),
            missing=missing,
            pieces=tuple(
                number not in opened.inexact and all(sentences[opened.kept[j]] for j in window.current)
                for number, window in enumerate(opened.windows)
            ),
            tokens=tuple(sentence.labels for sentence in hypotheses),
            resegmented=tuple(j for j in opened.kept if tuple(as_text[j]) != hypotheses[j].tokens),
        )
