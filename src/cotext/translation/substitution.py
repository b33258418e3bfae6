"""Correction of translations that lack a glossary term or a copied text, or contain a forbidden word.

    source     The ladder was very fragile.          ladder: Treppe
    free       Die Leiter war sehr zerbrechlich.     "Leiter" is aligned with "ladder"
    proposals  Die Treppe war sehr zerbrechlich.     replaces the aligned words
               Der Treppe war sehr zerbrechlich.     with another word before it, such as an article
               Die Treppe | ...                      searches the words after "|"

"Free" means translated without constraints. A sentence whose free translation meets its constraints is not
changed. Other sentences are corrected from left to right, one defect at a time. Of the proposals that leave
fewer defects, the most probable is chosen. There are penalties if the free translation of the term remains,
and if the number of words is wrong.

A copied text, such as a placeholder, may be unknown to the model, and the free translation around it is often
wrong. Therefore all places between words are also proposed. They are the only proposals if no position is
aligned, or if no other proposal helps. If more than eight phrases are missing or surplus, surplus copies are
removed and missing phrases are added at the end, in one step. A sentence with a forbidden word is searched
again, without the tokens of this word (`barred`).
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeVar

import torch

from cotext.data.batch import Batch, Instance
from cotext.data.words import Span, covered, is_letter, occurrences, overlaps, token_spans, words_of
from cotext.models.attention_weights import attention_of
from cotext.models.likelihood import CHUNK, RowsToRead, autoregressive_pass
from cotext.models.output_layer import output_logits
from cotext.search.constraints import SearchRequest, SearchSymbols
from cotext.search.hypotheses import Hypothesis
from cotext.translation.document_state import Row, SentenceHypothesis, found_sentences, group_instances
from cotext.translation.scorer import DocumentScorer, read_labels, score_labels
from cotext.translation.terms.terms import Defects, Phrases, SentenceConstraints
from cotext.translation.terms.word_alignment import SentenceAlignment, proportional, renderings

# Penalties in log-probability. STUTTER: the free translation of the term remains in the sentence, or one of
# the MARKS remains from a placeholder that the model wrote wrongly. LENGTH: for every word of difference from
# the expected length, which is the length of the free translation after the replacement. Adjacent equal words
# of the free translation count as one.
STUTTER: Final = 8.0
LENGTH: Final = 5.0
MARKS: Final = frozenset("{}%$()<>[]")
MOST_BARRED: Final = 8  # maximum number of searches without forbidden words
MOST_DEFECTS: Final = 8  # if more phrases are missing or surplus, all are corrected in one step
_MAX_PHRASES: Final = 8  # maximum number of proposed alternatives of a term
_PLACES: Final = 2  # maximum number of aligned positions tried for a phrase
_WORDS_BEFORE: Final = 6  # maximum number of words that are tried in place of the word before a term
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Draft:
    """A window with its free translation `found`, whose sentences are corrected from left to right.

    `at`: index of the current sentence among the requested ones; -1 before the first. `barred`: tokens of
    forbidden words that search wrote. `own`: words of this sentence that may already translate the missing
    phrase, with their alignment weights. `phrases`: the alternatives of the missing phrase. `free`: the
    current sentence before its correction.
    """

    row: Row
    found: list[SentenceHypothesis]
    free: SentenceHypothesis | None = None
    at: int = -1
    constraints: SentenceConstraints = field(default_factory=SentenceConstraints)
    barred: tuple[tuple[int, ...], ...] = ()
    own: list[tuple[float, str]] = field(default_factory=list)
    phrases: Phrases = ()
    edges: list[Span] = field(default_factory=list)  # spans of the tokens of the current sentence
    is_changed: bool = False
    is_given_up: bool = False  # no proposal corrects the current sentence further

    @property
    def sentence(self) -> int:
        """Index of the sentence to correct; sentences without tokens are not counted."""
        return self.row.document.requested(self.row.number)[self.at]

    @property
    def source(self) -> str:
        opened = self.row.document
        return opened.document.sentences[opened.kept[self.sentence]]

    @property
    def defects(self) -> Defects:
        return self.constraints.defects(self.found[self.at].text)

    @property
    def is_settled(self) -> bool:
        return self.is_given_up or not self.defects.total

    def penalty(self, text: str) -> float:
        """Return the penalty (in log-probability) of a text for remaining words and for its length."""
        left = STUTTER * self._left_marks(text)
        if not self.own:
            return left
        remaining = sum(share for share, word in self.own if any(occurrences(text, [word])))
        _, phrase = next(occurrences(text, self.phrases), (0, ""))
        free = groupby(words_of(self.found[self.at].text), key=lambda word: word.text)
        expected = sum(1 for _ in free) - len(words_of(self.own[0][1])) + len(words_of(phrase))
        return left + STUTTER * remaining + LENGTH * abs(len(words_of(text)) - expected)

    def _left_marks(self, text: str) -> int:
        """Count marks of copied texts that occur outside these texts more often than in the source."""
        if not (marks := MARKS.intersection("".join(self.constraints.copied))):
            return 0
        outside = []
        for side in (text, self.source):
            for copy in sorted(self.constraints.copied, key=len, reverse=True):
                side = side.replace(copy, " ", 1)
            outside.append(Counter(filter(marks.__contains__, side)))
        return (outside[0] - outside[1]).total()


class _Proposal(NamedTuple):
    """Tokens of a proposed translation or, if it is not `whole`, of its beginning; the rest is searched."""

    draft: Draft
    tokens: tuple[int, ...]
    whole: bool = True


class Substitution:
    """Correction of drafts.

    `symbols`: all tokens that decode to an empty string on their own must be in `symbols.blank`.
    `search_rows` searches with these symbols.
    """

    def __init__(
        self,
        scorer: DocumentScorer,
        symbols: SearchSymbols,
        search_rows: Callable[[Sequence[Row]], Sequence[Hypothesis]],
    ) -> None:
        self._scorer = scorer
        self._symbols = symbols
        self._search_rows = search_rows

    def mend(self, drafts: Sequence[Draft]) -> None:
        """Correct the sentences of drafts that do not meet their constraints, in place."""
        active = [draft for draft in drafts if self._advance(draft)]
        while active:
            lacking = [draft for draft in active if draft.defects.miscounted]
            forbidding = [draft for draft in active if draft not in lacking]
            for draft in forbidding:
                draft.is_given_up = len(draft.barred) == MOST_BARRED
                # If searches without the word did not help, the free translation is the better one.
                free = draft.free or draft.found[draft.at]
                if draft.is_given_up and draft.constraints.defects(free.text).total <= draft.defects.total:
                    draft.found[draft.at] = free
            self._avoid([draft for draft in forbidding if not draft.is_given_up])
            self._insert(lacking)
            # The sentences after a corrected one depend on it.
            changed = [d for d in active if d.is_settled and d.found[d.at] is not d.free]
            self._search_rests([d for d in changed if d.at + 1 < len(d.found)])
            active = [draft for draft in active if self._advance(draft)]
        # Corrected sentences were found by different searches: compute their probabilities in the same way.
        changed = [draft for draft in drafts if draft.is_changed]
        every = self._read(score_labels, [(draft, draft.found) for draft in changed], whole=True)
        for draft, of_row in zip(changed, every, strict=True):
            draft.found = [
                replace(sentence, log_probability=sum(scores), labels=len(scores))
                for sentence, scores in zip(draft.found, of_row, strict=True)
            ]

    def _advance(self, draft: Draft) -> bool:
        """Move to the next sentence that has a defect; return whether there is one."""
        while draft.at < 0 or draft.is_settled:
            if draft.at + 1 == len(draft.found):
                return False
            draft.at += 1
            opened = draft.row.document
            assert opened.guide is not None
            constraints = opened.guide.constraints(opened.index, opened.kept[draft.sentence])
            draft.constraints = constraints.spelled(self._spelled)
            draft.barred, draft.is_given_up, draft.free = (), False, draft.found[draft.at]
        return True

    def _spelled(self, phrase: str) -> str:
        """Return a phrase as the tokenizer decodes it; empty if it cannot be encoded."""
        return self._scorer.tokenizer.decode(self._encoded(phrase))

    def _avoid(self, drafts: Sequence[Draft]) -> None:
        """Search the current sentences again without the forbidden word that they contain."""
        for draft in drafts:
            (start, phrase), sentence = draft.defects.forbidden[0], draft.found[draft.at]
            spans = zip(sentence.tokens, self._edges(sentence), strict=True)
            tokens = tuple(t for t, (a, b) in spans if a < start + len(phrase) and b > start)
            # A word has many segmentations; most have the same first token.
            draft.barred += (tokens if len(draft.barred) < MOST_BARRED // 2 else tokens[:1],)
        rows = [(draft, self._request(_Proposal(draft, ()))) for draft in drafts]
        for draft, [sentence] in zip(drafts, self._search(rows), strict=True):
            draft.found[draft.at], draft.is_changed = sentence, True

    def _insert(self, drafts: Sequence[Draft]) -> None:
        """Correct one defect of the current sentence of each draft, other than a forbidden word."""
        for draft in drafts:
            draft.edges, draft.own = self._edges(draft.found[draft.at]), []
        # The time to try all places grows with the cube of the number of defects.
        crowded = [draft for draft in drafts if draft.defects.miscounted > MOST_DEFECTS]
        for draft in self._choose(crowded, [p for d in crowded for p in self._corrected_at_once(d)]):
            draft.is_given_up = True
        drafts = [draft for draft in drafts if draft not in crowded]
        likely = self._read(partial(read_labels, _likely_tokens), [(draft, draft.found) for draft in drafts])
        of_drafts = zip(drafts, self._alignments(drafts), likely, strict=True)
        failed = self._choose(drafts, [p for one in of_drafts for p in self._proposals(*one)])
        everywhere: list[_Proposal] = []
        for draft in failed:
            draft.own = []
            for phrases in dict(draft.defects.missing):
                everywhere += self._insertions(draft, phrases)
        for draft in self._choose(failed, everywhere):
            draft.is_given_up = True

    def _alignments(self, drafts: Sequence[Draft]) -> list[SentenceAlignment]:
        """Return the alignments of the current sentences of drafts with their translations so far."""
        alignments = []
        read = self._read(attention_of, [(draft, draft.found) for draft in drafts])
        for draft, [weights] in zip(drafts, read, strict=True):
            if not bool(weights.any()):
                alignments.append(proportional(draft.source, draft.found[draft.at].text))
                continue
            tokens = draft.row.document.source[draft.sentence]
            of_source = token_spans(self._scorer.tokenizer, tokens, draft.source, "source")
            alignments.append(SentenceAlignment(tuple(of_source), tuple(draft.edges), weights))
        return alignments

    def _proposals(
        self, draft: Draft, alignment: SentenceAlignment, likely: Sequence[Sequence[list[int]]]
    ) -> Iterator[_Proposal]:
        """Yield proposals for the first missing phrase; if none is missing, deletions of surplus copies."""
        text, defects = draft.found[draft.at].text, draft.defects
        for start, copy in occurrences(text, defects.surplus) if not defects.missing else ():
            proposals = list(self._replaced(draft, (start, start + len(copy)), ()))
            # If a token extends across an edge, the text without the copy is tokenised again.
            yield from proposals or self._retokenised(draft, text[:start] + text[start + len(copy) :])
        missing = {phrases for phrases, _ in defects.missing}
        # If equal terms occur, those that are already translated as required are not missing.
        places = [
            (spans, phrases)
            for phrases, span in draft.constraints.wanted
            if phrases in missing
            and (spans := renderings(alignment, (draft.source, text), span))
            and not overlaps(covered(text, phrases), *spans[0][1])
        ]
        if not places:
            return
        spans, draft.phrases = min(places, key=lambda place: place[0][0][1])
        draft.own = [(share, text[start:stop]) for share, (start, stop) in spans]
        for rank, (_, span) in enumerate(spans[:_PLACES]):
            yield from self._replacements(draft, span, () if rank else likely[0])
        if draft.phrases[0] in draft.constraints.copied:
            for _, span in spans[:_PLACES]:
                yield from self._replacements(draft, _with_marks(text, span, draft.phrases[0]), ())
            yield from self._insertions(draft, draft.phrases)

    def _replacements(self, draft: Draft, span: Span, likely: Sequence[list[int]]) -> Iterator[_Proposal]:
        """Yield the current sentence with the phrases of the draft instead of a span.

        `likely`: the most probable tokens in place of every label, for the word before the phrase; empty:
        only the span is replaced.
        """
        sentence, (start, stop) = draft.found[draft.at], span
        words = words_of(sentence.text[:start])[-1:]
        for phrase in _fitting(draft.phrases, opens=not start):
            # If no space precedes the span, the phrase must be tokenised as a continuation.
            if not (own := self._encoded(phrase, sentence.text[:start][-1:])):
                continue
            yield from self._replaced(draft, span, own)
            if not likely:
                continue
            if (first := _token_at(draft.edges, start)) is not None:
                yield _Proposal(draft, (*sentence.tokens[:first], *own), whole=False)
            for word in words:
                for token in filter(self._is_written, likely[_token_at(draft.edges, word.start) or 0]):
                    yield from self._replaced(draft, (word.start, stop), (token, *own))

    def _insertions(self, draft: Draft, phrases: Phrases) -> Iterator[_Proposal]:
        """Yield the current sentence with a missing phrase at every place between words."""
        text = draft.found[draft.at].text
        for place in (*(word.start for word in words_of(text)), len(text)):
            before = text[place - 1 : place] if place < len(text) else ""
            for phrase in _fitting(phrases, opens=not place):
                if own := self._encoded(phrase, "" if is_letter(before or "a") else before):
                    yield from self._replaced(draft, (place, place), own)

    def _retokenised(self, draft: Draft, text: str) -> Iterator[_Proposal]:
        """Yield another text for the current sentence, if the tokenizer can encode it."""
        if tokens := self._encoded(text):
            yield _Proposal(draft, tuple(tokens))

    def _corrected_at_once(self, draft: Draft) -> Iterator[_Proposal]:
        """Yield the current sentence without surplus copies, followed by all missing phrases."""
        text, defects = draft.found[draft.at].text, draft.defects
        surplus = Counter(defects.surplus)
        for start, copy in reversed(list(occurrences(text, draft.constraints.copied))):
            if surplus[copy]:
                text = text[:start] + text[start + len(copy) :]
                surplus[copy] -= 1
        yield from self._retokenised(draft, " ".join([text, *(phrases[0] for phrases, _ in defects.missing)]))

    def _replaced(self, draft: Draft, span: Span, tokens: Iterable[int]) -> Iterator[_Proposal]:
        """Yield the current sentence with tokens instead of a span, if no token crosses its edges."""
        first, last = (_token_at(draft.edges, place) for place in span)
        if first is not None and last is not None:
            own = draft.found[draft.at].tokens
            yield _Proposal(draft, (*own[:first], *tokens, *own[last:]))

    def _encoded(self, phrase: str, before: str = "") -> list[int]:
        """Return the tokens of a phrase after the character `before`; empty if one of them is unknown."""
        tokenizer = self._scorer.tokenizer
        never = {tokenizer.unk, *tokenizer.unwritten}
        # Encode with something in front and cut it off, if the segmentation allows this.
        for opening in dict.fromkeys((before, "(", "-", "a", "1")) if before.strip() else ("",):
            tokens = tokenizer.encode(opening + phrase, side="target")
            for cut in range(bool(opening), len(tokens)):
                if tokenizer.decode(tokens[:cut]).strip() == opening and never.isdisjoint(tokens[cut:]):
                    return tokens[cut:]
        return []

    def _is_written(self, token: int) -> bool:
        """Whether a token may be part of a sentence and is visible by itself."""
        tokenizer = self._scorer.tokenizer
        never = {tokenizer.unk, *tokenizer.unwritten}
        return token < tokenizer.pieces and token not in never and bool(tokenizer.decode([token]))

    def _edges(self, sentence: SentenceHypothesis) -> list[Span]:
        """Return the span of characters of each token."""
        return token_spans(self._scorer.tokenizer, sentence.tokens, sentence.text, "target")

    def _choose(self, drafts: Sequence[Draft], proposals: Sequence[_Proposal]) -> list[Draft]:
        """Use the best proposal for the sentence of each draft; return the drafts without one."""
        sentences = self._complete(proposals)
        before = {id(draft): draft.defects.total for draft in drafts}
        # If proposals are equal, the last counts, so that rounding does not choose between them.
        distinct = {
            (id(draft), sentence.tokens): (draft, sentence)
            for (draft, *_), sentence in zip(proposals, sentences, strict=True)
            if draft.constraints.defects(sentence.text).total < before[id(draft)]
        }
        candidates = list(distinct.values())
        rows = [(d, [*d.found[: d.at], sentence, *d.found[d.at + 1 :]]) for d, sentence in candidates]
        best: dict[int, tuple[float, SentenceHypothesis]] = {}
        for (draft, sentence), [scores] in zip(candidates, self._read(score_labels, rows), strict=True):
            # Probability of the sentence in the window, minus the penalties.
            score = sum(scores) - draft.penalty(sentence.text)
            if id(draft) not in best or score > best[id(draft)][0]:
                best[id(draft)] = score, sentence
        for draft in drafts:
            if id(draft) in best:
                draft.found[draft.at], draft.is_changed = best[id(draft)][1], True
        return [draft for draft in drafts if id(draft) not in best]

    def _complete(self, proposals: Sequence[_Proposal]) -> list[SentenceHypothesis]:
        """Return the proposed sentences; search the rest of proposals that are not whole."""
        rests = iter(self._search([(p.draft, self._request(p)) for p in proposals if not p.whole]))
        sentences = []
        for proposal in proposals:
            tokens, truncated = proposal.tokens, proposal.draft.found[proposal.draft.at].truncated
            if not proposal.whole:
                [rest] = next(rests)
                tokens, truncated = (*tokens, *rest.tokens), rest.truncated
            text = self._scorer.tokenizer.decode(tokens)
            sentences.append(SentenceHypothesis(tokens, text, truncated=truncated))
        return sentences

    def _request(self, proposal: _Proposal) -> SearchRequest:
        """Return the request to search a sentence after the tokens of a proposal."""
        draft, begun = proposal.draft, proposal.tokens
        request = draft.row.request
        return replace(
            request,
            prefix=(*self._closed(draft, draft.at), *begun),
            max_tokens=(max(request.max_tokens[draft.at] - len(begun), 2),),
            row_continues=draft.at + 1 < len(draft.found),
            barred=draft.barred,
        )

    def _closed(self, draft: Draft, count: int) -> list[int]:
        """Return the prefix of a draft, followed by its first sentences."""
        return draft.row.request.closed((s.tokens for s in draft.found[:count]), self._symbols)

    def _search_rests(self, drafts: Sequence[Draft]) -> None:
        """Translate the sentences after the current one again."""
        rows = []
        for draft in drafts:
            request, following = draft.row.request, draft.at + 1
            prefix, limits = self._closed(draft, following), request.max_tokens[following:]
            rows.append((draft, replace(request, prefix=prefix, max_tokens=limits)))
        for draft, sentences in zip(drafts, self._search(rows), strict=True):
            draft.found[draft.at + 1 :] = sentences

    def _search(self, rows: Sequence[tuple[Draft, SearchRequest]]) -> list[list[SentenceHypothesis]]:
        """Search requests of drafts; return the sentences of each."""
        hypotheses = self._search_rows([replace(d.row, request=r) for d, r in rows])
        found = partial(found_sentences, symbols=self._symbols, tokenizer=self._scorer.tokenizer)
        return [
            found(hypothesis, request, count=request.sentences)[0]
            for (_, request), hypothesis in zip(rows, hypotheses, strict=True)
        ]

    def _read(
        self,
        reading: Callable[[RowsToRead], Sequence[T]],
        rows: Sequence[tuple[Draft, Sequence[SentenceHypothesis]]],
        whole: bool = False,
    ) -> list[T]:
        """Score the current sentences of windows with these translations; `whole`: all requested ones."""
        instances: list[Instance] = []
        groups, places = [], []
        for draft, found in rows:
            requested, j = draft.row.document.requested(draft.row.number), draft.at
            current = requested if whole else requested[j : j + 1]
            target = [sentence.tokens for sentence in found]
            members, place = group_instances(draft.row, target, current, self._scorer.plan.group_windows)
            places.append(len(instances) + place)
            groups.append(range(len(instances), len(instances) + len(members)))
            instances += [replace(instance, document=len(groups)) for instance in members]
        results = reading(self._scorer.to_read(instances, groups))
        return [results[place] for place in places]


def _likely_tokens(model: Any, batch: Batch) -> list[list[int]]:
    """Return the most probable tokens in place of every label of current sentences, [N, K]."""
    hidden_ND = autoregressive_pass(model, batch).decode()[batch.is_current]
    # Logits are computed in chunks, as there are many.
    best = [output_logits(model, part).topk(_WORDS_BEFORE).indices for part in torch.split(hidden_ND, CHUNK)]
    tokens: list[list[int]] = torch.cat(best).tolist()
    return tokens


def _token_at(edges: Sequence[Span], place: int) -> int | None:
    """Return the first token at or after a position in the text; None: a token extends across it."""
    number = next((i for i, (start, _) in enumerate(edges) if start >= place), len(edges))
    return number if all(stop <= place for _, stop in edges[:number]) else None


def _with_marks(text: str, span: Span, phrase: str) -> Span:
    """Return the span with the marks of the phrase around it, as in `%(Name)s` for the phrase `%(name)s`."""
    if not (marks := "".join(map(re.escape, MARKS.intersection(phrase)))):
        return span
    around = rf"(?:{' ?' * (' ' in phrase)}\S*[{marks}])+"
    ending = phrase[len(phrase.rstrip(string.ascii_letters)) :]
    left = re.match(around, text[: span[0]][::-1])
    right = re.match(rf"{around}(?:{ending}\b)?", text[span[1] :])
    return span[0] - (left.end() if left else 0), span[1] + (right.end() if right else 0)


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
