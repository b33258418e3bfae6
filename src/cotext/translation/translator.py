"""Translation of documents: when each window is searched, and with which target context.

    independent   no window waits for another: the sentence view, whole pieces of documents, source context
                  alone, and `regenerate`, which searches whole windows
    prefix        finished translations are the forced prefix of later windows: windows with target context,
                  and pieces of documents whose sentences are searched one by one

A window is searched as soon as its forced prefix is finished. Several documents are open together and fill
one batch; when one is finished, the next is opened. The translation of a document depends on that document
alone.

With a first pass, another system translates every document before; its translations are the target context,
and no window waits. Windows that see each other (`document_state.py`) are searched one after the other, with
the others of their group as extra rows, or all of a group together.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Final, Protocol

import torch

from cotext.config.decoding import DecodeConfig
from cotext.config.recipe import Config
from cotext.data.documents import Document
from cotext.data.nbest_lists import Candidate, Candidates
from cotext.data.shortlist import Shortlist, named
from cotext.data.tokenizer import Tokenizer, choose_languages, require_languages
from cotext.models.interface import Engine, Model
from cotext.runtime.errors import CotextError
from cotext.search.guide import Guide
from cotext.translation.document_state import OpenDocument, SentenceHypothesis, WindowLog
from cotext.translation.plan import DecodingPlan
from cotext.translation.scorer import DocumentScorer
from cotext.translation.window_search import RowGroup, WindowSearch

# --- Pools: the documents that a system is translating, which come and go between batches.
#
# Whoever owns a pool decides which windows share its next batch; what is found for a document does not depend
# on that.


class Pool(Protocol):
    """Open documents as `translate` sees them."""

    @property
    def documents(self) -> Sequence[OpenDocument]:
        """The documents that have not left."""
        ...

    def add(self, opened: OpenDocument) -> None:
        """Take up a document, before its first window is searched."""
        ...

    def advance(self, on_sentences: Callable[[int], None]) -> None:
        """Search some of what is ready; the number of sentences that are finished is told as they are.

        While a batch is searched, 0 is told now and then: work goes on.
        """
        ...

    def take_finished(self) -> Sequence[OpenDocument]:
        """The documents whose windows are all searched, which leave."""
        ...

    def close(self) -> None:
        """Give up the documents that are left."""
        ...


class DocumentPool:
    """The documents of one system, and what is ready of each and not searched yet.

    They may be added and removed between any two batches.
    """

    def __init__(self, search: WindowSearch) -> None:
        self._search = search
        self._ready: dict[OpenDocument, dict[RowGroup, None]] = {}

    @property
    def documents(self) -> Sequence[OpenDocument]:
        """The documents, in the order in which they came."""
        return list(self._ready)

    def add(self, opened: OpenDocument) -> None:
        """As `Pool.add`."""
        self._ready[opened] = {}

    def remove(self, opened: OpenDocument) -> None:
        """Give up a document, finished or not; nothing happens where it is not here."""
        self._ready.pop(opened, None)

    def settle(self, opened: OpenDocument) -> int:
        """Finish what is given of a document, as far as it is ready; how many sentences."""
        return self._search.settle(opened)

    def ready(self, opened: OpenDocument, tokens: float = inf) -> list[RowGroup]:
        """The windows of a document that are ready: all, or as many as take so many tokens in a batch."""
        found = self._ready[opened]
        missing = tokens - sum(group.cost for group in found)
        fresh = self._search.groups(opened)
        while missing > 0 and (group := next(fresh, None)) is not None:
            found[group] = None
            missing -= group.cost
        return list(found)

    def waits(self, group: RowGroup) -> bool:
        """Whether a group that was ready has not been searched, and its document is here."""
        return group in self._ready.get(group.document, ())

    def search(
        self, batch: Sequence[RowGroup], on_sentences: Callable[[int], None] = lambda count: None
    ) -> int:
        """Search a batch of windows of one width; the number of sentences that are finished with them.

        `on_sentences` is told after every step how many have ended. Where the search fails, those that were
        finished before are ready no more.
        """
        try:
            return self._search.search(batch, on_sentences)
        finally:
            for group in batch:
                if all(group.document.is_finished(row.number) for row in group.rows):
                    # Whoever owns the pool may have removed the document meanwhile.
                    self._ready.get(group.document, {}).pop(group, None)

    def advance(self, on_sentences: Callable[[int], None]) -> None:
        """Search all that is ready now, in batches of `decode.max_tokens`."""
        for opened in self._ready:
            if settled := self.settle(opened):
                on_sentences(settled)
        groups = [group for opened in self._ready for group in self.ready(opened)]
        for batch in self._search.batches(groups):
            self._advance(batch, on_sentences)

    def _advance(self, batch: Sequence[RowGroup], on_sentences: Callable[[int], None]) -> None:
        """Search a batch; what no step has told is told at the end, as of engines, which take no steps."""
        told = 0

        def on_step(count: int) -> None:
            nonlocal told
            told += count
            on_sentences(count)

        on_sentences(self.search(batch, on_step) - told)

    def take_finished(self) -> list[OpenDocument]:
        """As `Pool.take_finished`."""
        finished = [opened for opened in self._ready if opened.done]
        for opened in finished:
            self.remove(opened)
        return finished

    def close(self) -> None:
        """As `Pool.close`."""
        self._ready.clear()


BATCHES_AHEAD = 4
# Fields of a translation that hold indices of sentences.
OF_SENTENCES: Final = ("truncated", "long", "shed", "missing", "resegmented")


@dataclass(frozen=True, slots=True)
class Translation:
    """One translated document, with scores and what is remarkable about its sentences.

    `log_probabilities` has one entry per sentence: of its output tokens and the symbol that closes it, which
    `tokens` counts; it is empty with `decode.scores = false`. Other fields hold indices of sentences, from 0:

        truncated     `eos` or a separator was forced at the length limit
        long          the source is longer than any that the model was trained on
        shed          with less context than the view has, to keep the window within `view.max_tokens`
        missing       without text, possible in free search alone
        resegmented   the tokenizer splits the text into other subwords than the output had: scores of the
                      text differ for these, and for sentences in whose context they are

    `pieces` says of every window (in the document view, every sub-document) whether it was recovered: no
    current sentence is missing, and the output had exactly the sentences requested, in order. `lists`: with
    `decode.nbest`, the best translations of every sentence, of which the first is that of the document.
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
    lists: tuple[Candidates, ...] = ()

    @property
    def recovered(self) -> bool:
        """Whether every piece was recovered."""
        return all(self.pieces)


