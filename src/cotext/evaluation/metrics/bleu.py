"""Corpus scores of translated documents by sacrebleu, under named protocols that travel with each number.

"d-BLEU" has meant cased, case-insensitive and lower-cased tokenised scores in different papers, so a score
here is always a number and a signature: the protocol, its unit, and sacrebleu's own signature.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from cotext.data.documents import Document
from cotext.data.languages import primary_language
from cotext.evaluation.statistics.sufficient_statistics import CorpusMetric, Statistics, Unit, sum_scorer
from cotext.runtime.errors import CotextError


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """An evaluation protocol: the metric, its segments, and the settings that change the score.

    `tokenize` (BLEU only) None lets the target language choose: 13a, or zh, ja-mecab, ko-mecab.
    `smoothing` (BLEU only) is sacrebleu's name for what is done where no n-gram matches.
    `max_tokens` (unit piece only) bounds a pseudo-document, see `piece_sizes`.
    """

    name: str
    title: str
    metric: Literal["bleu", "chrf", "ter"]
    unit: Unit
    lowercase: bool = False
    tokenize: str | None = None
    smoothing: Literal["exp", "none"] = "exp"
    max_tokens: int | None = None
    description: str


_TABLE = (
    Protocol(
        name="s-bleu",
        title="s-BLEU",
        metric="bleu",
        unit="sentence",
        description="each sentence is a segment; cased",
    ),
    Protocol(
        name="s-bleu-tok",
        title="s-BLEU (tok)",
        metric="bleu",
        unit="sentence",
        tokenize="none",
        smoothing="none",
        description="as multi-bleu on cased, tokenised text, which hypotheses and references must be",
    ),
    Protocol(
        name="s-bleu-lc",
        title="s-BLEU (lc)",
        metric="bleu",
        unit="sentence",
        lowercase=True,
        tokenize="none",
        smoothing="none",
        description="as s-bleu-tok, but lower-cased",
    ),
    Protocol(
        name="d-bleu",
        title="d-BLEU",
        metric="bleu",
        unit="document",
        description="each document is a segment, its sentences joined with a space; cased",
    ),
    Protocol(
        name="d-bleu-ci",
        title="d-BLEU (ci)",
        metric="bleu",
        unit="document",
        lowercase=True,
        description="as d-bleu, but case-insensitive",
    ),
    Protocol(
        name="d-bleu-lc",
        title="d-BLEU (lc)",
        metric="bleu",
        unit="document",
        lowercase=True,
        tokenize="none",
        smoothing="none",
        description="as multi-bleu on lower-cased, tokenised text, which hypotheses and references must be",
    ),
    Protocol(
        name="d-bleu-512",
        title="d-BLEU (512)",
        metric="bleu",
        unit="piece",
        max_tokens=512,
        description="as d-bleu, but documents are cut into pieces of at most 512 tokens between sentences",
    ),
    Protocol(
        name="d-bleu-512-tok",
        title="d-BLEU (512, tok)",
        metric="bleu",
        unit="piece",
        tokenize="none",
        smoothing="none",
        max_tokens=512,
        description="as d-bleu-512, but on cased, tokenised text, which hypotheses and references must be",
    ),
    Protocol(
        name="chrf",
        title="chrF",
        metric="chrf",
        unit="sentence",
        description="each sentence is a segment; character n-grams up to 6, beta 2; cased",
    ),
    Protocol(
        name="ter",
        title="TER",
        metric="ter",
        unit="sentence",
        lowercase=True,
        description="each sentence is a segment; edits per 100 reference words, lower is better",
    ),
)
PROTOCOLS = MappingProxyType({protocol.name: protocol for protocol in _TABLE})
DEFAULT_PROTOCOLS = ("s-bleu", "d-bleu", "chrf")


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
    measured = measure(
        {"": hypothesis}, [references, *further_references], protocols, target_language=target_language
    )
    return [measurement.score for measurement in measured[""]]


def measure(
    hypotheses: Mapping[str, Sequence[Document]],
    references: Sequence[Sequence[Document]],
    protocols: Sequence[str] = DEFAULT_PROTOCOLS,
    *,
    target_language: str | None = None,
) -> dict[str, list[Measurement]]:
    """Score several systems, each as `evaluate` does, with the counts that paired tests need.

    What a metric needs of the references is worked out once.
    """
    chosen = [find_protocol(name) for name in protocols]
    for hypothesis in hypotheses.values():
        for documents in references:
            check_correspondence(hypothesis, documents)
        if not any(document.sentences for document in hypothesis):
            raise CotextError(
                "nothing to score: the hypothesis holds no sentence; check the file and its format"
            )
    found: dict[str, list[Measurement]] = {name: [] for name in hypotheses}
    for protocol in chosen:
        sizes = _segment_sizes(protocol, references[0], target_language)
        metric = build_metric(
            protocol, target_language, [_joined(documents, sizes) for documents in references]
        )
        for name, hypothesis in hypotheses.items():
            found[name].append(_measure(protocol, metric, hypothesis, sizes))
    return found


def _measure(
    protocol: Protocol, metric: CorpusMetric, hypothesis: Sequence[Document], sizes: list[list[int]]
) -> Measurement:
    # sacrebleu has no public way to these, and makes its own corpus scores and paired tests of the same two.
    counts = metric._extract_corpus_statistics(_joined(hypothesis, sizes), None)
    result = metric._aggregate_and_compute(counts)
    piece = f"|piece:at-most-{protocol.max_tokens}-reference-tokens" if protocol.unit == "piece" else ""
    sentences = [sentence for document in hypothesis for sentence in document.sentences]
    score = Score(
        protocol=protocol.name,
        title=protocol.title,
        value=float(result.score),
        signature=f"protocol:{protocol.name}|unit:{protocol.unit}{piece}|{metric.get_signature()}",
        documents=len(hypothesis),
        sentences=len(sentences),
        empty_hypotheses=sum(not sentence.strip() for sentence in sentences),
        components=_components(result) if protocol.metric == "bleu" else {},
    )
    document_indices = [index for index, document in enumerate(sizes) for _ in document]
    statistics = Statistics(
        np.array(counts, dtype=np.float64), np.array(document_indices), protocol.unit, sum_scorer(metric)
    )
    return Measurement(score, statistics)


def find_protocol(name: str) -> Protocol:
    """Look a protocol up by its name; CotextError naming the known ones."""
    if name not in PROTOCOLS:
        raise CotextError(f"unknown protocol {name!r}; known: {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]


def build_metric(
    protocol: Protocol,
    target_language: str | None = None,
    references: Sequence[Sequence[str]] | None = None,
    effective_order: bool = False,
) -> CorpusMetric:
    """Set up sacrebleu's metric for a protocol; CotextError when its tokenizer is not installed.

    `references`: segments of each reference, if they are known already. `effective_order` (BLEU only): texts
    too short for an n-gram order are scored without it, as single sentences have to be.
    """
    language = primary_language(target_language or "")
    if protocol.metric == "chrf":
        return CHRF(lowercase=protocol.lowercase, references=references)
    if protocol.metric == "ter":
        # Without spaces between words an edit would replace a whole sentence: let sacrebleu split characters.
        asian = language in ("zh", "ja")
        return TER(
            case_sensitive=not protocol.lowercase,
            normalized=asian,
            asian_support=asian,
            references=references,
        )
    try:
        return BLEU(
            lowercase=protocol.lowercase,
            tokenize=protocol.tokenize,
            smooth_method=protocol.smoothing,
            trg_lang=language if protocol.tokenize is None else "",
            # The text is meant to be tokenised already exactly where no tokenizer is asked for.
            force=protocol.tokenize == "none",
            references=references,
            effective_order=effective_order,
        )
    except (ImportError, RuntimeError) as error:
        raise CotextError(
            f"protocol {protocol.name!r}, target language {language!r}: the tokenizer is missing: {error}"
        ) from error


def piece_sizes(
    references: Sequence[Document],
    max_tokens: int,
    target_language: str | None = None,
    protocol: Protocol = PROTOCOLS["d-bleu-512"],
) -> list[list[int]]:
    """Cut documents into pseudo-documents: how many sentences each piece of each document takes.

    A piece takes sentences as long as they have at most `max_tokens` tokens together, in the reference, by
    the tokenizer that also scores under `protocol` (13a or that of the target language, or the text as it
    is); a sentence is never cut, so that one which is longer is a piece of its own. Hypotheses are cut at the
    same sentences whatever their length: all systems are scored on the same pieces.
    """
    metric = build_metric(protocol, target_language)
    assert isinstance(metric, BLEU)
    sizes = []
    for document in references:
        pieces: list[int] = []
        filled = 0
        for sentence in document.sentences:
            tokens = len(metric.tokenizer(sentence.rstrip()).split())
            if not pieces or filled + tokens > max_tokens:
                pieces.append(0)
                filled = 0
            pieces[-1] += 1
            filled += tokens
        sizes.append(pieces)
    return sizes


def _segment_sizes(
    protocol: Protocol, references: Sequence[Document], target_language: str | None
) -> list[list[int]]:
    """How many sentences each segment of each document takes."""
    if protocol.unit == "sentence":
        return [[1] * len(document) for document in references]
    if protocol.max_tokens is not None:
        return piece_sizes(references, protocol.max_tokens, target_language, protocol)
    return [[len(document)] for document in references]


def _joined(documents: Sequence[Document], sizes: list[list[int]]) -> list[str]:
    """The segments of a corpus score, sentences joined with a space."""
    return [
        " ".join(document.sentences[start:end])
        for document, counts in zip(documents, sizes, strict=True)
        for start, end in pairwise(accumulate(counts, initial=0))
    ]


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


def _components(result: Any) -> dict[str, float]:
    return {
        "brevity_penalty": float(result.bp),
        "hypothesis_tokens": float(result.sys_len),
        "reference_tokens": float(result.ref_len),
        **{f"precision_{order}": float(value) for order, value in enumerate(result.precisions, start=1)},
    }
