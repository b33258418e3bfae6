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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from random import Random

from cotext.data.context_edits import Excerpt, Pair, excerpt
from cotext.data.documents import ParallelDocument
from cotext.data.formats import read_parallel, second_file
from cotext.data.languages import check_sides
from cotext.evaluation.studies.context.context_corpus import CorpusQuestion, CorpusUse, corpus_use
from cotext.evaluation.studies.context.context_use import (
    Pool,
    SentenceUse,
    check_conditions,
    edited,
    groups_of,
)
from cotext.evaluation.studies.contrastive.contrastive_rows import WHOLE_DOCUMENT, ContextWindow
from cotext.language_models.config import Endpoint
from cotext.language_models.numbered import one_line
from cotext.language_models.plan import piece_of, spans_of
from cotext.language_models.prompts import Prompt
from cotext.language_models.scored_tokens import TargetToken
from cotext.language_models.scorer import ForcedTarget, PromptScorer
from cotext.language_models.signature import scoring_entries
from cotext.runtime.errors import CotextError
from cotext.runtime.version import __version__


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


def read_endpoint_corpus(
    endpoint: Endpoint, source: Path, target: Path | None, asked: CorpusQuestion, format: str | None
) -> list[ParallelDocument]:
    """The documents of a corpus that the model can be asked about.

    Raises:
        CotextError: unreadable or unequal files, or the wrong way round; no context at all, an unknown
            condition, translations asked for.
    """
    if asked.translate:
        raise CotextError(
            "--translate is of runs: a request of a language model with other context is another request; "
            "leave it out"
        )
    documents = list(read_parallel(source, second_file(source, target), format))
    check_conditions(asked.conditions, len(documents))
    check_sides(endpoint.languages, source, target, f"{endpoint.model} translates")
    if not window_of_endpoint(endpoint).has_context:
        raise CotextError(
            f"mode = {endpoint.mode}: no request shows a sentence beside the one that it translates; measure "
            "with --set mode=context or mode=document"
        )
    if all(len(document) < 2 for document in documents):
        raise CotextError(f"{source}: every document has one sentence, which has no context")
    return documents


def measure_endpoint_corpus(
    scorer: PromptScorer,
    documents: Sequence[ParallelDocument],
    asked: CorpusQuestion,
    on_sentences: Callable[[int], None] = lambda count: None,
) -> CorpusUse:
    """Score reference translations under every condition, each after the prompt of its request.

    Raises:
        CotextError: no answer; a target that begins within a token.
    """
    pool = Pool(documents)
    found: list[SentenceUse] = []
    for numbers in groups_of(len(documents)):
        of_group = _measured(scorer, documents, numbers, pool, asked)
        found += of_group
        on_sentences(len(of_group))
    # Only now it is known on which days the answers came.
    entries = scoring_entries(scorer.client, scorer.prompt, scorer.way)
    recipe = {**entries, "seed": str(asked.seed), "unit": "nats", "version": __version__}
    signature = "|".join(f"{key}:{value}" for key, value in recipe.items())
    return corpus_use(documents, found, {}, asked, signature)


def _measured(
    scorer: PromptScorer,
    documents: Sequence[ParallelDocument],
    numbers: Sequence[int],
    pool: Pool,
    asked: CorpusQuestion,
) -> list[SentenceUse]:
    """Every sentence of some documents; `pool` is of all of them."""
    targets, whose = [], []
    for number in numbers:
        document = documents[number]
        for index, shown in enumerate(request_excerpts(scorer.endpoint, document)):
            for condition in asked.wanted:
                # The same draws as for a run.
                drawn = Random(f"{asked.seed} {condition} {index} {document.id}")
                targets.append(shown.under(condition, pool.without(number), drawn).forced(scorer.prompt))
            whose.append((document.id, index, len(shown.excerpt.context)))
    scored = iter(scorer.score(targets))
    return [
        SentenceUse(
            *each,
            dict(zip(asked.wanted, common_tokens([next(scored) for _ in asked.wanted]), strict=True)),
        )
        for each in whose
    ]
