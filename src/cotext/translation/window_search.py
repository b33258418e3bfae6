"""Search of windows: their requests, the batches that they share, and their results.

A window is ready when its forced prefix is finished. Windows in which a sentence has no visible text are
searched again separately (constrained search).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, takewhile
from math import inf

import torch
from torch import Tensor

from cotext.data.batch import Source, pack, source_batch
from cotext.data.documents import Document
from cotext.data.nbest_lists import Candidate, Candidates
from cotext.data.shortlist import Shortlist
from cotext.data.tokenizer import Tokenizer
from cotext.models.interface import Engine
from cotext.search.constraints import SearchRequest, SearchSymbols, listening, part_of_search
from cotext.search.engine import has_room, search_engine
from cotext.search.hypotheses import Alternative, Hypothesis
from cotext.translation.document_state import (
    OpenDocument,
    Row,
    SentenceHypothesis,
    found_sentences,
    source_of,
)
from cotext.translation.plan import DecodingPlan
from cotext.translation.scorer import DocumentScorer
from cotext.translation.substitution import Draft, Substitution
from cotext.translation.terms.terms import TermGuide

BATCHES_AHEAD = 4  # batches of ready windows to hold, so that similar lengths can share a batch

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

    row: Row
    hypothesis: Hypothesis
    sentences: Sequence[SentenceHypothesis]


def further(first: str, others: Iterable[Alternative], tokenizer: Tokenizer, most: int) -> Candidates:
    """Return up to `most` translations whose texts differ from the first one and from each other.

    If several tokenisations have the same text, the best one is returned. Empty texts are dropped.
    """
    candidates: dict[str, Candidate] = {}
    for alternative in others:
        if len(candidates) == most:
            break
        text = tokenizer.decode(alternative.tokens)
        if text and text != first and text not in candidates:
            candidates[text] = Candidate(text, alternative.log_probability, alternative.score)
    return tuple(candidates.values())


@dataclass(frozen=True, slots=True, eq=False)
class RowGroup:
    """Rows of a document that share a batch: one row, or all of a group of windows that is searched together.

    `longest`: tokens of the longest row, in all beams. `cost`: tokens of the group in a separate batch.
    """

    document: OpenDocument
    rows: tuple[Row, ...]
    longest: int

    @property
    def cost(self) -> int:
        return len(self.rows) * self.longest


def rows_source(rows: Sequence[Row], plan: DecodingPlan) -> Source:
    """Return the source of rows to search, with their groups if rows attend to each other."""
    if not plan.sees_other_rows:
        return source_batch([row.instance for row in rows], plan.symbols)
    return source_of([(row.document, row.number) for row in rows], plan.group_windows, plan.symbols)


def search_batch(scorer: DocumentScorer, rows: Sequence[Row], symbols: SearchSymbols) -> list[Hypothesis]:
    """Search rows in one batch; chunks that are searched sentence by sentence use their caches."""
    plan = scorer.plan
    source = rows_source(rows, plan).to(scorer.device)
    if plan.searched_view is not plan.view:
        source.caches = [row.document.cache(row.number) for row in rows]
    requests = [row.request for row in rows]
    return plan.kind.search(scorer.model, source, requests, symbols, plan.options)


def search_rows(scorer: DocumentScorer, rows: Sequence[Row], symbols: SearchSymbols) -> list[Hypothesis]:
    """Search rows of windows that were searched before, in batches of `decode.max_tokens`."""
    plan = scorer.plan
    costs = [plan.options.beam * row.tokens for row in rows]
    order = sorted(range(len(rows)), key=costs.__getitem__)
    # If rows attend to each other, rows of one window must not share a batch.
    batches = [[n] for n in range(len(rows))]
    if not plan.sees_other_rows:
        batches = pack([[costs[n]] for n in order], plan.decode.max_tokens)
    found: dict[int, Hypothesis] = {}
    for batch in reversed(batches):
        members = [order[n] for n in batch]
        hypotheses = search_batch(scorer, [rows[n] for n in members], symbols)
        found |= zip(members, hypotheses, strict=True)
    return [found[n] for n in range(len(rows))]


class WindowSearch:
    """The search of a system for the windows of its documents.

    `shortlist`: the tokens to choose from. `engine` searches windows in place of the model, except windows
    that are too long for it, and those that are searched again.
    """

    def __init__(
        self, scorer: DocumentScorer, shortlist: Shortlist | None = None, engine: Engine | None = None
    ) -> None:
        self._scorer = scorer
        self._shortlist = shortlist
        self._engine = engine

    @cached_property
    def _substitution(self) -> Substitution:
        search = partial(search_rows, self._scorer, symbols=self._showing_symbols)
        return Substitution(self._scorer, self._showing_symbols, search)

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
        guide: TermGuide | None = None,
        taken: Mapping[int, str] | None = None,
    ) -> OpenDocument:
        """Return a document before its first batch; `index` identifies it for `guide` and a log.

        `first_pass`: its translation by another system. `taken`: given translations of some sentences.

        Raises CotextError if a sentence is longer than `decode.max_source_tokens`.
        """
        scorer, plan = self._scorer, self._scorer.plan
        source = scorer.encoded(document.id, document.sentences)
        before = None if first_pass is None else scorer.tokenizer.encode_batch(first_pass, side="target")
        # Decoding starts from the target sentences before the current ones, unless it regenerates them.
        forces_prefix = plan.decode.target_context == "prefix" or plan.searched_view is not plan.view
        opened = OpenDocument(
            index, document, source, plan.searched_view, forces_prefix, before, plan.sequential_windows, guide
        )
        if taken:
            # Constraints, and rows that attend to others, need all sentences of a chunk.
            forces = plan.kind.path is None and guide is None and not plan.sees_other_rows
            opened.take(taken, partial(scorer.tokenizer.encode, side="target"), forces)
        return opened

    @property
    def max_ready_tokens(self) -> float:
        """Maximum number of tokens to prepare per document; limited only if chunks keep caches in memory."""
        plan = self._scorer.plan
        return inf if plan.searched_view is plan.view else BATCHES_AHEAD * plan.decode.max_tokens

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
            rows = tuple(self._row(opened, number) for number in members)
            yield RowGroup(opened, rows, plan.options.beam * max(row.tokens for row in rows))

    def batches(self, groups: Sequence[RowGroup]) -> Iterator[list[RowGroup]]:
        """Yield batches of `decode.max_tokens`, of rows of similar length, longest first."""
        # The longest batch comes first, so that a lack of memory shows at once.
        ordered = sorted(groups, key=lambda group: max((r.tokens, r.source_tokens) for r in group.rows))
        lengths = [[group.longest] * len(group.rows) for group in ordered]
        for members in reversed(pack(lengths, self._scorer.config.decode.max_tokens)):
            yield [ordered[n] for n in members]

    def search(
        self, groups: Sequence[RowGroup], on_sentences: Callable[[int], None] = lambda count: None
    ) -> int:
        """Search a batch of groups; return the number of its current sentences.

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
        found = list(zip(batch, self._search(batch, plan.search_symbols), strict=True))
        if plan.sees_other_rows:
            # In document order, as the extra rows of each window contain the hypotheses before it.
            found.sort(key=lambda pair: pair[0].number)
        drafts: list[tuple[Draft, bool]] = []
        searched: list[SearchedWindow] = []
        replaced: set[tuple[OpenDocument, int]] = set()  # groups with a corrected or given sentence
        for row, hypothesis in found:
            opened, group = row.document, (row.document, row.number // plan.group_windows)
            # A window may be finished already, if its group failed in the middle and is searched again.
            finished = opened.is_finished(row.number)
            if group in replaced and not finished:
                # A sentence of the group was replaced after this hypothesis had been found.
                [hypothesis] = self._search([row], plan.search_symbols)
            sentences, exact = self._recovered(row, hypothesis)
            if plan.options.align == "constrained" and not self._shows(row, sentences):
                # Bytes that form no character: search again with only visible subwords.
                [hypothesis] = self._search([row], self._showing_symbols)
                sentences, exact = self._recovered(row, hypothesis)
            searched.append(SearchedWindow(row, hypothesis, sentences))
            if not finished:
                drafts.append((Draft(row, [*sentences]), exact))
                if opened.guide is None or plan.sees_other_rows:
                    self._finish([drafts.pop()])
            if plan.searches_groups and not opened.has_written(row.number, sentences):
                replaced.add(group)
        self._finish(drafts)
        if plan.options.nbest > 1:
            self._find_lists(searched)

    def _find_lists(self, windows: Sequence[SearchedWindow]) -> None:
        """Record the n-best lists of the current sentences of windows in their documents."""
        separate: list[tuple[SearchedWindow, int, int, SearchRequest]] = []
        for window in windows:
            for j, k in window.row.current:
                if window.hypothesis.others:
                    self._note(window, j, k, window.hypothesis.others[k])
                else:
                    separate.append((window, j, k, self._request_of_one(window, k)))
        rows = [replace(window.row, request=request) for window, *_, request in separate]
        hypotheses = search_rows(self._scorer, rows, self._scorer.plan.search_symbols)
        for (window, j, k, _), hypothesis in zip(separate, hypotheses, strict=True):
            best = Alternative(tuple(hypothesis.tokens), hypothesis.log_probability, hypothesis.score)
            self._note(window, j, k, (best, *chain.from_iterable(hypothesis.others)))

    def _note(self, window: SearchedWindow, j: int, k: int, others: Iterable[Alternative]) -> None:
        most = self._scorer.plan.options.nbest - 1
        text = window.sentences[k].text
        window.row.document.others[j] = further(text, others, self._scorer.tokenizer, most)

    def _request_of_one(self, window: SearchedWindow, k: int) -> SearchRequest:
        """Return the request for one sentence after the best translations of the sentences before it."""
        request, before = window.row.request, (sentence.tokens for sentence in window.sentences[:k])
        prefix = request.closed(before, self._scorer.plan.search_symbols)
        row_continues = k + 1 < request.sentences or request.row_continues
        return replace(
            request, prefix=prefix, max_tokens=(request.max_tokens[k],), row_continues=row_continues
        )

    def _finish(self, drafts: Sequence[tuple[Draft, bool]]) -> None:
        """Correct windows whose documents have constraints, and finish them."""
        if guided := [draft for draft, _ in drafts if draft.row.document.guide is not None]:
            self._substitution.mend(guided)
        for draft, exact in drafts:
            draft.row.document.finish(draft.row.number, draft.found, exact)

    def _row(self, opened: OpenDocument, number: int) -> Row:
        plan = self._scorer.plan
        instance = opened.instance(number)
        request = self._request(opened, number)
        return Row(instance.source_tokens(plan.symbols), opened, number, instance, request)

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
        return replace(request, prefix=request.closed(context, plan.search_symbols))

    def _listed(self, opened: OpenDocument, number: int) -> Tensor | None:
        """Return the tokens that a window may contain, chosen for its whole source, context included."""
        if self._shortlist is None:
            return None
        source = [token for j in opened.windows[number].source for token in opened.source[j]]
        return torch.from_numpy(self._shortlist.of(source, self._scorer.plan.decode.shortlist))

    def _search(self, batch: Sequence[Row], symbols: SearchSymbols) -> list[Hypothesis]:
        scorer, plan = self._scorer, self._scorer.plan
        engine = self._engine if symbols is plan.search_symbols else None
        # The choice depends only on the row, as its translation must not depend on other rows.
        by_engine = [
            engine is not None and has_room(engine, row.source_tokens, row.request, plan.symbols)
            for row in batch
        ]
        found: dict[int, Hypothesis] = {}
        for chosen in sorted(set(by_engine)):
            members = [n for n in range(len(batch)) if by_engine[n] == chosen]
            rows = [batch[n] for n in members]
            with part_of_search(members):
                if chosen:
                    assert engine is not None
                    requests, source = [row.request for row in rows], rows_source(rows, plan)
                    hypotheses = search_engine(engine, source, requests, symbols, plan.options)
                else:
                    hypotheses = search_batch(scorer, rows, symbols)
            found |= zip(members, hypotheses, strict=True)
        return [found[n] for n in range(len(batch))]

    def _shows(self, row: Row, sentences: Sequence[SentenceHypothesis]) -> bool:
        """Whether every requested current sentence has a visible character."""
        return all(sentences[k].text for _, k in row.current)

    def _recovered(self, row: Row, hypothesis: Hypothesis) -> tuple[list[SentenceHypothesis], bool]:
        """Return the hypotheses of the requested sentences, and whether the output has exactly these."""
        requested = row.document.requested(row.number)
        # If the context is translated again, only the last sentence is used: count from the end.
        from_end = row.instance.window.current.start > requested.start
        symbols, count = self._scorer.plan.search_symbols, len(requested)
        return found_sentences(hypothesis, row.request, symbols, self._scorer.tokenizer, count, from_end)
