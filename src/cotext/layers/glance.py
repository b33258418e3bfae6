"""Glancing: how much of the target is revealed, at random, to a non-autoregressive model in training.

A model that is wrong in many positions sees many of them; one that is right sees none (Qian et al. 2021).
"""

import torch
from torch import Tensor


def glanced(wrong: Tensor, eligible: Tensor, ratio: float) -> Tensor:
    """Positions of each row to reveal: `ratio` times as many as are wrong, rounded, of the eligible ones.

    All [B, T]. Draws from torch's global generator.
    """
    count = (wrong.sum(dim=1, keepdim=True) * ratio).round()
    order = torch.rand(eligible.shape, device=eligible.device).masked_fill(~eligible, 2.0)
    return (order.argsort(dim=1).argsort(dim=1) < count) & eligible
