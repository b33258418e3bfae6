"""Conditional cross-mutual information (CXMI) of a corpus for a language model behind an API."""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from cotext.data.documents import ParallelDocument
from cotext.data.formats import read_parallel, second_file
from cotext.data.languages import check_sides
from cotext.evaluation.studies.context.context_corpus import CorpusQuestion, CorpusUse, corpus_use
from cotext.evaluation.studies.context.context_use import Pool, SentenceUse, check_conditions, groups_of
from cotext.evaluation.studies.context.endpoint_contexts import (
    common_tokens,
    request_excerpts,
    window_of_endpoint,
)
from cotext.language_models.config import Endpoint
from cotext.language_models.scorer import PromptScorer
from cotext.language_models.signature import scoring_entries
from cotext.runtime.errors import CotextError
from cotext.runtime.version import __version__


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
