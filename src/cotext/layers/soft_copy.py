"""Soft copy of source states to the positions of a non-autoregressive decoder.

Position i of t, over a text of s tokens, corresponds to token i * s / t. It gets the mean of the states with
the weights

    w[j] = exp(-(j - i * s / t) ** 2)        j = 0 ... s - 1

(Yu et al. 2024, equations 16 and 17, whose indices are mixed up as printed; Wei et al. 2019). The text is the
row or, with sentence alignment, the sentence, so that nothing is copied between sentences.

Shapes: B rows, S source tokens, T positions, D model.
"""

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from cotext.layers.kernels.precision import precise_dtype
from cotext.layers.positions import ranks

WINDOW = 5  # tokens on either side; all others together have a weight below 1e-10


def stretched(sentence: Tensor, length: Tensor) -> Tensor:
    """Return the sentences of positions: [B, S] and the number of positions [B] -> [B, T], -1 on padding."""
    tokens = (sentence >= 0).sum(dim=1)
    i = torch.arange(int(length.max()), device=sentence.device)
    token = i * tokens[:, None] // length[:, None]
    within = sentence.gather(1, token.clamp(max=sentence.size(1) - 1))
    return within.masked_fill(i >= length[:, None], -1)


def soft_copy(x_BSD: Tensor, source: Tensor, positions: Tensor, texts: int) -> Tensor:
    """Copy states of the source to positions: [B, T, D], zero on padding.

    `source` [B, S] and `positions` [B, T] are the indices of their texts in the row, -1 on padding. No row
    has more than `texts` texts.
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
    # Outside a text, weights are 0; indices are clamped only to be valid.
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
    """Return begin and length of the texts of every row: two [B, texts]."""
    length = index.new_zeros(index.size(0), texts)
    length.scatter_add_(1, index.clamp(min=0), (index >= 0).long())
    return length.cumsum(dim=1) - length, length


# --- Glancing: random target tokens are revealed to a non-autoregressive model in training.
#
# The more positions a model gets wrong, the more tokens are revealed (Qian et al. 2021).


def glanced(wrong: Tensor, eligible: Tensor, ratio: float) -> Tensor:
    """Return random eligible positions of each row: `ratio` times the number of wrong ones, rounded.

    All [B, T]. Draws from torch's global generator.
    """
    # The rank of a random number selects `count` eligible positions at random.
    count = (wrong.sum(dim=1, keepdim=True) * ratio).round()
    order = torch.rand(eligible.shape, device=eligible.device).masked_fill(~eligible, 2.0)
    return (order.argsort(dim=1).argsort(dim=1) < count) & eligible
