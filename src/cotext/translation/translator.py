"""Translation of documents: when each window is searched, and with which target context.

    independent   No window waits for another. This is so for the sentence view, for complete chunks of
                  documents, for context only on the source side, and for `decode.target_context =
                  regenerate`, which also translates the context sentences of every window.
    prefix        Finished translations are the forced prefix of later windows. This is so for windows with
                  target context, and for chunks of documents whose sentences are searched one by one.

A window is searched as soon as its forced prefix is finished. Several documents are open at a time and share
batches; when one is finished, the next is opened. The translation of a document depends only on that
document.

With a first pass, another system first translates every document. Its translations are the target context,
and no window waits. With batch-level context, windows of a group attend to each other (`document_state.py`).
Such windows are searched one after the other, with the rest of the group as context rows, or all at once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from math import exp, inf
from typing import Final, Protocol

import torch

from cotext.config.recipe import Config
from cotext.data.documents import Document, ParallelDocument
from cotext.data.nbest_lists import Candidate, Candidates
from cotext.data.shortlist import Shortlist, named
from cotext.data.tokenizer import Tokenizer, choose_languages, require_languages
from cotext.models.interface import Engine, Model
from cotext.runtime import SURROGATE, CotextError, naming
from cotext.translation.document_state import OpenDocument, SentenceHypothesis, WindowLog
from cotext.translation.plan import DecodingPlan
from cotext.translation.scorer import DocumentScorer
from cotext.translation.terms.terms import Glossary, TermGuide
from cotext.translation.window_search import BATCHES_AHEAD, RowGroup, WindowSearch

# --- Pools: the documents that a system is translating. They can be added and removed between batches.
#
# The owner of a pool decides which windows share the next batch; the results do not depend on this.


class Pool(Protocol):
    """The open documents of `translate`."""

    @property
    def documents(self) -> Sequence[OpenDocument]:
        """The documents that are still in the pool."""

    def add(self, opened: OpenDocument) -> None:
        """Add a document before its first window is searched."""

    def advance(self, on_sentences: Callable[[int], None]) -> None:
        """Search some of the ready windows; report the number of finished sentences as they finish.

        During a batch, 0 is reported from time to time, as a sign of progress.
        """

    def take_finished(self) -> Sequence[OpenDocument]:
        """Remove and return the documents whose windows are all searched."""

    def close(self) -> None:
        """Drop the remaining documents."""


class DocumentPool:
    """The documents of one system, with the windows of each that are ready and not searched yet."""

    def __init__(self, search: WindowSearch) -> None:
        self._search = search
        self._ready: dict[OpenDocument, dict[RowGroup, None]] = {}

    @property
    def documents(self) -> Sequence[OpenDocument]:
        return list(self._ready)

    def add(self, opened: OpenDocument) -> None:
        self._ready[opened] = {}

    def remove(self, opened: OpenDocument) -> None:
        """Drop a document, finished or not, if it is in the pool."""
        self._ready.pop(opened, None)

    def settle(self, opened: OpenDocument) -> int:
        """Finish ready windows whose sentences are given; return the number of their current sentences."""
        return self._search.settle(opened)

    def ready(self, opened: OpenDocument, tokens: float = inf) -> list[RowGroup]:
        """Return the ready windows of a document, until their batch has `tokens` tokens; by default all."""
        groups = self._ready[opened]
        # Make requests lazily: a large document has far more windows than a batch takes.
        missing = tokens - sum(group.cost for group in groups)
        fresh = self._search.groups(opened)
        while missing > 0 and (group := next(fresh, None)) is not None:
            groups[group] = None
            missing -= group.cost
        return list(groups)

    def is_ready(self, group: RowGroup) -> bool:
        """Whether a group is still ready and its document is in the pool."""
        return group in self._ready.get(group.document, ())

    def search(
        self, batch: Sequence[RowGroup], on_sentences: Callable[[int], None] = lambda count: None
    ) -> int:
        """Search a batch of windows; return the number of finished sentences.

        `on_sentences` is called after every step with the number of sentences that ended. If the search
        fails, windows that were finished before are no longer ready.
        """
        try:
            return self._search.search(batch, on_sentences)
        finally:
            for group in batch:
                if all(group.document.is_finished(row.number) for row in group.rows):
                    # The owner of the pool may have removed the document in the meantime.
                    self._ready.get(group.document, {}).pop(group, None)

    def advance(self, on_sentences: Callable[[int], None]) -> None:
        """Search the windows that are ready, in batches of `decode.max_tokens`."""
        for opened in self._ready:
            if settled := self.settle(opened):
                on_sentences(settled)
        most = self._search.max_ready_tokens
        groups = [group for opened in self._ready for group in self.ready(opened, most)]
        for batch in self._search.batches(groups):
            self._advance(batch, on_sentences)

    def _advance(self, batch: Sequence[RowGroup], on_sentences: Callable[[int], None]) -> None:
        """Search a batch; at its end, report sentences that no step reported (engines report no steps)."""
        reported = 0

        def on_step(count: int) -> None:
            nonlocal reported
            reported += count
            on_sentences(count)

        on_sentences(self.search(batch, on_step) - reported)

    def take_finished(self) -> list[OpenDocument]:
        finished = [opened for opened in self._ready if opened.done]
        for opened in finished:
            self.remove(opened)
        return finished

    def close(self) -> None:
        self._ready.clear()


# Fields of a translation that contain sentence indices.
OF_SENTENCES: Final = ("truncated", "long", "shed", "missing", "resegmented")


@dataclass(frozen=True, slots=True)
class Translation:
    """A translated document, with scores and properties of its sentences.

    `log_probabilities` has one sum per sentence, over its output tokens and its closing symbol. It is empty
    with `decode.scores = false`. `tokens`: the number of summands. Other fields contain sentence indices,
    from 0:

        truncated     the end of the sentence was forced at the length limit
        long          the source is longer than any source in training
        shed          some context was dropped, to keep the window within `view.max_tokens`
        missing       the output has no text for the sentence; possible only in free search
        resegmented   the tokenizer splits the text into other subwords than the output; so the text has
                      another score in this sentence, and in sentences that have it as context

    `pieces`: for every window (in the document view, every sub-document), whether its output had exactly the
    requested sentences, in order, and text for each current sentence. `lists`: with `decode.nbest`, the best
    translations of every sentence; the document contains the first of them.
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
        return all(self.pieces)

    @property
    def confidences(self) -> list[float | None]:
        """The geometric means of the probabilities of the tokens of each sentence, closing symbol included.

        Sentences of different lengths can be compared; docs/results/terms.md has the correlation with
        quality. Values are at most 1, also with a language model, whose scores are not probabilities. The
        value is None if a sentence has no tokens, or no scores.
        """
        if not self.log_probabilities:
            return [None] * len(self.tokens)
        pairs = zip(self.log_probabilities, self.tokens, strict=True)
        return [exp(min(log_probability / n, 0)) if n else None for log_probability, n in pairs]


