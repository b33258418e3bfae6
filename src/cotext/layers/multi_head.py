"""Multi-head attention with a span (which keys a query attends to) and a score (how query and key compare).

    x -> fused projection (score.project) -> products of queries and keys (span) -> score.attend -> W mixed

A span arranges the tokens: whole rows, sentences, sentences with a memory, or sentences with the nodes of
other sentences. A score computes one product, from contents and from absolute or relative positions.
`models/checks.py` lists possible combinations. Here are the plain span (whole rows) and score (contents).

Shapes: B entries, W beams, R rows (R = B * W while decoding, else R = B), T queries, S keys, D model, H
heads, K per head, N real tokens of all rows. x is packed [N, D] or padded [B, T, D]. While decoding it is [B,
W * T, D]: the beams of an entry are additional queries of the entry, so its keys are not copied.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, silu

from cotext.layers.kernels.common import dropout
from cotext.layers.kernels.sdpa import attend
from cotext.layers.layout import AnyLayout, Keys, Layout, Step
from cotext.layers.state import KeysValues, SlotMask

Activation = Literal["relu", "swish", "gelu", "gelu_sigmoid"]
ACTIVATIONS: Mapping[Activation, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu_,  # in place: in training, this is the largest tensor of a block
    "swish": silu,
    "gelu": gelu,
    "gelu_sigmoid": lambda x: x * (1.702 * x).sigmoid(),
}


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[R, T, D] -> [R, H, T, K]."""
    if x.size(1) == 1:  # a step of search: one operator instead of two
        return x.view(x.size(0), heads, 1, -1)
    return x.view(x.size(0), x.size(1), heads, -1).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """[R, H, T, K] -> [R, T, D]."""
    if x.size(2) == 1:
        return x.reshape(x.size(0), 1, -1)
    return x.transpose(1, 2).flatten(2)


def projection(dimension: int, parts: int = 1) -> nn.Linear:
    """Several square projections fused into one matrix."""
    return nn.Linear(dimension, parts * dimension)


@dataclass(frozen=True, slots=True)
class AttentionSize:
    """Dimension, heads, and dropout of attention weights.

    `neutral_start`: parts that a plain attention lacks have no effect before the first update.
    """

    dimension: int
    heads: int
    dropout: float
    neutral_start: bool = False


class Score(nn.Module):
    """Scaled dot products of contents; the base class of all scores.

    Subclasses change how queries and keys are projected (`project`) or compared (`attend`).
    `answers` and `source_answers`: see `RowSpan`. `sides` and `spans`: sides and spans with which a score of
    a user's file can be used; for other scores, see `models/checks.py`.
    """

    answers: tuple[str, ...] = ()
    source_answers: tuple[str, ...] = ()
    sides: tuple[str, ...] = ("encoder", "decoder", "cross")
    spans: tuple[str, ...] = ("row", "sentence", "current")

    def __init__(self, size: AttentionSize) -> None:
        super().__init__()
        self.size = size

    @property
    def dropout(self) -> float:
        """Dropout of attention weights; 0 outside training."""
        return self.size.dropout if self.training else 0.0

    def project(self, fused: nn.Linear, x: Tensor, layout: AnyLayout, compared: int) -> Tensor:
        """Apply a fused projection: the first `compared` outputs are queries and keys, the rest values."""
        projected: Tensor = fused(x)
        return projected

    def attend(self, q_BHTK: Tensor, kv: KeysValues, keys: Keys, layout: AnyLayout) -> Tensor:
        """One product of a self-attention or cross-attention: [B, H, T, K]."""
        return attend(q_BHTK, *kv, keys.mask, keys.causal, self.dropout, keys.tokens, keys.bias)


class RowSpan:
    """Attention over whole rows, which is causal in a decoder; the base class of all spans.

    `by_sentence`: whether tokens must be packed in buckets of sentences. `memory_sentences`: number of
    earlier sentences that a token attends to, for spans that do not cover the row. `current_only`: whether an
    encoder keeps only current tokens from the first layer with this span on. `answers` and, in
    cross-attention, `source_answers` contain the names of the properties of the queries' layout that read
    tensor values. They must be computed before the forward pass (see `Packed.answers`).
    """

    by_sentence = False
    memory_sentences = 0
    current_only = False
    answers: tuple[str, ...] = ()
    source_answers: tuple[str, ...] = ()

    def attend(self, attention: "SelfAttention", x: Tensor, layout: Layout) -> Tensor:
        """Return the self-attention of complete rows, packed as x."""
        score = attention.score
        q, k, v = attention.split(layout.unpack(score.project(attention.qkv, x, layout, 2 * x.size(-1))))
        return layout.pack(merge_heads(self.product(score, q, (k, v), layout.row_keys, layout)))

    def product(self, score: Score, q_BHTK: Tensor, kv: KeysValues, keys: Keys, layout: AnyLayout) -> Tensor:
        """One product of a self-attention or cross-attention: [B, H, T, K]."""
        return score.attend(q_BHTK, kv, keys, layout)

    def output(self, out: nn.Linear, mixed: Tensor) -> Tensor:
        """Project the merged heads of all products: [..., products * D] -> [..., D]."""
        projected: Tensor = out(mixed)
        return projected

    def slots(self, step: Step) -> SlotMask:
        """Return the cache slots that the next tokens attend to."""
        return step.row

    def attend_source(self, attention: "CrossAttention", x: Tensor, layout: Layout) -> Tensor:
        """Return the cross-attention of complete rows, packed as x."""
        score = attention.score
        q = attention.split(layout.unpack(score.project(attention.query, x, layout, x.size(-1))))
        kv = layout.source.keys_values[attention.index]
        return layout.pack(merge_heads(self.product(score, q, kv, layout.source_keys, layout)))

    def source(self, step: Step, index: int) -> tuple[KeysValues, Keys]:
        """Return the source keys and values that the next tokens attend to, by `index` of the attention."""
        return step.source.keys_values[index], step.source_keys


