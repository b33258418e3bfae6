"""Conditional cross-mutual information (CXMI) of a corpus: `cotext cxmi`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotext.data.documents import Document, ParallelDocument
from cotext.evaluation.metrics.interface import DEFAULT_PROTOCOLS, Score, evaluate, find_protocol
from cotext.evaluation.studies.context.context_use import (
    CONDITIONS,
    ConditionMean,
    Pool,
    SentenceUse,
    check_conditions,
    conditions_of,
    excerpts,
    mean_use,
    measure,
)
from cotext.evaluation.studies.corpus_texts import check_languages, corpus_texts, digest_of_texts
from cotext.runtime.errors import CotextError
from cotext.runtime.tables import render_rows
from cotext.translation.open import OpenedRun
from cotext.translation.translator import DocumentTranslator

DIGITS = 5


@dataclass(frozen=True, slots=True)
class CorpusUse:
    """CXMI of a corpus by condition, and the quality of what is written under each, where that was asked."""

    signature: str
    sentences: tuple[SentenceUse, ...]
    means: tuple[ConditionMean, ...]  # of all conditions but none
    scores: dict[str, tuple[Score, ...]]
    texts: str  # their digest
    without_path: int = 0  # sentences that take no part: too long for their positions

    def as_dict(self) -> dict[str, Any]:
        """Everything, for a JSON file."""
        return {
            "format": "cotext-cxmi",
            "version": 1,
            "signature": self.signature,
            "unit": "nats",
            "texts": self.texts,
            "without_path": self.without_path,
            "conditions": {
                mean.condition: {
                    "sentences_with_context": mean.sentences,
                    "tokens": mean.tokens,
                    "per_sentence": mean.per_sentence,
                    "per_token": mean.per_token,
                    "share_above_zero": mean.share_above,
                }
                for mean in self.means
            },
            "quality": {name: [score.as_dict() for score in scores] for name, scores in self.scores.items()},
            "sentences": [
                {
                    "document": each.document,
                    "sentence": each.number + 1,
                    "context": each.context,
                    "cxmi": {m.condition: round(each.cxmi(m.condition), DIGITS) for m in self.means},
                    "tokens": [round(value, DIGITS) for value in each.token_cxmi()],
                }
                for each in self.sentences
            ],
        }

    def render(self) -> str:
        """A line for every condition."""
        protocols = [score.title for score in next(iter(self.scores.values()), ())]
        rows: list[list[str]] = [["context", "nats/sentence", "nats/token", "above 0", *protocols]]
        by_condition = {mean.condition: mean for mean in self.means}
        for condition in (*by_condition, "none"):
            cells = ["0", "0", ""]
            if condition in by_condition:
                mean = by_condition[condition]
                share = f"{100 * mean.share_above:.1f} %"
                cells = [f"{mean.per_sentence:+.4f}", f"{mean.per_token:+.5f}", share]
            rows.append([condition, *cells, *(f"{s.value:.2f}" for s in self.scores.get(condition, ()))])
        mean = self.means[0]
        counts = (
            f"{mean.sentences:,} of {len(self.sentences):,} sentences have context; {mean.tokens:,} tokens"
        )
        if self.without_path:
            counts += f"; {self.without_path:,} have no path, and take no part"
        signatures = [score.signature for score in next(iter(self.scores.values()), ())]
        return "\n".join([render_rows(rows, left=1), counts, *signatures, self.signature])


@dataclass(frozen=True, slots=True)
class CorpusQuestion:
    """What is asked of a corpus: the conditions beside `none`, and whether to translate under each, too.

    `protocols` evaluate the translations; `seed` is that of shuffled and random context.

    Raises CotextError for an unknown protocol.
    """

    conditions: Sequence[str] = CONDITIONS
    translate: bool = False
    protocols: Sequence[str] = DEFAULT_PROTOCOLS
    seed: int = 1

    def __post_init__(self) -> None:
        for name in self.protocols:
            find_protocol(name)

    @property
    def wanted(self) -> list[str]:
        """The conditions in their usual order, `none` always among them."""
        return [c for c in CONDITIONS if c in self.conditions or c == "none"]

    def signature(self, opened: OpenedRun) -> str:
        """The system and what is random."""
        return "|".join([opened.signature, f"seed:{self.seed}", "unit:nats"])


def measure_corpus(
    opened: OpenedRun,
    source: Path,
    target: Path | None,
    asked: CorpusQuestion,
    *,
    format: str | None = None,
    on_start: Callable[[int], None] = lambda total: None,
    on_sentences: Callable[[int], None] = lambda count: None,
) -> CorpusUse:
    """Score reference translations under every condition; if it is asked for, write under each, too.

    `on_start` is told how many sentences there are, and `on_sentences` of each few that are scored.

    Raises:
        CotextError: as `read_checked`.
    """
    documents = read_checked(opened, source, target, asked, format)
    translator = opened.translator
    on_start(sum(map(len, documents)))
    found = list(measure(translator, documents, asked.wanted, asked.seed, on_sentences))
    written = {}
    if asked.translate:
        pool, everything = Pool(documents), range(len(documents))
        for condition in asked.wanted:
            written[condition] = translate_under(
                translator, documents, everything, pool, condition, asked.seed
            )
    return corpus_use(documents, found, written, asked, asked.signature(opened))


def read_checked(
    opened: OpenedRun, source: Path, target: Path | None, asked: CorpusQuestion, format: str | None
) -> list[ParallelDocument]:
    """The documents of a corpus, which a run can be asked about.

    Raises:
        CotextError: unreadable or unequal files, files whose names are the languages of the run the wrong
            way round, a sentence over the limit, no context at all, an unknown condition.
    """
    documents = corpus_texts(source, target, format)
    check_conditions(asked.conditions, len(documents))
    translator = opened.translator
    check_languages(opened.languages, source, target, f"{opened.folder} translates")
    if asked.translate:
        translator.check(_sources(documents))
    translator.plan.require_token_probabilities()
    translator.check_pairs(documents)
    if all(
        len(visible) < 2 for each in _sources(documents) for visible in translator.visible_sentences(each)
    ):
        raise CotextError(
            f"{opened.folder}: no sentence of {source} is translated with another in its context window; "
            "measure a system with context, on documents of several sentences"
        )
    return documents


def corpus_use(
    documents: Sequence[ParallelDocument],
    found: Sequence[SentenceUse],
    written: Mapping[str, Sequence[Document]],
    asked: CorpusQuestion,
    signature: str,
) -> CorpusUse:
    """The figures of a corpus all of whose sentences are scored, and `written` under the conditions."""
    means = tuple(mean_use(found, condition) for condition in asked.wanted if condition != "none")
    references = [Document(d.id, d.target) for d in documents]
    scores = {
        condition: tuple(evaluate(list(written[condition]), references, tuple(asked.protocols)))
        for condition in written
    }
    pairs = ((s, t) for d in documents for s, t in zip(d.source, d.target, strict=True))
    without_path = sum(
        bool(s.strip() and t.strip()) and not use.tokens["none"]
        for use, (s, t) in zip(found, pairs, strict=True)
    )
    return CorpusUse(signature, tuple(found), means, scores, digest_of_texts(documents), without_path)


def translate_under(
    translator: DocumentTranslator,
    documents: Sequence[ParallelDocument],
    numbers: Sequence[int],
    pool: Pool,
    condition: str,
    seed: int,
) -> list[Document]:
    """Translate every sentence of the numbered documents in its excerpt under a condition.

    As many documents and sentences come back. The context is what is translated with it: target sentences of
    the corpus are not shown. `pool` is of all documents.
    """
    asked: dict[tuple[str, ...], int] = {}
    wanted: list[list[tuple[int, int]]] = []
    for number in numbers:
        of_document = []
        excerpts_of = excerpts(translator, documents[number])
        for made in conditions_of(excerpts_of, [condition], pool.without(number), seed):
            found = made[condition]
            of_document.append((asked.setdefault(found.document.source, len(asked)), found.sentence))
        wanted.append(of_document)
    todo = (Document(str(index), source) for source, index in asked.items())
    written = {index: found.document.sentences for index, found in translator.translate(todo)}
    return [
        Document(documents[number].id, tuple(written[index][sentence] for index, sentence in indices))
        for number, indices in zip(numbers, wanted, strict=True)
    ]


def _sources(documents: Sequence[ParallelDocument]) -> Iterator[Document]:
    return (Document(d.id, d.source) for d in documents)
