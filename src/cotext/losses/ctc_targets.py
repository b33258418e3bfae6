"""What a parallel model is to write, and which of its places are for what of it.

Shapes: B rows, T places, Y tokens of a row to be written, N real places of all rows, one row after the other,
G units.
"""

import torch
from torch import Tensor

from cotext.data.batch import Batch
from cotext.layers.buckets import sentence_spans
from cotext.layers.positions import ranks
from cotext.losses.ctc import Units
from cotext.models.interface import Draft, PathKind


def written(batch: Batch) -> tuple[Tensor, Tensor]:
    """`bos y1 eos bos y2 eos ...`, and the sentence of each token, -1 on padding: two [B, Y]."""
    k, width = batch.label_sentence, batch.label_sentence.size(1)
    wide = width + int(k.max()) + 1
    t = torch.arange(width, device=k.device) + k  # sentence k has the `bos` of k others before its own
    row = torch.arange(k.size(0), device=k.device)[:, None].expand_as(k)
    tokens, sentence = k.new_zeros(k.size(0), wide), k.new_full((k.size(0), wide), -1)
    for chosen, shift, symbols in (
        (k >= 0, 1, batch.target_label),
        ((k >= 0) & (ranks(k) == 0), 0, batch.target_input),
    ):
        at = row[chosen], t[chosen] + shift
        tokens[at], sentence[at] = symbols[chosen], k[chosen]
    return tokens, sentence


def units(path: PathKind, draft: Draft, tokens: Tensor, sentence: Tensor) -> Units:
    """A unit for every sentence, those of a row in order, or for every row; targets are those `written`."""
    aligned = path == "sentences"
    texts = (draft.sentence, sentence) if aligned else (draft.sentence.clamp(max=0), sentence.clamp(max=0))
    places, target = map(sentence_spans, texts)
    last_B1 = texts[1].max(dim=1, keepdim=True).values
    real = torch.arange(target.size(1), device=target.device) <= last_B1
    lengths_B = (draft.sentence >= 0).sum(dim=1)
    places = places[:, : real.size(1)] + (lengths_B.cumsum(dim=0) - lengths_B)[:, None, None]
    start, stop = places[real].unbind(dim=1)
    first, end = target[real].unbind(dim=1)
    row = real.nonzero()[:, 0]
    at = first[:, None] + torch.arange(int((end - first).max()), device=first.device)
    labels = tokens[row[:, None], at.clamp(max=tokens.size(1) - 1)]
    return Units(start, stop - start, labels, end - first, forced=aligned)
