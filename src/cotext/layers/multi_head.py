"""Multi-head attention on fused projections.

Shapes: B entries, W beams, R rows (R = B * W while searching, else R = B), T queries, S keys, D model,
H heads, K per head, N real tokens of all rows. With `ragged`, rows come and go without padding, [N, D].
"""

from torch import Tensor, nn

from cotext.layers.kernels.dropout import relu_dropout
from cotext.layers.kernels.packing import Ragged
from cotext.layers.kernels.sdpa import attend
from cotext.layers.state import KeyValueCache, SelfReach


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[R, T, D] -> [R, H, T, K]."""
    return x.view(x.size(0), x.size(1), heads, -1).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """[R, H, T, K] -> [R, T, D]."""
    return x.transpose(1, 2).flatten(2)


def projection(dimension: int, parts: int = 1) -> nn.Linear:
    """Several square projections fused into one matrix."""
    return nn.Linear(dimension, parts * dimension)


def side_by_side(x_RTD: Tensor, entries: int) -> Tensor:
    """The tokens of an entry's beams as one row: [R, T, D] -> [B, W * T, D]."""
    return x_RTD.reshape(entries, -1, x_RTD.size(-1))


class SelfAttention(nn.Module):
    """Attention of a row to itself, or to its own past through a cache."""

    def __init__(self, dimension: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.qkv = projection(dimension, 3)
        self.out = projection(dimension)

    def forward(
        self,
        x_RTD: Tensor,
        reach: SelfReach,
        ragged: Ragged | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """[R, T, D] -> [R, T, D].

        With a cache, keys and values are written and read where `reach` says. The beams of an entry share its
        places: their tokens stand side by side, [B, W * T, D].
        """
        x = x_RTD if cache is None else side_by_side(x_RTD, cache.entries)
        qkv = self.qkv(x) if ragged is None else ragged.unpack(self.qkv(x))
        q, k, v = (split_heads(part, self.heads) for part in qkv.chunk(3, dim=-1))
        if cache is not None:
            cache.write(k, v, reach.start)
            k, v = cache.read(reach.places, reach.first)
        dropout = self.dropout if self.training else 0.0
        mixed = merge_heads(attend(q, k, v, reach.mask, reach.causal, dropout))
        out_RTD: Tensor = self.out(mixed if ragged is None else ragged.pack(mixed)).view_as(x_RTD)
        return out_RTD


class CrossAttention(nn.Module):
    """Attention of target rows to source states, whose keys and values are projected once."""

    def __init__(self, dimension: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.query = projection(dimension)
        self.key_value = projection(dimension, 2)
        self.out = projection(dimension)

    def project(self, memory_BSD: Tensor, ragged: Ragged | None = None) -> tuple[Tensor, Tensor]:
        """Keys and values of the source states: two [B, H, S, K]."""
        projected = self.key_value(memory_BSD)
        k, v = (projected if ragged is None else ragged.unpack(projected)).chunk(2, dim=-1)
        return split_heads(k, self.heads), split_heads(v, self.heads)

    def forward(
        self,
        x_RTD: Tensor,
        keys_values: tuple[Tensor, Tensor],
        mask: Tensor | None,
        ragged: Ragged | None = None,
    ) -> Tensor:
        """[R, T, D] -> [R, T, D]; the beams of an entry share its keys and values without copies."""
        k_BHSK, v_BHSK = keys_values
        # The beams of an entry become more queries of that entry.
        x = x_RTD if ragged is not None else side_by_side(x_RTD, k_BHSK.size(0))
        query = self.query(x) if ragged is None else ragged.unpack(self.query(x))
        q = split_heads(query, self.heads)
        dropout = self.dropout if self.training else 0.0
        mixed = merge_heads(attend(q, k_BHSK, v_BHSK, mask, False, dropout))
        out_RTD: Tensor = self.out(mixed if ragged is None else ragged.pack(mixed)).view_as(x_RTD)
        return out_RTD


class FeedForward(nn.Module):
    """Two projections with a ReLU between them (Vaswani et al. 2017, section 3.3), and `dropout` after it."""

    def __init__(self, dimension: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.widen = nn.Linear(dimension, inner)
        self.narrow = nn.Linear(inner, dimension)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        narrow: Tensor = self.narrow(relu_dropout(self.widen(x), self.dropout, self.training))
        return narrow
