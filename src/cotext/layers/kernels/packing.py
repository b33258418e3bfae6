"""Packing: removal of padding from rows of unequal length, for computations on single tokens.

Shapes: B rows, T tokens, N real tokens of all rows, D model.

    [B, T, D]   a b .        pack ->    [N, D]   a b c d e
                c d e        <- unpack           (padding comes back as zeros)
"""

from typing import Any

from torch import Tensor
from torch.autograd.function import once_differentiable

from cotext.layers.kernels.function import TensorFunction


def _take(x_MD: Tensor, index_N: Tensor) -> Tensor:
    return x_MD.index_select(0, index_N)


def _spread(x_ND: Tensor, index_N: Tensor, size: int) -> Tensor:
    return x_ND.new_zeros(size, x_ND.size(1)).index_copy_(0, index_N, x_ND)


class _Pack(TensorFunction):
    @staticmethod
    def forward(ctx: Any, x_MD: Tensor, index_N: Tensor) -> Tensor:
        ctx.save_for_backward(index_N)
        ctx.size = x_MD.size(0)
        return _take(x_MD, index_N)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        # The indices are distinct, so that copying is enough.
        return _spread(grads[0], ctx.saved_tensors[0], ctx.size), None


class _Unpack(TensorFunction):
    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, index_N: Tensor, size: int) -> Tensor:
        ctx.save_for_backward(index_N)
        return _spread(x_ND, index_N, size)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return _take(grads[0], ctx.saved_tensors[0]), None, None


def take_rows(x_MD: Tensor, index_N: Tensor) -> Tensor:
    """Return the rows at distinct indices: [N, D]."""
    return _Pack.apply(x_MD, index_N)


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
        return take_rows(x_BTD.flatten(0, 1), self.index_N)

    def unpack(self, x_ND: Tensor) -> Tensor:
        """[N, D] -> [B, T, D], zeros on padding."""
        size = self.rows * self.tokens
        return _Unpack.apply(x_ND, self.index_N, size).view(self.rows, self.tokens, -1)
