"""Attention of a sentence to itself and to a memory of those before it, with relative positions.

Transformer-XL (Dai et al. 2019, section 3) with sentences as its segments (Zheng et al. 2020, section 4.2):
in every layer, sentence k also reads what the same layer read for sentences k - m ... k - 1, and sends no
gradients back there. With teacher forcing those states come out of the same pass over all sentences, so that
nothing has to wait: the keys and values of a sentence are fetched by those that remember it.

    score of query i and key j     ((q_i + u) . k_j + (q_i + w) . r[i - j]) / sqrt(K)

where r[d] is the sinusoid of distance d, projected by a matrix of the layer's own; u and w are the layer's
own, too. Distances count across sentences, as if the memory and the sentence were one text.

Shapes: G sentences of a bucket, L tokens of its longest, N real tokens of all rows, B entries, W beams, R
rows, T tokens, H heads, K per head, n distances, D model.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear, scaled_dot_product_attention

from cotext.layers.kernels.relative import attend_from_memory, memory_bias
from cotext.layers.kernels.sdpa import show_weights, watched
from cotext.layers.layout import AnyLayout, BucketMemory, Keys, Layout, Step
from cotext.layers.multi_head import AttentionSize, Score, SelfAttention, merge_heads, split_heads
from cotext.layers.positions import PositionTable
from cotext.layers.sentence_spans import SentenceSpan
from cotext.layers.start import StartsFromOthers, ZeroGate
from cotext.layers.state import KeysValues


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


class TransformerXLScore(Score, StartsFromOthers):
    """Contents and distances, each with a bias of its own; only with `MemorySpan`.

    Where training starts from a sentence model, what the memory changes passes a gate that begins at zero:
    out = own + a * (seen - own), of attention to the own sentence and of attention to the memory, too.
    """

    def __init__(self, size: AttentionSize) -> None:
        super().__init__(size)
        self.distance = nn.Linear(size.dimension, size.dimension, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(size.dimension))
        self.distance_bias = nn.Parameter(torch.zeros(size.dimension))
        self.start = ZeroGate(size.dimension) if size.neutral_start else None
        # Distances begin with 0 and have sinusoids, whatever stands for positions.
        self.table = PositionTable(size.dimension)

    def adopted_names(self) -> Mapping[str, str]:
        """Nothing in a plain model corresponds to what it adds."""
        return {}

    def neutral_start(self) -> Mapping[str, float]:
        """Distances that count for nothing yet, where they are to change nothing at first."""
        return {"distance.weight": 0.0} if self.size.neutral_start else {}

    def distances(self, count: int, like: Tensor) -> Tensor:
        """The distances 0 ... count, projected: [count, D]."""
        encoded = self.table(torch.arange(count, device=like.device), count).to(like.dtype)
        projected: Tensor = self.distance(encoded)
        return projected

    def attend_memory(
        self, q_GLD: Tensor, k: Tensor, v: Tensor, r_nD: Tensor, memory: BucketMemory
    ) -> Tensor:
        """Sentences of a bucket, beside their memory: [G, L, D]."""
        biases, heads = torch.stack((self.content_bias, self.distance_bias)), self.size.heads
        r = r_nD.index_select(0, memory.distance)
        if watched():
            real = (q_GLD.abs().amax(dim=2, keepdim=True) > 0).to(q_GLD.dtype)
            content, keys = (split_heads(x, heads) for x in ((q_GLD + biases[0]) * real, k))
            bias = memory_bias(q_GLD + biases[1], r, k.size(1), heads)
            show_weights(content, keys, memory.mask, False, bias, memory.token_indices)
        seen = attend_from_memory(q_GLD, k, v, biases, r, memory.mask, heads, self.dropout)
        if self.start is None or memory.memory is None:
            return seen
        own = memory.memory.tokens  # where they begin
        alone = attend_from_memory(
            q_GLD, k[:, own:], v[:, own:], biases, r[own:], memory.mask[..., own:], heads, self.dropout
        )
        mixed: Tensor = self.start(alone, seen)
        return mixed

    def attend(self, q_BHTK: Tensor, kv: KeysValues, keys: Keys, layout: AnyLayout) -> Tensor:
        """The next tokens and the slots of a cache: [B, H, T, K]."""
        assert isinstance(layout, Step)
        assert keys.mask is not None
        # Slots that nobody sees may be any number of positions ahead or behind.
        distance = torch.where(keys.mask[:, 0], -keys.distance(), 0)
        r_nD = self._kept(int(distance.max()) + 1, layout, q_BHTK)
        # With mixed precision, projections come in less of it than parameters have.
        content, by_distance = (
            q_BHTK + split_heads(bias.to(q_BHTK.dtype)[None, None], self.size.heads)
            for bias in (self.content_bias, self.distance_bias)
        )
        products = torch.einsum("bhtk,nhk->bhtn", by_distance, r_nD.view(r_nD.size(0), self.size.heads, -1))
        bias = products.gather(3, distance[:, None].expand(-1, self.size.heads, -1, -1))
        bias = bias * content.size(-1) ** -0.5
        show_weights(content, kv[0], keys.mask, False, bias)
        seen = scaled_dot_product_attention(content, *kv, attn_mask=bias.masked_fill(~keys.mask, -math.inf))
        if self.start is None:
            return seen
        own = keys.mask & self._own_sentence(bias.size(3), layout)
        alone = scaled_dot_product_attention(content, *kv, attn_mask=bias.masked_fill(~own, -math.inf))
        return split_heads(self.start(merge_heads(alone), merge_heads(seen)), self.size.heads)

    def _own_sentence(self, slots: int, step: Step) -> Tensor:
        """Which of the last slots are of the sentence of each query: [B, 1, W * T, slots]."""
        of_slots = step.state.sentences_of_slots(step.sentence)[:, None, -slots:]
        return (step.sentence.reshape(len(of_slots), -1)[:, :, None] == of_slots)[:, None]

    def _kept(self, longest: int, step: Step, like: Tensor) -> Tensor:
        """Projected distances, which all rows and steps share."""
        name, kept = f"distances of {id(self)}", step.state.kept
        if name not in kept or len(kept[name]) < longest:
            kept[name] = self.distances(2 * longest, like)
        return kept[name]


class MemorySpan(SentenceSpan):
    """The own sentence and `sentences` before it, whose states send no gradients back."""

    answers = ("memory",)

    def __init__(self, sentences: int) -> None:
        self.memory_sentences = sentences

    def attend(self, attention: SelfAttention, x: Tensor, layout: Layout) -> Tensor:
        """Self-attention of complete rows, [N, D] -> [N, D]."""
        score, past, dimension = attention.score, layout.memory, x.size(-1)
        assert isinstance(score, TransformerXLScore)
        if past.empty or not torch.is_grad_enabled():
            detached = own = attention.qkv(x)
        else:
            weight = attention.qkv.weight
            detached = linear(x.detach(), weight, attention.qkv.bias)
            own = _SharedProjection.apply(detached, x, weight)  # type: ignore[no-untyped-call]
        detached = detached[:, dimension:]
        r_nD = score.distances(past.distances, x)
        mixed = []
        parts = torch.split(own, [each.bucket.tokens for each in past.buckets])
        for memory, part in zip(past.buckets, parts, strict=True):
            q = memory.bucket.unpack(part[:, :dimension])
            k, v = memory.fetch(part[:, dimension:], detached).chunk(2, dim=-1)
            mixed.append(memory.bucket.pack(score.attend_memory(q, k, v, r_nD, memory)))
        return torch.cat(mixed)
