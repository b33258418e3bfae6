"""Substitution: lexical constraints that a free translation misses, met where it renders their source.

    source     The ladder was very fragile.          ladder: Treppe
    free       Die Leiter war sehr zerbrechlich.     "Leiter" is aligned with "ladder"
    proposals  Die Treppe war sehr zerbrechlich.     in place of what is aligned
               Die Treppe | ...                      the rest searched
               Die | ... | ... Treppe ...            searched with the constraint, from a word before on

Search with a constraint alone finds the place of a term by what its tokens cost there, and often writes the
model's own rendering beside it. Here the alignment of the model's attention says the place. Sentences that
keep their constraints freely are left as they are. The others are mended from left to right, one missing
phrase after the other; of the proposals for it, the most probable is chosen, after a deduction for a
rendering that stands beside its term and for words too many or too few. Around copied text, which a model
may never have seen, the free translation is often broken: a search from the beginning is one more proposal.
Where no proposal keeps the constraints, or a guide does not say what a phrase renders, the sentence is
searched with all of them (`lexical_search.py`).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final

from cotext.data.batch import Instance
from cotext.data.collate import pack, source_batch
from cotext.data.words import occurrences, token_spans, words_of
from cotext.search.constraints import SearchRequest, SearchSymbols
from cotext.search.guide import SentenceConstraints
from cotext.search.lexical import SentenceAutomaton, Written
from cotext.search.lexical_search import search_width
from cotext.search.spelling import Spelling
from cotext.translation.alignment import Attended, attention_of
from cotext.translation.document_state import OpenDocument, SentenceHypothesis, found_sentences
from cotext.translation.scorer import DocumentScorer, score_labels
from cotext.translation.terms.word_alignment import SentenceAlignment, Span, proportional, renderings

# Log-probability that a proposal loses for a rendering that still stands beside its term, and for every word
# that it has more, or fewer, than the free translation with the phrase in place of the rendering, in which a
# word several times in a row counts as one.
STUTTER: Final = 8.0
LENGTH: Final = 5.0
# Of the alternatives of a term, at most so many are proposed.
_MAX_PHRASES: Final = 8
_PLACES: Final = 2


@dataclass(slots=True)
class Draft:
    """A window of a document and its free translation, whose sentences are mended from left to right.

    `at`: the sentence, of those requested, that does not keep `constraints`; -1 before the first. `own`: the
    words in it that may render what is missed, each with its share in that; `phrases`: what is missed.
    """

    opened: OpenDocument
    number: int
    instance: Instance
    request: SearchRequest  # of free search
    found: list[SentenceHypothesis]
    at: int = -1
    constraints: SentenceConstraints = field(default_factory=SentenceConstraints)
    automaton: SentenceAutomaton | None = None
    proposals_left: int = 0
    is_changed: bool = False
    own: list[tuple[float, str]] = field(default_factory=list)
    phrases: tuple[str, ...] = ()

    @property
    def sentence(self) -> int:
        """The sentence that is mended, among those of the document that have a token."""
        return self.opened.requested(self.number)[self.at]

    @property
    def source(self) -> str:
        """The source of that sentence."""
        return self.opened.document.sentences[self.opened.kept[self.sentence]]

    def constrain(self, spelling: Spelling) -> None:
        """Ask the guide for the constraints of the sentence."""
        opened = self.opened
        assert opened.guide is not None
        self.constraints = opened.guide.constraints(opened.index, opened.kept[self.sentence])
        self.automaton = SentenceAutomaton(self.constraints, spelling) if self.constraints else None
        self.proposals_left = len(self.constraints.places)

    def misses(self) -> bool:
        """Whether the sentence does not keep its constraints."""
        return self.automaton is not None and not _keeps(self.automaton, self.found[self.at].tokens)

    def reduced(self, phrases: tuple[str, ...]) -> SentenceConstraints:
        """The constraints without those that the sentence misses, but for one."""
        left = Counter(each for each, _ in self.missing())
        left[phrases] -= 1
        kept: dict[bool, list[tuple[str, ...]]] = {False: [], True: []}
        for is_copied, wanted in ((False, self.constraints.required), (True, self._copied)):
            for each in wanted:
                if left[each] > 0:
                    left[each] -= 1
                else:
                    kept[is_copied].append(each)
        return replace(
            self.constraints, required=tuple(kept[False]), copied=tuple(t for [t] in kept[True]), places=()
        )

    def penalty(self, text: str) -> float:
        """The log-probability that a text loses for what stands in it beside the missing phrase, or lacks."""
        if not self.own:
            return 0.0
        beside = sum(share for share, word in self.own if any(occurrences(text, [word])))
        _, phrase = next(occurrences(text, self.phrases), (0, ""))
        free = groupby(words_of(self.found[self.at].text), key=lambda word: word.text)
        wanted = sum(1 for _ in free) - len(words_of(self.own[0][1])) + len(words_of(phrase))
        return STUTTER * beside + LENGTH * abs(len(words_of(text)) - wanted)

    @property
    def _copied(self) -> list[tuple[str, ...]]:
        return [(text,) for text in self.constraints.copied]

    def missing(self) -> list[tuple[tuple[str, ...], Span]]:
        """The phrases that the sentence lacks, one of each entry, and what they render in the source."""
        wanted = [*self.constraints.required, *self._copied]
        text, found = self.found[self.at].text, []
        standing = {phrases: sum(1 for _ in occurrences(text, phrases)) for phrases in set(wanted)}
        for phrases, place in zip(wanted, self.constraints.places, strict=True):
            standing[phrases] -= 1
            if standing[phrases] < 0:
                found.append((phrases, place))
        return found


@dataclass(frozen=True, slots=True)
class _Proposal:
    """A way to translate a sentence: the tokens it begins with, and the constraints of what follows.

    `whole`: nothing follows.
    """

    draft: Draft
    begun: tuple[int, ...]
    automaton: SentenceAutomaton
    whole: bool = False


class Substitution:
    """The mending of the drafts of a system whose rows do not see each other.

    `symbols` are those of search, whose blank ones include all that show nothing by themselves.
    """

    def __init__(self, scorer: DocumentScorer, spelling: Spelling, symbols: SearchSymbols) -> None:
        self._scorer = scorer
        self._spelling = spelling
        self._symbols = symbols

    def mend(self, drafts: Sequence[Draft]) -> None:
        """Make the sentences of drafts keep their constraints, in place."""
        active = [draft for draft in drafts if self._goes_on(draft)]
        while active:
            self._mend_further(active)
            active = [draft for draft in active if self._goes_on(draft)]
        changed = [draft for draft in drafts if draft.is_changed]
        rows = [_instance(draft, draft.found) for draft in changed]
        for draft, of_row in zip(changed, self._scores(rows), strict=True):
            draft.found = [
                replace(sentence, log_probability=sum(scores), labels=len(scores))
                for sentence, scores in zip(draft.found, of_row, strict=True)
            ]

    def _goes_on(self, draft: Draft) -> bool:
        """Go to the next sentence that misses a constraint; whether there is one."""
        if draft.at >= 0 and draft.misses():
            return True
        while draft.at + 1 < len(draft.found):
            draft.at += 1
            draft.constrain(self._spelling)
            if draft.misses():
                return True
        return False

    def _mend_further(self, drafts: Sequence[Draft]) -> None:
        """Meet one constraint more of the sentence that each draft is at, or all of them."""
        proposals: list[_Proposal] = []
        for draft, alignment in zip(drafts, self._alignments(drafts), strict=True):
            own = list(self._proposals(draft, alignment)) if draft.proposals_left else []
            draft.proposals_left -= bool(own)
            assert draft.automaton is not None
            if not own:
                draft.own = []
                own.append(_Proposal(draft, (), draft.automaton))
            proposals += own
        found: dict[int, list[tuple[_Proposal, SentenceHypothesis]]] = {id(draft): [] for draft in drafts}
        for proposal, sentence in zip(proposals, self._written(proposals), strict=True):
            if proposal.automaton is proposal.draft.automaton or _keeps(proposal.automaton, sentence.tokens):
                found[id(proposal.draft)].append((proposal, sentence))
        self._choose(drafts, found)
        self._search_rests([d for d in drafts if not d.misses() and d.at + 1 < len(d.found)])

    def _alignments(self, drafts: Sequence[Draft]) -> list[SentenceAlignment]:
        """The alignments of the sentences that drafts are at, each with its translation so far."""
        scorer, tokenizer = self._scorer, self._scorer.tokenizer
        rows = [_instance(draft, draft.found, draft.sentence) for draft in drafts]
        budget = scorer.config.decode.max_tokens
        read = attention_of(Attended(), scorer.model, rows, scorer.plan.symbols, budget, scorer.device)
        found = []
        for draft, [weights] in zip(drafts, read, strict=True):
            sentence, source = draft.found[draft.at], draft.source
            if not bool(weights.any()):
                found.append(proportional(source, sentence.text))
                continue
            of_source = token_spans(tokenizer, draft.opened.source[draft.sentence], source, "source")
            of_target = token_spans(tokenizer, sentence.tokens, sentence.text, "target")
            found.append(SentenceAlignment(tuple(of_source), tuple(of_target), weights))
        return found

    def _proposals(self, draft: Draft, alignment: SentenceAlignment) -> Iterator[_Proposal]:
        """The proposals for the first phrase that a sentence misses, by its place there."""
        text = draft.found[draft.at].text
        places = [
            (found, phrases)
            for phrases, span in draft.missing()
            if (found := renderings(alignment, (draft.source, text), span))
        ]
        if not places:
            return
        found, phrases = min(places, key=lambda each: each[0][0][1])
        automaton = SentenceAutomaton(draft.reduced(phrases), self._spelling)
        draft.phrases = tuple(phrases)
        draft.own = [(share, text[start:stop]) for share, (start, stop) in found]
        if phrases[0] in draft.constraints.copied:
            yield _Proposal(draft, (), automaton)
        for rank, (_, span) in enumerate(found[:_PLACES]):
            for begun, is_whole in self._begun(draft.found[draft.at], span, phrases):
                if (is_whole or not rank) and _written(automaton, begun) is not None:
                    yield _Proposal(draft, begun, automaton, is_whole)

    def _begun(
        self, sentence: SentenceHypothesis, span: Span, phrases: Sequence[str]
    ) -> Iterator[tuple[tuple[int, ...], bool]]:
        """Sentences with a phrase in place of a span, and their beginnings; whether each is whole.

        Beginnings end with the phrase, or a word before it.
        """
        text, tokens, spelling = sentence.text, sentence.tokens, self._spelling
        edges = token_spans(self._scorer.tokenizer, tokens, text, "target")
        first, last = _token_at(edges, span[0]), _token_at(edges, span[1])
        if first is None or last is None:
            return
        joined = text[: span[0]][-1:].strip()
        for phrase in _fitting(phrases, opens=not span[0]):
            own = spelling.encoded_within(phrase, joined) if joined else spelling.encoded(phrase)
            if own:
                yield (*tokens[:first], *own, *tokens[last:]), True
                yield (*tokens[:first], *own), False
        for word in words_of(text[: span[0]])[-1:]:
            if number := _token_at(edges, word.start):
                yield tokens[:number], False

    def _written(self, proposals: Sequence[_Proposal]) -> list[SentenceHypothesis]:
        """The sentences that are proposed, searched as far as they are not whole."""
        found = {
            i: SentenceHypothesis(p.begun, self._scorer.tokenizer.decode(p.begun))
            for i, p in enumerate(proposals)
            if p.whole
        }
        searched = [i for i in range(len(proposals)) if i not in found]
        rows = [(proposals[i].draft, self._request(proposals[i])) for i in searched]
        for i, [sentence] in zip(searched, self._searched(rows), strict=True):
            tokens = (*proposals[i].begun, *sentence.tokens)
            text = self._scorer.tokenizer.decode(tokens)
            found[i] = SentenceHypothesis(tokens, text, truncated=sentence.truncated)
        return [found[i] for i in range(len(proposals))]

    def _request(self, proposal: _Proposal) -> SearchRequest:
        """The request for what follows the tokens of a proposal in its sentence."""
        draft = proposal.draft
        limit = draft.request.max_tokens[draft.at] - len(proposal.begun)
        return replace(
            draft.request,
            prefix=(*self._closed(draft), *proposal.begun),
            max_tokens=(max(limit, 2) + proposal.automaton.room,),
            automata=(proposal.automaton,),
            goes_on=draft.at + 1 < len(draft.found),
        )

    def _closed(self, draft: Draft, more: int = 0) -> list[int]:
        """The labels of a window before the sentence that is mended, or so many more."""
        prefix = list(draft.request.prefix)
        first = draft.request.first_sentence + draft.request.closed_before(self._symbols)
        for number, sentence in enumerate(draft.found[: draft.at + more], start=first):
            prefix += (*sentence.tokens, self._scorer.plan.symbols.separator(number))
        return prefix

    def _search_rests(self, drafts: Sequence[Draft]) -> None:
        """Translate the sentences behind one that is mended anew, as they depend on it."""
        rows = []
        for draft in drafts:
            most = draft.request.max_tokens[draft.at + 1 :]
            rows.append((draft, replace(draft.request, prefix=self._closed(draft, 1), max_tokens=most)))
        for draft, sentences in zip(drafts, self._searched(rows), strict=True):
            draft.found[draft.at + 1 :] = sentences

    def _searched(self, rows: Sequence[tuple[Draft, SearchRequest]]) -> list[list[SentenceHypothesis]]:
        """Search requests of drafts, those that need the same width together."""
        scorer, plan = self._scorer, self._scorer.plan
        widths = [search_width(plan.options.beam, request.automata) for _, request in rows]
        costs = [
            width * (draft.instance.source_tokens(plan.symbols) + len(r.prefix) + sum(r.max_tokens) // 2)
            for width, (draft, r) in zip(widths, rows, strict=True)
        ]
        found: list[list[SentenceHypothesis]] = [[] for _ in rows]
        for width in sorted(set(widths)):
            alike = sorted((i for i in range(len(rows)) if widths[i] == width), key=costs.__getitem__)
            for batch in pack([[costs[i]] for i in alike], scorer.config.decode.max_tokens):
                members = [alike[n] for n in batch]
                source = source_batch([rows[i][0].instance for i in members], plan.symbols)
                requests = [rows[i][1] for i in members]
                hypotheses = plan.kind.search(
                    scorer.model, source.to(scorer.device), requests, self._symbols, plan.options
                )
                for i, request, hypothesis in zip(members, requests, hypotheses, strict=True):
                    found[i], _ = found_sentences(
                        hypothesis, request, self._symbols, scorer.tokenizer, request.sentences
                    )
        return found

    def _choose(
        self, drafts: Sequence[Draft], found: Mapping[int, Sequence[tuple[_Proposal, SentenceHypothesis]]]
    ) -> None:
        """Take the best of what was found for the sentence of each draft, if anything."""
        every = [(draft, *each) for draft in drafts for each in found[id(draft)]]
        rows = [_instance(d, [*d.found[: d.at], s, *d.found[d.at + 1 :]], d.sentence) for d, _, s in every]
        best: dict[int, tuple[float, _Proposal, SentenceHypothesis]] = {}
        for (draft, proposal, sentence), [scores] in zip(every, self._scores(rows), strict=True):
            score = sum(scores) - draft.penalty(sentence.text)
            if id(draft) not in best or score > best[id(draft)][0]:
                best[id(draft)] = score, proposal, sentence
        for draft in drafts:
            if id(draft) not in best:
                draft.proposals_left = 0
                continue
            _, proposal, sentence = best[id(draft)]
            draft.found[draft.at], draft.is_changed = sentence, True
            if proposal.automaton is draft.automaton:
                draft.automaton = None  # kept as far as search can

    def _scores(self, rows: Sequence[Instance]) -> list[list[tuple[float, ...]]]:
        """The log-probabilities of the labels of current sentences of rows."""
        scorer = self._scorer
        budget = scorer.config.decode.max_tokens
        return score_labels(scorer.model, rows, scorer.plan.symbols, budget, scorer.device)


def _instance(draft: Draft, found: Sequence[SentenceHypothesis], current: int | None = None) -> Instance:
    """The window of a draft with its translation; `current`: the one sentence to be read, else all found."""
    opened, requested = draft.opened, draft.opened.requested(draft.number)
    read = requested if current is None else range(current, current + 1)
    target = [sentence.tokens for sentence in (*opened.context(draft.number), *found)]
    return replace(draft.instance, window=replace(draft.instance.window, current=read), target=target)


def _written(automaton: SentenceAutomaton, tokens: Sequence[int]) -> Written | None:
    """What tokens write of a sentence; None: one of them is refused."""
    written: Written | None = automaton.start
    for token in tokens:
        if written is None:
            break
        written = automaton.step(written, token)
    return written


def _keeps(automaton: SentenceAutomaton, tokens: Sequence[int]) -> bool:
    written = _written(automaton, tokens)
    return written is not None and automaton.may_close(written)


def _token_at(edges: Sequence[Span], place: int) -> int | None:
    """The first token from a place in the text on; None: one lies across it."""
    number = next((i for i, (start, _) in enumerate(edges) if start >= place), len(edges))
    return number if all(stop <= place for _, stop in edges[:number]) else None


def _fitting(phrases: Sequence[str], opens: bool) -> list[str]:
    """Of phrases that differ in their first letter alone, the one that fits the place in a sentence."""
    found = []
    for phrase in phrases:
        raised, lowered = (change(phrase[:1]) + phrase[1:] for change in (str.upper, str.lower))
        other = raised if opens else lowered
        if other == phrase or other not in phrases:
            found.append(phrase)
    return found[:_MAX_PHRASES]
