"""Insert missing glossary terms at the position that attention aligns with the source term.

    source     The ladder was very fragile.          ladder: Treppe
    free       Die Leiter war sehr zerbrechlich.     "Leiter" is aligned with "ladder"
    proposals  Die Treppe war sehr zerbrechlich.     replaces the aligned words
               Die Treppe | ...                      decodes the words after "|"
               Die | ... | ... Treppe ...            decodes with the constraint, from one word before
                                                     the aligned words

"Free" means translated without constraints. A rendering is the model's own translation of a term. Decoding
with a constraint places a term where its tokens cost least, often next to the rendering. Here, the position
is taken from the alignment. Sentences whose free translation meets their constraints are not changed. The
others are corrected from left to right, one missing phrase at a time. The most probable proposal is chosen.
There are penalties if the rendering remains, and if the number of words is wrong.

A copied text, such as a placeholder, may be unknown to the model, and the free translation around it is often
wrong. Therefore decoding from the beginning is also proposed for copied texts. A sentence is decoded with all
constraints (`lexical_search.py`) if no proposal meets them, or if the position in the source is unknown.
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
from cotext.search.lexical import SentenceAutomaton
from cotext.search.lexical_search import search_width
from cotext.search.spelling import Spelling
from cotext.translation.alignment import attention_of
from cotext.translation.document_state import OpenDocument, SentenceHypothesis, found_sentences
from cotext.translation.scorer import DocumentScorer, score_labels
from cotext.translation.terms.word_alignment import SentenceAlignment, Span, proportional, renderings

# Penalties in log-probability. STUTTER: the rendering remains in the sentence. LENGTH: for every word of
# difference from the expected length, which is the length of the free translation after the replacement.
# Adjacent equal words of the free translation count as one.
STUTTER: Final = 8.0
LENGTH: Final = 5.0
_MAX_PHRASES: Final = 8  # maximum number of proposed alternatives of a term
_PLACES: Final = 2  # maximum number of positions tried for a phrase


@dataclass(slots=True)
class Draft:
    """A window of a document with its free translation, whose sentences are corrected from left to right.

    `at`: index of the current sentence among the requested ones, which misses some of `constraints`; -1
    before the first. `own`: words of this sentence that may already translate the missing phrase, with their
    alignment weights. `phrases`: the alternatives of the missing phrase.
    """

    opened: OpenDocument
    number: int
    instance: Instance
    request: SearchRequest  # of the free translation
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
        """Index of the sentence to correct; sentences without tokens are not counted."""
        return self.opened.requested(self.number)[self.at]

    @property
    def source(self) -> str:
        return self.opened.document.sentences[self.opened.kept[self.sentence]]

    def constrain(self, spelling: Spelling) -> None:
        opened = self.opened
        assert opened.guide is not None
        self.constraints = opened.guide.constraints(opened.index, opened.kept[self.sentence])
        self.automaton = SentenceAutomaton(self.constraints, spelling) if self.constraints else None
        self.proposals_left = len(self.constraints.places)

    def misses(self) -> bool:
        return self.automaton is not None and not _keeps(self.automaton, self.found[self.at].tokens)

    def reduced(self, phrases: tuple[str, ...]) -> SentenceConstraints:
        """Return the constraints that the sentence meets, plus the missing one for `phrases`."""
        missing = Counter(alternatives for alternatives, _ in self.missing())
        missing[phrases] -= 1
        kept: list[list[tuple[str, ...]]] = []
        for constraints in (self.constraints.required, self._copied):
            kept.append([])
            for alternatives in constraints:
                if missing[alternatives] > 0:
                    missing[alternatives] -= 1
                else:
                    kept[-1].append(alternatives)
        required, copied = kept
        return replace(
            self.constraints, required=tuple(required), copied=tuple(t for [t] in copied), places=()
        )

    def penalty(self, text: str) -> float:
        """Return the penalty (in log-probability) of a text for remaining renderings and for its length."""
        if not self.own:
            return 0.0
        remaining = sum(share for share, word in self.own if any(occurrences(text, [word])))
        _, phrase = next(occurrences(text, self.phrases), (0, ""))
        free = groupby(words_of(self.found[self.at].text), key=lambda word: word.text)
        expected = sum(1 for _ in free) - len(words_of(self.own[0][1])) + len(words_of(phrase))
        return STUTTER * remaining + LENGTH * abs(len(words_of(text)) - expected)

    @property
    def _copied(self) -> list[tuple[str, ...]]:
        return [(text,) for text in self.constraints.copied]

    def missing(self) -> list[tuple[tuple[str, ...], Span]]:
        """Return the missing phrases of the sentence: their alternatives, and their spans in the source."""
        required = [*self.constraints.required, *self._copied]
        text, missing = self.found[self.at].text, []
        counts = {phrases: sum(1 for _ in occurrences(text, phrases)) for phrases in set(required)}
        for phrases, span in zip(required, self.constraints.places, strict=True):
            counts[phrases] -= 1
            if counts[phrases] < 0:
                missing.append((phrases, span))
        return missing


@dataclass(frozen=True, slots=True)
class _Proposal:
    """A proposed translation: its first tokens, and the constraints for the tokens decoded after them.

    `whole`: the tokens are a complete sentence; no decoding is needed.
    """

    draft: Draft
    begun: tuple[int, ...]
    automaton: SentenceAutomaton
    whole: bool = False


class Substitution:
    """Correction of drafts, for systems whose rows do not attend to each other.

    `symbols`: the search symbols; `blank` contains all tokens that decode to an empty string on their own.
    """

    def __init__(self, scorer: DocumentScorer, spelling: Spelling, symbols: SearchSymbols) -> None:
        self._scorer = scorer
        self._spelling = spelling
        self._symbols = symbols

    def mend(self, drafts: Sequence[Draft]) -> None:
        """Correct the sentences of drafts that do not meet their constraints, in place."""
        active = [draft for draft in drafts if self._advance(draft)]
        while active:
            self._correct_step(active)
            active = [draft for draft in active if self._advance(draft)]
        # Corrected sentences were found by different searches: compute their probabilities in the same way.
        changed = [draft for draft in drafts if draft.is_changed]
        rows = [_instance(draft, draft.found) for draft in changed]
        for draft, of_row in zip(changed, self._scores(rows), strict=True):
            draft.found = [
                replace(sentence, log_probability=sum(scores), labels=len(scores))
                for sentence, scores in zip(draft.found, of_row, strict=True)
            ]

    def _advance(self, draft: Draft) -> bool:
        """Move to the next sentence that misses a constraint; return whether there is one."""
        if draft.at >= 0 and draft.misses():
            return True
        while draft.at + 1 < len(draft.found):
            draft.at += 1
            draft.constrain(self._spelling)
            if draft.misses():
                return True
        return False

    def _correct_step(self, drafts: Sequence[Draft]) -> None:
        """Insert one missing phrase into the current sentence of each draft.

        If there is no proposal, decode the sentence again with all constraints.
        """
        proposals: list[_Proposal] = []
        for draft, alignment in zip(drafts, self._alignments(drafts), strict=True):
            own_proposals = list(self._proposals(draft, alignment)) if draft.proposals_left else []
            draft.proposals_left -= bool(own_proposals)
            assert draft.automaton is not None
            if not own_proposals:
                draft.own = []
                own_proposals.append(_Proposal(draft, (), draft.automaton))
            proposals += own_proposals
        candidates: dict[int, list[tuple[_Proposal, SentenceHypothesis]]] = {
            id(draft): [] for draft in drafts
        }
        for proposal, sentence in zip(proposals, self._complete_proposals(proposals), strict=True):
            if proposal.automaton is proposal.draft.automaton or _keeps(proposal.automaton, sentence.tokens):
                candidates[id(proposal.draft)].append((proposal, sentence))
        self._choose(drafts, candidates)
        self._search_rests([d for d in drafts if not d.misses() and d.at + 1 < len(d.found)])

    def _alignments(self, drafts: Sequence[Draft]) -> list[SentenceAlignment]:
        """Return the alignments of the current sentences of drafts with their translations so far."""
        scorer, tokenizer = self._scorer, self._scorer.tokenizer
        rows = [_instance(draft, draft.found, draft.sentence) for draft in drafts]
        budget = scorer.config.decode.max_tokens
        read = attention_of(scorer.model, rows, scorer.plan.symbols, budget, scorer.device)
        alignments = []
        for draft, [weights] in zip(drafts, read, strict=True):
            sentence, source = draft.found[draft.at], draft.source
            if not bool(weights.any()):
                alignments.append(proportional(source, sentence.text))
                continue
            of_source = token_spans(tokenizer, draft.opened.source[draft.sentence], source, "source")
            of_target = token_spans(tokenizer, sentence.tokens, sentence.text, "target")
            alignments.append(SentenceAlignment(tuple(of_source), tuple(of_target), weights))
        return alignments

    def _proposals(self, draft: Draft, alignment: SentenceAlignment) -> Iterator[_Proposal]:
        """Yield the proposals for the missing phrase that comes first in the translation."""
        text = draft.found[draft.at].text
        places = [
            (spans, phrases)
            for phrases, span in draft.missing()
            if (spans := renderings(alignment, (draft.source, text), span))
        ]
        if not places:
            return
        spans, phrases = min(places, key=lambda place: place[0][0][1])
        automaton = SentenceAutomaton(draft.reduced(phrases), self._spelling)
        draft.phrases = tuple(phrases)
        draft.own = [(share, text[start:stop]) for share, (start, stop) in spans]
        # Around a copied text, the free translation is often broken: search from the beginning, too.
        if phrases[0] in draft.constraints.copied:
            yield _Proposal(draft, (), automaton)
        for rank, (_, span) in enumerate(spans[:_PLACES]):
            for begun, is_whole in self._begun(draft.found[draft.at], span, phrases):
                if (is_whole or not rank) and automaton.replay(begun) is not None:
                    yield _Proposal(draft, begun, automaton, is_whole)

    def _begun(
        self, sentence: SentenceHypothesis, span: Span, phrases: Sequence[str]
    ) -> Iterator[tuple[tuple[int, ...], bool]]:
        """Yield (tokens, is_complete): the sentence with a phrase instead of the span, and its prefixes.

        A prefix ends after the inserted phrase, or one word before the span.
        """
        text, tokens, spelling = sentence.text, sentence.tokens, self._spelling
        edges = token_spans(self._scorer.tokenizer, tokens, text, "target")
        first, last = _token_at(edges, span[0]), _token_at(edges, span[1])
        if first is None or last is None:
            return
        # If no space precedes the span, the phrase must be tokenised as a continuation.
        joined = text[: span[0]][-1:].strip()
        for phrase in _fitting(phrases, opens=not span[0]):
            own = spelling.encoded_within(phrase, joined) if joined else spelling.encoded(phrase)
            if own:
                yield (*tokens[:first], *own, *tokens[last:]), True
                yield (*tokens[:first], *own), False
        for word in words_of(text[: span[0]])[-1:]:
            if number := _token_at(edges, word.start):
                yield tokens[:number], False

    def _complete_proposals(self, proposals: Sequence[_Proposal]) -> list[SentenceHypothesis]:
        """Return the proposed sentences; complete the incomplete ones by search."""
        sentences = {
            i: SentenceHypothesis(p.begun, self._scorer.tokenizer.decode(p.begun))
            for i, p in enumerate(proposals)
            if p.whole
        }
        searched = [i for i in range(len(proposals)) if i not in sentences]
        rows = [(proposals[i].draft, self._request(proposals[i])) for i in searched]
        for i, [sentence] in zip(searched, self._searched(rows), strict=True):
            tokens = (*proposals[i].begun, *sentence.tokens)
            text = self._scorer.tokenizer.decode(tokens)
            sentences[i] = SentenceHypothesis(tokens, text, truncated=sentence.truncated)
        return [sentences[i] for i in range(len(proposals))]

    def _request(self, proposal: _Proposal) -> SearchRequest:
        """Return the request to decode a sentence after the tokens of a proposal."""
        draft = proposal.draft
        limit = draft.request.max_tokens[draft.at] - len(proposal.begun)
        return replace(
            draft.request,
            prefix=(*self._closed(draft, draft.at), *proposal.begun),
            max_tokens=(max(limit, 2) + proposal.automaton.room,),
            automata=(proposal.automaton,),
            goes_on=draft.at + 1 < len(draft.found),
        )

    def _closed(self, draft: Draft, count: int) -> list[int]:
        """Return the prefix of a draft, followed by its first sentences."""
        return draft.request.closed((sentence.tokens for sentence in draft.found[:count]), self._symbols)

    def _search_rests(self, drafts: Sequence[Draft]) -> None:
        """Translate the sentences after a corrected one again, because they depend on it."""
        rows = []
        for draft in drafts:
            most = draft.request.max_tokens[draft.at + 1 :]
            prefix = self._closed(draft, draft.at + 1)
            rows.append((draft, replace(draft.request, prefix=prefix, max_tokens=most)))
        for draft, sentences in zip(drafts, self._searched(rows), strict=True):
            draft.found[draft.at + 1 :] = sentences

    def _searched(self, rows: Sequence[tuple[Draft, SearchRequest]]) -> list[list[SentenceHypothesis]]:
        """Decode requests of drafts; requests with the same beam size share batches."""
        scorer, plan = self._scorer, self._scorer.plan
        # The beam of a row must not depend on the rows that share its batch.
        widths = [search_width(plan.options.beam, request.automata) for _, request in rows]
        costs = [
            width * (draft.instance.source_tokens(plan.symbols) + len(r.prefix) + sum(r.max_tokens) // 2)
            for width, (draft, r) in zip(widths, rows, strict=True)
        ]
        results: list[list[SentenceHypothesis]] = [[] for _ in rows]
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
                    results[i], _ = found_sentences(
                        hypothesis, request, self._symbols, scorer.tokenizer, request.sentences
                    )
        return results

    def _choose(
        self, drafts: Sequence[Draft], found: Mapping[int, Sequence[tuple[_Proposal, SentenceHypothesis]]]
    ) -> None:
        """Use the best candidate for the sentence of each draft, if there is one."""
        every = [(draft, *candidate) for draft in drafts for candidate in found[id(draft)]]
        rows = [_instance(d, [*d.found[: d.at], s, *d.found[d.at + 1 :]], d.sentence) for d, _, s in every]
        best: dict[int, tuple[float, _Proposal, SentenceHypothesis]] = {}
        for (draft, proposal, sentence), [scores] in zip(every, self._scores(rows), strict=True):
            # Probability of the sentence in the window, minus the penalties.
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
                draft.automaton = None  # searched with all constraints: nothing more can be done

    def _scores(self, rows: Sequence[Instance]) -> list[list[tuple[float, ...]]]:
        """Return the log-probabilities of the labels of the current sentences of rows."""
        scorer = self._scorer
        budget = scorer.config.decode.max_tokens
        return score_labels(scorer.model, rows, scorer.plan.symbols, budget, scorer.device)


def _instance(draft: Draft, found: Sequence[SentenceHypothesis], current: int | None = None) -> Instance:
    """Return the window of a draft with its translation.

    `current`: index of the sentence to score or align; None: all requested sentences.
    """
    opened, requested = draft.opened, draft.opened.requested(draft.number)
    read = requested if current is None else range(current, current + 1)
    target = [sentence.tokens for sentence in (*opened.context(draft.number), *found)]
    return replace(draft.instance, window=replace(draft.instance.window, current=read), target=target)


def _keeps(automaton: SentenceAutomaton, tokens: Sequence[int]) -> bool:
    written = automaton.replay(tokens)
    return written is not None and automaton.may_close(written)


def _token_at(edges: Sequence[Span], place: int) -> int | None:
    """Return the first token at or after a position in the text; None: a token extends across it."""
    number = next((i for i, (start, _) in enumerate(edges) if start >= place), len(edges))
    return number if all(stop <= place for _, stop in edges[:number]) else None


def _fitting(phrases: Sequence[str], opens: bool) -> list[str]:
    """Return the phrases whose first letter fits the position in the sentence.

    Of two phrases that differ only in the case of their first letter, only one is kept.
    """
    fitting = []
    for phrase in phrases:
        raised, lowered = (change(phrase[:1]) + phrase[1:] for change in (str.upper, str.lower))
        other = raised if opens else lowered
        if other == phrase or other not in phrases:
            fitting.append(phrase)
    return fitting[:_MAX_PHRASES]
