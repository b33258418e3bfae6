"""What a metric is, and where metrics are found: in the modules of this folder that define `METRICS`.

"d-BLEU" has meant cased, case-insensitive and lower-cased tokenised scores in different papers, so a score
is always a number and a signature: the metric, its unit, and all that changes the number.
"""

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from cotext.data.documents import Document
from cotext.evaluation.statistics.sufficient_statistics import Floats, PairCounts, Statistics, SumScorer, Unit
from cotext.runtime.errors import CotextError
from cotext.runtime.version import __version__

DEFAULT_PROTOCOLS: Final = ("s-bleu", "d-bleu", "chrf")


@dataclass(frozen=True, slots=True)
class Score:
    """A score with its signature.

    `value` is on sacrebleu's scale of 0 to 100 (TER may exceed it). `empty_hypotheses` counts hypothesis
    sentences without a visible character, whatever the unit. `components` has the parts of a BLEU: brevity
    penalty, token counts of hypothesis and reference, and the four precisions in per cent.
    """

    protocol: str
    title: str
    value: float
    signature: str
    documents: int
    sentences: int
    empty_hypotheses: int
    components: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Everything, for a JSON file."""
        return asdict(self)


@dataclass(frozen=True, slots=True, eq=False)
class Measurement:
    """A score and the counts of every segment that it was made of."""

    score: Score
    statistics: Statistics

    @classmethod
    def of(
        cls,
        protocol: str,
        title: str,
        signature: str,
        statistics: Statistics,
        hypothesis: Sequence[Document],
        components: Mapping[str, float] | None = None,
        value: float | None = None,
    ) -> "Measurement":
        """The measurement of a hypothesis; `value` is the score of its statistics, if it is not given."""
        sentences = [sentence for document in hypothesis for sentence in document.sentences]
        score = Score(
            protocol=protocol,
            title=title,
            value=statistics.score if value is None else value,
            signature=signature,
            documents=len(hypothesis),
            sentences=len(sentences),
            empty_hypotheses=sum(not sentence.strip() for sentence in sentences),
            components=dict(components or {}),
        )
        return cls(score, statistics)

    def signed(self, more: str) -> "Measurement":
        """The same, with `more` at the end of its signature."""
        return replace(self, score=replace(self.score, signature=self.score.signature + more))


@dataclass(frozen=True, slots=True)
class Texts:
    """Translations by system, references and source (empty if there is none), whose documents correspond."""

    systems: Mapping[str, Sequence[Document]]
    references: Sequence[Sequence[Document]]
    source: Sequence[Document] = ()


@dataclass(frozen=True, slots=True)
class Utility:
    """A metric of pairs of texts, for minimum Bayes risk: counts of all pairs, their score, a signature."""

    counts: PairCounts
    score: SumScorer
    signature: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric(ABC):
    """A metric of corpora, chosen by its name (`--protocol`).

    `unit` is the segment that is counted. `needs_source`: the source is read beside the references.
    `is_utility`: minimum Bayes risk may choose by it (`mbr --utility`). `reads_words`: the texts have to be
    tokenised before.
    """

    name: str
    title: str
    description: str
    unit: Unit = "document"
    better: Literal["higher", "lower"] = "higher"
    needs_source: bool = False
    is_utility: bool = False

    @property
    def reads_words(self) -> bool:
        """Whether words are what spaces separate."""
        return False

    @abstractmethod
    def measure(self, texts: Texts, target_language: str | None) -> dict[str, Measurement]:
        """Score every system; CotextError where that is not possible."""

    @abstractmethod
    def utility(self, target_language: str | None) -> Utility:
        """The metric of pairs of texts, if `is_utility`."""


# The counts of a document: of the hypothesis, its references, and the source if there is one.
Counter = Callable[[Document, Sequence[Document], Document | None], Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedMetric(Metric):
    """A metric whose counts of documents add up: `count` takes them, `combine` scores sums [R, S] as [R]."""

    count: Counter
    combine: SumScorer

    def measure(self, texts: Texts, target_language: str | None) -> dict[str, Measurement]:
        """Count every document of every system, and score the sums."""
        signature = f"protocol:{self.name}|unit:document|version:cotext-{__version__}"
        source: Sequence[Document | None] = texts.source or [None] * len(texts.references[0])
        found = {}
        for name, hypothesis in texts.systems.items():
            rows = zip(hypothesis, zip(*texts.references, strict=True), source, strict=True)
            counts = np.array([self.count(*row) for row in rows], dtype=np.float64)
            statistics = Statistics(counts, np.arange(len(counts)), "document", self.combine)
            found[name] = Measurement.of(self.name, self.title, signature, statistics, hypothesis)
        return found

    def utility(self, target_language: str | None) -> Utility:
        """Every text as a document of one sentence, against every other."""

        def counts(texts: Sequence[str]) -> Floats:
            documents = [Document("", (text,)) for text in texts]
            return np.array(
                [[self.count(one, [other], None) for other in documents] for one in documents], float
            )

        return Utility(counts, self.combine, f"protocol:{self.name}")


@cache
def metrics() -> Mapping[str, Metric]:
    """The metrics of all modules in this folder, by name."""
    modules = sorted(module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    found: dict[str, Metric] = {}
    for name in modules:
        for metric in vars(import_module(f"{__package__}.{name}")).get("METRICS", ()):
            found[metric.name] = metric
    return found


def find_protocol(name: str) -> Metric:
    """Look a metric up by its name; CotextError naming the known ones."""
    if name not in metrics():
        raise CotextError(f"unknown protocol {name!r}; known: {', '.join(metrics())}")
    return metrics()[name]


def is_lower_better(protocol: str) -> bool:
    """Whether lower scores are better; learned metrics, which are not chosen by name, are higher."""
    return protocol in metrics() and metrics()[protocol].better == "lower"


def evaluate(
    hypothesis: Sequence[Document],
    references: Sequence[Document],
    protocols: Sequence[str] = DEFAULT_PROTOCOLS,
    *,
    target_language: str | None = None,
    further_references: Sequence[Sequence[Document]] = (),
) -> list[Score]:
    """Score translated documents against their references under each named protocol, in the order asked for.

    `target_language` (a code such as `zh` or `zh-CN`) chooses the tokenizer. Raises CotextError on an unknown
    protocol, an empty corpus, or hypothesis and reference documents that do not correspond one to one.
    """
    every = [references, *further_references]
    measured = measure({"": hypothesis}, every, protocols, target_language=target_language)
    return [measurement.score for measurement in measured[""]]


def measure(
    hypotheses: Mapping[str, Sequence[Document]],
    references: Sequence[Sequence[Document]],
    protocols: Sequence[str] = DEFAULT_PROTOCOLS,
    *,
    target_language: str | None = None,
    source: Sequence[Document] = (),
) -> dict[str, list[Measurement]]:
    """Score several systems, each as `evaluate` does, with the counts that paired tests need.

    What a metric needs of the references is worked out once.
    """
    chosen, texts = [find_protocol(name) for name in protocols], Texts(hypotheses, references, source)
    for metric in chosen:
        if metric.needs_source and not texts.source:
            raise CotextError(f"{metric.name} reads the source too; give it by --source")
    for hypothesis in hypotheses.values():
        for documents in references:
            check_correspondence(hypothesis, documents)
        if not any(document.sentences for document in hypothesis):
            raise CotextError(
                "nothing to score: the hypothesis holds no sentence; check the file and its format"
            )
    found: dict[str, list[Measurement]] = {name: [] for name in hypotheses}
    for metric in chosen:
        for name, measurement in metric.measure(texts, target_language).items():
            found[name].append(measurement)
    return found


def check_correspondence(
    hypothesis: Sequence[Document], references: Sequence[Document], *, same_sentences: bool = True
) -> None:
    """Raise CotextError unless both have the same documents in the same order, sentence for sentence.

    Unless `same_sentences`, documents may have other numbers of sentences.
    """
    for position, (ours, theirs) in enumerate(zip(hypothesis, references, strict=False), start=1):
        if ours.id != theirs.id:
            raise CotextError(
                f"document number {position} is {ours.id!r} in the hypothesis but {theirs.id!r} in the "
                "reference; give both the same documents in the same order"
            )
        if same_sentences and len(ours.sentences) != len(theirs.sentences):
            raise CotextError(
                f"document {ours.id!r}: {len(ours.sentences)} hypothesis sentences, {len(theirs.sentences)} "
                "reference sentences; a sentence without translation must stand as an empty line (or "
                "`evaluate --realign` cuts the hypothesis anew)"
            )
    if len(hypothesis) != len(references):
        longer, name = (
            (hypothesis, "hypothesis") if len(hypothesis) > len(references) else (references, "reference")
        )
        first = longer[min(len(hypothesis), len(references))].id
        raise CotextError(
            f"{len(hypothesis)} hypothesis documents but {len(references)} reference documents; {first!r} "
            f"is the first that only the {name} has"
        )


def render_scores(scores: Sequence[Score]) -> str:
    """Lay scores out as plain text, one line each with its signature."""
    width = max((len(score.title) for score in scores), default=0)
    lines = [f"{score.title:{width}}  {score.value:6.2f}  {score.signature}" for score in scores]
    if scores:
        first = scores[0]
        lines.append(
            f"{first.documents} documents, {first.sentences} sentences, "
            f"{first.empty_hypotheses} empty hypothesis sentences"
        )
    return "\n".join(lines)
