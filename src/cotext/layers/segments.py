"""Attention over a whole row that knows how many sentences apart two tokens are.

Zheng et al. 2020, section 4.1, with k_i and k_j the sentences of tokens i and j:

    logit of j      q_i . (k_j + gammaK[k_i - k_j]) / sqrt(K)
    output          sum over j of a_ij (v_j + gammaV[k_i - k_j])

All tokens of a sentence are equally far from a query, so that neither a vector nor a number per pair of
tokens is needed: keys and values grow by one number per sentence, 1 for their own and 0 for the others. There
the query holds its products with the vectors, and there the weights that each sentence gets come out:

    query           q_i    q_i . gammaK[k_i - 0]    q_i . gammaK[k_i - 1]    ...
    key, value      k_j    0    ...    1    ...
    output          z_i    weights of sentence 0    of sentence 1            ...

Shapes: B rows, S tokens, N real tokens of all rows, C sentences of a row, D model, H heads, K per head.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from cotext.layers.kernels.packing import Ragged
from cotext.layers.kernels.sdpa import Places, attend
from cotext.layers.multi_head import merge_heads, projection, split_heads

CLIP = 20  # sentences farther apart share a vector


class Segments:
    """Rows as seen by sentence: who belongs to which, and who sees whom.

    `sentence` [B, S] is -1 on padding; `context`: how many sentences away a token sees, None: all. `ragged`
    packs the tokens of the rows where they come packed; `places` tells which tokens they are, see `attend`.
    """

    def __init__(
        self,
        sentence: Tensor,
        context: int | None = None,
        ragged: Ragged | None = None,
        places: Callable[[], Places] | None = None,
    ) -> None:
        self.ragged, self.places = ragged, places
        real, k = sentence >= 0, sentence.clamp(min=0)
        self.count = int(k.max()) + 1
        self.mask = None if bool(real.all()) else real[:, None, None, :]
        if context is not None and context < self.count - 1:
            near = (k[:, :, None] - k[:, None, :]).abs() <= context
            self.mask = near[:, None] if self.mask is None else near[:, None] & self.mask
        self.own = one_hot(k, self.count)[:, None]  # [B, 1, S, C]
        distance = k[:, :, None] - torch.arange(self.count, device=k.device)
        self.distance = (distance.clamp(-CLIP, CLIP) + CLIP)[:, None]  # [B, 1, S, C], from 0


class SegmentAttention(nn.Module):
    """Self-attention over whole rows; `relative`: with vectors for distances between sentences.

    The vectors are shared by all heads and start at zero, so that it starts as plain attention.
    """

    def __init__(self, dimension: int, heads: int, dropout: float, relative: bool) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.qkv = projection(dimension, 3)
        self.out = projection(dimension)
        vectors = (torch.zeros(2 * CLIP + 1, dimension // heads) for _ in range(2))
        self.of_keys, self.of_values = (nn.Parameter(v) if relative else None for v in vectors)

    def forward(self, x: Tensor, segments: Segments) -> Tensor:
        """[B, S, D] -> [B, S, D], or packed [N, D] -> [N, D]."""
        ragged = segments.ragged
        qkv = self.qkv(x) if ragged is None else ragged.unpack(self.qkv(x))
        q, k, v = (split_heads(part, self.heads) for part in qkv.chunk(3, dim=-1))
        dropout = self.dropout if self.training else 0.0
        look = partial(attend, mask=segments.mask, causal=False, dropout=dropout, places=segments.places)
        if self.of_keys is None or self.of_values is None:
            mixed = look(q, k, v)
        else:
            mixed = _by_segment(q, k, v, self.of_keys, self.of_values, segments, look)
        merged = merge_heads(mixed)
        out: Tensor = self.out(merged if ragged is None else ragged.pack(merged))
        return out


def _by_segment(
    q_BHSK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    of_keys: Tensor,
    of_values: Tensor,
    segments: Segments,
    look: Callable[[Tensor, Tensor, Tensor], Tensor],
) -> Tensor:
    size, heads = q_BHSK.size(-1), q_BHSK.size(1)
    distance = segments.distance.expand(-1, heads, -1, -1)
    own = segments.own.to(q_BHSK.dtype).expand(-1, heads, -1, -1)
    # With mixed precision, projections come in less of it than parameters have.
    of_keys, of_values = of_keys.to(q_BHSK.dtype), of_values.to(q_BHSK.dtype)
    products = (q_BHSK @ of_keys.T).gather(3, distance)
    query = torch.cat((q_BHSK, products), dim=3)
    # Whoever attends divides by the root of the width that it sees.
    query = query * (query.size(-1) / size) ** 0.5
    seen = look(query, torch.cat((k_BHSK, own), dim=3), torch.cat((v_BHSK, own), dim=3))
    mixed, mass = seen[..., :size], seen[..., size:]
    by_distance = mass.new_zeros(*mass.shape[:3], 2 * CLIP + 1).scatter_add(3, distance, mass)
    out: Tensor = mixed + by_distance @ of_values
    return out
