"""Base class of kernels with gradients, and the precision of sums, losses and log-probabilities."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function


def precise_dtype(x: Tensor) -> torch.dtype:
    """Return the type of x, but at least single precision."""
    return torch.promote_types(x.dtype, torch.float32)


def precise(x: Tensor) -> Tensor:
    """Convert to at least single precision."""
    return x if x.dtype in (torch.float32, torch.float64) else x.to(precise_dtype(x))


class TensorFunction(Function):
    """`Function` with a typed `apply`, which torch leaves untyped; both run the same code."""

    if TYPE_CHECKING:

        @classmethod
        def apply(cls, *inputs: Any) -> Tensor: ...


# --- Packing: removal of padding from rows of unequal length, for computations on single tokens.
#
# Shapes: B rows, T tokens, N real tokens of all rows, D model.
#
#     [B, T, D]   a b .        pack ->    [N, D]   a b c d e
#                 c d e        <- unpack           (padding comes back as zeros)


def moved_left(chosen_BT: Tensor, *sides: tuple[Tensor, int]) -> list[Tensor]:
    """Return only the chosen tokens of every row, from its beginning on: several [B, T] -> [B, most chosen].

    `sides`: indices or tokens of a batch, each with the value of padding.
    """
    count = chosen_BT.sum(dim=1, keepdim=True)
    real = torch.arange(int(count.max()), device=chosen_BT.device) < count
    return [x.new_full(real.shape, fill).masked_scatter(real, x[chosen_BT]) for x, fill in sides]


class Packing:
    """Indices of the real tokens of padded rows; `index_N` counts over all rows, padding included."""

    def __init__(self, real_BT: Tensor) -> None:
        self.rows, self.tokens = real_BT.shape
        self.index_N = real_BT.flatten().nonzero()[:, 0]

    @staticmethod
    def of(sentence: Tensor) -> "Packing | None":
        """Create from sentence indices [B, T], -1 on padding; return None if there is no padding."""
        real = sentence >= 0
        return None if bool(real.all()) else Packing(real)

    def pack(self, x_BTD: Tensor) -> Tensor:
        """[B, T, D] -> [N, D]."""
        return x_BTD.flatten(0, 1).index_select(0, self.index_N)

    def unpack(self, x_ND: Tensor) -> Tensor:
        """[N, D] -> [B, T, D], zeros on padding."""
        padded = x_ND.new_zeros(self.rows * self.tokens, x_ND.size(1)).index_copy(0, self.index_N, x_ND)
        return padded.view(self.rows, self.tokens, -1)
