"""Metrics, found in all modules of this folder that define `METRICS`; scores by position and length.

"d-BLEU" has meant cased, case-insensitive and lower-cased tokenised scores in different papers. A score is
therefore always a number with a signature: the metric, its unit, and everything that changes the number.

Texts are scored unchanged or, as in papers, split into words by a Moses tokenizer (and joined again).
"""

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final, Literal

import numpy as np

from cotext.data.documents import Document
from cotext.data.nbest_lists import ListedDocument
from cotext.data.tokenizer import MosesBPETokenizer, clean, load_tokenizer
from cotext.evaluation.statistics.sufficient_statistics import Floats, Statistics, SumScorer, Unit
from cotext.runtime import CotextError, __version__
from cotext.runtime.rendering import render_rows

DEFAULT_PROTOCOLS: Final = ("s-bleu", "d-bleu", "chrf")


@dataclass(frozen=True, slots=True)
class Score:
    """A score with its signature.

    `value` is on sacrebleu's scale of 0 to 100 (TER may exceed it). `empty_hypotheses` counts sentences
    without a visible character. `components`: values that make up the score, such as the brevity penalty of
    BLEU.
    """

    protocol: str
    title: str
    value: float
    signature: str
    documents: int
    sentences: int
    empty_hypotheses: int
    components: dict[str, float]


@dataclass(frozen=True, slots=True, eq=False)
class Measurement:
    """A score, and the counts of every segment from which it is computed."""

    score: Score
    statistics: Statistics
    of_joined_text: bool = False  # whether it is the same for any division into sentences

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
        of_joined_text: bool = False,
    ) -> "Measurement":
        """Build the measurement of a hypothesis; `value` defaults to the score of its statistics."""
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
        return cls(score, statistics, of_joined_text)

    def signed(self, more: str) -> "Measurement":
        """Return the measurement with `more` at the end of its signature."""
        return replace(self, score=replace(self.score, signature=self.score.signature + more))


@dataclass(frozen=True, slots=True)
class Texts:
    """Translations by system, references and source (empty if there is none), whose documents correspond."""

    systems: Mapping[str, Sequence[Document]]
    references: Sequence[Sequence[Document]]
    source: Sequence[Document] = ()


