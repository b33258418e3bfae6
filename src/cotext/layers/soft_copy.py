"""Soft copy of source states to the positions of a non-autoregressive decoder.

Position i of t, over a text of s tokens, stands at i * s / t of it and takes the mean of the states, weighted
by

    w[j] = exp(-(j - i * s / t) ** 2)        j = 0 ... s - 1

(Yu et al. 2024, equations 16 and 17, whose indices are mixed up as printed; Wei et al. 2019.) The text is the
row or, sentence-aligned, the sentence, of which nothing then gets into another.

Shapes: B rows, S source tokens, T positions, D model.
"""

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from cotext.layers.kernels.precision import precise_dtype
from cotext.layers.positions import ranks

WINDOW = 5  # tokens to either side; all others together weigh less than 1e-10


def stretched(sentence: Tensor, length: Tensor) -> Tensor:
    """Sentences of positions: [B, S] and how many positions each row has, [B] -> [B, T], -1 on padding."""
    tokens = (sentence >= 0).sum(dim=1)
    i = torch.arange(int(length.max()), device=sentence.device)
    token = i * tokens[:, None] // length[:, None]
    within = sentence.gather(1, token.clamp(max=sentence.size(1) - 1))
    return within.masked_fill(i >= length[:, None], -1)


def soft_copy(x_BSD: Tensor, source: Tensor, positions: Tensor, texts: int) -> Tensor:
    """States of the source -> states of the positions, [B, T, D], zero on padding.

    `source` [B, S] and `positions` [B, T] say which text of its row each belongs to, -1 on padding; no row
    has more than `texts`.
    """
    first, s = _texts(source, texts)
    _, t = _texts(positions, texts)
    text = positions.clamp(min=0)
    s_BT, t_BT = s.gather(1, text), t.gather(1, text).clamp(min=1)
    # Half precision has no number for every position of a long text.
    precise = precise_dtype(x_BSD)
    centre = ranks(positions).to(precise) * s_BT / t_BT
    j = centre.long()[:, :, None] + torch.arange(-WINDOW, WINDOW + 2, device=positions.device)
    weight = torch.exp(-((j - centre[:, :, None]) ** 2))
    weight = weight.masked_fill((j < 0) | (j >= s_BT[:, :, None]) | (positions < 0)[:, :, None], 0)
    weight = weight / weight.sum(dim=2, keepdim=True).clamp(min=torch.finfo(weight.dtype).tiny)
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
    """Where the texts of every row begin and how long they are: two [B, texts]."""
    length = index.new_zeros(index.size(0), texts)
    length.scatter_add_(1, index.clamp(min=0), (index >= 0).long())
    return length.cumsum(dim=1) - length, length


# --- Glancing: how much of the target is revealed, at random, to a non-autoregressive model in training.
#
# A model that is wrong in many positions sees many of them; one that is right sees none (Qian et al. 2021).


def glanced(wrong: Tensor, eligible: Tensor, ratio: float) -> Tensor:
    """Positions of each row to reveal: `ratio` times as many as are wrong, rounded, of the eligible ones.

    All [B, T]. Draws from torch's global generator.
    """
    count = (wrong.sum(dim=1, keepdim=True) * ratio).round()
    order = torch.rand(eligible.shape, device=eligible.device).masked_fill(~eligible, 2.0)
    return (order.argsort(dim=1).argsort(dim=1) < count) & eligible
