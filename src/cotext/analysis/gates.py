"""How open a gate stands to other sentences, and to how distant ones.

Openness is the mean of a gate's values over the numbers of a state: 1 lets all through that attention across
the batch has found, 0 nothing (Wu et al. 2023, section 3.3). What comes from sentence j into sentence i is
the openness of i times the share of its attention that goes to j.

Shapes: M tokens, D model, N sentences of the document.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class AtDistance:
    """Means over the sentences that have one at this distance in view."""

    share: float  # of the attention of a sentence
    passed: float  # openness times share
    sentences: int


class GateOpenness:
    """Sums over the current tokens of one gate."""

    def __init__(self, kind: str, sentences: int) -> None:
        self.kind = kind  # that of the attention behind it
        self._open = torch.zeros(sentences, dtype=torch.float64)
        self._tokens = torch.zeros(sentences, dtype=torch.float64)

    def add(self, gate_MD: Tensor, sentence_M: Tensor) -> None:
        """Count tokens, each with its sentence of the document."""
        self._open.index_add_(0, sentence_M.cpu(), gate_MD.double().mean(dim=1).cpu())
        self._tokens.index_add_(0, sentence_M.cpu(), torch.ones(len(gate_MD), dtype=torch.float64))

    @property
    def openness(self) -> Tensor:
        """Mean over the tokens of a sentence: [N]."""
        return self._open / self._tokens

    @property
    def overall(self) -> float:
        """Mean over all tokens."""
        return float(self._open.sum() / self._tokens.sum())

    def by_distance(self, share: Tensor) -> dict[int, AtDistance]:
        """By how many sentences back what is attended to stands; below zero: ahead. `share` is [N, N]."""
        passed = self.openness[:, None] * share
        found = {}
        for distance in range(1 - len(share), len(share)):
            shares = share.diagonal(-distance)
            seen = ~shares.isnan()
            if bool(seen.any()):
                through = passed.diagonal(-distance)[seen]
                found[distance] = AtDistance(
                    float(shares[seen].mean()), float(through.mean()), int(seen.sum())
                )
        return found

    def as_dict(self, share: Tensor) -> dict[str, Any]:
        """For a JSON file."""
        return {
            "kind": self.kind,
            "openness": self.overall,
            "openness_by_sentence": [None if math.isnan(v) else v for v in self.openness.tolist()],
            "by_distance": {
                str(d): {"share": at.share, "passed": at.passed, "sentences": at.sentences}
                for d, at in self.by_distance(share).items()
            },
        }
