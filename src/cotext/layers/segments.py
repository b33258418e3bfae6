"""Sentences of whole rows as seen by attention that asks how many sentences apart two tokens are.

Shapes: B rows, S tokens, C sentences of a row, K per head.
"""

import torch
from torch import Tensor
from torch.nn.functional import one_hot

CLIP = 20  # sentences farther apart share a vector


class Segments:
    """Sentence indices [B, S], -1 on padding, as `segment_distance.py` needs them."""

    def __init__(self, sentence: Tensor) -> None:
        k = sentence.clamp(min=0)
        count = int(k.max()) + 1
        self.own = one_hot(k, count)[:, None]  # [B, 1, S, C]
        distance = k[:, :, None] - torch.arange(count, device=k.device)
        self.distance = (distance.clamp(-CLIP, CLIP) + CLIP)[:, None]  # [B, 1, S, C], from 0
