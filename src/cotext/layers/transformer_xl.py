"""Self-attention of a sentence to itself and to a memory of those before it, with relative positions.

Transformer-XL (Dai et al. 2019, section 3) with sentences as its segments (Zheng et al. 2020, section 4.2):
in every layer, sentence k also reads what the same layer read for sentences k - m ... k - 1, and sends no
gradients back there. With teacher forcing those states come out of the same pass over all sentences, so that
nothing has to wait: the keys and values of a sentence are fetched by those that remember it.

    score of query i and key j     ((q_i + u) . k_j + (q_i + w) . r[i - j]) / sqrt(K)

where r[d] is the sinusoid of distance d, projected by a matrix of the layer's own; u and w are the layer's
own, too. Distances count across sentences, as if the memory and the sentence were one text.

Shapes: G sentences of a bucket, L tokens of its longest, M tokens of its longest memory, N real tokens of all
rows, B entries, W beams, R rows, T tokens, H heads, K per head, D model.
"""

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear, scaled_dot_product_attention

from cotext.layers.buckets import Bucket, Sentences
from cotext.layers.kernels.relative import attend_from_memory, memory_bias
from cotext.layers.kernels.sdpa import Places, show_weights, watched
from cotext.layers.masks import causal
from cotext.layers.multi_head import SelfAttention, merge_heads, side_by_side, split_heads
from cotext.layers.state import DecoderState, KeyValueCache, SelfReach


@dataclass(slots=True)
class RecurrentState(DecoderState):
    """A decoder's state that also keeps the projected distances of every layer, which all rows share."""

    distances_of: list[Tensor] = field(default_factory=list)


