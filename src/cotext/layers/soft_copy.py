"""Soft copy of source states to the positions of a non-autoregressive decoder.

A decoder sequence of t positions is aligned with a source text of s tokens: position i with token i * s / t.
Its state is the weighted mean of the source states, with the weights

    w[j] = exp(-(j - i * s / t) ** 2)        j = 0 ... s - 1

normalised to the sum 1 (Yu et al. 2024, equations 16 and 17, with the indices corrected; Wei et al. 2019).
The source text is the whole sequence, or the sentence if sentences are aligned. In the second case, nothing
is copied between sentences.

Shapes: B: batch size, S: source length, T: decoder length, D: model dimension.
"""

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from cotext.layers.kernels.common import precise_dtype
from cotext.layers.positions import ranks

WINDOW = 5  # tokens on either side that are averaged; all others together have a weight below 1e-10


def stretched(sentence: Tensor, length: Tensor) -> Tensor:
    """Return the sentence index of each decoder position [B, T], -1 on padding.

    `sentence` [B, S] contains the sentence indices of the source tokens, which are stretched to `length` [B]
    positions.
    """
    tokens = (sentence >= 0).sum(dim=1)
    i = torch.arange(int(length.max()), device=sentence.device)
    token = i * tokens[:, None] // length[:, None]
    within = sentence.gather(1, token.clamp(max=sentence.size(1) - 1))
    return within.masked_fill(i >= length[:, None], -1)


def soft_copy(x_BSD: Tensor, source: Tensor, positions: Tensor, texts: int) -> Tensor:
    """Copy source states to decoder positions: [B, T, D], zero on padding.

    `source` [B, S] and `positions` [B, T] contain the index of the text in the sequence for each token, -1 on
    padding. No sequence has more than `texts` texts.
    """
    first, s = _texts(source, texts)
    _, t = _texts(positions, texts)
    text = positions.clamp(min=0)
    s_BT, t_BT = s.gather(1, text), t.gather(1, text).clamp(min=1)
    # Half precision cannot represent every position of a long text.
    precise = precise_dtype(x_BSD)
    centre = ranks(positions).to(precise) * s_BT / t_BT
    j = centre.long()[:, :, None] + torch.arange(-WINDOW, WINDOW + 2, device=positions.device)
    weight = torch.exp(-((j - centre[:, :, None]) ** 2))
    weight = weight.masked_fill((j < 0) | (j >= s_BT[:, :, None]) | (positions < 0)[:, :, None], 0)
    weight = weight / weight.sum(dim=2, keepdim=True).clamp(min=torch.finfo(weight.dtype).tiny)
    # Outside a text, weights are 0; indices are clamped to avoid out-of-range access.
    row = torch.arange(source.size(0), device=positions.device)[:, None, None] * source.size(1)
    at = first.gather(1, text)[:, :, None] + j.clamp(min=0).minimum(s_BT[:, :, None] - 1).clamp(min=0)
    copied = embedding_bag(
        (row + at).flatten(0, 1),
        x_BSD.flatten(0, 1),
        per_sample_weights=weight.flatten(0, 1).to(x_BSD.dtype),
        mode="sum",
    )
    return copied.view(*positions.shape, -1)


def _texts(index: Tensor, texts: int) -> tuple[Tensor, Tensor]:
    """Return the start positions and the lengths of the texts of every sequence, both [B, texts]."""
    length = index.new_zeros(index.size(0), texts)
    length.scatter_add_(1, index.clamp(min=0), (index >= 0).long())
    return length.cumsum(dim=1) - length, length


# --- Glancing: random target tokens are revealed to a non-autoregressive model in training.
#
# The more positions a model gets wrong, the more tokens are revealed (Qian et al. 2021).


def glanced(wrong: Tensor, eligible: Tensor, ratio: float) -> Tensor:
    """Return a mask of randomly chosen eligible positions.

    Their number per sequence is `ratio` times the number of wrong positions, rounded. All masks are [B, T].
    Random numbers are drawn from torch's global generator.
    """
    # Select the `count` eligible positions with the smallest random numbers.
    count = (wrong.sum(dim=1, keepdim=True) * ratio).round()
    order = torch.rand(eligible.shape, device=eligible.device).masked_fill(~eligible, 2.0)
    return (order.argsort(dim=1).argsort(dim=1) < count) & eligible
