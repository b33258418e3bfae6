"""Multi-head attention on fused projections.

Shapes: B entries, R rows (R = B * beam while searching, else R = B), T queries, S keys, D model, H heads,
K per head.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from cotext.layers.state import KeyValueCache


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[R, T, D] -> [R, H, T, K]."""
    return x.view(x.size(0), x.size(1), heads, -1).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """[R, H, T, K] -> [R, T, D]."""
    return x.transpose(1, 2).flatten(2)


class SelfAttention(nn.Module):
    """Attention of a row to itself, or to its own past through a cache."""

    def __init__(self, dimension: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.qkv = nn.Linear(dimension, 3 * dimension)
        self.out = nn.Linear(dimension, dimension)
        # One fused matrix, but each third is initialised as the square matrix that it stands for.
        for third in self.qkv.weight.chunk(3):
            nn.init.xavier_uniform_(third)
        nn.init.xavier_uniform_(self.out.weight)
        nn.init.zeros_(self.qkv.bias)
        nn.init.zeros_(self.out.bias)

    def forward(
        self,
        x_RTD: Tensor,
        mask: Tensor | None,
        causal: bool = False,
        cache: KeyValueCache | None = None,
        lengths: Tensor | int = 0,
        places: int = 0,
    ) -> Tensor:
        """[R, T, D] -> [R, T, D].

        With a cache, keys and values are written at `lengths` and the first `places` places are attended to.
        """
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(x_RTD).chunk(3, dim=-1))
        if cache is not None:
            cache.write(k, v, lengths)
            k, v = cache.read(places)
        dropout = self.dropout if self.training else 0.0
        mixed = scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, dropout_p=dropout)
        out_RTD: Tensor = self.out(merge_heads(mixed))
        return out_RTD


class CrossAttention(nn.Module):
    """Attention of target rows to source states, whose keys and values are projected once."""

    def __init__(self, dimension: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.query = nn.Linear(dimension, dimension)
        self.key_value = nn.Linear(dimension, 2 * dimension)
        self.out = nn.Linear(dimension, dimension)
        for weight in (self.query.weight, *self.key_value.weight.chunk(2), self.out.weight):
            nn.init.xavier_uniform_(weight)
        for projection in (self.query, self.key_value, self.out):
            nn.init.zeros_(projection.bias)

    def project(self, memory_BSD: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the source states: two [B, H, S, K]."""
        k, v = self.key_value(memory_BSD).chunk(2, dim=-1)
        return split_heads(k, self.heads), split_heads(v, self.heads)

    def forward(self, x_RTD: Tensor, keys_values: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
        """[R, T, D] -> [R, T, D]; the beams of an entry share its keys and values without copies."""
        k_BHSK, v_BHSK = keys_values
        q_RHTK = split_heads(self.query(x_RTD), self.heads)
        dropout = self.dropout if self.training else 0.0
        rows, entries = q_RHTK.size(0), k_BHSK.size(0)
        if rows != entries:
            # The beams of an entry become more queries of that entry: [R, H, T, K] -> [B, H, beam * T, K].
            shape = q_RHTK.shape
            q_RHTK = q_RHTK.view(entries, rows // entries, *shape[1:]).transpose(1, 2).flatten(2, 3)
        mixed = scaled_dot_product_attention(q_RHTK, k_BHSK, v_BHSK, attn_mask=mask, dropout_p=dropout)
        if rows != entries:
            mixed = mixed.view(entries, shape[1], -1, *shape[2:]).transpose(1, 2).flatten(0, 1)
        out_RTD: Tensor = self.out(merge_heads(mixed))
        return out_RTD


class FeedForward(nn.Module):
    """Two projections with a ReLU between them (Vaswani et al. 2017, section 3.3)."""

    def __init__(self, dimension: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.widen = nn.Linear(dimension, inner)
        self.narrow = nn.Linear(inner, dimension)
        self.dropout = nn.Dropout(dropout)
        for projection in (self.widen, self.narrow):
            nn.init.xavier_uniform_(projection.weight)
            nn.init.zeros_(projection.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        narrow: Tensor = self.narrow(self.dropout(torch.relu(self.widen(x))))
        return narrow
