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
from cotext.data.build import build_view, check_align, special_symbols
from cotext.data.collate import source_batch
from cotext.data.documents import Document, ParallelDocument
from cotext.data.tokenizer import Tokenizer, clean
from cotext.data.views import SentenceBySentence, View
from cotext.decoding.beam_search import Hypothesis, SearchOptions, search
from cotext.decoding.constraints import Request, SearchSymbols
from cotext.decoding.document_state import OpenDocument, SentenceHypothesis
from cotext.decoding.non_autoregressive import write
from cotext.decoding.scorer import SentenceScore, require_finite, score_instances, score_labels
from cotext.decoding.sentence_recovery import recover
from cotext.decoding.window_groups import group_of, source_of
from cotext.models.describe import describe_cut
from cotext.models.interface import Model, NonAutoregressiveModel
from cotext.runtime.errors import CotextError

BATCHES_AHEAD = 4
# At most, on average over a sentence: what has more is too long whatever its tokens are. To find them would
# take memory by the length of the text.
CHARACTERS_PER_TOKEN = 100


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
    cut: tuple[int, ...] = ()
    long: tuple[int, ...] = ()
    shed: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    pieces: tuple[bool, ...] = (True,)
    tokens: tuple[int, ...] = ()
    otherwise: tuple[int, ...] = ()

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
    request: Request


