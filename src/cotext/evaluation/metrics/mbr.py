"""Minimum Bayes risk: of several translations, the one that the others agree with most.

    argmax_h  sum_r p(r) u(h, r)        h, r: the translations of a sentence

Shapes: K translations of a sentence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from cotext.data.nbest_lists import Candidates
from cotext.evaluation.statistics.sufficient_statistics import Floats, PairCounts, SumScorer
from cotext.runtime.errors import CotextError

Weighting = Literal["uniform", "scores"]
ENOUGH: Final = 1e-9  # by which a utility has to be larger, so that rounding decides nothing


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

    Utilities are sums over sentences.
    """

    chosen: tuple[int, ...]
    utility: float
    utility_of_first: float


def decide_sentences(pools: Sequence[Pool], utilities: Sequence[Floats]) -> Decision:
    """Choose for each sentence by itself; `utilities` [K, K] of each, hypotheses first."""
    expected = [utility @ pool.mean for pool, utility in zip(pools, utilities, strict=True)]
    chosen = tuple(_best(each) for each in expected)
    total = sum(float(each[k]) for each, k in zip(expected, chosen, strict=True))
    return Decision(chosen, total, sum(float(each[0]) for each in expected))


def _best(expected: Floats) -> int:
    """The largest; of such as differ by rounding alone the first."""
    return int(np.argmax(expected > expected.max() - ENOUGH))


def pair_utilities(counts: PairCounts, score: SumScorer, texts: Sequence[str]) -> Floats:
    """The utilities of all pairs of texts by a metric of sentences, [K, K], hypotheses first."""
    sums = counts(texts)
    return score(sums.reshape(-1, sums.shape[2])).reshape(sums.shape[:2])
