"""How queries and keys are compared, beyond their contents (`Score` in `layers/multi_head.py`).

Shapes: B rows or entries, W beams, R rows, G sentences of a bucket, L tokens of its longest, N real tokens of
all rows, T tokens or queries, S keys, C columns for sentences, n distances, D model, H heads, K per head.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear, one_hot, scaled_dot_product_attention

from cotext.layers.buckets import BucketMemory
from cotext.layers.kernels.common import TensorFunction
from cotext.layers.kernels.relative import (
    attend_at_distances,
    attend_from_memory,
    attend_relative,
    memory_bias,
    relative_bias,
)
from cotext.layers.kernels.sdpa import attend, show_weights, watched
from cotext.layers.layout import AnyLayout, Keys, Layout, Step
from cotext.layers.linear import Blended, StartsFromOthers, ZeroGate, outputs
from cotext.layers.multi_head import AttentionSize, Score, SelfAttention, merge_heads, split_heads
from cotext.layers.positions import CLIP, PositionTable
from cotext.layers.spans import SentenceSpan
from cotext.layers.state import KeysValues


class AlibiScore(Score, Blended):
    """ALiBi (Press et al. 2022, section 3), synchronised at separators (Post and Junczys-Dowmunt 2023).

    Instead of positions at the input, every score is lowered by the distance of query and key, times a slope.
    The slope is 2^(-8 h / H) for the heads h = 1 ... H:

        self     q . k / sqrt(K) - slope * |i - j|
        cross    q . k / sqrt(K) - slope * |a(i) - j|       a(i) = start of source sentence k + i - start of k

    Token r of target sentence k is aligned with token r of source sentence k. The distance between the two
    sides restarts at each separator, and so does not grow with the number of sentences.
    """

    what = "score"
    source_answers = ("aligned_position",)

    def attend(self, q_BHTK: Tensor, kv: KeysValues, keys: Keys, layout: AnyLayout) -> Tensor:
        bias = self._bias(keys, q_BHTK)
        return attend(q_BHTK, *kv, keys.mask, keys.causal, self.dropout, keys.tokens, bias)

    def attend_source(self, q_BHTK: Tensor, kv: KeysValues, keys: Keys) -> Tensor:
        return attend(q_BHTK, *kv, keys.mask, False, self.dropout, keys.tokens, self._bias(keys, q_BHTK))

    def _bias(self, keys: Keys, like: Tensor) -> Tensor:
        """[B, H, T, S]."""
        head = torch.arange(1, self.size.heads + 1, device=like.device, dtype=torch.float32)
        # In float32: bfloat16 has no numbers for neighbouring distances above 256.
        slope = self.in_force * 2 ** (-8 * head / self.size.heads)
        lower = (-slope[:, None, None] * keys.distance.abs()[:, None]).to(like.dtype)
        return lower if keys.bias is None else lower + keys.bias


BASE = 10_000.0


class RotaryScore(Score, Blended):
    """Rotary positions (Su et al. 2021, equation 34): queries and keys are rotated by their positions.

    Each pair of numbers (x_n, x_{n + K/2}) of a head is rotated by the angle position / 10,000^(2n / K). The
    product of a query and a key then depends on their distance, but not on their absolute positions.

    This score supports only self-attention, with an even number K per head.
    """

    what = "score"

    def project(self, fused: nn.Linear, x: Tensor, layout: AnyLayout, compared: int) -> Tensor:
        """Project, then rotate queries and keys but not values: see `Score`."""
        projected = super().project(fused, x, layout, compared)
        position = layout.packed_position if self.in_force == 1 else layout.packed_position * self.in_force
        turned = rotated(projected[..., :compared], position, self.size.dimension // self.size.heads)
        return torch.cat((turned, projected[..., compared:]), dim=-1)


def rotated(x: Tensor, position: Tensor, size: int) -> Tensor:
    """Rotate heads of `size` K: [..., n * K] at positions [...]."""
    # In float32: half precision would round the angles of far positions.
    half = torch.arange(size // 2, device=x.device, dtype=torch.float32)
    angle = position[..., None].float() * BASE ** (-2 * half / size)
    cos, sin = (values.to(x.dtype)[..., None, :] for values in (angle.cos(), angle.sin()))
    # Pairs of the two halves, where equation 34 has neighbours: only the order of numbers differs.
    first, second = x.view(*x.shape[:-1], -1, size).chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1).flatten(-2)


class SegmentDistanceScore(Score):
    """Attention over whole rows that depends on the distance of two tokens in sentences.

    Zheng et al. 2020, section 4.1, with k_i and k_j the sentences of tokens i and j:

        logit of j      q_i . (k_j + gammaK[k_i - k_j]) / sqrt(K)
        output          sum over j of a_ij (v_j + gammaV[k_i - k_j])

    All tokens of a sentence have the same distance from a query, so that no vector or number per pair of
    tokens is needed. Keys and values get one additional number per sentence: 1 for their own sentence, 0 for
    others. In these columns, the query contains its products with gammaK, and the output the total weight of
    each sentence:

        query           q_i    q_i . gammaK[k_i - 0]    q_i . gammaK[k_i - 1]    ...
        key, value      k_j    0    ...    1    ...
        output          z_i    weights of sentence 0    of sentence 1            ...

    Distances are clipped: sentences that are at least `CLIP` before or after a query share a vector.

    This score supports only complete source rows. The vectors are shared by all heads and start at zero, as
    plain attention.
    """

    answers = ("segments",)

    def __init__(self, size: AttentionSize) -> None:
        super().__init__(size)
        vectors = (torch.zeros(2 * CLIP + 1, size.dimension // size.heads) for _ in range(2))
        self.of_keys, self.of_values = (nn.Parameter(vector) for vector in vectors)

    def attend(self, q_BHTK: Tensor, kv: KeysValues, keys: Keys, layout: AnyLayout) -> Tensor:
        assert isinstance(layout, Layout)
        sentence, size, heads = layout.segments.sentence, q_BHTK.size(-1), q_BHTK.size(1)
        # From each query to the sentence of each column, counted from 0: [B, H, T, C].
        apart = sentence[:, :, None] - torch.arange(layout.segments.count, device=sentence.device)
        distance = (apart.clamp(-CLIP, CLIP) + CLIP)[:, None].expand(-1, heads, -1, -1)
        column = one_hot(sentence, layout.segments.count).to(q_BHTK.dtype)[:, None].expand(-1, heads, -1, -1)
        # Under autocast, projected queries have a lower precision than the parameters.
        of_keys, of_values = self.of_keys.to(q_BHTK.dtype), self.of_values.to(q_BHTK.dtype)
        # Products with the distance vectors, looked up for the column of each sentence.
        products = (q_BHTK @ of_keys.T).gather(3, distance)
        query = torch.cat((q_BHTK, products), dim=3)
        # Attention divides by the root of the extended width; undo the difference.
        query = query * (query.size(-1) / size) ** 0.5
        k, v = (torch.cat((x, column), dim=3) for x in kv)
        output = attend(query, k, v, keys.mask, keys.causal, self.dropout, keys.tokens, keys.bias)
        mixed, mass = output[..., :size], output[..., size:]
        # Several sentences may have the same clipped distance: add up their weights.
        by_distance = mass.new_zeros(*mass.shape[:3], 2 * CLIP + 1).scatter_add(3, distance, mass)
        return mixed + by_distance @ of_values


# --- Attention to a token's own sentence and a memory of earlier sentences, with relative positions.
#
# This is Transformer-XL (Dai et al. 2019, section 3) with sentences as segments (Zheng et al. 2020, section
# 4.2). In every layer, sentence k also attends to the inputs of that layer for sentences k - m ... k - 1,
# without gradients. With teacher forcing, one pass over all sentences computes these inputs, so that all
# sentences are processed in parallel: each fetches the keys and values of its memory.
#
#     score of query i and key j     ((q_i + u) . k_j + (q_i + w) . r[i - j]) / sqrt(K)
#
# r[d] is the sinusoid of distance d, projected by a matrix of the layer; u and w are also parameters of the
# layer. Distances count across sentences, as if memory and sentence were one text.


class _SharedProjection(TensorFunction):
    """A projection of detached states, with gradients to the states added.

    No gradient flows from the keys and values of a memory to the states, but it flows from the keys and
    values of a token's own sentence. The product is computed once for both.
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
        # Always sinusoids from 0, whatever the position encoding of the model.
        self.table = PositionTable(size.dimension)

    def neutral_start(self) -> Mapping[str, float]:
        """Distances have no effect at first, if required."""
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


