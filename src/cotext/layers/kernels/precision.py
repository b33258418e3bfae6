"""The precision of what must not be rounded: sums over many tokens, losses, log-probabilities."""

import torch
from torch import Tensor


def precise_dtype(x: Tensor) -> torch.dtype:
    """Single precision at least: that of a tensor in double stays."""
    return torch.promote_types(x.dtype, torch.float32)


def precise(x: Tensor) -> Tensor:
    """The same numbers in single precision at least."""
    return x.to(precise_dtype(x))
