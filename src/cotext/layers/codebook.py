"""Codebook: discrete codes of words, learned without labels; code vectors are mixed into decoder states.

A word has the code whose vector is nearest to its embedding. Vectors are not parameters: each is the moving
average of the embeddings that it was nearest to (van den Oord et al. 2017, appendix A.1; Bao et al. 2022).

Vectors start near zero, for the following reason. Embeddings are long and almost orthogonal. The mean of many
embeddings is short, and a short vector is nearer to any word than another long vector. If vectors started as
long as words (N(0, 1)), the first mean of many words would attract all words. The other vectors would never
be used. Among short vectors, the nearest vector depends on the direction. Each vector grows only towards its
own words. A vector without words stays short, available for words that are far from all other vectors.

Shapes: N words, K codes, D model.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from cotext.layers.int8_linear import joint

DECAY = 0.999
START = 0.05  # standard deviation; embeddings have 0.2 to 1


class Codebook(nn.Module):
    """K vectors: means of the embeddings of words with their code; equal in all processes of a training."""

    vectors: Tensor  # [K, D]
    count: Tensor  # [K]
    total: Tensor  # [K, D]

    def __init__(self, codes: int, dimension: int) -> None:
        super().__init__()
        self.register_buffer("vectors", START * torch.randn(codes, dimension))
        self.register_buffer("count", torch.ones(codes))
        self.register_buffer("total", self.vectors.clone())

    def nearest(self, x: Tensor) -> Tensor:
        """Return the code whose vector is nearest to each embedding: [..., D] -> [...]."""
        # |x - v|^2 without |x|^2, which is the same for all codes.
        product = linear(x.to(self.vectors.dtype), self.vectors)
        return torch.argmin(self.vectors.square().sum(dim=1) - 2 * product, dim=-1)

    def vector(self, code: Tensor) -> Tensor:
        """Return the vector of each code: [...] -> [..., D]."""
        return nn.functional.embedding(code, self.vectors)

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits of all codes: [..., D] -> [..., K]."""
        product: Tensor = linear(x, self.vectors.to(x.dtype))
        return product / math.sqrt(x.size(-1))

    @torch.no_grad()
    def follow(self, x_ND: Tensor, code_N: Tensor, counts_N: Tensor) -> None:
        """Move every vector a little towards the mean embedding, over all processes, of words with its code.

        Only words with True in `counts_N` count.
        """
        # Words that do not count add zeros, so that shapes do not depend on the data.
        x_ND = x_ND.to(self.vectors.dtype) * counts_N[:, None]
        seen = torch.zeros_like(self.total).index_add_(0, code_N, x_ND)
        often = frequencies(code_N, counts_N, self.count.numel()).to(self.count.dtype)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            for sums in (seen, often):
                torch.distributed.all_reduce(sums)
        # Replaced, not changed in place: a backward pass may still need them.
        self.count = torch.lerp(often, self.count, DECAY)
        self.total = torch.lerp(seen, self.total, DECAY)
        used = (self.count > torch.finfo(self.count.dtype).tiny)[:, None]
        self.vectors = torch.where(used, self.total / self.count[:, None], self.vectors)


def frequencies(code_N: Tensor, counts_N: Tensor, codes: int) -> Tensor:
    """Return how many of the counted words have each code: [K]."""
    often = torch.zeros(codes, dtype=torch.float32, device=code_N.device)
    return often.index_add_(0, code_N, counts_N.to(often.dtype))


def perplexity(often_K: Tensor) -> Tensor:
    """Return the perplexity of the code frequencies [K]; if N codes are equally frequent, it is N."""
    entropy: Tensor = torch.special.entr(often_K / often_K.sum().clamp(min=1)).sum()
    return entropy.exp()


class CodeGate(nn.Module):
    """Mix codes z into states x, per dimension: g = sigmoid(MLP[x; z]), out = (1 - g) * x + g * z."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(2 * dimension, dimension)
        self.gate = nn.Linear(dimension, dimension)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """Return `x` mixed with `z`, both [..., D]: [..., D]."""
        gate = self.gate(joint(self.hidden, x, z).relu()).sigmoid().to(x.dtype)
        return torch.lerp(x, z.to(x.dtype), gate)
