"""Minimum Bayes risk: of several translations, select the one that agrees most with the others.

    argmax_h  sum_r p(r) u(h, r)        h, r: the translations of a sentence

Shapes: K translations of a sentence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from sacrebleu.metrics.chrf import CHRF

from cotext.data.nbest_lists import Candidates
from cotext.evaluation.statistics.sufficient_statistics import Floats, chrf_from_sums, chrf_pairs
from cotext.runtime.errors import CotextError

Weighting = Literal["uniform", "scores"]
ENOUGH: Final = 1e-9  # utilities closer than this are equal, and the first one wins


@dataclass(frozen=True, slots=True)
class Pool:
    """The different translations of a sentence, and their probabilities by system, [systems, K]."""

    texts: tuple[str, ...]
    probability: Floats


def pooled(lists: Sequence[Candidates], weighting: Weighting) -> Pool:
    """Collect the translations of a sentence by several systems, each text once.

    Those of a system are equally probable (`uniform`), or by their log-probabilities (`scores`). Raises
    CotextError for `scores` if a list has no log-probabilities.
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
            shares = np.exp(scores - scores.max())
        for candidate, share in zip(candidates, shares / shares.sum(), strict=True):
            row[number[candidate.text]] += share
    return Pool(tuple(number), probability)


@dataclass(frozen=True, slots=True)
class Decision:
    """The index of the selected translation of a sentence; expected utilities of this and the first one."""

    chosen: int
    utility: float
    utility_of_first: float


def decide(pool: Pool, utilities: Floats) -> Decision:
    """Select a translation by the utilities of all pairs, [K, K], hypotheses first."""
    # The probabilities of translations are averaged over systems.
    values = utilities @ pool.probability.mean(axis=0)
    chosen = int(np.argmax(values > values.max() - ENOUGH))
    return Decision(chosen, float(values[chosen]), float(values[0]))


def chrf_utilities(metric: CHRF, texts: Sequence[str]) -> Floats:
    """Return chrF of all pairs of texts, each scored as a sentence, [K, K], hypotheses first."""
    counts = chrf_pairs(metric, texts)
    return chrf_from_sums(counts.reshape(-1, counts.shape[2]), metric.beta).reshape(counts.shape[:2])
