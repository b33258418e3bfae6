"""CXMI of the test set by kind of context, with intervals and tests over documents."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cotext.evaluation.statistics.flips import flipped_sums
from cotext.evaluation.statistics.significance import Resampling
from cotext.evaluation.studies.compare.measured import CorpusCxmi, DocumentCxmi


@dataclass(frozen=True, slots=True)
class ContextGain:
    """CXMI of a test set for one kind of context, in nats per token.

    `interval_95` and `p` are by drawing documents (percentiles; two-sided, against no gain). `p_foreign`, of
    true context where foreign context was measured too, is that of adding as much as sentences of other
    documents do, by flipping the signs of documents.
    """

    condition: str
    nats: float
    interval_95: tuple[float, float]
    p: float
    documents: int
    tokens: int
    p_foreign: float | None = None


def gains_of_seeds(uses: Sequence[CorpusCxmi | None], drawing: Resampling) -> tuple[ContextGain, ...]:
    """The gains of a system of one or several seeds: means over them, with the p of the least sure seed."""
    known = [use for use in uses if use is not None]
    if len(known) < len(uses):
        return ()
    of_seeds = [context_gains(use, drawing) for use in known]
    if len(of_seeds) == 1:
        return of_seeds[0]
    found = context_gains(_averaged(known), drawing)
    return tuple(
        replace(
            gain,
            p=max(each.p for each in seeds),
            p_foreign=max((each.p_foreign for each in seeds if each.p_foreign is not None), default=None),
        )
        for gain, seeds in zip(found, zip(*of_seeds, strict=True), strict=True)
    )


def _averaged(uses: Sequence[CorpusCxmi]) -> CorpusCxmi:
    """Of every document the mean over seeds; its tokens are the same for all."""
    return CorpusCxmi(
        uses[0].signature,
        {
            condition: tuple(
                DocumentCxmi(sum(each.nats for each in seeds) / len(seeds), seeds[0].tokens)
                for seeds in zip(*(use.documents[condition] for use in uses), strict=True)
            )
            for condition in uses[0].documents
        },
    )


def context_gains(use: CorpusCxmi | None, drawing: Resampling) -> tuple[ContextGain, ...]:
    """Nats a token that each kind of context adds, with intervals by drawing documents."""
    if use is None:
        return ()
    found = []
    for condition, documents in use.documents.items():
        if not documents:
            continue
        sums = np.array([(each.nats, each.tokens) for each in documents], dtype=np.float64)
        draws = np.random.default_rng(drawing.seed)
        size = (min(drawing.samples, max(100, 20_000_000 // len(sums))), len(sums))
        drawn = sums[draws.integers(len(sums), size=size)].sum(axis=1)
        means = drawn[:, 0] / drawn[:, 1]
        low, high = np.percentile(means, (2.5, 97.5))
        least = min(int(np.sum(means <= 0)), int(np.sum(means >= 0)))
        found.append(
            ContextGain(
                condition=condition,
                nats=float(sums[:, 0].sum() / sums[:, 1].sum()),
                interval_95=(float(low), float(high)),
                p=min(1.0, 2 * (least + 1) / (len(means) + 1)),
                documents=len(sums),
                tokens=int(sums[:, 1].sum()),
                p_foreign=_p_foreign(use, drawing) if condition == "true" else None,
            )
        )
    return tuple(found)


def _p_foreign(use: CorpusCxmi, drawing: Resampling) -> float | None:
    true, foreign = use.documents["true"], use.documents.get("random")
    if not foreign:
        return None
    apart = [a.nats - b.nats for a, b in zip(true, foreign, strict=True)]
    return flipped_sums(apart, drawing.samples, drawing.seed)
