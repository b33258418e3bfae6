"""Attention masks: boolean tensors, True = may attend.

All masks broadcast to [B, H, T, S] (queries before keys) and compose with `&`.
"""

import torch
from torch import Tensor


def visible(sentence: Tensor) -> Tensor | None:
    """Hide padding keys: [B, S] sentence indices -> [B, 1, 1, S], or None if nothing is padded.

    With None, attention uses its fastest kernel; the result is the same.
    """
    mask = sentence >= 0
    return None if bool(mask.all()) else mask[:, None, None, :]


def causal(queries: int, keys: int, device: torch.device) -> Tensor:
    """Return the mask with which query t attends to the keys 0 .. t + keys - queries: [queries, keys].

    keys       0 1 2 3
    query 0    T T F F        two queries at the end of four keys
    query 1    T T T F   ->   would be rows 2 and 3
    """
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def is_current(sentence: Tensor, current: Tensor) -> Tensor:
    """True for tokens of the current sentences of their row: [R, T] indices, [R, 2] ranges -> [R, T]."""
    return (sentence >= current[:, :1]) & (sentence < current[:, 1:])
