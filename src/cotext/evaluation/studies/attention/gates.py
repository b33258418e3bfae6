"""How open a gate stands to other sentences, and to how distant ones.

Openness of a gate of DocFlat is the mean of its values over the numbers of a state: 1 lets all through that
attention across the batch has found, 0 nothing (Wu et al. 2023, section 3.3). What comes from sentence j into
sentence i is the openness of i times the share of its attention that goes to j.

A gate to other sentences of a row (`layers/others.py`) is one factor per head, between -1 and 1.

Shapes: B rows, H heads, T queries, S keys, M tokens, D model, N sentences of the document.
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


class HeadGates:
    """Gates of one attention to other sentences: how far they are open, and what passes, by head.

    `open` [H] holds their factors, `kind` names the attention. What passes a gate from the sentence at a
    distance is the weight of its tokens among other sentences times the absolute factor: the mean over the
    queries that see this sentence.
    """

    def __init__(self, kind: str, open_H: Tensor, sentences: int) -> None:
        self.kind, self.open = kind, open_H.detach().double().cpu()
        self._last = sentences - 1
        self._weight = torch.zeros(len(open_H), 2 * sentences - 1, dtype=torch.float64)
        self._queries = torch.zeros(2 * sentences - 1, dtype=torch.float64)

    def add(self, weights_BHTS: Tensor, query_BT: Tensor, key_BS: Tensor) -> None:
        """Count the weights of one call, as `SentenceMap.add`."""
        query, key = query_BT[:, :, None], key_BS[:, None]
        distance = torch.where((query >= 0) & (key >= 0), query - key, 0) + self._last
        shape = (*weights_BHTS.shape[:3], len(self._queries))
        weight = weights_BHTS.new_zeros(shape).scatter_add(
            3, distance[:, None].expand_as(weights_BHTS), weights_BHTS
        )
        self._weight += weight.sum(dim=(0, 2)).cpu()
        self._queries += (weight.amax(dim=1) > 0).sum(dim=(0, 1)).cpu()

    @property
    def overall(self) -> float:
        """Mean of the absolute factors."""
        return float(self.open.abs().mean())

    @property
    def by_distance(self) -> dict[int, Tensor]:
        """What passes [H], by sentences back; below zero: ahead."""
        # Weights are shown scaled to a sum of 1, which is 1 + |factor| before.
        passed = (1 + self.open.abs())[:, None] * self._weight / self._queries
        found = (self._queries > 0).nonzero()[:, 0].tolist()
        return {place - self._last: passed[:, place] for place in found if place != self._last}

    def as_dict(self) -> dict[str, Any]:
        """For a JSON file."""
        return {
            "kind": self.kind,
            "openness": self.overall,
            "open_by_head": self.open.tolist(),
            "passed_by_distance": {str(d): passed.tolist() for d, passed in self.by_distance.items()},
        }
