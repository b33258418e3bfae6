"""Attention to a token's own sentence and a memory of earlier sentences, with relative positions.

This is Transformer-XL (Dai et al. 2019, section 3) with sentences as segments (Zheng et al. 2020, section
4.2). In every layer, sentence k also attends to the inputs of that layer for sentences k - m ... k - 1,
without gradients. With teacher forcing, one pass processes all sentences in parallel: each fetches the keys
and values of its memory.

    score of query i and key j     ((q_i + u) . k_j + (q_i + w) . r[i - j]) / sqrt(K)

r[d] is the sinusoid of distance d, projected by a matrix of the layer; u and w are also parameters of the
layer. Distances count across sentences, as if memory and sentence were one text.

Shapes: G sentences of a bucket, L tokens of its longest, N real tokens of all rows, B entries, W beams, R
rows, T tokens, H heads, K per head, n distances, D model.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear, scaled_dot_product_attention

from cotext.layers.buckets import BucketMemory
from cotext.layers.kernels.common import TensorFunction
from cotext.layers.kernels.relative import attend_from_memory, memory_bias
from cotext.layers.kernels.sdpa import show_weights, watched
from cotext.layers.layout import AnyLayout, Keys, Layout, Step
from cotext.layers.multi_head import AttentionSize, Score, SelfAttention, merge_heads, split_heads
from cotext.layers.positions import PositionTable
from cotext.layers.spans import SentenceSpan
from cotext.layers.start import StartsFromOthers, ZeroGate
from cotext.layers.state import KeysValues


class _SharedProjection(TensorFunction):
    """A product that was computed from detached states; this adds the gradient to the states.

    Keys and values of a memory give no gradient to the states; those of a token's own sentence do. The
    product is computed once for both.
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


