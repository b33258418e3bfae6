"""Helpers of kernels: precision of sums and losses, functions with gradients, packing and dropout.

Shapes: B rows, T tokens, N real tokens of all rows, D model.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable


def precise_dtype(x: Tensor) -> torch.dtype:
    """Return the type of x, but at least single precision."""
    return torch.promote_types(x.dtype, torch.float32)


def precise(x: Tensor) -> Tensor:
    """Convert to at least single precision."""
    return x if x.dtype in (torch.float32, torch.float64) else x.to(precise_dtype(x))


class TensorFunction(Function):
    """`Function` with types for `apply`, which torch leaves untyped."""

    if TYPE_CHECKING:

        @classmethod
        def apply(cls, *inputs: Any) -> Tensor: ...


# --- Packing: removal of padding from rows of unequal length, for computations on single tokens.
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


# --- Dropout with a fast mask of one byte per element.
#
# On a CPU, torch draws one random number per element on one thread and stores the mask as floats. This takes
# longer than the layer norm, the addition and the ReLU together. Here one 64-bit random number is used for
# four elements. Other devices use torch's kernel.


def keep_mask(x: Tensor, rate: float) -> Tensor:
    """Return a boolean mask shaped like `x`, True with probability 1 - rate (in steps of 2**-16)."""
    quarters = -(-x.numel() // 4)
    lowest = torch.iinfo(torch.int64).min
    bits = torch.empty(quarters, dtype=torch.int64).random_(lowest, None).view(torch.int16)
    threshold = round(rate * 2**16) - 2**15
    return (bits[: x.numel()] >= threshold).view(x.shape)


def dropped(x: Tensor, keep: Tensor, rate: float) -> Tensor:
    """Return `x` times the factors of dropout: 0 if dropped, 1 / (1 - rate) if kept."""
    if x.dtype != torch.bfloat16:
        return keep.to(x.dtype).mul_(1 / (1 - rate)).mul_(x)
    # Masking the bits is twice as fast as multiplying bfloat16 numbers.
    bits = keep.to(torch.int16).neg_().bitwise_and_(x.view(torch.int16))
    return bits.view(x.dtype) * (1 / (1 - rate))


class _Dropout(TensorFunction):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        keep = keep_mask(x, rate)
        ctx.save_for_backward(keep)
        ctx.rate = rate
        return dropped(x, keep, rate)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (keep,) = ctx.saved_tensors
        return dropped(grads[0], keep, ctx.rate), None


def dropout(x: Tensor, rate: float, training: bool) -> Tensor:
    """In training, zero elements with probability `rate` and scale up the others (Srivastava et al. 2014)."""
    if not training or rate == 0:
        return x
    if x.device.type == "cpu" and rate < 1:
        return _Dropout.apply(x, rate)
    return nn.functional.dropout(x, rate)


class Dropout(nn.Module):
    """`dropout` as a module."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.rate, self.training)
