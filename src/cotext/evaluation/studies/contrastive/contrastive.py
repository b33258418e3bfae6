"""Contrastive suites with a run: which candidate it prefers, and which form it writes by itself."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite
from cotext.data.documents import Document, ParallelDocument
from cotext.evaluation.metrics.contrastive import CandidateScores, ContrastiveReport, contrastive_accuracy
from cotext.evaluation.metrics.generative import GenerativeReport, generative_accuracy
from cotext.evaluation.metrics.readings import Readings
from cotext.evaluation.studies.contrastive.contrastive_contexts import (
    ForeignSentences,
    reaches_beyond_rows,
    score_in_contexts,
)
from cotext.evaluation.studies.contrastive.contrastive_rows import (
    SAME_SENTENCE,
    WHOLE_DOCUMENT,
    ContextWindow,
)
from cotext.evaluation.studies.contrastive.evidence import Evidence, groups_of, weigh
from cotext.models.reach import source_reach, target_reach
from cotext.runtime.errors import CotextError
from cotext.translation.open import OpenedRun
from cotext.translation.signature import scoring_entries
from cotext.translation.translator import DocumentTranslator

SUITE_CHUNK = 500  # candidates that are scored together, and never divided among shards
ChunkScorer = Callable[[Sequence[ContrastiveExample]], dict[str, list[CandidateScores]]]


def run_suite(
    translator: DocumentTranslator,
    suite: ContrastiveSuite,
    *,
    tie: Any = "wrong",
    score: Any = "sum",
    recipe: dict[str, str] | None = None,
    controls: bool = False,
    context: str = "true",
    on_candidates: Callable[[int], None] = lambda count: None,
) -> ContrastiveReport:
    """Score every candidate of a suite in its context and count how often the right one wins.

    What is scored are the sentences in which the candidates differ, each as current sentence of its window.
    `controls`: also without context and in the context of other documents. `context`: in which one the
    candidates stand, `true` or one of EDITS; without controls.

    Raises:
        CotextError: a sentence longer than the system takes, before any work is done; controls or another
            context of a suite whose examples are all of one document; `global` of a system whose rows do not
            see each other, or of a suite whose examples are no longer than a window.
    """
    rules = SuiteRules(tie, score, controls, context)
    scorer = suite_scorer(translator, suite, rules)
    scores: dict[str, list[CandidateScores]] = {}
    for chunk in chunks_of(suite):
        for name, found in scorer(chunk).items():
            scores.setdefault(name, []).extend(found)
        on_candidates(sum(len(e.candidates) for e in chunk))
    return judged(suite, scores, rules, recipe)


@dataclass(frozen=True, slots=True)
class SuiteRules:
    """What is scored of a suite, and how a candidate wins: the arguments of `run_suite`."""

    tie: Any = "wrong"
    score: Any = "sum"
    controls: bool = False
    context: str = "true"


def suite_scorer(translator: DocumentTranslator, suite: ContrastiveSuite, rules: SuiteRules) -> ChunkScorer:
    """What scores examples of a suite, as many at a time as `chunks_of` gives, by context.

    Raises:
        CotextError: as `run_suite`.
    """
    if rules.context == "global" and translator.plan.group_windows == 1:
        raise CotextError(
            "--context global replaces what other rows of a batch show, and this system reads each row by "
            "itself; choose shuffled, foreign or none"
        )
    translator.check_pairs(_texts(suite))
    if rules.context == "global" and not any(reaches_beyond_rows(translator, e) for e in suite.examples):
        raise CotextError(
            f"--context global replaces what stands beyond the own window, and contrastive suite "
            f"{suite.name!r} has no sentence there; give it more context (`cotext convert-suite "
            "--context 15`), or choose another context"
        )
    edits = None if rules.controls else [rules.context] if rules.context != "true" else []
    foreign = ForeignSentences.of(suite) if edits != [] else None
    return partial(score_in_contexts, translator, foreign=foreign, edits=edits)


def judged(
    suite: ContrastiveSuite,
    scores: Mapping[str, Sequence[CandidateScores]],
    rules: SuiteRules,
    recipe: Mapping[str, str] | None = None,
) -> ContrastiveReport:
    """The report on a suite all of whose examples are scored."""
    controls = {name: found for name, found in scores.items() if name != rules.context}
    return contrastive_accuracy(
        suite,
        scores.get(rules.context, []),
        tie=rules.tie,
        score=rules.score,
        recipe=recipe if rules.context == "true" else {**(recipe or {}), "context": rules.context},
        controls=controls if rules.controls else None,
    )


def context_window_of(translator: DocumentTranslator) -> ContextWindow:
    """The context window of a system: what it can know of a document, by its view and by its model."""
    source, target = source_reach(translator.config), target_reach(translator.config)
    before, after, written = (
        int(min(sentences, WHOLE_DOCUMENT)) for sentences in (source.before, source.after, target.before)
    )
    return ContextWindow(before, after, written)


def evidence_of(suite: ContrastiveSuite, readings: Readings, window: ContextWindow) -> list[Evidence]:
    """Tests of context use by group of examples with the clue in the context window; not yet corrected."""
    return [
        weigh(group, readings)
        for group in groups_of(suite)
        if group.distance != SAME_SENTENCE and window.contains(group.phenomenon, group.distance)
    ]


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
    translator.check(Document(e.id, e.source) for e in suite.examples)
    return generative_accuracy(suite, written(translator, suite.examples, on_sentences), recipe)


def written(
    translator: DocumentTranslator,
    examples: Sequence[ContrastiveExample],
    on_sentences: Callable[[int], None] = lambda count: None,
) -> list[Document]:
    """The translations of the sources of examples; equal ones are translated once."""
    return translated(translator, [e.source for e in examples], on_sentences)


def translated(
    translator: DocumentTranslator,
    sources: Sequence[tuple[str, ...]],
    on_sentences: Callable[[int], None] = lambda count: None,
) -> list[Document]:
    """The translations of sources, each a document; equal ones are translated once."""
    indices = {source: n for n, source in enumerate(dict.fromkeys(sources))}
    documents = [Document(str(n), source) for source, n in indices.items()]
    found = dict(translator.translate(documents, on_sentences))
    return [found[indices[source]].document for source in sources]


def _texts(suite: ContrastiveSuite) -> Iterator[ParallelDocument]:
    """Every candidate beside its source; of further candidates, only where they differ from the first."""
    for example in suite.examples:
        first, *others = example.candidates
        yield ParallelDocument(example.id, example.source, first)
        nothing = ("",) * len(first)
        for other in others:
            differing = ("" if ours == theirs else ours for ours, theirs in zip(other, first, strict=True))
            yield ParallelDocument(example.id, nothing, tuple(differing))


def chunks_of(suite: ContrastiveSuite) -> Iterator[list[ContrastiveExample]]:
    """The examples in turn, so many at a time that there are SUITE_CHUNK candidates, or a few more."""
    chunk: list[ContrastiveExample] = []
    for example in suite.examples:
        chunk.append(example)
        if sum(len(e.candidates) for e in chunk) >= SUITE_CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def suite_recipe(opened: OpenedRun) -> dict[str, str]:
    """Signature entries of a contrastive accuracy: the model, and what it sees and scores."""
    return {**scoring_entries(opened), "scored": "differing"}
