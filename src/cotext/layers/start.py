"""Parts that change nothing yet where training starts from a model that lacks them.

Where a part can be weighted, a gate of its own begins at zero (`ZeroGate`). What takes the place of something
that the other model has, as rotary positions do, is blended in over the first updates (`Blended`).

Shapes: D model.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn

LEAST = 1e-13  # of what a symbol has, before the first update: lost in rounding


class StartsFromOthers(ABC):
    """A module of a model that says what its parameters start from where another system lacks them."""

    @abstractmethod
    def adopted_names(self) -> Mapping[str, str]:
        """Own name of a parameter -> its counterpart in a plain module, both relative to this one."""

    @abstractmethod
    def neutral_start(self) -> Mapping[str, float]:
        """Own name of a parameter -> the constant at which the module changes next to nothing."""

    def rates(self) -> Mapping[str, float]:
        """Own name of a parameter -> its learning rate as a multiple of that of the other parameters."""
        return {}


class ZeroGate(nn.Module, StartsFromOthers):
    """The share of a change that is made, number by number: x + a * (changed - x), a = 0 at first.

    The gate itself has a gradient from the first update on, and what it lets through from the second on, as
    a has moved by then (ReZero; Bachlechner et al. 2021, with a vector in place of their number).
    """

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.share = nn.Parameter(torch.zeros(dimension))

    def forward(self, x: Tensor, changed: Tensor) -> Tensor:
        """[..., D] each -> [..., D]."""
        return x + self.share.to(x.dtype) * (changed - x)

    def adopted_names(self) -> Mapping[str, str]:
        """Nothing in a plain model corresponds to it."""
        return {}

    def neutral_start(self) -> Mapping[str, float]:
        """Closed."""
        return {"share": 0.0}


class Blended:
    """A module that takes the place of something: in training, as far as `blended` says (0 ... 1).

    Outside training it is in force, so that scores and translations are those of the model as it will be,
    unless `everywhere` is true. `what` names it in the configuration (`train.blend`).
    """

    what = ""
    blended = 1.0
    everywhere = False
    training: bool

    @property
    def in_force(self) -> float:
        """The share of the change that is in force."""
        return self.blended if self.training or self.everywhere else 1.0


class NewSymbols(nn.Module, Blended):
    """Symbols of the output layer that the other model has never seen, which start as copies of known ones.

    A copy of the end symbol would take half of its probability: p(symbol) grows from nothing in proportion to
    the share that is in force, by log(share) in its logit.
    """

    def __init__(self, what: str, ids: range) -> None:
        super().__init__()
        self.what, self.ids = what, ids

    def held_back(self, bias_V: Tensor | None, weight_VD: Tensor) -> Tensor | None:
        """The bias of the output layer, lower for these symbols as long as they are not in force."""
        if self.in_force == 1:
            return bias_V
        lower = weight_VD.new_zeros(weight_VD.size(0))
        lower[self.ids.start : self.ids.stop] = math.log(max(self.in_force, LEAST))
        return lower if bias_V is None else bias_V + lower
