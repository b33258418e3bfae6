"""Parts that have no effect at first, if training starts from another model, which lacks these parts.

A part whose output can be weighted gets a gate that starts at zero (`ZeroGate`). A part that replaces
something of the other model, such as rotary positions, is blended in during the first updates (`Blended`).

Shapes: D model.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn

GATE_START = 4.0  # sigmoid(4) = 0.982 of the other model's states
LEAST = 1e-13  # share of a new symbol before the first update; lost in rounding


class StartsFromOthers(ABC):
    """A module that states the initial values of its parameters if training starts from another system."""

    def adopted_names(self) -> Mapping[str, str]:
        """Parameter name -> name of the parameter to copy from a plain module, relative to this module."""
        return {}

    @abstractmethod
    def neutral_start(self) -> Mapping[str, float]:
        """Parameter name -> constant with which the module has almost no effect."""

    def rates(self) -> Mapping[str, float]:
        """Return a mapping from parameter names to learning rates, relative to other parameters."""
        return {}


class ZeroGate(nn.Module, StartsFromOthers):
    """Weight of a change, per dimension: x + a * (changed - x), with a = 0 at first.

    The gate has a gradient from the first update on. The gated part has a gradient from the second update on,
    when a is no longer 0 (ReZero; Bachlechner et al. 2021, here with a vector instead of a number).
    """

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.share = nn.Parameter(torch.zeros(dimension))

    def forward(self, x: Tensor, changed: Tensor) -> Tensor:
        """[..., D] each -> [..., D]."""
        # In this form, the result is exactly x while a is 0.
        return x + self.share.to(x.dtype) * (changed - x)

    def neutral_start(self) -> Mapping[str, float]:
        return {"share": 0.0}


class AlmostClosed(StartsFromOthers):
    """A module whose `gate` starts almost closed to a part that the other model lacks.

    The part has not yet learned what to look for. Behind a second gate that starts closed (`start`), the gate
    starts half open.
    """

    start: ZeroGate | None

    def neutral_start(self) -> Mapping[str, float]:
        return {"gate.weight": 0.0, "gate.bias": GATE_START if self.start is None else 0.0}


class Blended:
    """A module that replaces a part of the other model: in training, with the weight `blended` (0 ... 1).

    Outside training the weight is 1, so that scores and translations are the results of the final model,
    unless `everywhere` is True. `what` is the name of the module in the configuration (`train.blend`).
    """

    what = ""
    blended = 1.0
    everywhere = False
    training: bool

    @property
    def in_force(self) -> float:
        """The weight of blending, between 0 and 1."""
        return self.blended if self.training or self.everywhere else 1.0


class NewSymbols(nn.Module, Blended):
    """Output symbols that the other model does not have, which start as copies of known symbols.

    A copy of the end symbol would halve the probability of the end symbol. Therefore p(symbol) grows from
    zero in proportion to the weight of blending, whose logarithm is added to the logit.
    """

    def __init__(self, what: str, ids: range) -> None:
        super().__init__()
        self.what, self.ids = what, ids

    def held_back(self, bias_V: Tensor | None, weight_VD: Tensor) -> Tensor | None:
        """Return the output bias, lowered for these symbols until the weight of blending is 1."""
        if self.in_force == 1:
            return bias_V
        lower = weight_VD.new_zeros(weight_VD.size(0))
        lower[self.ids.start : self.ids.stop] = math.log(max(self.in_force, LEAST))
        return lower if bias_V is None else bias_V + lower