class DocumentTranslator:
    """Translates and scores documents with one model; `config` says how.

    `first_pass` translates every document before, in its own way; `name` is what signatures of systems call
    this one whose first pass it is.
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
        self.model = model
        self.config = config
        self.tokenizer = tokenizer
        self.device = device
        self.view = build_view(config.view)
        self.symbols = special_symbols(tokenizer, config.view)
        self.first_pass = first_pass
        self.name = name
        decode = config.decode
        # How many windows see each other, and of how many each waits for the one before it.
        self.group_windows = decode.group_windows if model.sees_other_rows else 1
        self.in_turn = self.group_windows if decode.schedule == "sequential" else 1
        check_align(decode.align, self.symbols.bracket)
        # Scores do not depend on how what they score is searched.
        self.searched: View = self.view
        if decode.beam_per == "sentence" and config.view.kind == "document":
            self.searched = SentenceBySentence(self.view)
            self._check_by_sentence()
        self.options = SearchOptions(decode.beam, decode.length_penalty, decode.align)
        self.search_symbols = SearchSymbols(
            self.symbols,
            tokenizer.unk,
            blank=tuple(tokenizer.blank()),
            # Brackets have no separator between them.
            unused=(tokenizer.sep,) if self.symbols.bracket else (),
        )

    def _check_by_sentence(self) -> None:
        """Refuse documents whose sentences cannot be searched by themselves.

        Raises:
            CotextError: sentences end otherwise within a row than at its end, or nothing is searched.
        """
        if isinstance(self.model, NonAutoregressiveModel):
            raise CotextError(
                f"decode.beam_per = sentence: {self.config.model.name} writes all sentences at once; leave "
                "it out"
            )
        if not self.symbols.bracket:
            raise CotextError(
                "decode.beam_per = sentence needs view.separators = bracket: with "
                f"{self.config.view.separators} ones, the model ends a sentence in the midst of a document "
                "otherwise than the last; choose decode.beam_per = document"
            )

    @property
    def signature(self) -> str:
        """How documents are decoded, for reports."""
        view, decode = self.config.view, self.config.decode
        whole = "" if view.kind == "sentence" else f"-{view.max_tokens}"
        parts = [f"view:{describe_cut(view, view.max_sentences)}{whole}"]
        if view.kind != "sentence":
            parts.append(f"separators:{view.separators}")
        parts += [f"align:{decode.align}", f"beam:{decode.beam}"]
        if self.searched is not self.view:
            parts.append(f"beam_per:{decode.beam_per}")
        # What is written at once is neither ranked by length nor ended by the model.
        once = isinstance(self.model, NonAutoregressiveModel)
        parts.append(f"path:{self.model.path}" if once else f"lp:{decode.length_penalty:g}")
        parts.append(f"limit:{decode.max_ratio:g}x+{decode.max_extra}")
        if view.kind == "window" and view.target_before != 0:
            parts.append(f"target:{decode.target_context}")
        if self.model.sees_other_rows:
            parts += [f"schedule:{decode.schedule}", f"group_windows:{decode.group_windows}"]
        if self.first_pass is not None:
            parts.append(f"first_pass:{self.first_pass.name}")
        return "|".join(parts)

    @property
    def takes_translations(self) -> bool:
        """Whether translations already made become the context of other windows."""
        view = self.config.view
        has_context = view.kind == "window" and view.before > 0 and view.target_before != 0
        return has_context and self.config.decode.target_context == "prefix"

    def check_passes(self) -> None:
        """Refuse passes and schedules that do not go together.

        Raises:
            CotextError: a schedule that lacks its first pass, or a first pass that would not be used, was not
                opened, or has one itself.
        """
        decode, first = self.config.decode, self.first_pass
        if first is None:
            if decode.first_pass:
                raise CotextError(
                    f"decode.first_pass = {decode.first_pass}: that run was not opened; open this one with "
                    "cotext.load, or leave decode.first_pass empty"
                )
            if self.group_windows > self.in_turn and self.takes_translations:
                raise CotextError(
                    "decode.schedule = simultaneous: all windows are written at once, so the translations "
                    "which are their target context must be there before; name a run that makes them with "
                    "decode.first_pass, or choose decode.schedule = sequential"
                )
            return
        if not self.takes_translations:
            raise CotextError(
                f"decode.first_pass = {decode.first_pass}: its translations would not be used, as this "
                f"system ({self.signature}) is given no target context; leave decode.first_pass empty"
            )
        if first.first_pass is not None or first.config.decode.first_pass:
            raise CotextError(
                f"decode.first_pass = {decode.first_pass}: that system has a first pass itself "
                f"({first.config.decode.first_pass}), and there are two passes at most; name one without"
            )
        first.check_passes()

    def check(self, documents: Iterable[Document]) -> int:
        """Count sentences; refuse a document that could not be translated before any work is done.

        Raises:
            CotextError: a sentence longer than `decode.max_source_tokens`, here or in the first pass; else as
                `check_passes`.
        """
        self.check_passes()
        sentences = 0
        for document in documents:
            if self.first_pass is not None:
                self._check_first_pass(self.first_pass, document)
            self._encoded(document.id, document.sentences)
            sentences += len(document.sentences)
        return sentences

    def check_pairs(self, documents: Iterable[ParallelDocument]) -> None:
        """Refuse a document that could not be scored before any work is done.

        Raises:
            CotextError: a source sentence longer than `decode.max_source_tokens`, or a target sentence longer
                than this system would write.
        """
        for document in documents:
            self._encoded(document.id, document.source)
            self._encoded_target(document.id, document.target)

    def translate(
        self, documents: Iterable[Document], on_sentences: Callable[[int], None] = lambda count: None
    ) -> Iterator[tuple[int, Translation]]:
        """Translate documents; yields each with its place in the input as soon as it is complete.

        Raises:
            CotextError: as `check`.
        """
        self.check_passes()
        waiting = self._after_first_pass(documents)
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

        Raises:
            CotextError: as `check_pairs`.
        """
        return self._score([(document, range(len(document.source))) for document in documents])

    def score_sentences(
        self, documents: Sequence[tuple[ParallelDocument, Sequence[int]]]
    ) -> list[SentenceScore]:
        """Score the chosen sentences of every document in their context, and add them up per document.

        Raises:
            CotextError: as `check_pairs`.
        """
        return [
            SentenceScore(sum(s.log_probability for s in members), sum(s.tokens for s in members))
            for members in self._score(documents)
        ]

    def score_tokens(
        self, documents: Sequence[tuple[ParallelDocument, Sequence[int]]]
    ) -> list[list[tuple[float, ...]]]:
        """Log-probabilities of the tokens of the chosen sentences, each in its context, its end the last.

        None for a sentence that is empty on both sides.

        Raises:
            CotextError: the system writes all tokens at once, so that only sentences have a probability; else
                as `check_pairs`.
        """
        if isinstance(self.model, NonAutoregressiveModel):
            raise CotextError(
                f"{self.config.model.name} writes all tokens at once: sentences have a probability "
                "(`cotext score`), single tokens have none; examine a system that writes from left to right"
            )
        instances, groups, places = self._rows(documents)
        budget = self.config.decode.max_tokens
        found = score_labels(self.model, instances, self.symbols, budget, self.device, groups)
        scores: list[dict[int, tuple[float, ...]]] = [{} for _ in documents]
        for (index, current), members in zip(places, found, strict=True):
            require_finite(SentenceScore(sum(member), len(member)) for member in members)
            scores[index] |= zip(current, members, strict=True)
        return [[s.get(j, ()) for j in chosen] for s, (_, chosen) in zip(scores, documents, strict=True)]

    def reach(self, document: Document) -> list[range]:
        """For every sentence, which sentences it is translated in sight of at most, itself too.

        Whether source or target; a sentence without a token sees itself alone.
        """
        opened = OpenDocument.start(
            0, document, self.tokenizer.encode_batch(document.sentences), self.view, prefix=False
        )
        found = [range(j, j + 1) for j in range(len(document.sentences))]
        for number, window in enumerate(opened.windows):
            group = [opened.windows[n] for n in group_of(number, len(opened.windows), self.group_windows)]
            first, last = min(w.source.start for w in group), max(w.source.stop for w in group) - 1
            for j in window.current:
                found[opened.kept[j]] = range(opened.kept[first], opened.kept[last] + 1)
        return found

    def _score(
        self, documents: Sequence[tuple[ParallelDocument, Sequence[int]]]
    ) -> list[list[SentenceScore]]:
        """The scores of the chosen sentences of every document."""
        instances, groups, places = self._rows(documents)
        scores: list[dict[int, SentenceScore]] = [{} for _ in documents]
        budget = self.config.decode.max_tokens
        found = score_instances(self.model, instances, self.symbols, budget, self.device, groups)
        for (index, current), members in zip(places, found, strict=True):
            require_finite(members, none_possible=isinstance(self.model, NonAutoregressiveModel))
            scores[index] |= zip(current, members, strict=True)
        empty = SentenceScore(0.0, 0)
        return [[s.get(j, empty) for j in chosen] for s, (_, chosen) in zip(scores, documents, strict=True)]

    def _rows(
        self, documents: Sequence[tuple[ParallelDocument, Sequence[int]]]
    ) -> tuple[list[Instance], list[range], list[tuple[int, list[int]]]]:
        """The windows in which chosen sentences are current, which see each other, and whose they are.

        With each window goes the place of its document, and where its current sentences stand there.
        """
        instances: list[Instance] = []
        groups: list[range] = []
        places: list[tuple[int, list[int]]] = []
        for index, (document, chosen) in enumerate(documents):
            source = self._encoded(document.id, document.source)
            target = self._encoded_target(document.id, document.target)
            kept = [j for j in range(len(source)) if source[j] or target[j]]
            source, target = [source[j] for j in kept], [target[j] for j in kept]
            wanted = {i for i, j in enumerate(kept) if j in chosen}
            # As translation cuts it, whatever the translation: a score is that of what search would write.
            windows = self.view.split([len(s) for s in source], [])
            for first in range(0, len(windows), self.group_windows):
                group = [windows[n] for n in group_of(first, len(windows), self.group_windows)]
                if all(wanted.isdisjoint(w.current) for w in group):
                    continue
                groups.append(range(len(instances), len(instances) + len(group)))
                for w in group:
                    sides = [source[j] for j in w.source], [target[j] for j in w.target]
                    instances.append(Instance(len(groups), w, *sides))
                    places.append((index, [kept[j] for j in w.current]))
        return instances, groups, places

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
        prefix = self.config.decode.target_context == "prefix" or self.searched is not self.view
        before = None if first_pass is None else self.tokenizer.encode_batch(first_pass)
        return OpenDocument.start(index, document, source, self.searched, prefix, before, self.in_turn)

    def _ready_tokens(self, opened: OpenDocument) -> int:
        beside = self.symbols.per_source_sentence
        return sum(len(opened.source[j]) + beside for n in opened.ready for j in opened.windows[n].source)

    def _encoded(self, document: str, sentences: Sequence[str]) -> list[list[int]]:
        """The tokens of source sentences; `document` is the id of theirs.

        Raises:
            CotextError: one is longer than `decode.max_source_tokens`.
        """
        return self._within(self.config.decode.max_source_tokens, f"document {document}, sentence", sentences)

    def _encoded_target(self, document: str, sentences: Sequence[str]) -> list[list[int]]:
        """The tokens of target sentences.

        Raises:
            CotextError: one is longer than any that this system would write.
        """
        decode = self.config.decode
        most = int(decode.max_ratio * decode.max_source_tokens) + decode.max_extra
        return self._within(most, f"document {document}, target sentence", sentences)

    def _within(self, limit: int, place: str, sentences: Sequence[str]) -> list[list[int]]:
        most = limit * CHARACTERS_PER_TOKEN
        for number, text in enumerate(sentences, 1):
            if len(text) > most and len(clean(text)) > most:
                raise self._too_long(f"{place} {number}: {len(text)} characters", limit)
        encoded = self.tokenizer.encode_batch(sentences)
        for number, tokens in enumerate(encoded, 1):
            if len(tokens) > limit:
                raise self._too_long(f"{place} {number}: {len(tokens)} tokens", limit)
        return encoded

    def _too_long(self, found: str, limit: int) -> CotextError:
        return CotextError(
            f"{found}, at most {limit} tokens are taken; split it (translate --split), or raise "
            f"decode.max_source_tokens (the model was trained on up to {self.config.view.max_tokens})"
        )

    def _advance(self, open_documents: Sequence[OpenDocument], on_sentences: Callable[[int], None]) -> None:
        """Translate all ready windows of the open documents, longest first."""
        rows: list[_Row] = []
        for opened in open_documents:
            rows += [self._row(opened, number) for number in opened.ready]
            opened.ready = []
        together = self._together(rows)
        # Longest last, then first: what does not fit into memory fails at once.
        together.sort(key=lambda group: max((r.cost, r.instance.source_tokens(self.symbols)) for r in group))
        costs = [[row.cost for row in group] for group in together]
        for groups in reversed(pack(costs, self.config.decode.max_tokens)):
            self._translate_batch([row for g in groups for row in together[g]], on_sentences)

    def _together(self, rows: Sequence[_Row]) -> list[list[_Row]]:
        """The rows that must share a batch: those of a group that is not written in turn."""
        if self.in_turn == self.group_windows:
            return [[row] for row in rows]
        groups: dict[tuple[int, int], list[_Row]] = {}
        for row in rows:
            groups.setdefault((row.document.index, row.number // self.group_windows), []).append(row)
        return list(groups.values())

    def _translate_batch(self, batch: Sequence[_Row], on_sentences: Callable[[int], None]) -> None:
        """Write the windows of a batch; constrained, none shows nothing for a current sentence."""
        blank: list[_Row] = []
        for row, hypothesis in zip(batch, self._search(batch, self.search_symbols), strict=True):
            if self.options.align == "constrained" and not self._shows(row, hypothesis):
                blank.append(row)
            else:
                self._write(row, hypothesis)
        # Bytes that form no character: once more, with pieces that show something by themselves, each beside
        # what those before it have written.
        for row in sorted(blank, key=lambda row: row.number):
            [hypothesis] = self._search([row], replace(self.search_symbols, blank=self._non_content_ids))
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

    def _search(self, batch: Sequence[_Row], symbols: SearchSymbols) -> list[Hypothesis]:
        if self.model.sees_other_rows:
            windows = [(row.document, row.number) for row in batch]
            source = source_of(windows, self.group_windows, self.symbols)
        else:
            source = source_batch([row.instance for row in batch], self.symbols)
        requests = [row.request for row in batch]
        if isinstance(self.model, NonAutoregressiveModel):
            return write(self.model, source.to(self.device), requests, symbols, self.options)
        return search(self.model, source.to(self.device), requests, symbols, self.options)

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
        labels = [*hypothesis.tokens, self.symbols.eos]
        first = request.first_sentence + request.closed_before(self.search_symbols)
        recovered = recover(
            labels, self.symbols, len(asked), first, from_end=window.current.start > asked.start
        )
        closing = {*self.symbols.separators, self.symbols.eos}
        tokens: list[list[int]] = [[] for _ in asked]
        log_probabilities = [0.0] * len(asked)
        labels_of = Counter(recovered.sentence)
        for k, label, log_probability in zip(
            recovered.sentence, labels, hypothesis.token_log_probabilities, strict=True
        ):
            log_probabilities[k] += log_probability
            if label not in closing:
                tokens[k].append(label)
        cut = {recovered.sentence[place] for place in hypothesis.cut}
        written = [
            SentenceHypothesis(tuple(t), p, k in cut, labels_of[k])
            for k, (t, p) in enumerate(zip(tokens, log_probabilities, strict=True))
        ]
        return written, recovered.exact

    def _translation(self, opened: OpenDocument) -> Translation:
        written = opened.sentences()
        sentences = tuple(self.tokenizer.decode(sentence.tokens) for sentence in written)
        longest = self.config.view.max_tokens - self.symbols.per_source_sentence
        missing = tuple(j for j in opened.kept if not sentences[j])
        as_text = self.tokenizer.encode_batch(sentences)
        return Translation(
            document=Document(opened.document.id, sentences),
            log_probabilities=tuple(sentence.log_probability for sentence in written),
            cut=tuple(j for j, sentence in enumerate(written) if sentence.cut),
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
            otherwise=tuple(j for j in opened.kept if tuple(as_text[j]) != written[j].tokens),
        )
