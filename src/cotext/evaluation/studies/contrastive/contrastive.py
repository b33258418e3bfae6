"""Contrastive suites with a run: the preferred candidates, and the generated forms.

As controls, each sentence in which candidates differ is also scored alone, and in context from other
documents of the suite (see `cotext.data.context_edits`). If several examples of a document have the same
sentence, candidates and length of context, they get the same context, and are scored once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from cotext.data.context_edits import Excerpt, outside
from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite, documents_of, read_suite
from cotext.data.documents import Document, ParallelDocument
from cotext.evaluation.metrics.contrastive import (
    CONTEXTS,
    CandidateScores,
    ContrastiveReport,
    GenerativeReport,
    contrastive_accuracy,
    generative_accuracy,
)
from cotext.evaluation.requests import ContrastiveRequest, SuiteRules
from cotext.evaluation.studies.context.context_use import Pool, edited, excerpts, translated_once
from cotext.evaluation.studies.contrastive.evidence import WHOLE_DOCUMENT, ContextWindow
from cotext.models.reach import source_reach, target_reach
from cotext.runtime import CotextError
from cotext.runtime.files import checksum
from cotext.runtime.jobs.engine import Job, Joined
from cotext.runtime.jobs.journal import Journal
from cotext.translation.open import OpenedRun, scoring_entries, systems_of, translation_entries
from cotext.translation.scorer import CandidateSet, SentenceScore, score_candidates
from cotext.translation.translator import DocumentTranslator

# For each context of candidates, the condition of `edited` that makes it.
EDITS: Final = {"none": "none", "foreign": "random", "shuffled": "shuffled", "global": "random"}
SEED = 1  # for drawing sentences of other documents


# Sentences of a suite by document, each source with its right translation; document numbers by example id.
ForeignSentences = tuple[Pool, Mapping[str, int]]


def foreign_sentences(suite: ContrastiveSuite) -> ForeignSentences:
    """Collect sentences, each once per document; raise CotextError if there is only one document."""
    numbers = documents_of(suite.examples)
    pairs: list[dict[tuple[str, str], None]] = [{} for _ in set(numbers)]
    if len(pairs) < 2:
        raise CotextError(
            f"contrastive suite {suite.name!r}: all examples are from one document, but foreign context "
            "is drawn from other documents; omit --controls, and --context foreign or global"
        )
    for example, number in zip(suite.examples, numbers, strict=True):
        right = example.candidates[example.correct]
        pairs[number].update(dict.fromkeys(zip(example.source, right, strict=True)))
    pool = Pool([ParallelDocument("", *zip(*of_document, strict=True)) for of_document in pairs])
    return pool, {e.id: n for e, n in zip(suite.examples, numbers, strict=True)}


def score_in_contexts(
    translator: DocumentTranslator,
    examples: Sequence[ContrastiveExample],
    foreign: ForeignSentences | None,
    edits: Sequence[str] = CONTEXTS[1:],
) -> dict[str, list[CandidateScores]]:
    """Score the candidates of examples in true context and in `edits`, which are keys of EDITS.

    Random edits need `foreign` sentences. Everything is scored in one call, so that batches are shared.
    """
    numbers: dict[CandidateSet, int] = {}
    indices: dict[str, list[list[int]]] = {context: [] for context in ("true", *edits)}
    for example in examples:
        differing, candidates = example.differing_sentences, example.candidates
        choices = {"true": [CandidateSet(example.source, candidates, differing)]}
        choices |= {context: [] for context in edits}
        if edits:
            # One set of candidates for each sentence in which they differ.
            right = ParallelDocument(example.id, example.source, candidates[example.correct])
            others = [] if foreign is None else foreign[0].without(foreign[1][example.id])
            for number, excerpt in zip(differing, excerpts(translator, right, differing), strict=True):
                # The seed depends on sentence and candidates, so that equal choices have equal contexts.
                seed = f"{SEED} {example.source[number]} {[candidate[number] for candidate in candidates]}"
                for context in edits:
                    original = excerpt
                    if context == "global":
                        original = _in_other_rows(translator, example, number, excerpt)
                    changed = edited(original, EDITS[context], others, Random(seed))
                    choices[context].append(_choice(changed, candidates))
        for context, of_example in choices.items():
            indices[context].append([numbers.setdefault(choice, len(numbers)) for choice in of_example])
    scores = score_candidates(translator, list(numbers))
    return {
        context: [
            _added(len(example.candidates), [scores[index] for index in of_example])
            for example, of_example in zip(examples, of_context, strict=True)
        ]
        for context, of_context in indices.items()
    }


def reaches_beyond_rows(translator: DocumentTranslator, example: ContrastiveExample) -> bool:
    """Return whether an example has a sentence that is visible only in other sequences (for `global`)."""
    right = ParallelDocument(example.id, example.source, example.candidates[example.correct])
    numbers = example.differing_sentences
    parts = excerpts(translator, right, numbers)
    return any(_in_other_rows(translator, example, n, e).context for n, e in zip(numbers, parts, strict=True))


def _in_other_rows(
    translator: DocumentTranslator, example: ContrastiveExample, number: int, excerpt: Excerpt
) -> Excerpt:
    """Return the excerpt of a sentence with the context that its own window does not show."""
    document = Document(example.id, example.source)
    return outside(excerpt, translator.visible_sentences(document, own_row=True)[number])


def _choice(excerpt: Excerpt, candidates: Sequence[Sequence[str]]) -> CandidateSet:
    """Put the candidates into an edited excerpt, whose target has the right candidate."""
    targets = tuple(
        tuple(
            written if number is None else candidate[number]
            for written, number in zip(excerpt.document.target, excerpt.numbers, strict=True)
        )
        for candidate in candidates
    )
    return CandidateSet(excerpt.document.source, targets, (excerpt.sentence,))


def _added(candidates: int, scores: Sequence[Sequence[SentenceScore]]) -> CandidateScores:
    """Add up the scores of each candidate of an example over its candidate sets."""
    return CandidateScores(
        tuple(sum(choice[n].log_probability for choice in scores) for n in range(candidates)),
        tuple(sum(choice[n].tokens for choice in scores) for n in range(candidates)),
    )


SUITE_CHUNK = 500  # number of candidates that are scored together, in the same shard
ChunkScorer = Callable[[Sequence[ContrastiveExample]], dict[str, list[CandidateScores]]]


def run_suite(
    translator: DocumentTranslator,
    suite: ContrastiveSuite,
    rules: SuiteRules | None = None,
    recipe: Mapping[str, str] | None = None,
    on_candidates: Callable[[int], None] = lambda count: None,
) -> ContrastiveReport:
    """Score every candidate of a suite in its context and count how often the right one wins.

    The sentences in which the candidates differ are scored, each as current sentence of its window. Raises
    CotextError, before any work, if a sentence is too long; if controls, `foreign` or `global` need examples
    of several documents; or if `global` needs sequences that attend to each other, or longer examples.
    """
    rules = rules or SuiteRules()
    scorer = suite_scorer(translator, suite, rules)
    scores: dict[str, list[CandidateScores]] = {}
    for chunk in chunks_of(suite):
        for name, chunk_scores in scorer(chunk).items():
            scores.setdefault(name, []).extend(chunk_scores)
        on_candidates(sum(len(e.candidates) for e in chunk))
    return judged(suite, scores, rules, recipe)


def suite_scorer(translator: DocumentTranslator, suite: ContrastiveSuite, rules: SuiteRules) -> ChunkScorer:
    """Return a function that scores a chunk (see `chunks_of`) by context; raise the errors of `run_suite`."""
    if rules.context == "global" and translator.plan.group_windows == 1:
        raise CotextError(
            "--context global replaces context in other sequences, which this system does not use; choose "
            "shuffled, foreign or none"
        )
    translator.check_pairs(_texts(suite))
    if rules.context == "global" and not any(reaches_beyond_rows(translator, e) for e in suite.examples):
        raise CotextError(
            f"--context global replaces sentences outside the window, and contrastive suite {suite.name!r} "
            "has no such sentences; give it more context (`cotext convert-suite --context 15`)"
        )
    edits = CONTEXTS[1:] if rules.controls else (rules.context,) if rules.context != "true" else ()
    foreign = foreign_sentences(suite) if "random" in map(EDITS.get, edits) else None
    return partial(score_in_contexts, translator, foreign=foreign, edits=edits)


def judged(
    suite: ContrastiveSuite,
    scores: Mapping[str, Sequence[CandidateScores]],
    rules: SuiteRules,
    recipe: Mapping[str, str] | None = None,
) -> ContrastiveReport:
    """Return the report on a suite whose examples are all scored."""
    controls = {name: scored for name, scored in scores.items() if name != rules.context}
    return contrastive_accuracy(
        suite,
        scores.get(rules.context, []),
        tie=rules.tie,
        score=rules.score,
        recipe=recipe if rules.context == "true" else {**(recipe or {}), "context": rules.context},
        controls=controls if rules.controls else None,
    )


def context_window_of(translator: DocumentTranslator) -> ContextWindow:
    """Return the context window of a system, determined by its view and its model."""
    source, target = source_reach(translator.config), target_reach(translator.config)
    reaches = source.before, source.after, target.before
    return ContextWindow(*(int(min(sentences, WHOLE_DOCUMENT)) for sentences in reaches))


def write_suite_forms(
    translator: DocumentTranslator,
    suite: ContrastiveSuite,
    *,
    recipe: dict[str, str] | None = None,
    on_sentences: Callable[[int], None] = lambda count: None,
) -> GenerativeReport:
    """Translate every different source of a suite and count how often the right form is in the translation.

    Raises CotextError if a sentence is too long, or no example has candidates that differ in words.
    """
    translator.check(Document(e.id, e.source) for e in suite.examples)
    documents = translated_once(translator, [e.source for e in suite.examples], on_sentences)
    return generative_accuracy(suite, documents, recipe)


def _texts(suite: ContrastiveSuite) -> Iterator[ParallelDocument]:
    """Yield every candidate with its source; of all but the first, only sentences that differ from it."""
    for example in suite.examples:
        first, *others = example.candidates
        yield ParallelDocument(example.id, example.source, first)
        nothing = ("",) * len(first)
        for other in others:
            differing = ("" if ours == theirs else ours for ours, theirs in zip(other, first, strict=True))
            yield ParallelDocument(example.id, nothing, tuple(differing))


def chunks_of(suite: ContrastiveSuite) -> Iterator[list[ContrastiveExample]]:
    """Yield the examples in order, in chunks of SUITE_CHUNK candidates or a few more."""
    chunk: list[ContrastiveExample] = []
    for example in suite.examples:
        chunk.append(example)
        if sum(len(e.candidates) for e in chunk) >= SUITE_CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def suite_recipe(opened: OpenedRun) -> dict[str, str]:
    """Return signature entries of a contrastive accuracy: the model, its context and what is scored."""
    return {**scoring_entries(opened), "scored": "differing"}


class SuitesJob(Job[None]):
    """The scoring of a shard of some suites; with `generate`, the sources are also translated.

    Examples of a chunk (see `chunks_of`) stay in one shard. Raises the errors of `run_suite`.
    """

    command, unit = "contrastive", "groups of examples"

    def __init__(
        self, opened: OpenedRun, suites: Sequence[tuple[Path, ContrastiveSuite]], request: ContrastiveRequest
    ) -> None:
        assert request.out is not None
        self.out, self.shard = request.out, request.part()
        self._translator, self._generate = opened.translator, request.generate
        self._groups = _groups(suite for _, suite in suites)
        self.sizes = [sum(len(example.source) for example in group) for _, group in self._groups]
        groups = [self._groups[unit] for unit in self.units]
        self._scorers = {
            number: suite_scorer(opened.translator, suites[number][1], request)
            for number in dict.fromkeys(number for number, _ in groups)
        }
        if request.generate:
            opened.translator.check(Document(e.id, e.source) for _, group in groups for e in group)
        self.identity = {
            "suites": [checksum(path) for path, _ in suites],
            "rules": {field.name: getattr(request, field.name) for field in fields(SuiteRules)},
            "generate": request.generate,
            **systems_of(opened),
        }
        self.facts = {
            "suites": [str(path.absolute()) for path, _ in suites],
            "named": [str(path) for path, _ in suites],
            "recipe": suite_recipe(opened),
            "written": translation_entries(opened) if request.generate else None,
            "window": asdict(context_window_of(opened.translator)),
            "signature": opened.signature,
        }

    def work(
        self, todo: Sequence[int], journal: Journal, on_size: Callable[[int], None]
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        for unit in todo:
            number, group = self._groups[unit]
            scores = {
                context: [[scored.log_probabilities, scored.tokens] for scored in of_examples]
                for context, of_examples in self._scorers[number](group).items()
            }
            sources = [example.source for example in group] if self._generate else []
            texts = translated_once(self._translator, sources)
            yield unit, {"scores": scores, "written": [document.sentences for document in texts]}
            on_size(self.sizes[unit])


class JoinedSuites:
    """The suites of a job, with the results of its shards; raises CotextError if a suite has changed."""

    def __init__(self, parts: Joined) -> None:
        job, facts = parts.header.identity, parts.header.facts
        self._parts = parts
        self.rules = SuiteRules(**job["rules"])
        self.window = ContextWindow(**facts["window"])
        self.suites: list[tuple[Path, ContrastiveSuite]] = []
        for name, location, digest in zip(facts["named"], facts["suites"], job["suites"], strict=True):
            path = Path(location)
            if not path.is_file() or checksum(path) != digest:
                raise CotextError(f"{path}: differs from the suite that the shards scored; restore it")
            self.suites.append((Path(name), read_suite(path)))

    def found(self) -> Iterator[tuple[ContrastiveReport, GenerativeReport | None]]:
        """Yield the reports on all suites, and on the translations of suites if there are any."""
        units = _groups(suite for _, suite in self.suites)
        header = self._parts.header
        for number, (_, suite) in enumerate(self.suites):
            scores: dict[str, list[CandidateScores]] = {}
            texts: list[Document] = []
            for unit in [unit for unit, (whose, _) in enumerate(units) if whose == number]:
                entry = self._parts[unit]
                for context, of_examples in entry["scores"].items():
                    scores.setdefault(context, []).extend(
                        CandidateScores(tuple(values), tuple(tokens)) for values, tokens in of_examples
                    )
                texts += [Document(str(unit), tuple(sentences)) for sentences in entry["written"]]
            report = judged(suite, scores, self.rules, header.facts["recipe"])
            generated = header.identity["generate"]
            yield report, generative_accuracy(suite, texts, header.facts["written"]) if generated else None


def _groups(suites: Iterable[ContrastiveSuite]) -> list[tuple[int, Sequence[ContrastiveExample]]]:
    """Return the chunks of all suites, each with the number of its suite."""
    return [(number, chunk) for number, suite in enumerate(suites) for chunk in chunks_of(suite)]
