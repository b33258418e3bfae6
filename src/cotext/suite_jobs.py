"""Contrastive suites with a run: which candidate it prefers, and which form it writes by itself."""

from collections.abc import Callable, Iterator
from typing import Any

from cotext.alternatives import Choice, score_candidates
from cotext.checkpoint import LoadedModel
from cotext.data.documents import Document, ParallelDocument
from cotext.data.suites import ContrastiveExample, ContrastiveSuite
from cotext.jobs import signature_entries, what_is_seen
from cotext.metrics.contrastive import CandidateScores, ContrastiveReport, contrastive_accuracy
from cotext.metrics.generative import GenerativeReport, generative_accuracy
from cotext.translate import DocumentTranslator

SUITE_CHUNK = 2000  # candidates scored between two signs of progress


def run_suite(
    translator: DocumentTranslator,
    suite: ContrastiveSuite,
    *,
    tie: Any = "wrong",
    score: Any = "sum",
    recipe: dict[str, str] | None = None,
    on_candidates: Callable[[int], None] = lambda count: None,
) -> ContrastiveReport:
    """Score every candidate of a suite in its context and count how often the right one wins.

    What is scored are the sentences in which the candidates differ, each as current sentence of its window.

    Raises:
        CotextError: a sentence longer than the system takes, before any work is done.
    """
    translator.check_pairs(_texts(suite))
    groups = []
    for chunk in _chunks(suite):
        choices = [Choice(e.source, e.candidates, e.differing_sentences) for e in chunk]
        for members in score_candidates(translator, choices):
            log_probabilities = tuple(m.log_probability for m in members)
            groups.append(CandidateScores(log_probabilities, tuple(m.tokens for m in members)))
        on_candidates(sum(len(e.candidates) for e in chunk))
    return contrastive_accuracy(suite, groups, tie=tie, score=score, recipe=recipe)


def write_suite_forms(
    translator: DocumentTranslator,
    suite: ContrastiveSuite,
    *,
    recipe: dict[str, str] | None = None,
    on_sentences: Callable[[int], None] = lambda count: None,
) -> GenerativeReport:
    """Translate every source of a suite and count how often the right form is in the translation.

    The context is what the system makes of it itself; equal sources are translated once.

    Raises:
        CotextError: a sentence longer than the system takes, or a suite whose candidates differ in no word.
    """
    places = {source: n for n, source in enumerate(dict.fromkeys(e.source for e in suite.examples))}
    documents = [Document(str(n), source) for source, n in places.items()]
    translator.check(documents)
    found = dict(translator.translate(documents, on_sentences))
    translations = [found[places[e.source]].document for e in suite.examples]
    return generative_accuracy(suite, translations, recipe)


def forms_recipe(translator: DocumentTranslator, loaded: LoadedModel) -> dict[str, str]:
    """What the signature of a generative accuracy says of the model, and of how it decodes."""
    model = signature_entries(loaded.signature)
    return {"model": model["model"], "updates": model["updates"], **signature_entries(translator.signature)}


def _texts(suite: ContrastiveSuite) -> Iterator[ParallelDocument]:
    """Every candidate beside its source; of further candidates, only where they differ from the first."""
    for example in suite.examples:
        first, *others = example.candidates
        yield ParallelDocument(example.id, example.source, first)
        nothing = ("",) * len(first)
        for other in others:
            differing = ("" if ours == theirs else ours for ours, theirs in zip(other, first, strict=True))
            yield ParallelDocument(example.id, nothing, tuple(differing))


def _chunks(suite: ContrastiveSuite) -> Iterator[list[ContrastiveExample]]:
    """The examples in turn, so many at a time that there are SUITE_CHUNK candidates, or a few more."""
    chunk: list[ContrastiveExample] = []
    for example in suite.examples:
        chunk.append(example)
        if sum(len(e.candidates) for e in chunk) >= SUITE_CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def suite_recipe(translator: DocumentTranslator, loaded: LoadedModel) -> dict[str, str]:
    """What the signature of a contrastive accuracy says of the model, and of what it saw and scored."""
    model = signature_entries(loaded.signature)
    seen = what_is_seen(translator)
    return {"model": model["model"], "updates": model["updates"], **seen, "scored": "differing"}