def alternatives(translations: Mapping[int, Translation]) -> Iterator[dict[int, Translation]]:
    """The documents with the second best translation of every sentence, then with the third, and so on.

    A sentence with fewer has its best one. Without `lists` there are none.
    """
    most = max((len(each) for found in translations.values() for each in found.lists), default=0)
    for rank in range(1, most):
        yield {
            index: replace(found, document=replace(found.document, sentences=_ranked(found, rank)))
            for index, found in translations.items()
        }


def _ranked(found: Translation, rank: int) -> tuple[str, ...]:
    return tuple((each[rank] if rank < len(each) else each[0]).text for each in found.lists)


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
    first pass it is. `shortlist`: the tokens that sentences may hold, where `decode.shortlist` asks for it.

    Raises:
        CotextError: `decode.shortlist` without a shortlist; no language is chosen of a tokenizer of many, or
            one that it has no symbol of; else as `DecodingPlan.of`.
    """

    def __init__(
        self,
        model: Model | Engine,
        config: Config,
        tokenizer: Tokenizer,
        device: torch.device,
        first_pass: "DocumentTranslator | None" = None,
        name: str = "unnamed",
        shortlist: Shortlist | None = None,
    ) -> None:
        if config.decode.shortlist and shortlist is None:
            raise CotextError(
                f"decode.shortlist = {config.decode.shortlist}: no shortlist was opened with the model; open "
                "the run with cotext.load, or leave it out"
            )
        before = None if first_pass is None else first_pass.plan
        tokenizer = _speaking(tokenizer, config.decode)
        plan = DecodingPlan.of(config, tokenizer, model, before, name)
        super().__init__(model, plan.config, tokenizer, device, plan)
        self.first_pass = first_pass
        self.shortlist = shortlist
        self._make_pool: Callable[[WindowSearch], Pool] = DocumentPool

    @cached_property
    def windows(self) -> WindowSearch:
        """The search for the windows of documents."""
        return WindowSearch(self, self.shortlist if self.config.decode.shortlist else None)

    @property
    def signature(self) -> str:
        """The signature of decoding, with the table of a shortlist that it takes."""
        table = named(self.shortlist) if self.config.decode.shortlist else ""
        return f"{super().signature}|shortlist_table:{table}" if table else super().signature

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
            self.encoded(document.id, document.sentences)
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

        `on_sentences` is called with the number of sentences that were finished, after every step of a
        search, that of a first pass too: 0 mostly. `guide` has the lexical constraints of sentences, which
        `takes_guides` says whether this system can keep. `taken` are translations that are given, by
        document and sentence: they are not searched, and are target context; within a piece that is searched
        whole, those at its beginning are, where no terms are asked for.
        `log`: the windows found before, and where others are noted, if each is searched by itself.

        Raises:
            CotextError: as `check`, or a guide for a system that takes none.
        """
        self.plan.check_passes()
        if guide is not None and self.plan.options.nbest > 1:
            raise CotextError(
                f"decode.nbest = {self.plan.options.nbest}: with terms and copied text, the best translation "
                "is mended and others are not; leave decode.nbest or the glossary out"
            )
        if guide is not None and not self.takes_guides:
            raise CotextError(
                "terms and copied text are kept in the search of systems that write from left to right, "
                "with decode.align = constrained: leave the glossary out, or take a run that keeps it"
            )
        waiting = self._after_first_pass(documents, guide, lambda count: on_sentences(0))
        # Several batches' worth, so that windows of like length can share a batch.
        wanted = max(1, BATCHES_AHEAD * self.config.decode.max_tokens // self.plan.options.beam)
        with closing(self._make_pool(self.windows)) as pool:
            while True:
                ready = sum(map(self.windows.ready_tokens, pool.documents))
                while ready < wanted and (entry := next(waiting, None)) is not None:
                    index, document, before = entry
                    opened = self.windows.opened(index, document, before, guide, (taken or {}).get(index))
                    ready += 1 + self.windows.ready_tokens(opened)
                    on_sentences(len(document.sentences) - len(opened.source))
                    if log is not None and self.plan.group_windows == 1:
                        on_sentences(opened.keep(log))
                    pool.add(opened)
                if not pool.documents:
                    return
                pool.advance(on_sentences)
                for opened in pool.take_finished():
                    yield opened.index, self._translation(opened)

    def with_pools(self, make_pool: Callable[[WindowSearch], Pool]) -> "DocumentTranslator":
        """The same system and the same search, with other pools for the documents of a call."""
        found = copy(self)
        found._make_pool, found.windows = make_pool, self.windows
        return found

    def _check_first_pass(self, first_pass: "DocumentTranslator", document: Document) -> None:
        try:
            first_pass.check([document])
        except CotextError as error:
            raise CotextError(f"decode.first_pass = {self.config.decode.first_pass}: {error}") from None

    def _after_first_pass(
        self, documents: Iterable[Document], guide: Guide | None, on_sentences: Callable[[int], None]
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
        for index, translation in self.first_pass.translate(remembered(), on_sentences, own):
            yield index, read.pop(index), translation.document.sentences

    def _translation(self, opened: OpenDocument) -> Translation:
        hypotheses = opened.sentences()
        sentences = tuple(sentence.text for sentence in hypotheses)
        longest = self.config.view.max_tokens - self.plan.symbols.per_source_sentence
        missing = tuple(j for j in opened.kept if not sentences[j])
        as_text = self.tokenizer.encode_batch(sentences, side="target")
        return Translation(
            document=Document(opened.document.id, sentences),
            log_probabilities=tuple(h.log_probability for h in hypotheses if self.plan.options.scored),
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
            lists=self._lists(opened, hypotheses) if self.plan.options.nbest > 1 else (),
        )

    def _lists(
        self, opened: OpenDocument, hypotheses: Sequence[SentenceHypothesis]
    ) -> tuple[Candidates, ...]:
        """The translation of every sentence, and the others that were found for it."""
        others = {opened.kept[j]: found for j, found in opened.others.items()}
        lists = []
        for j, sentence in enumerate(hypotheses):
            score = self.plan.rank_score(sentence.log_probability, sentence.labels)
            lists.append((Candidate(sentence.text, sentence.log_probability, score), *others.get(j, ())))
        return tuple(lists)
