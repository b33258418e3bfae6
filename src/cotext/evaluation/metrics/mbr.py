"""Minimum Bayes risk: of several translations, the one that the others agree with most.

    sentence    argmax_h  sum_r p(r) u(h, r)               h, r: the translations of a sentence
    document    argmax_h  sum_d w(d) u(sum of counts)      h: one translation for every sentence of a document

A document's utility is the metric of the whole document, as corpus scores are: counts of its sentences are
added, then scored. Its references d are documents of what the systems say: their own, where each says one
thing of a sentence; else drawn from their lists. There are too many combinations h to try all of them:
beginning with the choice by sentences, the sentences are gone through, and each takes the translation that is
best for the document as all others are, until nothing changes (coordinate ascent). The utility only rises.

Shapes: K translations of a sentence, N sentences of a document, R documents drawn, S counts of the metric.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from cotext.data.nbest_lists import Candidates
from cotext.evaluation.statistics.sufficient_statistics import Floats, Integers, PairCounts, SumScorer
from cotext.runtime.errors import CotextError

Weighting = Literal["uniform", "scores"]
ENOUGH: Final = 1e-9  # by which a utility has to be larger, so that rounding decides nothing
MAX_SWEEPS: Final = 100


@dataclass(frozen=True, slots=True)
class Pool:
    """The different translations of a sentence, and how probable each system finds them.

    `probability` [systems, K] has rows that add up to 1. The first text is the first of the first system.
    """

    texts: tuple[str, ...]
    probability: Floats

    @property
    def mean(self) -> Floats:
        """The probabilities of all systems together, [K]."""
        mean: Floats = self.probability.mean(axis=0)
        return mean


def pooled(lists: Sequence[Candidates], weighting: Weighting, temperature: float) -> Pool:
    """The translations of a sentence by several systems, each text once.

    `uniform`: all of a system's list are equally probable; `scores`: by their log-probabilities over the
    temperature, made to add up to 1.

    Raises:
        CotextError: `scores`, and a system does not know them.
    """
    number: dict[str, int] = {}
    for candidates in lists:
        for candidate in candidates:
            number.setdefault(candidate.text, len(number))
    probability = np.zeros((len(lists), len(number)))
    for row, candidates in zip(probability, lists, strict=True):
        shares = np.ones(len(candidates))
        if weighting == "scores" and len(candidates) > 1:
            scores = np.array([candidate.log_probability for candidate in candidates])
            if not np.isfinite(scores).all():
                raise CotextError(
                    f"the translation {candidates[0].text!r} and others have no log-probabilities; weigh "
                    "them with --probabilities uniform"
                )
            with np.errstate(over="ignore"):  # a temperature near 0 leaves the best alone
                shares = np.exp((scores - scores.max()) / temperature)
        for candidate, share in zip(candidates, shares / shares.sum(), strict=True):
            row[number[candidate.text]] += share
    return Pool(tuple(number), probability)


@dataclass(frozen=True, slots=True)
class Decision:
    """What was chosen for every sentence, and the expected utilities of that and of the first translations.

    Utilities are of the level that was asked for: sums over sentences, or of the document. `sweeps`: how
    often the sentences were gone through.
    """

    chosen: tuple[int, ...]
    utility: float
    utility_of_first: float
    sweeps: int = 0


def decide_sentences(pools: Sequence[Pool], utilities: Sequence[Floats]) -> Decision:
    """Choose for each sentence by itself; `utilities` [K, K] of each, hypotheses first."""
    expected = [utility @ pool.mean for pool, utility in zip(pools, utilities, strict=True)]
    chosen = tuple(_best(each) for each in expected)
    total = sum(float(each[k]) for each, k in zip(expected, chosen, strict=True))
    return Decision(chosen, total, sum(float(each[0]) for each in expected))


def _best(expected: Floats) -> int:
    """The largest; of such as differ by rounding alone the first."""
    return int(np.argmax(expected > expected.max() - ENOUGH))


@dataclass(frozen=True, slots=True)
class DocumentRisk:
    """The expected utility of documents, combined of the translations of their sentences.

    `counts` says what a metric counts for all pairs of texts, `score` what sums of counts are worth.
    `samples`: how many documents are drawn from lists; `seed` with the texts of a document decides which.
    """

    counts: PairCounts
    score: SumScorer
    samples: int
    seed: int

    def decide(self, pools: Sequence[Pool]) -> Decision:
        """Choose the translations of all sentences of a document together."""
        counts = [self.counts(pool.texts) for pool in pools]
        drawn = self._drawn(pools)

        def against(j: int) -> Floats:
            """Counts of all translations of a sentence against the documents drawn, [K, R, S]."""
            return counts[j][:, drawn[:, j]]

        by_sentence = [_scored(self.score, of_pairs) for of_pairs in counts]
        chosen = list(decide_sentences(pools, by_sentence).chosen)
        first, total = (
            np.add.reduce([against(j)[k] for j, k in enumerate(choice)])
            for choice in ([0] * len(pools), chosen)
        )
        utility, sweeps, changed = self._utility(total), 0, True
        while changed and sweeps < MAX_SWEEPS:
            changed, sweeps = False, sweeps + 1
            for j in range(len(pools)):
                of_sentence = against(j)
                others = total - of_sentence[chosen[j]]
                values = self._expected(others + of_sentence)
                k = _best(values)
                if values[k] > utility + ENOUGH:
                    chosen[j], utility, changed = k, float(values[k]), True
                total = others + of_sentence[chosen[j]]
        return Decision(tuple(chosen), utility, self._utility(first), sweeps)

    def _expected(self, sums_KRS: Floats) -> Floats:
        """The mean utility over the documents drawn, [K]."""
        mean: Floats = _scored(self.score, sums_KRS).mean(axis=1)
        return mean

    def _utility(self, sums_RS: Floats) -> float:
        return float(self._expected(sums_RS[None])[0])

    def _drawn(self, pools: Sequence[Pool]) -> Integers:
        """Documents of what the systems say, by the text of every sentence, [R, N].

        The systems take turns. Of one that says one thing of every sentence, that is its document.
        """
        systems = len(pools[0].probability)
        certain = all(pool.probability.max(axis=1).min() > 1 - ENOUGH for pool in pools)
        rounds = 1 if certain else -(-self.samples // systems)
        generator = np.random.default_rng([self.seed, _digest(pools)])
        at = generator.random((rounds, systems, len(pools)))
        drawn = np.empty((rounds, systems, len(pools)), dtype=np.int64)
        for j, pool in enumerate(pools):
            edges = np.cumsum(pool.probability, axis=1)
            edges[:, -1] = 1.0  # whatever rounding has made of it
            for system in range(systems):
                drawn[:, system, j] = np.searchsorted(edges[system], at[:, system, j], side="right")
        return drawn.reshape(-1, len(pools))


def _digest(pools: Sequence[Pool]) -> int:
    """A number that the texts of a document decide: not its place in a corpus."""
    found = hashlib.sha256()
    for pool in pools:
        found.update("\n".join(pool.texts).encode() + b"\n\n")
    return int.from_bytes(found.digest()[:8], "big")


def pair_utilities(counts: PairCounts, score: SumScorer, texts: Sequence[str]) -> Floats:
    """The utilities of all pairs of texts by a metric of sentences, [K, K], hypotheses first."""
    return _scored(score, counts(texts))


def _scored(score: SumScorer, sums: Floats) -> Floats:
    """Scores of sums [A, B, S], [A, B]."""
    return score(sums.reshape(-1, sums.shape[2])).reshape(sums.shape[:2])