class SelfAttention(nn.Module):
    """Self-attention of complete rows, or of the next tokens to the slots of a cache.

    `index` is the number of this attention among the decoder's attentions that have caches.
    """

    def __init__(self, size: AttentionSize, span: RowSpan, score: Score) -> None:
        super().__init__()
        self.heads, self.span, self.score, self.index = size.heads, span, score, 0
        self.qkv = projection(size.dimension, 3)
        self.out = projection(size.dimension)

    def forward(self, x: Tensor, layout: AnyLayout) -> Tensor:
        """Return the attention output, shaped as x."""
        mixed = self._step(x, layout) if isinstance(layout, Step) else self.span.attend(self, x, layout)
        return self.span.output(self.out, mixed)

    def split(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[R, T, 3 D] -> queries, keys, values [R, H, T, K]."""
        q, k, v = (split_heads(part, self.heads) for part in qkv.chunk(3, dim=-1))
        return q, k, v

    def _step(self, x: Tensor, step: Step) -> Tensor:
        """Attend to the cache, whose slots are shared by the beams of an entry: -> [B, W * T, D]."""
        score = self.score
        qkv = score.project(self.qkv, x, step, 2 * x.size(-1))
        # This is `split` in fewer operators.
        if x.size(1) == 1:
            q, k, v = qkv.view(len(qkv), 3, self.heads, 1, -1).unbind(1)
        else:
            q, k, v = qkv.view(*qkv.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind()
        slots, cache = self.span.slots(step), step.state.caches[0]
        # The cache is written first, because a token also attends to itself.
        cache.write(self.index, k, v, slots.start)
        kv = cache.read(self.index, slots.stop, slots.first)
        return merge_heads(self.span.product(score, q, kv, step.keys(slots), step))


class CrossAttention(nn.Module):
    """Attention of target rows to source states, whose keys and values are projected once.

    `index` is the number of this attention among the decoder's cross-attentions.
    """

    def __init__(self, size: AttentionSize, span: RowSpan, score: Score) -> None:
        super().__init__()
        self.heads, self.span, self.score, self.index = size.heads, span, score, 0
        self.query = projection(size.dimension)
        self.key_value = projection(size.dimension, 2)
        self.out = projection(size.dimension)

    def project(self, memory: Tensor, layout: Layout) -> KeysValues:
        """Return keys and values of packed source states: two [B, H, S, K]."""
        projected = layout.unpack(self.score.project(self.key_value, memory, layout, memory.size(-1)))
        k, v = (split_heads(part, self.heads) for part in projected.chunk(2, dim=-1))
        return k, v

    def forward(self, x: Tensor, layout: AnyLayout) -> Tensor:
        """Return the attention output, shaped as x."""
        if isinstance(layout, Step):
            # Only queries are projected here; keys and values were projected once, by `project`.
            q = self.split(self.score.project(self.query, x, layout, x.size(-1)))
            kv, keys = self.span.source(layout, self.index)
            mixed = merge_heads(self.span.product(self.score, q, kv, keys, layout))
        else:
            mixed = self.span.attend_source(self, x, layout)
        return self.span.output(self.out, mixed)

    def split(self, query: Tensor) -> Tensor:
        """[R, T, D] -> [R, H, T, K]."""
        return split_heads(query, self.heads)


class FeedForward(nn.Module):
    """Two projections with an activation between them, and `dropout` after it.

    relu: max(0, x) (Vaswani et al. 2017, section 3.3). swish: x * sigmoid(x) (Ramachandran et al. 2017).
    gelu: x * Phi(x), with Phi the normal distribution function; gelu_sigmoid: its approximation x *
    sigmoid(1.702 x) (both Hendrycks and Gimpel 2016).
    """

    def __init__(self, dimension: int, inner: int, dropout: float, activation: Activation = "relu") -> None:
        super().__init__()
        self.widen = nn.Linear(dimension, inner)
        self.narrow = nn.Linear(inner, dimension)
        self.dropout, self.activation = dropout, activation

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        wide = dropout(ACTIVATIONS[self.activation](self.widen(x)), self.dropout, self.training)
        narrow: Tensor = self.narrow(wide)
        return narrow