# Maps K texts to the scores of all pairs, [K, K]; the first index is the hypothesis.
Utility = Callable[[Sequence[str]], Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric(ABC):
    """A metric of corpora, selected by its name (`--protocol`).

    `unit`: the segments that are counted. `needs_source`: the source is read too. `reads_words`: the text
    must be tokenised. `is_utility`: usable for minimum Bayes risk (`mbr --utility`).
    """

    name: str
    title: str
    unit: Unit = "document"
    better: Literal["higher", "lower"] = "higher"
    needs_source: bool = False
    reads_words: bool = False
    is_utility: bool = False

    @abstractmethod
    def measure(self, texts: Texts, target_language: str | None) -> dict[str, Measurement]:
        """Score every system; raise CotextError if this is not possible."""

    @abstractmethod
    def utility(self) -> tuple[Utility, str]:
        """Return a function that scores all pairs of texts, and its signature; only if `is_utility`."""


# Maps a hypothesis, its references and its source, if there is one, to counts.
Counter = Callable[[Document, Sequence[Document], Document | None], Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedMetric(Metric):
    """A metric with counts of documents that add up; `combine` maps sums [corpora, counts] to scores."""

    count: Counter
    combine: SumScorer

    def measure(self, texts: Texts, target_language: str | None) -> dict[str, Measurement]:
        references = f"nrefs:{len(texts.references)}"
        signature = f"protocol:{self.name}|unit:document|{references}|version:cotext-{__version__}"
        source: Sequence[Document | None] = texts.source or [None] * len(texts.references[0])
        measurements = {}
        for name, hypothesis in texts.systems.items():
            rows = zip(hypothesis, zip(*texts.references, strict=True), source, strict=True)
            counts = np.array([self.count(*row) for row in rows], dtype=np.float64)
            statistics = Statistics(counts, np.arange(len(counts)), "document", self.combine)
            measurements[name] = Measurement.of(self.name, self.title, signature, statistics, hypothesis)
        return measurements

    def utility(self) -> tuple[Utility, str]:
        """Score every text as a document of one sentence, with every text as reference."""

        def scores(texts: Sequence[str]) -> Floats:
            documents = [Document("", (text,)) for text in texts]
            counts = [self.count(one, [other], None) for one in documents for other in documents]
            return self.combine(np.array(counts, np.float64)).reshape(len(texts), -1)

        return scores, f"protocol:{self.name}"


@cache
def metrics() -> Mapping[str, Metric]:
    """Return the metrics of all modules in this folder, by name."""
    modules = sorted(module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    by_name: dict[str, Metric] = {}
    for name in modules:
        for metric in vars(import_module(f"{__package__}.{name}")).get("METRICS", ()):
            by_name[metric.name] = metric
    return by_name


def find_protocol(name: str) -> Metric:
    """Return a metric by its name; raise CotextError with the known names."""
    if name not in metrics():
        raise CotextError(f"unknown protocol {name!r}; known: {', '.join(metrics())}")
    return metrics()[name]


def is_lower_better(protocol: str) -> bool:
    """Return whether lower scores are better; False for COMET, which is not among `metrics`."""
    return protocol in metrics() and metrics()[protocol].better == "lower"


def measure(
    texts: Texts, protocols: Sequence[str] = DEFAULT_PROTOCOLS, target_language: str | None = None
) -> dict[str, list[Measurement]]:
    """Score systems against references under each named protocol, in the given order.

    `target_language` (such as `zh-CN`) selects the tokenizer. Raises CotextError if a protocol is unknown,
    the corpus is empty, or documents do not correspond one to one.
    """
    selected = [find_protocol(name) for name in protocols]
    for metric in selected:
        if metric.needs_source and not texts.source:
            raise CotextError(f"{metric.name} also needs the source; give it with --source")
    for hypothesis in texts.systems.values():
        for documents in texts.references:
            check_correspondence(hypothesis, documents)
        if not any(document.sentences for document in hypothesis):
            raise CotextError("nothing to score: the hypothesis has no sentence; check the file")
    measurements: dict[str, list[Measurement]] = {name: [] for name in texts.systems}
    for metric in selected:
        for name, measurement in metric.measure(texts, target_language).items():
            measurements[name].append(measurement)
    return measurements


def check_correspondence(
    hypothesis: Sequence[Document | ListedDocument],
    references: Sequence[Document | ListedDocument],
    *,
    same_sentences: bool = True,
    same_ids: bool = True,
    names: tuple[str, str] = ("the hypothesis", "the reference"),
) -> None:
    """Raise CotextError unless both sides have the same documents in the same order, sentence by sentence.

    Numbers of sentences and ids are only compared if requested. `names`: both sides in messages.
    """
    one, other = names
    for position, (ours, theirs) in enumerate(zip(hypothesis, references, strict=False), start=1):
        if same_ids and ours.id != theirs.id:
            raise CotextError(
                f"document number {position} is {ours.id!r} in {one} but {theirs.id!r} in {other}; order "
                "both alike"
            )
        if same_sentences and len(ours.sentences) != len(theirs.sentences):
            raise CotextError(
                f"document {theirs.id!r}: {len(ours.sentences)} sentences in {one}, {len(theirs.sentences)} "
                f"in {other}; write a missing translation as an empty sentence, in docids, tsv or jsonl (an "
                "empty line of plain text ends a document), or use `evaluate --realign`"
            )
    if len(hypothesis) != len(references):
        longer, name = (hypothesis, one) if len(hypothesis) > len(references) else (references, other)
        first = longer[min(len(hypothesis), len(references))].id
        raise CotextError(
            f"{len(hypothesis)} documents in {one} but {len(references)} in {other}; {first!r} is the first "
            f"that only {name} has"
        )


Words = MosesBPETokenizer  # splits both references and translations into words


def load_words(folder: Path | None) -> Words | None:
    """Load the tokenizer of a folder, if given; raise CotextError if it does not split into words."""
    if folder is None:
        return None
    tokenizer = load_tokenizer(folder / "tokenizer")
    if not isinstance(tokenizer, Words):
        raise CotextError(
            f"{folder}: --words needs a tokenizer that splits text into words, and this one is "
            f"{tokenizer.kind}; give a folder prepared with --tokenizer moses-bpe, or omit --words"
        )
    return tokenizer


def measure_words(
    words: Words | None, texts: Texts, protocols: Sequence[str], target_language: str | None
) -> dict[str, list[Measurement]]:
    """Run `measure` on texts split into `words`, if given, and note this in signatures."""
    if words is None:
        return measure(texts, protocols, target_language)
    measured: dict[str, list[Measurement]] = {name: [] for name in texts.systems}
    for protocol in protocols:
        tokenised = find_protocol(protocol).reads_words
        systems = {name: _split(words, documents, tokenised) for name, documents in texts.systems.items()}
        references = [_split(words, documents, tokenised) for documents in texts.references]
        truecased = "truecased-" if words.words.truecase else ""
        form = f"{truecased}{'tokenised' if tokenised else 'joined'}"
        by_system = measure(Texts(systems, references, texts.source), [protocol], target_language)
        for name, [measurement] in by_system.items():
            measured[name].append(measurement.signed(f"|words:{form}-{words.fingerprint[:8]}"))
    return measured


def _split(words: Words, documents: Sequence[Document], tokenised: bool) -> list[Document]:
    """Return documents split into words, or joined again from the words."""

    def text(sentence: str) -> str:
        parts = words.words.split(clean(sentence))
        return " ".join(parts) if tokenised else words.words.join(parts, as_written=False)

    return [replace(d, sentences=tuple(map(text, d.sentences))) for d in documents]


# --- Quality by position in the document, and by document length.
#
# All sentences at similar positions are scored as a corpus, by any protocol. Its documents contain only these
# sentences. Documents of similar length are scored as a corpus, too.

Kind = Literal["position", "length"]
TITLES: Final[dict[Kind, str]] = {
    "position": "position in the document",
    "length": "sentences in the document",
}
POSITIONS: Final = (1, 2, 3, 5, 9, 17, 33, 65)  # where buckets begin; the last has no end


@dataclass(frozen=True, slots=True)
class Bucket:
    """Positions or lengths from `first` to `last` (None: no end), and the scores of each system."""

    first: int
    last: int | None
    documents: int
    sentences: int
    scores: tuple[tuple[Score, ...], ...]

    @property
    def name(self) -> str:
        """Return the range, such as 3, 5-8 or 65-."""
        if self.last == self.first:
            return str(self.first)
        return f"{self.first}-{'' if self.last is None else self.last}"


def profile(
    kind: Kind,
    hypotheses: Sequence[Sequence[Document]],
    references: Sequence[Document],
    protocols: Sequence[str],
    target_language: str | None = None,
) -> list[Bucket]:
    """Score the sentences at similar positions, counted from 1, or the documents of similar length.

    Buckets without a sentence are omitted. Raises CotextError for an unknown protocol.
    """

    def part(documents: Sequence[Document], first: int, stop: int | None) -> list[Document]:
        if kind == "length":
            return [d for d in documents if len(d) >= first and (stop is None or len(d) < stop)]
        cut = (Document(d.id, d.sentences[first - 1 : None if stop is None else stop - 1]) for d in documents)
        return [d for d in cut if d.sentences]

    buckets = []
    for first, stop in zip(POSITIONS, [*POSITIONS[1:], None], strict=True):
        right = part(references, first, stop)
        if not any(d.sentences for d in right):
            continue
        parts = {f"{n}": part(hypothesis, first, stop) for n, hypothesis in enumerate(hypotheses)}
        measured = measure(Texts(parts, [right]), protocols, target_language).values()
        scores = tuple(tuple(each.score for each in of_system) for of_system in measured)
        last = None if stop is None else stop - 1
        buckets.append(Bucket(first, last, len(right), sum(map(len, right)), scores))
    return buckets


def render_profile(title: str, buckets: Sequence[Bucket], systems: Sequence[str]) -> str:
    """Format buckets as text: a line for each, a column for every system and protocol, and signatures."""
    first = buckets[0].scores[0] if buckets else ()
    names = [f"{s} {p.title}" if len(systems) > 1 else p.title for s in systems for p in first]
    rows = [[title, "documents", "sentences", *names]]
    for bucket in buckets:
        values = [f"{score.value:.2f}" for system in bucket.scores for score in system]
        rows.append([bucket.name, str(bucket.documents), str(bucket.sentences), *values])
    return "\n".join([render_rows(rows, left=1), *(score.signature for score in first)])
