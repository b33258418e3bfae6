"""Contrastive examples without their context, and in the context of other documents: controls of `run_suite`.

What an example asks is then asked of each sentence in which its candidates differ, in the excerpt that the
system sees of the document (see `cotext.data.context_edits`): of this sentence alone, and of the excerpt with
sentences of the suite's other documents instead of its context. The candidates of an example have the
same context, and so have examples with the same sentence and candidates, which then are one choice: what is
asked twice is scored once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from cotext.data.context_edits import Excerpt, outside
from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite, documents_of
from cotext.data.documents import Document, ParallelDocument
from cotext.evaluation.metrics.contrastive import CandidateScores
from cotext.evaluation.metrics.readings import CONTEXTS
from cotext.evaluation.studies.context.context_use import Pool, edited, excerpts
from cotext.runtime.errors import CotextError
from cotext.translation.candidate_scoring import CandidateSet, score_candidates
from cotext.translation.scorer import SentenceScore
from cotext.translation.translator import DocumentTranslator

# Contexts that candidates may be scored in, and what the excerpt of a sentence becomes there.
EDITS: Final = {"none": "none", "foreign": "random", "shuffled": "shuffled", "global": "random"}
SEED = 1  # of the sentences of other documents


@dataclass(frozen=True, slots=True)
class ForeignSentences:
    """The sentences of a suite by document, each source with its right translation."""

    pool: Pool
    documents: dict[str, int]  # by the id of the example

    @classmethod
    def of(cls, suite: ContrastiveSuite) -> "ForeignSentences":
        """Gather them, each once a document.

        Raises:
            CotextError: all examples are of one document.
        """
        numbers = documents_of(suite.examples)
        pairs: list[dict[tuple[str, str], None]] = [{} for _ in set(numbers)]
        if len(pairs) < 2:
            raise CotextError(
                f"contrastive suite {suite.name!r}: all examples are of one document, and foreign context is "
                "drawn from others; leave the controls out"
            )
        for example, number in zip(suite.examples, numbers, strict=True):
            right = example.candidates[example.correct]
            pairs[number].update(dict.fromkeys(zip(example.source, right, strict=True)))
        pool = Pool([ParallelDocument("", *zip(*each, strict=True)) for each in pairs])
        return cls(pool, {e.id: n for e, n in zip(suite.examples, numbers, strict=True)})


def score_in_contexts(
    translator: DocumentTranslator,
    examples: Sequence[ContrastiveExample],
    foreign: ForeignSentences | None,
    edits: Sequence[str] | None = None,
) -> dict[str, list[CandidateScores]]:
    """Score the candidates of examples in their own context and, given sentences of others, in `edits`.

    `edits` are among EDITS; not given: all of CONTEXTS. Everything is scored in one call, so that batches are
    shared.
    """
    chosen = () if foreign is None else CONTEXTS[1:] if edits is None else edits
    asked: dict[CandidateSet, int] = {}
    indices: dict[str, list[list[int]]] = {context: [] for context in ("true", *chosen)}
    for example in examples:
        choices = {"true": [CandidateSet(example.source, example.candidates, example.differing_sentences)]}
        if foreign is not None:
            choices |= _edited(translator, example, foreign, chosen)
        for context, of_example in choices.items():
            indices[context].append([asked.setdefault(choice, len(asked)) for choice in of_example])
    scores = score_candidates(translator, list(asked))
    return {
        context: [
            _added(len(example.candidates), [scores[index] for index in of_example])
            for example, of_example in zip(examples, each, strict=True)
        ]
        for context, each in indices.items()
    }


def reaches_beyond_rows(translator: DocumentTranslator, example: ContrastiveExample) -> bool:
    """Whether an example has a sentence that is seen through other rows alone, which `global` replaces."""
    right = ParallelDocument(example.id, example.source, example.candidates[example.correct])
    numbers = example.differing_sentences
    found = excerpts(translator, right, numbers)
    return any(_in_other_rows(translator, example, n, e).context for n, e in zip(numbers, found, strict=True))


def _in_other_rows(
    translator: DocumentTranslator, example: ContrastiveExample, number: int, excerpt: Excerpt
) -> Excerpt:
    """The excerpt of a sentence, whose context is what its own window does not show."""
    document = Document(example.id, example.source)
    return outside(excerpt, translator.visible_sentences(document, own_row=True)[number])


def _edited(
    translator: DocumentTranslator,
    example: ContrastiveExample,
    foreign: ForeignSentences,
    contexts: Sequence[str],
) -> dict[str, list[CandidateSet]]:
    """For every context, one choice a sentence in which candidates differ."""
    right = ParallelDocument(example.id, example.source, example.candidates[example.correct])
    others = foreign.pool.without(foreign.documents[example.id])
    found: dict[str, list[CandidateSet]] = {context: [] for context in contexts}
    for number, excerpt in zip(
        example.differing_sentences,
        excerpts(translator, right, example.differing_sentences),
        strict=True,
    ):
        # Drawn by what is asked, and not by whose example it is.
        seed = f"{SEED} {example.source[number]} {[candidate[number] for candidate in example.candidates]}"
        for context in contexts:
            asked = excerpt
            if context == "global":
                asked = _in_other_rows(translator, example, number, excerpt)
            made = edited(asked, EDITS[context], others, Random(seed))
            found[context].append(_choice(made, example.candidates))
    return found


def _choice(found: Excerpt, candidates: Sequence[Sequence[str]]) -> CandidateSet:
    """The candidates in an edited excerpt of the document that has the right one."""
    targets = tuple(
        tuple(
            written if number is None else candidate[number]
            for written, number in zip(found.document.target, found.numbers, strict=True)
        )
        for candidate in candidates
    )
    return CandidateSet(found.document.source, targets, (found.sentence,))


def _added(candidates: int, scores: Sequence[Sequence[SentenceScore]]) -> CandidateScores:
    """The scores of an example's candidates, added up over choices."""
    return CandidateScores(
        tuple(sum(each[n].log_probability for each in scores) for n in range(candidates)),
        tuple(sum(each[n].tokens for each in scores) for n in range(candidates)),
    )
