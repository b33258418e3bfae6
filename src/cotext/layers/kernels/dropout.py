"""Dropout with a fast mask of one byte per element.

On a CPU, torch draws one random number per element on one thread and stores the mask as floats. This takes
longer than the layer norm, the addition and the ReLU together. Here one 64-bit random number is used for four
elements. Other devices use torch's kernel.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from cotext.layers.kernels.common import TensorFunction


def keep_mask(x: Tensor, rate: float) -> Tensor:
    """Return a boolean mask shaped like `x`, True with probability 1 - rate (in steps of 2**-16)."""
    quarters = -(-x.numel() // 4)
    lowest = torch.iinfo(torch.int64).min
    bits = torch.empty(quarters, dtype=torch.int64).random_(lowest, None).view(torch.int16)
    threshold = round(rate * 2**16) - 2**15
    return (bits[: x.numel()] >= threshold).view(x.shape)


def dropout_scale(keep: Tensor, rate: float, like: Tensor) -> Tensor:
    """Return the factors of dropout in the type of `like`: 0 if dropped, 1 / (1 - rate) if kept."""
    return keep.to(like.dtype).mul_(1 / (1 - rate))


def dropped(x: Tensor, keep: Tensor, rate: float) -> Tensor:
    """Return `x` times `dropout_scale`."""
    if x.dtype != torch.bfloat16:
        return dropout_scale(keep, rate, x).mul_(x)
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
