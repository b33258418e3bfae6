"""Search of windows: their requests, the batches that they share, and their results.

A window is ready when its forced prefix is finished. Windows of a batch whose output has no visible text are
searched again separately.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, takewhile

import torch
from torch import Tensor

from cotext.data.batch import Instance, Source
from cotext.data.collate import pack, source_batch
from cotext.data.documents import Document
from cotext.data.nbest_lists import Candidate, Candidates
from cotext.data.shortlist import Shortlist
from cotext.data.tokenizer import Tokenizer
from cotext.models.interface import Engine
from cotext.search.beam_search import Hypothesis
from cotext.search.constraints import SearchRequest, SearchSymbols
from cotext.search.engine import has_room, search_engine
from cotext.search.guide import Guide
from cotext.search.lexical import SentenceAutomaton
from cotext.search.lexical_search import search_width
from cotext.search.nbest_beam import Alternative
from cotext.search.spelling import Spelling
from cotext.search.steps import listening, part_of_search
from cotext.translation.document_state import OpenDocument, SentenceHypothesis, found_sentences, source_of
from cotext.translation.plan import DecodingPlan
from cotext.translation.scorer import DocumentScorer
from cotext.translation.substitution import Draft, Substitution

# --- N-best lists of sentences, found after the translation of their windows.
#
# The list of a sentence is conditioned on the best translations before it:
#
#     one sentence in a window    for example with a forced prefix: the hypotheses that end in its beam
#     several sentences           each is searched again separately, after the best translations of those
#                                 before it in the row: one row per sentence, with the same source
#
# The output of the system is the first of the list. If several sentences were searched together, a separate
# search may find a translation with a higher score, which becomes the second.


@dataclass(frozen=True, slots=True)
class SearchedWindow:
    """A finished window: its row, the hypothesis, and its sentences."""

    row: "Row"
    hypothesis: Hypothesis
    sentences: Sequence[SentenceHypothesis]

    @property
    def current(self) -> Iterator[tuple[int, int]]:
        """The current sentences: index in the document, and among those requested."""
        requested = self.row.document.requested(self.row.number)
        return ((j, j - requested.start) for j in self.row.instance.window.current if j in requested)


class SentenceLists:
    """The n-best lists of a system with `decode.nbest` above 1."""

    def __init__(self, scorer: DocumentScorer) -> None:
        self._scorer = scorer

    def find(self, windows: Sequence[SearchedWindow]) -> None:
        """Record the lists of the current sentences of windows in their documents."""
        separate: list[tuple[SearchedWindow, int, SearchRequest]] = []
        for window in windows:
            for j, k in window.current:
                if window.hypothesis.others:
                    self._note(window, j, k, window.hypothesis.others[k])
                else:
                    separate.append((window, j, self._request(window, k)))
        for window, j, hypothesis in self._searched(separate):
            best = Alternative(tuple(hypothesis.tokens), hypothesis.log_probability, hypothesis.score)
            k = j - window.row.document.requested(window.row.number).start
            self._note(window, j, k, (best, *chain.from_iterable(hypothesis.others)))

    def _note(self, window: SearchedWindow, j: int, k: int, others: Iterable[Alternative]) -> None:
        most = self._scorer.plan.options.nbest - 1
        text = window.sentences[k].text
        window.row.document.others[j] = further(text, others, self._scorer.tokenizer, most)

    def _request(self, window: SearchedWindow, k: int) -> SearchRequest:
        """Return the request for one sentence after the best translations of those before it."""
        request, before = window.row.request, (sentence.tokens for sentence in window.sentences[:k])
        prefix = request.closed(before, self._scorer.plan.search_symbols)
        goes_on = k + 1 < request.sentences or request.goes_on
        return replace(request, prefix=prefix, max_tokens=(request.max_tokens[k],), goes_on=goes_on)

    def _searched(
        self, rows: Sequence[tuple[SearchedWindow, int, SearchRequest]]
    ) -> Iterator[tuple[SearchedWindow, int, Hypothesis]]:
        """Search single sentences, in batches of `decode.max_tokens`."""
        scorer, plan = self._scorer, self._scorer.plan
        costs = []
        for window, _, request in rows:
            length = window.row.source_tokens + len(request.prefix)
            costs.append(plan.options.beam * (length + sum(request.max_tokens) // 2))
        order = sorted(range(len(rows)), key=costs.__getitem__)
        # If rows attend to each other, rows of one window must not share a batch.
        batches = [[n] for n in order]
        if not plan.sees_other_rows:
            packed = pack([[costs[n]] for n in order], plan.decode.max_tokens)
            batches = [[order[n] for n in members] for members in reversed(packed)]
        for batch in batches:
            members = [rows[n] for n in batch]
            source = _source(plan, [window.row for window, _, _ in members]).to(scorer.device)
            requests = [request for _, _, request in members]
            hypotheses = plan.kind.search(scorer.model, source, requests, plan.search_symbols, plan.options)
            for (window, j, _), hypothesis in zip(members, hypotheses, strict=True):
                yield window, j, hypothesis


def _source(plan: DecodingPlan, rows: Sequence["Row"]) -> Source:
    """Return the source of rows, with the rest of their groups as extra rows if rows attend to each other."""
    if not plan.sees_other_rows:
        return source_batch([row.instance for row in rows], plan.symbols)
    return source_of([(row.document, row.number) for row in rows], plan.group_windows, plan.symbols)


def further(first: str, others: Iterable[Alternative], tokenizer: Tokenizer, most: int) -> Candidates:
    """Return up to `most` translations that differ from the first one and from each other as texts.

    Of several tokenisations of a text, the best one counts; empty texts are dropped.
    """
    candidates: dict[str, Candidate] = {}
    for alternative in others:
        if len(candidates) == most:
            break
        text = tokenizer.decode(alternative.tokens)
        if text and text != first and text not in candidates:
            candidates[text] = Candidate(text, alternative.log_probability, alternative.score)
    return tuple(candidates.values())


@dataclass(frozen=True, slots=True)
class Row:
    """A window that is ready to be searched."""

    width: int  # of its beam
    tokens: int  # per hypothesis, in a batch
    source_tokens: int
    document: OpenDocument
    number: int  # of the window in its document
    instance: Instance
    request: SearchRequest


@dataclass(frozen=True, slots=True, eq=False)
class RowGroup:
    """Rows of a document that share a batch: one row, or all of a group of windows that is searched together.

    `width`: width of the widest beam. A row is searched with the same width as separately, whatever
    constraints other rows have; batches therefore have groups of one width. `longest`: most tokens of a row,
    beams included.
    """

    document: OpenDocument
    rows: tuple[Row, ...]
    width: int
    longest: int

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "RowGroup":
        width = max(row.width for row in rows)
        return cls(rows[0].document, tuple(rows), width, width * max(row.tokens for row in rows))

    @property
    def cost(self) -> int:
        """Its size in a batch of its own, in tokens, beams and padding included."""
        return len(self.rows) * self.longest


class WindowSearch:
    """The search of a system for the windows of its documents.

    `shortlist`: the tokens to choose from. `engine`: searches windows in place of the model, except those
    that it has no room for and those that are searched again.
    """

    def __init__(
        self, scorer: DocumentScorer, shortlist: Shortlist | None = None, engine: Engine | None = None
    ) -> None:
        self._scorer = scorer
        self._shortlist = shortlist
        self._engine = engine
        self._lists = SentenceLists(scorer) if scorer.plan.options.nbest > 1 else None

    @cached_property
    def _spelling(self) -> Spelling:
        return Spelling(self._scorer.tokenizer)

    @cached_property
    def _substitution(self) -> Substitution:
        return Substitution(self._scorer, self._spelling, self._showing_symbols)

    @cached_property
    def _showing_symbols(self) -> SearchSymbols:
        """The symbols of search, in which all subwords that decode to an empty string count as blank.

        Single bytes of a character are among them.
        """
        tokenizer = self._scorer.tokenizer
        blank = (i for i in range(tokenizer.pieces) if not tokenizer.decode([i]))
        return replace(self._scorer.plan.search_symbols, blank=tuple(blank))

    def opened(
        self,
        index: int,
        document: Document,
        first_pass: Sequence[str] | None = None,
        guide: Guide | None = None,
        taken: Mapping[int, str] | None = None,
    ) -> OpenDocument:
        """Return a document before its first batch; `index` identifies it for `guide` and a log.

        `first_pass`: its translation by another system. `taken`: given translations of some sentences.

        Raises:
            CotextError: a sentence longer than `decode.max_source_tokens`.
        """
        scorer, plan = self._scorer, self._scorer.plan
        source = scorer.encoded(document.id, document.sentences)
        before = None if first_pass is None else scorer.tokenizer.encode_batch(first_pass, side="target")
        opened = OpenDocument.start(
            index,
            document,
            source,
            plan.searched_view,
            plan.forces_prefix,
            before,
            plan.sequential_windows,
            guide,
        )
        if taken:
            # Constraints, and rows that attend to others, need all sentences of a chunk.
            forces = plan.kind.path is None and guide is None and not plan.sees_other_rows
            opened.take(taken, partial(scorer.tokenizer.encode, side="target"), forces)
        return opened

    def settle(self, opened: OpenDocument) -> int:
        """Finish ready windows whose sentences are given; return the number of current sentences."""
        # A group that is searched together must be complete in its batch.
        return opened.finish_taken() if opened.taken and not self._scorer.plan.searches_groups else 0

    def ready_tokens(self, opened: OpenDocument) -> int:
        """Return the number of source tokens of the ready windows of a document."""
        symbols = self._scorer.plan.symbols.per_source_sentence
        return sum(len(opened.source[j]) + symbols for n in opened.ready for j in opened.windows[n].source)

    def groups(self, opened: OpenDocument) -> Iterator[RowGroup]:
        """Yield the ready windows of a document in order, removing each from those that are ready."""
        plan = self._scorer.plan
        size = plan.group_windows if plan.searches_groups else 1
        while opened.ready:
            # Members of one group that are ready, up to the end of the group.
            stop = (opened.ready[0] // size + 1) * size
            members = list(takewhile(stop.__gt__, opened.ready))
            del opened.ready[: len(members)]
            yield RowGroup.of([self._row(opened, number) for number in members])

    def batches(self, groups: Sequence[RowGroup]) -> Iterator[list[RowGroup]]:
        """Yield batches of `decode.max_tokens`, of rows of similar length, longest first."""
        # The longest batch comes first, so that a lack of memory shows at once.
        ordered = sorted(
            groups, key=lambda group: max((r.tokens * r.width, r.source_tokens) for r in group.rows)
        )
        # A row must be searched with the width that it has by itself.
        for width in sorted({group.width for group in ordered}):
            alike = [group for group in ordered if group.width == width]
            batches = pack(
                [[group.longest] * len(group.rows) for group in alike], self._scorer.config.decode.max_tokens
            )
            for members in reversed(batches):
                yield [alike[n] for n in members]

    def search(
        self, groups: Sequence[RowGroup], on_sentences: Callable[[int], None] = lambda count: None
    ) -> int:
        """Search a batch of groups of one width; return the number of its current sentences.

        In constrained search, every current sentence gets a visible character. `on_sentences` is called after
        every step with the number of sentences that ended with it, often 0.
        """
        batch = [row for group in groups for row in group.rows]
        counts = [len(row.instance.window.current) for row in batch]
        unreported = dict(enumerate(counts))  # rows that are searched again are reported only once

        with listening(lambda ended: on_sentences(sum(unreported.pop(row, 0) for row in ended))):
            self._search_and_finish(batch)
        return sum(counts)

    def _search_and_finish(self, batch: Sequence[Row]) -> None:
        plan = self._scorer.plan
        blank: list[Row] = []
        drafts: list[Draft] = []
        searched: list[SearchedWindow] = []
        for row, hypothesis in zip(batch, self._search(batch, plan.search_symbols), strict=True):
            sentences, exact = self._recovered(row, hypothesis)
            if plan.options.align == "constrained" and not self._shows(row, sentences):
                blank.append(row)
            else:
                self._finish(row, sentences, exact, drafts)
                searched.append(SearchedWindow(row, hypothesis, sentences))
        # Bytes that form no character: search again with only visible subwords. In document order, as the
        # extra rows of each window contain the hypotheses before it.
        for row in sorted(blank, key=lambda row: row.number):
            [hypothesis] = self._search([row], self._showing_symbols)
            sentences, exact = self._recovered(row, hypothesis)
            self._finish(row, sentences, exact, drafts)
            searched.append(SearchedWindow(row, hypothesis, sentences))
        if drafts:
            self._substitution.mend(drafts)
        for draft in drafts:
            draft.opened.finish(draft.number, draft.found)
        if self._lists is not None:
            self._lists.find(searched)

    def _finish(
        self, row: Row, sentences: list[SentenceHypothesis], exact: bool, drafts: list[Draft]
    ) -> None:
        """Finish the window of a row, or add it to the drafts if its document has constraints.

        A window may be finished already, if its group failed in the middle and is searched again.
        """
        if row.document.is_finished(row.number):
            return
        if row.document.guide is None or self._scorer.plan.sees_other_rows:
            row.document.finish(row.number, sentences, exact)
        else:
            drafts.append(Draft(row.document, row.number, row.instance, row.request, sentences))

    def _row(self, opened: OpenDocument, number: int) -> Row:
        plan = self._scorer.plan
        instance = opened.instance(number)
        request = self._request(opened, number)
        # Half of the limit is a generous estimate of the output length.
        source_tokens = instance.source_tokens(plan.symbols)
        tokens = source_tokens + len(request.prefix) + sum(request.max_tokens) // 2
        # Constraints widen the beam: one place per bank.
        width = search_width(plan.options.beam, request.automata)
        return Row(width, tokens, source_tokens, opened, number, instance, request)

    def _request(self, opened: OpenDocument, number: int) -> SearchRequest:
        """Return the request for the sentences of a window after its forced prefix."""
        plan, window = self._scorer.plan, opened.windows[number]
        first = window.target.start - window.source.start
        limits = (int(plan.decode.max_ratio * len(opened.source[j])) for j in opened.requested(number))
        # Every sentence has at least a token and its closing symbol.
        most = tuple(max(limit + plan.decode.max_extra, 2) for limit in limits)
        sampling = plan.options.sampling
        request = SearchRequest(
            (),
            first,
            most,
            window.source.start,
            shortlist=self._listed(opened, number),
            seed=(0,) if sampling is None else (sampling.seed, opened.digest, number),
        )
        context = (sentence.tokens for sentence in opened.context(number))
        request = replace(request, prefix=request.closed(context, plan.search_symbols))
        if opened.guide is None or not plan.sees_other_rows:
            return request
        # Rows that attend to each other cannot be corrected: they are searched with constraints.
        sentences = (opened.kept[j] for j in opened.requested(number))
        constraints = [opened.guide.constraints(opened.index, sentence) for sentence in sentences]
        automata = tuple(SentenceAutomaton(c, self._spelling) if c else None for c in constraints)
        if not any(automata):
            return request
        rooms = (0 if automaton is None else automaton.room for automaton in automata)
        most = tuple(limit + room for limit, room in zip(request.max_tokens, rooms, strict=True))
        return replace(request, max_tokens=most, automata=automata)

    def _listed(self, opened: OpenDocument, number: int) -> Tensor | None:
        """Return the tokens that a window may contain, chosen for its whole source, context included."""
        if self._shortlist is None:
            return None
        source = [token for j in opened.windows[number].source for token in opened.source[j]]
        return torch.from_numpy(self._shortlist.of(source, self._scorer.plan.decode.shortlist))

    def _search(self, batch: Sequence[Row], symbols: SearchSymbols) -> list[Hypothesis]:
        scorer, plan = self._scorer, self._scorer.plan
        engine = self._engine if symbols is plan.search_symbols else None
        # The choice depends on the row alone, as its translation must not depend on other rows.
        by_engine = [
            engine is not None and has_room(engine, row.source_tokens, row.request, plan.symbols)
            for row in batch
        ]
        found: dict[int, Hypothesis] = {}
        for chosen in sorted(set(by_engine)):
            members = [n for n in range(len(batch)) if by_engine[n] == chosen]
            rows = [batch[n] for n in members]
            requests, source = [row.request for row in rows], _source(plan, rows)
            with part_of_search(members):
                if chosen:
                    assert engine is not None
                    hypotheses = search_engine(engine, source, requests, symbols, plan.options)
                else:
                    source = source.to(scorer.device)
                    hypotheses = plan.kind.search(scorer.model, source, requests, symbols, plan.options)
            found |= zip(members, hypotheses, strict=True)
        return [found[n] for n in range(len(batch))]

    def _shows(self, row: Row, sentences: Sequence[SentenceHypothesis]) -> bool:
        """Whether every requested current sentence has a visible character."""
        requested = row.document.requested(row.number)
        current = (j for j in row.instance.window.current if j in requested)
        return all(sentences[j - requested.start].text for j in current)

    def _recovered(self, row: Row, hypothesis: Hypothesis) -> tuple[list[SentenceHypothesis], bool]:
        """Return the hypotheses of the requested sentences, and whether the output has exactly these."""
        requested = row.document.requested(row.number)
        # If the context is translated again, only the last sentence is used: count from the end.
        from_end = row.instance.window.current.start > requested.start
        symbols, count = self._scorer.plan.search_symbols, len(requested)
        return found_sentences(hypothesis, row.request, symbols, self._scorer.tokenizer, count, from_end)
