"""Corpus scores of translated documents by sacrebleu, under named protocols."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain, islice, pairwise
from typing import Final, Literal

import numpy as np
from sacrebleu.metrics.bleu import BLEU, BLEUScore
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from cotext.data.documents import Document, primary_language
from cotext.data.words import UNSPACED_LANGUAGES, is_unspaced
from cotext.evaluation.metrics.interface import Measurement, Metric, Texts, Utility
from cotext.evaluation.statistics.sufficient_statistics import (
    CorpusMetric,
    Floats,
    Statistics,
    chrf_from_sums,
    chrf_pairs,
    sum_scorer,
)
from cotext.runtime import CotextError


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol(Metric):
    """A metric of sacrebleu, the unit of its segments, and the settings that change the score.

    BLEU of tokenised text (`reads_words`) is not smoothed; other text is split by the tokenizer of its
    language: 13a, zh, ja-mecab, ko-mecab, char. `max_tokens`: size of a pseudo-document, see `piece_sizes`.
    """

    kind: Literal["bleu", "chrf", "ter"] = "bleu"
    lowercase: bool = False
    max_tokens: int | None = None

    def measure(self, texts: Texts, target_language: str | None) -> dict[str, Measurement]:
        """Score every system; reference data of sacrebleu are computed once."""
        if self.unit == "sentence":
            sizes = [[1] * len(document) for document in texts.references[0]]
        elif self.max_tokens is not None:
            sizes = piece_sizes(texts.references, self.max_tokens, target_language, self)
        else:
            sizes = [[len(document)] for document in texts.references[0]]
        references = [_joined(documents, sizes) for documents in texts.references]
        metric = build_metric(self, target_language, references)
        document_indices = np.array([index for index, document in enumerate(sizes) for _ in document])
        piece = f"|piece:at-most-{self.max_tokens}-reference-tokens" if self.unit == "piece" else ""
        start = f"protocol:{self.name}|unit:{self.unit}{piece}"
        measured = {}
        for name, hypothesis in texts.systems.items():
            # These two methods are private, but sacrebleu's corpus scores and paired tests use them, too.
            counts = metric._extract_corpus_statistics(_joined(hypothesis, sizes), None)
            result = metric._aggregate_and_compute(counts)
            matrix, signature = np.array(counts, dtype=np.float64), f"{start}|{metric.get_signature()}"
            statistics = Statistics(matrix, document_indices, self.unit, sum_scorer(metric))
            components = {}
            if isinstance(result, BLEUScore):
                lengths = {
                    "hypothesis_tokens": float(result.sys_len),
                    "reference_tokens": float(result.ref_len),
                }
                components = {"brevity_penalty": float(result.bp), **lengths}
                components |= {f"precision_{n}": float(value) for n, value in enumerate(result.precisions, 1)}
            score = float(result.score)
            # Words of tokenised text depend on the sentences.
            joined = self.unit == "document" and not self.reads_words
            measured[name] = Measurement.of(
                self.name, self.title, signature, statistics, hypothesis, components, score, joined
            )
        return measured

    def utility(self) -> tuple[Utility, str]:
        metric = build_metric(self)
        assert isinstance(metric, CHRF)
        metric.num_refs = 1  # for the signature
        return partial(chrf_utilities, metric), str(metric.get_signature())


def chrf_utilities(metric: CHRF, texts: Sequence[str]) -> Floats:
    """Return chrF of all pairs of texts, each scored as a sentence, [K, K], hypotheses first."""
    counts = chrf_pairs(metric, texts)
    return chrf_from_sums(counts.reshape(-1, counts.shape[2]), metric.beta).reshape(counts.shape[:2])


def _is_without_spaces(references: Sequence[Sequence[str]]) -> bool:
    """Return whether most letters of the first 100 segments belong to scripts without spaces."""
    letters = [c for c in "".join(islice(chain(*references), 100)) if c.isalpha()]
    return 2 * sum(map(is_unspaced, letters)) > len(letters)


def build_metric(
    protocol: Protocol,
    target_language: str | None = None,
    references: Sequence[Sequence[str]] | None = None,
) -> CorpusMetric:
    """Return sacrebleu's metric, with its data about the references, if they are given.

    Raises CotextError if its tokenizer is missing, or references have no spaces and the language is unknown.
    """
    language = primary_language(target_language or "")
    if protocol.kind == "chrf":
        return CHRF(lowercase=protocol.lowercase, references=references)
    asian = language in ("zh", "ja")
    unspaced = language in UNSPACED_LANGUAGES or (not asian and _is_without_spaces(references or ()))
    unspaced &= not protocol.reads_words
    if unspaced and (not language or protocol.kind == "ter"):
        raise CotextError(
            f"protocol {protocol.name!r}: the references are written without spaces, so words would be whole "
            "sentences; give --target-language, such as zh or ja (TER supports only these two)"
        )
    if protocol.kind == "ter":
        # Without spaces between words, an edit would replace a whole sentence; sacrebleu splits characters.
        return TER(
            case_sensitive=not protocol.lowercase,
            normalized=asian,
            asian_support=asian,
            references=references,
        )
    try:
        return BLEU(
            lowercase=protocol.lowercase,
            tokenize="none" if protocol.reads_words else "char" if unspaced else None,
            smooth_method="none" if protocol.reads_words else "exp",
            trg_lang="" if protocol.reads_words else language,
            force=protocol.reads_words,  # no warning about tokenised text
            references=references,
        )
    except (ImportError, RuntimeError) as error:
        raise CotextError(
            f"protocol {protocol.name!r}, target language {language!r}: the tokenizer is missing: {error}"
        ) from error


def piece_sizes(
    references: Sequence[Sequence[Document]],
    max_tokens: int,
    target_language: str | None = None,
    protocol: Protocol | None = None,
) -> list[list[int]]:
    """Divide documents into pseudo-documents; return the number of sentences in each piece of each document.

    A piece has at most `max_tokens` tokens of the references, counted by the tokenizer of `protocol`; of
    several translations of a sentence, the longest counts. A longer sentence is a separate piece. Hypotheses
    are divided at the same sentences.
    """
    lines = [[sentence for document in side for sentence in document.sentences] for side in references]
    metric = build_metric(protocol or PROTOCOLS["d-bleu-512"], target_language, lines)
    assert isinstance(metric, BLEU)
    sizes = []
    for documents in zip(*references, strict=True):
        pieces: list[int] = []
        filled = 0
        for sentences in zip(*(document.sentences for document in documents), strict=True):
            tokens = max(len(metric.tokenizer(sentence.rstrip()).split()) for sentence in sentences)
            if not pieces or filled + tokens > max_tokens:
                pieces.append(0)
                filled = 0
            pieces[-1] += 1
            filled += tokens
        sizes.append(pieces)
    return sizes


def _joined(documents: Sequence[Document], sizes: list[list[int]]) -> list[str]:
    """Return the segments of a corpus score, sentences joined with a space."""
    return [
        " ".join(document.sentences[start:end])
        for document, counts in zip(documents, sizes, strict=True)
        for start, end in pairwise(accumulate(counts, initial=0))
    ]


# Names ending in "tok" or "lc" expect tokenised text and score as multi-bleu does; lc: lower-cased,
# ci: case-insensitive. The number is the size of pseudo-documents.
METRICS: Final = (
    Protocol(name="s-bleu", title="s-BLEU", unit="sentence"),
    Protocol(name="s-bleu-tok", title="s-BLEU (tok)", unit="sentence", reads_words=True),
    Protocol(name="s-bleu-lc", title="s-BLEU (lc)", unit="sentence", lowercase=True, reads_words=True),
    Protocol(name="d-bleu", title="d-BLEU"),
    Protocol(name="d-bleu-ci", title="d-BLEU (ci)", lowercase=True),
    Protocol(name="d-bleu-lc", title="d-BLEU (lc)", lowercase=True, reads_words=True),
    Protocol(name="d-bleu-512", title="d-BLEU (512)", unit="piece", max_tokens=512),
    Protocol(
        name="d-bleu-512-tok", title="d-BLEU (512, tok)", unit="piece", reads_words=True, max_tokens=512
    ),
    Protocol(name="chrf", title="chrF", kind="chrf", unit="sentence", is_utility=True),
    Protocol(name="ter", title="TER", kind="ter", unit="sentence", better="lower", lowercase=True),
)
PROTOCOLS: Final = {protocol.name: protocol for protocol in METRICS}
