"""Lists of the best translations of sentences, found beside the translation of their windows.

The list of a sentence is given the best translations before it, whatever its window holds besides:

    one sentence is searched    as windows with a forced prefix: what ends in its beam
    several are, one after      each once more by itself, behind the best translations of those before it in
    the other                   the row: as many rows as sentences, of the same source

What the system writes is the first of the list. Where several sentences were searched together, a beam of the
sentence alone may find one that scores higher, and that comes second.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from cotext.data.batch import Instance, Source
from cotext.data.collate import pack, source_batch
from cotext.data.nbest_lists import Candidate, Candidates
from cotext.data.tokenizer import Tokenizer
from cotext.search.beam_search import Hypothesis
from cotext.search.constraints import SearchRequest
from cotext.search.nbest_beam import Alternative
from cotext.translation.document_state import OpenDocument, SentenceHypothesis
from cotext.translation.scorer import DocumentScorer
from cotext.translation.window_groups import source_of


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