class _SharedProjection(Function):
    """The product of a weight and states that are detached, which sends gradients back to the states again.

    So one product serves both those who may change the states and those who may not.
    """

    @staticmethod
    def forward(ctx: Any, product: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.dtype = x.dtype
        return product.view_as(product)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (weight,) = ctx.saved_tensors
        return grads[0], (grads[0] @ weight.to(grads[0].dtype)).to(ctx.dtype), None


class BucketMemory:
    """What the sentences of one bucket see of the past: the same in all layers."""

    def __init__(self, bucket: Bucket, device: torch.device) -> None:
        self.bucket, self.memory = bucket, bucket.memory
        longest = bucket.tokens // bucket.sentences if bucket.own is None else bucket.own.tokens
        remembered = 0 if self.memory is None else self.memory.tokens
        keys = remembered + longest
        # Padding of a sentence stands to the right of everything that is real: causality already hides it.
        self.mask = causal(longest, keys, device)[None, None]
        if self.memory is not None and self.memory.mask is not None:
            real = torch.ones(bucket.sentences, 1, 1, keys, dtype=torch.bool, device=device)
            real[..., :remembered] = self.memory.mask
            self.mask = self.mask & real
        # Distances by key - query, ascending, with those of later keys, which nobody sees.
        self.distance = torch.arange(keys - 1, -longest, -1, device=device).clamp(min=0)

    def fetch(self, own: Tensor, lent: Tensor) -> Tensor:
        """What keys and values are made of: [n, 2D] of the bucket and [N, 2D] of all -> [G, M + L, 2D]."""
        own = self.bucket.unpack(own)
        return own if self.memory is None else torch.cat((self.memory.fetch(lent), own), dim=1)

    def places(self) -> Places:
        """Who the queries are, and the keys."""
        own = self.bucket.places()
        return (
            own if self.memory is None else Places(own.query, torch.cat((self.memory.places, own.key), dim=1))
        )


class MemoryLayout:
    """What every sentence of complete rows sees of its past."""

    def __init__(self, sentences: Sentences) -> None:
        self.sentences = sentences
        self.recalls = [BucketMemory(bucket, sentences.rows.place_N.device) for bucket in sentences.buckets]
        self.distances = max(int(recall.distance[0]) for recall in self.recalls) + 1


@dataclass(frozen=True, slots=True)
class Reach:
    """What the next tokens see of the places in a cache."""

    own: SelfReach
    distance: Tensor  # [B, W * T, places], how far before a token they stand; any number >= 0 if unseen
    cache: KeyValueCache


class RecurrentSelfAttention(SelfAttention):
    """Attention of sentences to themselves and their memory."""

    def __init__(self, dimension: int, heads: int, dropout: float) -> None:
        super().__init__(dimension, heads, dropout)
        self.place = nn.Linear(dimension, dimension, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(dimension))
        self.place_bias = nn.Parameter(torch.zeros(dimension))

    def forward(self, x: Tensor, past: MemoryLayout | Reach, r_nD: Tensor) -> Tensor:  # type: ignore[override]
        """Of complete rows [N, D] -> [N, D]; of the next tokens [R, T, D] -> [R, T, D].

        `r_nD` are the projected distances 0 ... n.
        """
        return self._read(x, past, r_nD) if isinstance(past, MemoryLayout) else self._step(x, past, r_nD)

    def _read(self, x_ND: Tensor, past: MemoryLayout, r_nD: Tensor) -> Tensor:
        weight, bias = self.qkv.weight, self.qkv.bias
        if any(recall.memory is not None for recall in past.recalls):
            lent = linear(x_ND.detach(), weight, bias)
            own: Tensor = _SharedProjection.apply(lent, x_ND, weight)  # type: ignore[no-untyped-call]
        else:
            lent = own = linear(x_ND, weight, bias)
        dimension = x_ND.size(-1)
        lent = lent[:, dimension:]
        parts = torch.split(own, [bucket.tokens for bucket in past.sentences.buckets])
        biases = torch.stack((self.content_bias, self.place_bias))
        mixed = []
        for recall, part in zip(past.recalls, parts, strict=True):
            q = recall.bucket.unpack(part[:, :dimension])
            k, v = recall.fetch(part[:, dimension:], lent).chunk(2, dim=-1)
            r = r_nD.index_select(0, recall.distance)
            mixed.append(recall.bucket.pack(self._attend(q, k, v, biases, r, recall)))
        out: Tensor = self.out(torch.cat(mixed))
        return out

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, biases: Tensor, r: Tensor, recall: BucketMemory
    ) -> Tensor:
        if watched():
            real = (q.abs().amax(dim=2, keepdim=True) > 0).to(q.dtype)
            content, keys = (split_heads(x, self.heads) for x in ((q + biases[0]) * real, k))
            bias = memory_bias(q + biases[1], r, k.size(1), self.heads)
            show_weights(content, keys, recall.mask, False, bias, recall.places)
        dropout = self.dropout if self.training else 0.0
        return attend_from_memory(q, k, v, biases, r, recall.mask, self.heads, dropout)

    def _step(self, x_RTD: Tensor, past: Reach, r_nD: Tensor) -> Tensor:
        reach, cache = past.own, past.cache
        heads = partial(split_heads, heads=self.heads)
        q, k, v = self.qkv(side_by_side(x_RTD, cache.entries)).chunk(3, dim=-1)
        cache.write(heads(k), heads(v), reach.start)
        keys, values = cache.read(reach.places, reach.first)
        # With mixed precision, projections come in less of it than parameters have.
        biases = (self.content_bias.to(q.dtype), self.place_bias.to(q.dtype))
        content, by_place = (heads(q + bias) for bias in biases)
        products = torch.einsum("bhtk,nhk->bhtn", by_place, r_nD.view(r_nD.size(0), self.heads, -1))
        bias = products.gather(3, past.distance[:, None].expand(-1, self.heads, -1, -1))
        bias = bias * content.size(-1) ** -0.5
        show_weights(content, keys, reach.mask, False, bias)
        if reach.mask is not None:
            bias = bias.masked_fill(~reach.mask, -math.inf)
        mixed = scaled_dot_product_attention(content, keys, values, attn_mask=bias)
        out: Tensor = self.out(merge_heads(mixed)).view_as(x_RTD)
        return out