class TransformerXLScore(Score, StartsFromOthers):
    """Contents and distances, each with its own bias; only with `MemorySpan`.

    If training starts from a sentence model, the effect of the memory passes a gate that starts at zero: out
    = own + a * (seen - own). `own` is attention to only the sentence, `seen` also to the memory.
    """

    def __init__(self, size: AttentionSize) -> None:
        super().__init__(size)
        self.distance = nn.Linear(size.dimension, size.dimension, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(size.dimension))
        self.distance_bias = nn.Parameter(torch.zeros(size.dimension))
        self.start = ZeroGate(size.dimension) if size.neutral_start else None
        self.spares_parameters = size.neutral_start  # without any memory, the gate is not used
        # Always sinusoids from 0, whatever the position encoding of the model.
        self.table = PositionTable(size.dimension)

    def neutral_start(self) -> Mapping[str, float]:
        """Distances have no effect at first, if `size.neutral_start` is true."""
        return {"distance.weight": 0.0} if self.size.neutral_start else {}

    def distances(self, count: int, like: Tensor) -> Tensor:
        """Return the projected encodings of the distances 0 ... count - 1: [count, D]."""
        encoded = self.table(torch.arange(count, device=like.device), count).to(like.dtype)
        projected: Tensor = self.distance(encoded)
        return projected

    def attend_memory(
        self, q_GLD: Tensor, k: Tensor, v: Tensor, r_nD: Tensor, memory: BucketMemory
    ) -> Tensor:
        """Attend from the sentences of a bucket to themselves and their memory: [G, L, D]."""
        biases, heads = torch.stack((self.content_bias, self.distance_bias)), self.size.heads
        r = r_nD.index_select(0, memory.distance)
        if watched():
            # The biases make queries of padding nonzero, but only zeros are recorded as padding.
            real = (q_GLD.abs().amax(dim=2, keepdim=True) > 0).to(q_GLD.dtype)
            content, keys = (split_heads(x, heads) for x in ((q_GLD + biases[0]) * real, k))
            bias = memory_bias(q_GLD + biases[1], r, k.size(1), heads)
            show_weights(content, keys, memory.mask, False, bias, memory.token_indices)
        seen = attend_from_memory(q_GLD, k, v, biases, r, memory.mask, heads, self.dropout)
        if self.start is None or memory.memory is None:
            return seen
        own = memory.memory.tokens  # keys of a token's own sentence follow the keys of the memory
        alone = attend_from_memory(
            q_GLD, k[:, own:], v[:, own:], biases, r[own:], memory.mask[..., own:], heads, self.dropout
        )
        mixed: Tensor = self.start(alone, seen)
        return mixed

    def attend(self, q_BHTK: Tensor, kv: KeysValues, keys: Keys, layout: AnyLayout) -> Tensor:
        """Attend from the next tokens to the slots of a cache: [B, H, T, K]."""
        assert isinstance(layout, Step)
        assert keys.mask is not None
        # Distances of masked slots may be negative or large: set them to 0, so that the table stays small.
        distance = torch.where(keys.mask[:, 0], -keys.distance, 0)
        r_nD = self._kept(int(distance.max()) + 1, layout, q_BHTK)
        # Under autocast, projected queries have a lower precision than the parameters.
        content, by_distance = (
            q_BHTK + split_heads(bias.to(q_BHTK.dtype)[None, None], self.size.heads)
            for bias in (self.content_bias, self.distance_bias)
        )
        # Products with every distance, then looked up for each key.
        products = torch.einsum("bhtk,nhk->bhtn", by_distance, r_nD.view(r_nD.size(0), self.size.heads, -1))
        bias = products.gather(3, distance[:, None].expand(-1, self.size.heads, -1, -1))
        bias = bias * content.size(-1) ** -0.5
        show_weights(content, kv[0], keys.mask, False, bias)
        seen = scaled_dot_product_attention(content, *kv, attn_mask=bias.masked_fill(~keys.mask, -math.inf))
        if self.start is None:
            return seen
        # True where a slot is in the sentence of the query: [B, 1, W * T, slots].
        sentences = layout.state.sentences_of_slots(layout.sentence)[:, None, -bias.size(3) :]
        own = keys.mask & (layout.packed_sentence[:, :, None] == sentences)[:, None]
        alone = scaled_dot_product_attention(content, *kv, attn_mask=bias.masked_fill(~own, -math.inf))
        return split_heads(self.start(merge_heads(alone), merge_heads(seen)), self.size.heads)

    def _kept(self, longest: int, step: Step, like: Tensor) -> Tensor:
        """Return projected distances, which all rows and steps share."""
        name, kept = f"distances of {id(self)}", step.state.kept
        if name not in kept or len(kept[name]) < longest:
            kept[name] = self.distances(2 * longest, like)  # doubled, so that few steps have to project again
        return kept[name]


class MemorySpan(SentenceSpan):
    """The own sentence and the `sentences` before it, which get no gradients."""

    answers = ("memory",)

    def __init__(self, sentences: int) -> None:
        self.memory_sentences = sentences

    def attend(self, attention: SelfAttention, x: Tensor, layout: Layout) -> Tensor:
        score, past, dimension = attention.score, layout.memory, x.size(-1)
        assert isinstance(score, TransformerXLScore)
        if past.empty or not torch.is_grad_enabled():
            # Without a memory or gradients, there is nothing to detach.
            detached = own = attention.qkv(x)
        else:
            weight = attention.qkv.weight
            detached = linear(x.detach(), weight, attention.qkv.bias)
            own = _SharedProjection.apply(detached, x, weight)
        detached = detached[:, dimension:]
        r_nD = score.distances(past.distances, x)
        mixed = []
        parts = torch.split(own, [memory.bucket.tokens for memory in past.buckets])
        for memory, part in zip(past.buckets, parts, strict=True):
            q = memory.bucket.unpack(part[:, :dimension])
            k, v = memory.fetch(part[:, dimension:], detached).chunk(2, dim=-1)
            mixed.append(memory.bucket.pack(score.attend_memory(q, k, v, r_nD, memory)))
        return torch.cat(mixed)
