"""Contrastive suites with a language model behind an API, by log-probabilities or by what it writes."""

from collections.abc import Callable, Sequence
from random import Random

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite
from cotext.data.documents import Document, ParallelDocument
from cotext.evaluation.metrics.contrastive import CONTEXTS, CandidateScores, ContrastiveReport
from cotext.evaluation.metrics.generative import GenerativeReport, generative_accuracy
from cotext.evaluation.studies.context.endpoint_contexts import RequestExcerpt, request_excerpts
from cotext.evaluation.studies.contrastive.contrastive import (
    EDITS,
    SEED,
    ForeignSentences,
    SuiteRules,
    chunks_of,
    judged,
)
from cotext.language_models.client import Client
from cotext.language_models.prompts import Prompt
from cotext.language_models.scored_tokens import TargetToken
from cotext.language_models.scorer import ForcedTarget, PromptScorer
from cotext.language_models.signature import scoring_entries, translation_signature
from cotext.language_models.translator import EndpointTranslator
from cotext.runtime.errors import CotextError
from cotext.translation.signature import signature_entries


def run_endpoint_suite(
    scorer: PromptScorer,
    suite: ContrastiveSuite,
    rules: SuiteRules,
    on_candidates: Callable[[int], None] = lambda count: None,
) -> ContrastiveReport:
    """Score the candidates of a suite, each after the prompt of its request, as `run_suite` does with a run.

    What is scored are the sentences in which the candidates differ.

    Raises:
        CotextError: no answer; a target that begins within a token; as `run_suite`.
    """
    if rules.context == "global":
        raise CotextError(
            "--context global replaces what other rows of a batch show, and requests know of no other; "
            "choose shuffled, foreign or none"
        )
    contexts = CONTEXTS if rules.controls else (rules.context,)
    foreign = ForeignSentences.of(suite) if contexts != ("true",) else None
    scores: dict[str, list[CandidateScores]] = {context: [] for context in contexts}
    for chunk in chunks_of(suite):
        asked = [
            (context, _asked(scorer, example, context, foreign)) for example in chunk for context in contexts
        ]
        flat = [each for _, of_candidates in asked for sentences in of_candidates for each in sentences]
        found = iter(scorer.score(flat, on_candidates))
        for context, of_candidates in asked:
            scores[context].append(_added([[next(found) for _ in each] for each in of_candidates]))
    # Only now it is known on which days the answers came.
    recipe = scoring_entries(scorer.client, scorer.prompt, scorer.way) | {"scored": "differing"}
    return judged(suite, scores, rules, recipe)


def write_endpoint_forms(
    client: Client,
    suite: ContrastiveSuite,
    on_start: Callable[[int], None] = lambda total: None,
    on_sentences: Callable[[int], None] = lambda count: None,
) -> GenerativeReport:
    """Translate every source of a suite and count how often the right form is in it, as `write_suite_forms`.

    The signature counts what was left untranslated, which stands there in the source language.

    Raises:
        CotextError: as `EndpointTranslator.translate`, or a suite whose candidates differ in no word.
    """
    sources = list(dict.fromkeys(example.source for example in suite.examples))
    on_start(sum(map(len, sources)))
    translator = EndpointTranslator(client)
    documents = [Document(str(number), source) for number, source in enumerate(sources)]
    found = dict(zip(sources, translator.translate(documents, on_sentences), strict=True))
    recipe = signature_entries(translation_signature(client, translator.prompt))
    del recipe["version"]
    recipe["untranslated"] = str(sum(len(each.untranslated) for each in found.values()))
    return generative_accuracy(suite, [found[e.source].document for e in suite.examples], recipe)


def requests_of_suite(suite: ContrastiveSuite, rules: SuiteRules) -> int:
    """The number of targets that are scored of a suite, equal ones included."""
    contexts = len(CONTEXTS) if rules.controls else 1
    return contexts * sum(len(e.candidates) * len(e.differing_sentences) for e in suite.examples)


def _asked(
    scorer: PromptScorer,
    example: ContrastiveExample,
    context: str,
    foreign: ForeignSentences | None,
) -> list[list[ForcedTarget]]:
    """For every candidate, the sentences in which candidates differ, in one of the contexts."""
    right = ParallelDocument(example.id, example.source, example.candidates[example.correct])
    shown = []
    for number, found in zip(
        example.differing_sentences,
        request_excerpts(scorer.endpoint, right, example.differing_sentences),
        strict=True,
    ):
        if context != "true":
            assert foreign is not None
            others = foreign.pool.without(foreign.documents[example.id])
            # The same draws as for a run: by what is asked, and not by whose example it is.
            seed = (
                f"{SEED} {example.source[number]} {[candidate[number] for candidate in example.candidates]}"
            )
            found = found.under(EDITS[context], others, Random(seed))
        shown.append(found)
    return [[_forced(scorer.prompt, each, candidate) for each in shown] for candidate in example.candidates]


def _forced(prompt: Prompt, shown: RequestExcerpt, candidate: Sequence[str]) -> ForcedTarget:
    """The sentence in question of a candidate, whose own earlier sentences stand before it."""
    document = shown.excerpt.document
    target = [
        written if number is None else candidate[number]
        for written, number in zip(document.target, shown.excerpt.numbers, strict=True)
    ]
    return shown.forced(prompt, target)


def _added(candidates: Sequence[Sequence[Sequence[TargetToken]]]) -> CandidateScores:
    """The scores of candidates, each of which has tokens of several sentences."""
    of_tokens = [[token for tokens in sentences for token in tokens] for sentences in candidates]
    return CandidateScores(
        tuple(sum(token.log_probability for token in tokens) for tokens in of_tokens),
        tuple(len(tokens) for tokens in of_tokens),
    )