# --- Position-aware attention (P-Transformer; Li et al. 2022): positions in every layer.
#
# In a plain Transformer, positions are added once, to the embeddings. In long rows, such as documents, they
# are lost in the upper encoder layers, and cross-attention can no longer use them. Here every layer makes
# queries and keys from X + P and values from X, and self-attention adds relative positions:
#
#     self     softmax(((X + P) Wq ((X + P) Wk)^T + (X + P) Wq R^T) / sqrt(K)) X Wv          equations 10, 11
#     cross    softmax((Xt + Pt) Wq ((Xs + Ps) Wk)^T / sqrt(K)) Xs Wv                       equation 7
#
# X: hidden states (H in the paper) of the layer; t: target; s: source. P: sinusoidal position embeddings,
# without parameters. R: a table of relative positions, shared by all heads, layers and both stacks. The paper
# divides by sqrt(D); Cotext divides by sqrt(K), because every head has size K.


def relative_table(size: AttentionSize, span: int) -> nn.Parameter:
    """Return R, [2 * span + 1, K], with zeros, so that relative positions have no effect at the start.

    Larger distances share the vectors at the ends. The paper does not clip distances: a span of 512 covers
    its rows of up to 512 tokens (section III-C; 1,025 vectors in table V). Table XI and figure 7, with
    sequences of up to 2,048 tokens, need a span of 2,048.
    """
    return nn.Parameter(torch.zeros(2 * span + 1, size.dimension // size.heads))


class PositionScore(Score):
    """Scores with `absolute` positions in queries and keys, with `relative` positions, or with both.

    If training starts from a model without positions in its layers, a gate that starts at zero scales the
    absolute positions. The table of relative positions also starts at zero.
    """

    def __init__(self, size: AttentionSize, absolute: bool, relative: bool) -> None:
        super().__init__(size)
        self.absolute, self.relative = absolute, relative
        self.gate = ZeroGate(size.dimension) if absolute and size.neutral_start else None

    def project(self, fused: nn.Linear, x: Tensor, layout: AnyLayout, compared: int) -> Tensor:
        """Project queries and keys from X + P, values from X: see `Score`."""
        if not self.absolute:
            return super().project(fused, x, layout, compared)
        aware = x + layout.absolute.to(x.dtype)
        if self.gate is not None:
            aware = self.gate(x, aware)
        if compared == fused.out_features:
            projected: Tensor = fused(aware)
            return projected
        return torch.cat((outputs(fused, aware, 0, compared), outputs(fused, x, compared)), dim=-1)

    def attend(self, q_BHTK: Tensor, kv: KeysValues, keys: Keys, layout: AnyLayout) -> Tensor:
        table = layout.shared.relative
        if not self.relative or table is None:
            return super().attend(q_BHTK, kv, keys, layout)
        if not keys.in_order:
            return attend_at_distances(q_BHTK, *kv, table, keys.mask, keys.distance, keys.bias)
        if keys.bias is None:
            return attend_relative(q_BHTK, *kv, table, keys.mask, keys.causal, self.dropout, keys.tokens)
        bias = relative_bias(q_BHTK, table.to(q_BHTK.dtype), kv[0].size(2)) + keys.bias
        return attend(q_BHTK, *kv, keys.mask, keys.causal, self.dropout, keys.tokens, bias)
