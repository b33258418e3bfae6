"""What a request shows of a document beside one sentence, under conditions; targets to be scored in it.

A request of the mode `chunk` with one sentence before it, of which sentence d is in question:

    document   a b c d e f      request 1: a b c      request 2: [c] d e f
    true       [c] d e f        c with its translation, d e f to be translated, the answer begins with d
    none       d                alone, as the first of a document of one sentence
    shuffled   [f] d c e        places stay, sentences change them: source and target together
    random     [x] d y z        sentences of other documents

Of the sentences after the one in question, the model sees the source alone: their translations come later.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from cotext.data.context_edits import Excerpt, Pair, excerpt
from cotext.data.documents import ParallelDocument
from cotext.evaluation.studies.context.context_use import edited
from cotext.evaluation.studies.contrastive.contrastive_rows import WHOLE_DOCUMENT, ContextWindow
from cotext.language_models.config import Endpoint
from cotext.language_models.numbered import one_line
from cotext.language_models.plan import piece_of, spans_of
from cotext.language_models.prompts import Prompt
from cotext.language_models.scored_tokens import TargetToken
from cotext.language_models.scorer import ForcedTarget


@dataclass(frozen=True, slots=True)
class RequestExcerpt:
    """The sentences of a request for one of them; `before` of them are shown with their translations."""

    excerpt: Excerpt
    before: int

    def under(self, condition: str, others: Sequence[Pair], random: Random) -> "RequestExcerpt":
        """The same request under one of the conditions of `edited`."""
        before = self.before
        if condition == "none":
            before -= sum(index < before for index in self.excerpt.context)
        return RequestExcerpt(edited(self.excerpt, condition, others, random), before)

    def forced(self, prompt: Prompt, target: Sequence[str] | None = None) -> ForcedTarget:
        """The sentence in question after its prompt; `target`: all sentences, if not those of the excerpt."""
        source, number = self.excerpt.document.source, self.excerpt.sentence
        given = self.excerpt.document.target if target is None else target
        # As when it is translated, sentences without a visible character take no part.
        sentences = [index for index in range(self.before, len(source)) if source[index].strip()]
        if number not in sentences:
            return ForcedTarget((), "", "")
        piece = piece_of(source, given, sentences, self.before)
        begins = prompt.beginning(tuple(given[index] for index in sentences if index < number))
        return ForcedTarget.of(prompt.messages(piece), begins, one_line(given[number]))


def request_excerpts(
    endpoint: Endpoint, document: ParallelDocument, chosen: Sequence[int] | None = None
) -> list[RequestExcerpt]:
    """For every sentence of a document, or each of those chosen, what is shown beside it."""
    found = {}
    for span in spans_of(len(document), endpoint):
        sees = range(max(0, span.start - endpoint.context_sentences), span.stop)
        for number in span:
            if chosen is None or number in chosen:
                shown = excerpt(document, sees, number)
                found[number] = RequestExcerpt(shown, span.start - sees.start)
    return [found[number] for number in (sorted(found) if chosen is None else chosen)]


def window_of_endpoint(endpoint: Endpoint) -> ContextWindow:
    """The context that a request shows, as far as it goes."""
    if endpoint.piece_sentences is None:
        return ContextWindow(WHOLE_DOCUMENT, WHOLE_DOCUMENT, WHOLE_DOCUMENT)
    others = endpoint.piece_sentences - 1
    before = endpoint.context_sentences + others
    return ContextWindow(before, others, before)


def common_tokens(scored: Sequence[Sequence[TargetToken]]) -> list[tuple[float, ...]]:
    """Log-probabilities of one target several times, by the tokens on which all tokenizations agree.

    A tokenizer may divide a text in another way after other text. Then tokens are added up between the
    boundaries that all have.
    """
    texts = {tuple(token.text for token in tokens) for tokens in scored}
    if len(texts) == 1:
        return [tuple(token.log_probability for token in tokens) for tokens in scored]
    ends = [_ends(tokens) for tokens in scored]
    if len({each[-1] for each in ends}) > 1:  # characters that the API does not show
        return [(sum(token.log_probability for token in tokens),) for tokens in scored]
    shared = sorted(set(ends[0]).intersection(*ends[1:]))
    return [_added(tokens, shared) for tokens in scored]


def _ends(tokens: Sequence[TargetToken]) -> list[int]:
    """The character behind each token."""
    return list(accumulate(len(token.text) for token in tokens))


def _added(tokens: Sequence[TargetToken], ends: Sequence[int]) -> tuple[float, ...]:
    """The sums of the tokens up to each of these characters."""
    sums = [0.0] * len(ends)
    for token, end in zip(tokens, _ends(tokens), strict=True):
        sums[bisect_left(ends, end)] += token.log_probability
    return tuple(sums)
