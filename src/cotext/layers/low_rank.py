"""Low-rank adaptation: trained corrections of weights that stay as they are (Hu et al. 2022, section 4.1).

    h = W x + alpha / r * B A x,     W frozen, B zero at first

A correction is a parametrization of torch's: whoever reads `module.weight` finds the corrected matrix. That
matters here, since parts read weights directly, which wrappers around a module's `forward` never see. Model
files hold the corrected matrices under the names that a plain model has for them (`merged`).
"""

from collections.abc import Iterator, Mapping
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

PARAMETRIZATIONS = "parametrizations"  # torch's name for them within a module
ORIGINAL = "original"


class LowRank(nn.Module):
    """W + scale * B A of a matrix W [outputs, inputs], with `down` A [r, inputs] and `up` B [outputs, r].

    A begins as torch draws a linear layer, B at zero, so that the sum begins as W.
    """

    def __init__(self, weight: Tensor, rank: int, scale: float) -> None:
        super().__init__()
        outputs, inputs = weight.shape
        self.scale = scale
        self.up = nn.Parameter(weight.new_zeros(outputs, rank))
        self.down = nn.Parameter(nn.init.kaiming_uniform_(weight.new_empty(rank, inputs), a=5**0.5))

    def forward(self, weight: Tensor) -> Tensor:
        """The corrected matrix."""
        # As precise as the weights are, in training with mixed precision too: files hold this sum.
        with torch.autocast(weight.device.type, enabled=False):
            return torch.addmm(weight, self.up, self.down, alpha=self.scale)


class NewRows(nn.Module):
    """Some consecutive rows of a table or a vector that are trained while the others stay as they are."""

    def __init__(self, table: Tensor, rows: range) -> None:
        super().__init__()
        self.start, self.stop = rows.start, rows.stop
        self.rows = nn.Parameter(table.detach()[rows.start : rows.stop].clone())

    def forward(self, table: Tensor) -> Tensor:
        """The table with these rows."""
        return torch.cat((table[: self.start], self.rows, table[self.stop :]))


class _Corrected(Protocol):
    """What torch keeps of one corrected tensor: the tensor as it was, and its corrections."""

    original: nn.Parameter

    def __getitem__(self, index: int) -> nn.Module: ...


def correct(model: nn.Module, name: str, correction: nn.Module) -> None:
    """Freeze a parameter of a model and have a correction of it trained in its place."""
    path, _, own = name.rpartition(".")
    module = model.get_submodule(path)
    module.get_parameter(own).requires_grad_(False)
    parametrize.register_parametrization(module, own, correction)


def _corrected(model: nn.Module) -> Iterator[tuple[str, nn.Module, str, _Corrected]]:
    """Of every corrected parameter its name in a plain model, its module, its name there, and its parts."""
    for path, module in model.named_modules():
        if parametrize.is_parametrized(module):
            corrections = cast(nn.ModuleDict, module.get_submodule(PARAMETRIZATIONS))
            for own, parts in corrections.items():
                yield f"{path}.{own}".lstrip("."), module, own, cast(_Corrected, parts)


def low_rank_matrices(model: nn.Module) -> dict[str, Tensor]:
    """The matrices that have a low-rank correction, as they were without it."""
    return {
        name: parts.original.detach()
        for name, _, _, parts in _corrected(model)
        if isinstance(parts[0], LowRank)
    }


def corrections(model: nn.Module) -> dict[str, Tensor]:
    """The numbers of all corrections, by their names in the model's own state."""
    return {
        name: tensor
        for name, tensor in model.state_dict().items()
        if PARAMETRIZATIONS in name.split(".") and not name.endswith(f".{ORIGINAL}")
    }


def merged(model: nn.Module) -> dict[str, Tensor]:
    """The weights with all corrections made, by the names of a plain model: its own where it has none."""
    plain = {n: t for n, t in model.state_dict().items() if PARAMETRIZATIONS not in n.split(".")}
    with torch.no_grad():
        found = {name: getattr(module, own).detach() for name, module, own, _ in _corrected(model)}
    return plain | found


def fill_merged(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Give a model these weights, by the names of a plain one; its low-rank corrections become zero."""
    given = dict(weights)
    with torch.no_grad():
        for name, _, _, parts in _corrected(model):
            parts.original.copy_(given[name])
            if isinstance(correction := parts[0], LowRank):
                correction.up.zero_()
            elif isinstance(correction, NewRows):
                correction.rows.copy_(given[name][correction.start : correction.stop])
            del given[name]
        own = model.state_dict()
        for name, tensor in given.items():
            own[name].copy_(tensor)