def alternatives(translations: Mapping[int, Translation]) -> Iterator[dict[int, Translation]]:
    """Yield the documents with the second best translation of every sentence, then the third, and so on.

    A sentence with fewer alternatives keeps its best one. Without `lists`, nothing is yielded.
    """
    most = max((len(texts) for best in translations.values() for texts in best.lists), default=0)
    for rank in range(1, most):
        ranked = {}
        for index, best in translations.items():
            sentences = tuple((texts[rank] if rank < len(texts) else texts[0]).text for texts in best.lists)
            ranked[index] = replace(best, document=replace(best.document, sentences=sentences))
        yield ranked


class DocumentTranslator(DocumentScorer):
    """A system that translates and scores documents, as its configuration and plan define.

    `first_pass` translates every document first; `name` is the name of this system in signatures, if it is a
    first pass. `shortlist`: the tokens that sentences may contain, if `decode.shortlist` is set. `engine`:
    the same model in CTranslate2, which is used only for search; scoring and the rest use `model`.

    Raises CotextError if `decode.shortlist` is set, but there is no shortlist; or if the tokenizer is
    multilingual, but the languages are not chosen, or it has no symbol for one of them. Also raises the
    errors of `DecodingPlan.of`.
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
        engine: Engine | None = None,
    ) -> None:
        if config.decode.shortlist and shortlist is None:
            raise CotextError(
                f"decode.shortlist = {config.decode.shortlist}: no shortlist was loaded with the model; load "
                "the run with cotext.load, or remove the setting"
            )
        before = None if first_pass is None else first_pass.plan
        keys = "decode.source_language and decode.target_language"
        with naming(keys):
            wanted = config.decode.source_language, config.decode.target_language
            tokenizer = choose_languages(tokenizer, *wanted)
        require_languages(tokenizer, keys)
        plan = DecodingPlan.of(config, tokenizer, model, before, name)
        super().__init__(model, tokenizer, device, plan)
        self.first_pass = first_pass
        self.shortlist = shortlist
        self.engine = engine
        self._make_pool: Callable[[WindowSearch], Pool] = DocumentPool

    @cached_property
    def windows(self) -> WindowSearch:
        shortlist = self.shortlist if self.config.decode.shortlist else None
        return WindowSearch(self, shortlist, self.engine)

    @property
    def signature(self) -> str:
        """The signature of decoding; it names the shortlist table and the engine, if they are used."""
        table = named(self.shortlist) if self.config.decode.shortlist else ""
        parts = [self.plan.signature, f"shortlist_table:{table}" if table else ""]
        return "|".join(filter(None, [*parts, "" if self.engine is None else self.engine.name]))

    @property
    def supports_terms(self) -> bool:
        """Whether terms are supported.

        This needs an autoregressive model with readable attention, and constrained search without sampling.
        """
        kind, options = self.plan.kind, self.plan.options
        reads = kind.forced_pass is not None and kind.path is None
        return reads and options.align == "constrained" and options.sampling is None

    def require_terms(self) -> None:
        """Raise CotextError if terms are not supported."""
        if not self.supports_terms:
            raise CotextError(
                "terms, words to keep and copied text need an autoregressive system with decode.align = "
                "constrained, without decode.sampling; remove the glossary, or choose another run"
            )

    def check(self, documents: Iterable[Document]) -> int:
        """Check that all documents can be translated; return the number of their sentences.

        Raises CotextError if a sentence is longer than `decode.max_source_tokens` of this system or of the
        first pass. Also raises the errors of `DecodingPlan.check_passes`.
        """
        self.plan.check_passes()
        sentences = 0
        for document in documents:
            if self.first_pass is not None:
                with naming(f"decode.first_pass = {self.config.decode.first_pass}"):
                    self.first_pass.check([document])
            self.encoded(document.id, document.sentences)
            sentences += len(document.sentences)
        return sentences

    def translate(
        self,
        documents: Iterable[Document],
        on_sentences: Callable[[int], None] = lambda count: None,
        guide: TermGuide | None = None,
        taken: Mapping[int, Mapping[int, str]] | None = None,
        log: WindowLog | None = None,
    ) -> Iterator[tuple[int, Translation]]:
        """Yield translations with the input index of their documents, as soon as they are complete.

        `on_sentences` is called with the number of finished sentences after every step of a search, also of a
        first pass; often 0. `guide`: the terms of sentences, if `supports_terms`. `taken`: given
        translations, by document and sentence. They are not searched, and serve as target context. If a chunk
        is searched as a whole, only those at its beginning are context, and only without `guide`; the others
        replace the output afterwards. `log`: windows that an interrupted call finished. Further windows are
        recorded in it, unless windows are searched in groups.

        Raises CotextError for an error of `check`, or if `guide` is not supported.
        """
        self.plan.check_passes()
        if guide is not None and self.plan.options.nbest > 1:
            raise CotextError(
                f"decode.nbest = {self.plan.options.nbest}: with terms and copied text, only the best "
                "translation is corrected, not the alternatives; remove decode.nbest or the glossary"
            )
        if guide is not None:
            self.require_terms()
        waiting = self._after_first_pass(documents, guide, lambda count: on_sentences(0))
        # Read enough for several batches, so that similar lengths can share one. Every beam is one row.
        wanted = max(1, BATCHES_AHEAD * self.config.decode.max_tokens // self.plan.options.beam)
        # Open documents until a few batches are ready, search them, and replace finished documents.
        with closing(self._make_pool(self.windows)) as pool:
            while True:
                ready = sum(map(self.windows.ready_tokens, pool.documents))
                while ready < wanted and (entry := next(waiting, None)) is not None:
                    index, document, before = entry
                    opened = self.windows.opened(index, document, before, guide, (taken or {}).get(index))
                    ready += 1 + self.windows.ready_tokens(opened)
                    # Sentences without tokens are finished: there is nothing to search.
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
        """Return a copy of this system that translates with pools made by `make_pool`."""
        copied = copy(self)
        copied._make_pool, copied.windows = make_pool, self.windows
        return copied

    def _after_first_pass(
        self, documents: Iterable[Document], guide: TermGuide | None, on_sentences: Callable[[int], None]
    ) -> Iterator[tuple[int, Document, Sequence[str] | None]]:
        """Yield documents with their input index and their translation by a first pass, if there is one."""
        if self.first_pass is None:
            yield from ((index, document, None) for index, document in enumerate(documents))
            return
        read: dict[int, Document] = {}

        # The first pass may finish documents in another order. Remember those that it has not finished.
        def remembered() -> Iterator[Document]:
            for index, document in enumerate(documents):
                read[index] = document
                yield document

        supported = guide if self.first_pass.supports_terms else None
        for index, translation in self.first_pass.translate(remembered(), on_sentences, supported):
            yield index, read.pop(index), translation.document.sentences

    def _translation(self, opened: OpenDocument) -> Translation:
        hypotheses = opened.sentences()
        sentences = tuple(sentence.text for sentence in hypotheses)
        longest = self.config.view.max_tokens - self.plan.symbols.per_source_sentence
        missing = tuple(j for j in opened.kept if not sentences[j])
        # Scoring tokenises the text again. If this gives other tokens than the output, scores differ.
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
        """Return the translation of every sentence, followed by its alternatives."""
        others = {opened.kept[j]: candidates for j, candidates in opened.others.items()}
        lists = []
        for j, sentence in enumerate(hypotheses):
            score = self.plan.rank_score(sentence.log_probability, sentence.labels)
            lists.append((Candidate(sentence.text, sentence.log_probability, score), *others.get(j, ())))
        return tuple(lists)


# --- Translation and scoring from Python: `cotext.load` and `cotext.Translator`.


Terms = Glossary | Mapping[str, str | Sequence[str]]


class Translator:
    """A trained system, ready to translate and score whole documents."""

    def __init__(self, documents: DocumentTranslator, signature: str) -> None:
        self.documents = documents
        self.signature = signature

    def translate(self, sentences: Sequence[str], glossary: Terms | None = None) -> list[str]:
        """Translate the sentences of one document; the result has the same number, in order.

        `glossary`: source terms with one or more translations each; sentences with a term contain one of its
        translations.

        Raises CotextError if `sentences` is a string, a sentence is longer than `decode.max_source_tokens`,
        or the system does not support glossaries.
        """
        document = Document("1", _several(sentences, "translate"))
        return list(self.translate_document(document, glossary).sentences)

    def translate_document(self, document: Document, glossary: Terms | None = None) -> Document:
        """Translate a document like `translate`; the result has the same id and number of sentences."""
        [translated] = self.translate_documents([document], glossary)
        return translated

    def translate_documents(
        self, documents: Iterable[Document], glossary: Terms | None = None
    ) -> list[Document]:
        """Translate documents in shared batches; they are returned in the given order, with their ids.

        This is as fast as `cotext translate`; each result equals the result of `translate_document`.

        Raises CotextError before anything is translated: if the sentences of a document are a string, a
        sentence is longer than `decode.max_source_tokens`, or the system does not support glossaries.
        """
        given = [Document(d.id, _several(d.sentences, "translate")) for d in documents]
        filled = [index for index, document in enumerate(given) if document.sentences]
        self.documents.check(given[index] for index in filled)
        results = list(given)
        guide = None
        if glossary is not None:
            terms = glossary if isinstance(glossary, Glossary) else Glossary.of(glossary)
            guide = TermGuide([given[index].sentences for index in filled], terms)
        for number, translation in self.documents.translate((given[i] for i in filled), guide=guide):
            results[filled[number]] = translation.document
        return results

    def score(self, source: Sequence[str], target: Sequence[str]) -> list[float]:
        """Return the log-probability (natural logarithm) of every target sentence of a document, in context.

        Raises CotextError if a side is a string, or the sides have different numbers of sentences; or if a
        source sentence is longer than `decode.max_source_tokens`, or a target longer than outputs may be.
        """
        document = ParallelDocument("1", _several(source, "score"), _several(target, "score"))
        return [s.log_probability for s in self.documents.score([document])[0]] if document.source else []


def _several(sentences: Sequence[str], verb: str) -> tuple[str, ...]:
    """Return the sentences as a tuple; reject a single string, which is also a sequence of strings."""
    if isinstance(sentences, str):
        raise CotextError(
            f"{verb}: needs a list of sentences, such as [{sentences[:30]!r}], not a single string"
        )
    result = tuple(sentences)
    for number, sentence in enumerate(result, start=1):
        if not isinstance(sentence, str):
            raise CotextError(f"{verb}: sentence {number} is not a string, but {type(sentence).__name__}")
        if SURROGATE.search(sentence):
            raise CotextError(f"{verb}: sentence {number} has half a character (a lone surrogate)")
    return result
