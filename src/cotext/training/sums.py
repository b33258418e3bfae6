"""Sums of losses with their counts, over batches and over processes."""

from dataclasses import dataclass, field

import torch
from accelerate.utils import gather_object
from torch import Tensor

from cotext.losses.cross_entropy import LossParts

Sums = dict[str, tuple[float, float]]  # name -> sum and count


@dataclass(slots=True)
class IntervalSums:
    """Sums of this process since the last report, which was at `since`, in seconds.

    `sums` are pairs of a sum and its count, float64 [2] on the CPU; `labels` counts the labels of the
    batches, also those that a loss leaves out.
    """

    since: float
    labels: int = 0
    waited_seconds: float = 0.0
    grad_norm: float = 0.0
    sums: dict[str, Tensor] = field(default_factory=dict)

    def add(self, outcome: LossParts) -> None:
        """Add the figures of one batch."""
        for name, (total, count) in {"loss": (outcome.loss, outcome.count), **outcome.parts}.items():
            pair = torch.stack((total.detach(), count)).cpu().double()
            self.sums[name] = self.sums[name] + pair if name in self.sums else pair

    def as_floats(self) -> Sums:
        """Each sum with its count, of this process alone."""
        return {name: (float(pair[0]), float(pair[1])) for name, pair in self.sums.items()}


def add_over_processes(sums: Sums) -> Sums:
    """Sums and counts over all processes; every process must call it."""
    total: Sums = {}
    # Added in the order of the processes, so that all of them get the same rounding.
    for part in gather_object([sums]):
        for name, (value, count) in part.items():
            before = total.get(name, (0.0, 0.0))
            total[name] = before[0] + value, before[1] + count
    return total
