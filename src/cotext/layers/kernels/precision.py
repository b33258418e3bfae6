"""Precision of values that must not be rounded: sums over many tokens, losses, log-probabilities."""

import torch
from torch import Tensor


def precise_dtype(x: Tensor) -> torch.dtype:
    """Return the type of x, but at least single precision."""
    return torch.promote_types(x.dtype, torch.float32)


def precise(x: Tensor) -> Tensor:
    """Convert to at least single precision."""
    return x if x.dtype in (torch.float32, torch.float64) else x.to(precise_dtype(x))
