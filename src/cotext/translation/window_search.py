"""Search of windows: which requests they are, which of them share a batch, and what is found for each.

A window is ready when its forced prefix is finished. Of the windows of a batch, those whose output shows
nothing are searched once more by themselves.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import takewhile

import torch
from torch import Tensor

from cotext.data.batch import Instance, Source
from cotext.data.collate import pack, source_batch
from cotext.data.documents import Document
from cotext.data.nbest_lists import Candidate, Candidates
from cotext.data.shortlist import Shortlist
from cotext.data.tokenizer import Tokenizer
from cotext.search.beam_search import Hypothesis
from cotext.search.constraints import SearchRequest, SearchSymbols
from cotext.search.guide import Guide
from cotext.search.lexical import SentenceAutomaton
from cotext.search.lexical_search import search_width
from cotext.search.nbest_beam import Alternative
from cotext.search.spelling import Spelling
from cotext.search.steps import listening
from cotext.translation.document_state import OpenDocument, SentenceHypothesis, found_sentences, source_of
from cotext.translation.scorer import DocumentScorer
from cotext.translation.substitution import Draft, Substitution

# --- Lists of the best translations of sentences, found beside the translation of their windows.
#
# The list of a sentence is given the best translations before it, whatever its window holds besides:
#
#     one sentence is searched    as windows with a forced prefix: what ends in its beam
#     several are, one after      each once more by itself, behind the best translations of those before it in
#     the other                   the row: as many rows as sentences, of the same source
#
# What the system writes is the first of the list. Where several sentences were searched together, a beam of
# the sentence alone may find one that scores higher, and that comes second.


@dataclass(frozen=True, slots=True)
class SearchedWindow:
    """A window of a document that is finished: what was asked for, and what was found."""

    opened: OpenDocument
    number: int
    instance: Instance
    request: SearchRequest
    hypothesis: Hypothesis
    found: Sequence[SentenceHypothesis]

    @property
    def current(self) -> Iterator[tuple[int, int]]:
        """The current sentences: index in the document, and among those requested."""
        requested = self.opened.requested(self.number)
        return ((j, j - requested.start) for j in self.instance.window.current if j in requested)


class SentenceLists:
    """The lists of a system with `decode.nbest` above 1."""

    def __init__(self, scorer: DocumentScorer) -> None:
        self._scorer = scorer

    def find(self, windows: Sequence[SearchedWindow]) -> None:
        """Note the lists of the current sentences of windows in their documents."""
        alone: list[tuple[SearchedWindow, int, SearchRequest]] = []
        for window in windows:
            for j, k in window.current:
                if window.hypothesis.others:
                    self._note(window, j, k, window.hypothesis.others[k])
                else:
                    alone.append((window, j, self._request(window, k)))
        for window, j, hypothesis in self._searched(alone):
            best = Alternative(tuple(hypothesis.tokens), hypothesis.log_probability, hypothesis.score)
            k = j - window.opened.requested(window.number).start
            self._note(window, j, k, (best, *(each for of in hypothesis.others for each in of)))

    def _note(self, window: SearchedWindow, j: int, k: int, others: Iterable[Alternative]) -> None:
        most = self._scorer.plan.options.nbest - 1
        window.opened.others[j] = further(window.found[k].text, others, self._scorer.tokenizer, most)

    def _request(self, window: SearchedWindow, k: int) -> SearchRequest:
        """The request for one sentence behind the best translations of those before it."""
        symbols = self._scorer.plan.symbols
        prefix, request = list(window.request.prefix), window.request
        first = request.first_sentence + request.closed_before(self._scorer.plan.search_symbols)
        for number, sentence in enumerate(window.found[:k], start=first):
            prefix += (*sentence.tokens, symbols.separator(number))
        goes_on = k + 1 < request.sentences or request.goes_on
        return replace(request, prefix=prefix, max_tokens=(request.max_tokens[k],), goes_on=goes_on)

    def _searched(
        self, rows: Sequence[tuple[SearchedWindow, int, SearchRequest]]
    ) -> Iterator[tuple[SearchedWindow, int, Hypothesis]]:
        """Search for single sentences, in batches of `decode.max_tokens`."""
        scorer, plan = self._scorer, self._scorer.plan
        costs = []
        for window, _, request in rows:
            length = window.instance.source_tokens(plan.symbols) + len(request.prefix)
            costs.append(plan.options.beam * (length + sum(request.max_tokens) // 2))
        order = sorted(range(len(rows)), key=costs.__getitem__)
        # Rows of one window would see each other.
        batches = [[n] for n in order]
        if not plan.sees_other_rows:
            found = pack([[costs[n]] for n in order], plan.decode.max_tokens)
            batches = [[order[n] for n in members] for members in reversed(found)]
        for batch in batches:
            members = [rows[n] for n in batch]
            source = self._source([window for window, _, _ in members]).to(scorer.device)
            requests = [request for _, _, request in members]
            hypotheses = plan.kind.search(scorer.model, source, requests, plan.search_symbols, plan.options)
            for (window, j, _), hypothesis in zip(members, hypotheses, strict=True):
                yield window, j, hypothesis

    def _source(self, windows: Sequence[SearchedWindow]) -> Source:
        plan = self._scorer.plan
        if plan.sees_other_rows:
            seen = [(window.opened, window.number) for window in windows]
            return source_of(seen, plan.group_windows, plan.symbols)
        return source_batch([window.instance for window in windows], plan.symbols)


def further(first: str, others: Iterable[Alternative], tokenizer: Tokenizer, most: int) -> Candidates:
    """At most so many translations that differ from the first one and from each other as texts.

    Of several tokenisations of a text, the best one counts; what shows nothing is left out.
    """
    found: dict[str, Candidate] = {}
    for each in others:
        if len(found) == most:
            break
        text = tokenizer.decode(each.tokens)
        if text and text != first and text not in found:
            found[text] = Candidate(text, each.log_probability, each.score)
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class Row:
    """A window about to be searched."""

    width: int  # of its beam
    tokens: int  # that each hypothesis takes in a batch
    source_tokens: int
    document: OpenDocument
    number: int  # of the window in its document
    instance: Instance
    request: SearchRequest


@dataclass(frozen=True, slots=True, eq=False)
class RowGroup:
    """Rows of a document that share a batch: one, or all of a group of windows that is searched together.

    `width` is that of the widest beam: a row is searched as wide as by itself, whatever others have to keep,
    so that batches are of groups of one width. `longest`: tokens that a row takes at most, beams included.
    """

    document: OpenDocument
    rows: tuple[Row, ...]
    width: int
    longest: int

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "RowGroup":
        """The group of these rows."""
        width = max(row.width for row in rows)
        return cls(rows[0].document, tuple(rows), width, width * max(row.tokens for row in rows))

    @property
    def cost(self) -> int:
        """What it takes in a batch by itself, in tokens, beams and padding included."""
        return len(self.rows) * self.longest


class WindowSearch:
    """The search of a system for the windows of its documents; `shortlist` says what each may hold."""

    def __init__(self, scorer: DocumentScorer, shortlist: Shortlist | None = None) -> None:
        self._scorer = scorer
        self._shortlist = shortlist
        self._lists = SentenceLists(scorer) if scorer.plan.options.nbest > 1 else None

    @cached_property
    def _spelling(self) -> Spelling:
        return Spelling(self._scorer.tokenizer)

    @cached_property
    def _substitution(self) -> Substitution:
        return Substitution(self._scorer, self._spelling, self._showing_symbols)

    @cached_property
    def _showing_symbols(self) -> SearchSymbols:
        """The symbols of search, with all subwords as blank that decode to an empty string alone.

        Such are single bytes of a character too.
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
        """A document before its first batch; `index` is what `guide` and a log call it by.

        `first_pass`: its translation by another system; `taken`: those of some sentences, which are given.

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
            # Constraints of terms, and rows that see others, count the sentences of a whole piece.
            forces = plan.kind.path is None and guide is None and not plan.sees_other_rows
            opened.take(taken, partial(scorer.tokenizer.encode, side="target"), forces)
        return opened

    def settle(self, opened: OpenDocument) -> int:
        """Finish the ready windows of a document whose sentences are given; how many are current in them."""
        # A group that is searched together is in one batch, whatever is given of it.
        return opened.finish_taken() if opened.taken and not self._scorer.plan.searches_groups else 0

    def ready_tokens(self, opened: OpenDocument) -> int:
        """Source tokens of the windows of a document that are ready."""
        symbols = self._scorer.plan.symbols.per_source_sentence
        return sum(len(opened.source[j]) + symbols for n in opened.ready for j in opened.windows[n].source)

    def groups(self, opened: OpenDocument) -> Iterator[RowGroup]:
        """The windows of a document that are ready, in turn, each taken from those that are."""
        plan = self._scorer.plan
        size = plan.group_windows if plan.searches_groups else 1
        while opened.ready:
            stop = (opened.ready[0] // size + 1) * size
            members = list(takewhile(stop.__gt__, opened.ready))
            del opened.ready[: len(members)]
            yield RowGroup.of([self._row(opened, number) for number in members])

    def batches(self, groups: Sequence[RowGroup]) -> Iterator[list[RowGroup]]:
        """Batches of `decode.max_tokens` of all of these groups, of rows of like length, longest first."""
        # Longest last, then first: what does not fit into memory fails at once.
        ordered = sorted(
            groups, key=lambda group: max((r.tokens * r.width, r.source_tokens) for r in group.rows)
        )
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
        """Search a batch of groups of one width; the number of current sentences in it.

        Constrained, every current sentence gets a visible character. `on_sentences` is told after every step
        of the search how many of these sentences have ended with it, mostly none.
        """
        batch = [row for group in groups for row in group.rows]
        counts = [len(row.instance.window.current) for row in batch]
        untold = dict(enumerate(counts))  # rows that are searched again have been told

        with listening(lambda ended: on_sentences(sum(untold.pop(row, 0) for row in ended))):
            self._search_and_finish(batch)
        return sum(counts)

    def _search_and_finish(self, batch: Sequence[Row]) -> None:
        plan = self._scorer.plan
        blank: list[Row] = []
        drafts: list[Draft] = []
        searched: list[SearchedWindow] = []
        for row, hypothesis in zip(batch, self._search(batch, plan.search_symbols), strict=True):
            found, exact = self._recovered(row, hypothesis)
            if plan.options.align == "constrained" and not self._shows(row, found):
                blank.append(row)
            else:
                self._finish(row, found, exact, drafts)
                searched.append(_searched_window(row, hypothesis, found))
        # Bytes that form no character: searched once more, with subwords that show something by themselves;
        # in document order, as the extra rows of each hold the hypotheses before it.
        for row in sorted(blank, key=lambda row: row.number):
            [hypothesis] = self._search([row], self._showing_symbols)
            found, exact = self._recovered(row, hypothesis)
            self._finish(row, found, exact, drafts)
            searched.append(_searched_window(row, hypothesis, found))
        if drafts:
            self._substitution.mend(drafts)
        for draft in drafts:
            draft.opened.finish(draft.number, draft.found)
        if self._lists is not None:
            self._lists.find(searched)

    def _finish(self, row: Row, found: list[SentenceHypothesis], exact: bool, drafts: list[Draft]) -> None:
        """Finish the window of a row, or put it to the drafts, where it was searched without constraints.

        One of a group that failed in the middle, and is searched again, may be finished.
        """
        if row.document.is_finished(row.number):
            return
        if row.document.guide is None or self._scorer.plan.sees_other_rows:
            row.document.finish(row.number, found, exact)
        else:
            drafts.append(Draft(row.document, row.number, row.instance, row.request, found))

    def _row(self, opened: OpenDocument, number: int) -> Row:
        plan = self._scorer.plan
        instance = opened.instance(number)
        request = self._request(opened, number)
        # Half of the limit is a generous guess at the length of the output.
        source_tokens = instance.source_tokens(plan.symbols)
        tokens = source_tokens + len(request.prefix) + sum(request.max_tokens) // 2
        width = search_width(plan.options.beam, request.automata)
        return Row(width, tokens, source_tokens, opened, number, instance, request)

    def _request(self, opened: OpenDocument, number: int) -> SearchRequest:
        """The sentences of a window after its forced prefix."""
        plan, window = self._scorer.plan, opened.windows[number]
        first = window.target.start - window.source.start
        prefix: list[int] = []
        for k, sentence in enumerate(opened.context(number), start=first):
            prefix += (*sentence.tokens, plan.symbols.separator(k))
        limits = (int(plan.decode.max_ratio * len(opened.source[j])) for j in opened.requested(number))
        # Every sentence takes a token and the symbol that closes it, whatever the limit.
        most = tuple(max(limit + plan.decode.max_extra, 2) for limit in limits)
        request = SearchRequest(
            prefix, first, most, window.source.start, shortlist=self._listed(opened, number)
        )
        if opened.guide is None or not plan.sees_other_rows:
            return request
        return constrained(request, opened, number, self._spelling)

    def _listed(self, opened: OpenDocument, number: int) -> Tensor | None:
        """The tokens that a window may hold: those that go with all of its source, context included."""
        if self._shortlist is None:
            return None
        source = [token for j in opened.windows[number].source for token in opened.source[j]]
        return torch.from_numpy(self._shortlist.of(source, self._scorer.plan.decode.shortlist))

    def _search(self, batch: Sequence[Row], symbols: SearchSymbols) -> list[Hypothesis]:
        scorer, plan = self._scorer, self._scorer.plan
        if plan.sees_other_rows:
            windows = [(row.document, row.number) for row in batch]
            source = source_of(windows, plan.group_windows, plan.symbols)
        else:
            source = source_batch([row.instance for row in batch], plan.symbols)
        requests = [row.request for row in batch]
        return plan.kind.search(scorer.model, source.to(scorer.device), requests, symbols, plan.options)

    def _shows(self, row: Row, found: Sequence[SentenceHypothesis]) -> bool:
        """Whether every current sentence, of those requested that were found, holds a visible character."""
        requested = row.document.requested(row.number)
        shown = (j for j in row.instance.window.current if j in requested)
        return all(found[j - requested.start].text for j in shown)

    def _recovered(self, row: Row, hypothesis: Hypothesis) -> tuple[list[SentenceHypothesis], bool]:
        """The hypothesis of each sentence requested, and whether it has exactly these sentences, in order."""
        requested = row.document.requested(row.number)
        from_end = row.instance.window.current.start > requested.start
        symbols, count = self._scorer.plan.search_symbols, len(requested)
        return found_sentences(hypothesis, row.request, symbols, self._scorer.tokenizer, count, from_end)


def _searched_window(row: Row, hypothesis: Hypothesis, found: Sequence[SentenceHypothesis]) -> SearchedWindow:
    return SearchedWindow(row.document, row.number, row.instance, row.request, hypothesis, found)


def constrained(
    request: SearchRequest, opened: OpenDocument, number: int, spelling: Spelling
) -> SearchRequest:
    """The request of a window with the constraints of its sentences, and with room for them."""
    assert opened.guide is not None
    sentences = (opened.kept[j] for j in opened.requested(number))
    constraints = [opened.guide.constraints(opened.index, sentence) for sentence in sentences]
    if not any(constraints):
        return request
    automata = tuple(SentenceAutomaton(c, spelling) if c else None for c in constraints)
    rooms = (0 if automaton is None else automaton.room for automaton in automata)
    most = tuple(limit + room for limit, room in zip(request.max_tokens, rooms, strict=True))
    return replace(request, max_tokens=most, automata=automata)
