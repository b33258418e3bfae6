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
