"""CTC targets: which frames of a non-autoregressive decoder are aligned with which target tokens.

Shapes: B rows, T frames, Y target tokens of a row, N frames of all rows without padding, one row after the
other, G units.
"""

import torch
from torch import Tensor

from cotext.layers.buckets import sentence_spans
from cotext.losses.ctc import Units
from cotext.models.interface import PathKind


def units(path: PathKind, frames_of: Tensor, tokens: Tensor, sentence: Tensor) -> Units:
    """CTC units: every sentence, those of a row in order, or every row; targets as of `bracketed_targets`.

    `frames_of` [B, T]: the sentence of each frame, -1 on padding.
    """
    aligned = path == "sentences"
    texts = (frames_of, sentence) if aligned else (frames_of.clamp(max=0), sentence.clamp(max=0))
    frames, target = map(sentence_spans, texts)
    last_B1 = texts[1].max(dim=1, keepdim=True).values
    real = torch.arange(target.size(1), device=target.device) <= last_B1
    lengths_B = (frames_of >= 0).sum(dim=1)
    frames = frames[:, : real.size(1)] + (lengths_B.cumsum(dim=0) - lengths_B)[:, None, None]
    start, stop = frames[real].unbind(dim=1)
    first, end = target[real].unbind(dim=1)
    row = real.nonzero()[:, 0]
    at = first[:, None] + torch.arange(int((end - first).max()), device=first.device)
    labels = tokens[row[:, None], at.clamp(max=tokens.size(1) - 1)]
    return Units(start, stop - start, labels, end - first, forced=aligned)
