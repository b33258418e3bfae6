"""Multi-head attention with a span (which keys a query attends to) and a score (how the two are compared).

    x -> fused projection (score.project) -> products of queries and keys (span) -> score.attend -> W mixed

A span arranges the tokens: whole rows, sentences, sentences with a memory, or sentences with the nodes of
other sentences. A score computes one product, from contents and from absolute or relative positions. For the
possible combinations, see `models/build.py`. This file contains the plain span and score: whole rows, and
contents.

Shapes: B entries, W beams, R rows (R = B * W while decoding, else R = B), T queries, S keys, D model, H
heads, K per head, N real tokens of all rows. x is packed [N, D] or padded [B, T, D]; while decoding [B, W *
T, D]: the beams of an entry are additional queries of the entry, so that its keys are not copied.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, silu
from torch.utils.checkpoint import checkpoint

from cotext.layers.kernels.common import Dropout, dropout
from cotext.layers.kernels.sdpa import TokenIndices, attend
from cotext.layers.layout import AnyLayout, Keys, Layout, Packed, Step
from cotext.layers.state import ContextSide, KeysValues, SlotMask

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

    Subclasses change how queries and keys are projected (`project`) or compared (`attend`, `attend_source`).
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
        """One product of a self-attention: [B, H, T, K]."""
        return attend(q_BHTK, *kv, keys.mask, keys.causal, self.dropout, keys.tokens, keys.bias)

    def attend_source(self, q_BHTK: Tensor, kv: KeysValues, keys: Keys) -> Tensor:
        """One product of a cross-attention: [B, H, T, K]."""
        return attend(q_BHTK, *kv, keys.mask, False, self.dropout, keys.tokens, keys.bias)


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
        """One product of a self-attention: [B, H, T, K]."""
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
        return layout.pack(merge_heads(self.source_product(score, q, kv, layout.source_keys, layout)))

    def source_product(
        self, score: Score, q_BHTK: Tensor, kv: KeysValues, keys: Keys, layout: AnyLayout
    ) -> Tensor:
        """One product of a cross-attention: [B, H, T, K]."""
        return score.attend_source(q_BHTK, kv, keys)

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
        # As `split`, in fewer operators.
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
            mixed = merge_heads(self.span.source_product(self.score, q, kv, keys, layout))
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


# --- Encoder and decoder blocks, and their attention to context sentences that were encoded apart.
#
#     post-norm   x = norm(x + f(x))         pre-norm   x = x + f(norm(x)), one more norm at the top


class ContextSpan(RowSpan):
    """All context tokens; queries of rows without context are zero, as queries of padding."""

    def source_product(
        self, score: Score, q_BHTK: Tensor, kv: KeysValues, keys: Keys, layout: AnyLayout
    ) -> Tensor:
        side = layout.source
        assert isinstance(side, ContextSide)
        if isinstance(layout, Layout):
            # Recorded weights leave out rows without context.
            query = layout.token_indices.where(side.exists[:, None], -1)
            keys = replace(keys, tokens=lambda: TokenIndices(query, side.index))
        # Zeros keep the product finite; `has_context` discards its result.
        return score.attend_source(q_BHTK * side.exists[:, None, None, None], kv, keys)


class ContextAttention(CrossAttention):
    """Multi-head attention to the context of a row; `index` counts these attentions over both stacks."""

    def __init__(self, size: AttentionSize) -> None:
        super().__init__(size, ContextSpan(), Score(size))

    def forward(self, x: Tensor, layout: AnyLayout) -> Tensor:
        return super().forward(x, layout.of_context)


class ContextSublayer(nn.Module):
    """The part of a block that attends to context; a gate g mixes its result: g * a + (1 - g) * context.

    A subclass replaces `beside` or `behind`. Tokens of rows without context do not change.
    """

    def __init__(self, size: AttentionSize, bias: bool) -> None:
        super().__init__()
        self.attention = ContextAttention(size)
        self.gate = nn.Linear(2 * size.dimension, size.dimension, bias=bias)

    def beside(self, x: Tensor, own: Tensor, layout: AnyLayout) -> Tensor:
        """Change the output `own` of self-attention, before its residual connection; x is its input."""
        return own

    def behind(self, x: Tensor, layout: AnyLayout) -> Tensor:
        """Change the states after self-attention and its residual connection."""
        return x


@dataclass(frozen=True, slots=True)
class Size:
    """Sizes of a Transformer; `neutral_start`: whether non-standard parts have no effect at first."""

    dimension: int
    feed_forward: int
    heads: int
    encoder_layers: int
    decoder_layers: int
    dropout: float = 0.0
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    pre_norm: bool = False
    activation: Activation = "relu"
    neutral_start: bool = False

    @property
    def attention(self) -> AttentionSize:
        return AttentionSize(self.dimension, self.heads, self.attention_dropout, self.neutral_start)

    def feed_forward_layer(self) -> FeedForward:
        return FeedForward(self.dimension, self.feed_forward, self.activation_dropout, self.activation)

    def norm(self) -> nn.Module:
        """Return the norm after a stack for pre-norm, otherwise the identity."""
        return nn.LayerNorm(self.dimension) if self.pre_norm else nn.Identity()


class Residual(nn.Module):
    """Residual connection of a sublayer: dropout, addition and layer norm, in the order of `pre_norm`."""

    def __init__(self, dimension: int, dropout: float, pre_norm: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dimension)
        self.dropout = Dropout(dropout)
        self.pre_norm = pre_norm

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """[R, T, D] -> [R, T, D]."""
        if self.pre_norm:
            x = x + self.dropout(sublayer(self.norm(x)))
        else:
            x = self.norm(x + self.dropout(sublayer(x)))
        return x


class TransformerBlock(nn.Module):
    """Self-attention, cross-attention and feed-forward.

    `cross` is None in an encoder, and in a language model, which has no source. `context_attention`:
    attention to context that was encoded apart.
    """

    context_attention: ContextSublayer | None

    def __init__(self, size: Size, attention: nn.Module, cross: nn.Module | None = None) -> None:
        super().__init__()
        self.attention = attention
        self.context_attention = None
        # From this block on, only current tokens are left: see `Layout.of_current`.
        self.current_only = any(module.span.current_only for module in self_attentions(attention))
        self.cross = cross
        self.feed_forward = size.feed_forward_layer()
        self.after_attention = Residual(size.dimension, size.dropout, size.pre_norm)
        if cross is not None:
            self.after_cross = Residual(size.dimension, size.dropout, size.pre_norm)
        self.after_feed_forward = Residual(size.dimension, size.dropout, size.pre_norm)

    def forward(self, x: Tensor, layout: AnyLayout) -> Tensor:
        """[R, T, D] -> [R, T, D], or without padding [N, D] -> [N, D]."""
        context = self.context_attention
        # In a batch without context, the block is that of the sentence model.
        if context is None or layout.context_side is None:
            x = self.after_attention(x, lambda x: self.attention(x, layout))
        else:
            x = self.after_attention(x, lambda x: context.beside(x, self.attention(x, layout), layout))
            x = context.behind(x, layout)
        if (cross := self.cross) is not None:
            x = self.after_cross(x, lambda x: cross(x, layout))
        x = self.after_feed_forward(x, self.feed_forward)
        return x


def through(block: TransformerBlock, x: Tensor, layout: AnyLayout, recomputed: bool) -> Tensor:
    """Apply a block.

    `recomputed`: keep no activations inside the block; the backward pass computes them again, with the same
    random numbers (Chen et al. 2016).
    """
    if recomputed and torch.is_grad_enabled():
        x = checkpoint(block, x, layout, use_reentrant=False)
    else:
        x = block(x, layout)
    return x


class LayerAbove(Protocol):
    """The properties of complete rows that a document layer on top of a stack needs: see `Packed`."""

    by_sentence: bool
    answers: tuple[str, ...]


class Stack(nn.ModuleList):
    """A ModuleList of blocks, with their type."""

    def __iter__(self) -> Iterator[TransformerBlock]:
        return super().__iter__()  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Stacks:
    """Encoder and decoder blocks, and the norms after them."""

    encoder: Stack
    decoder: Stack
    encoder_norm: nn.Module
    decoder_norm: nn.Module

    def source_packed(self, above: LayerAbove | None = None) -> Packed:
        """Return the needed properties of source rows, for encoder, a layer on top and decoder."""
        own, crosses = self_attentions(self.encoder), cross_attentions(self.decoder)
        return Packed(
            by_sentence=_by_sentence(own, above),
            # Both sides must agree: dropped context has no keys for cross-attention.
            current_only=any(span.current_only for span in [a.span for a in own] + [a.span for a in crosses]),
            answers=_answers(own, above),
        )

    def target_packed(self, above: LayerAbove | None = None) -> Packed:
        """Return the needed properties of target rows: for the decoder and a layer on top of it."""
        own, crosses = self_attentions(self.decoder), cross_attentions(self.decoder)
        cross_answers = {name for a in crosses for name in (*a.span.source_answers, *a.score.source_answers)}
        return Packed(
            by_sentence=_by_sentence([*own, *crosses], above),
            # Cross-attention by sentence needs each target sentence next to its source sentence.
            aligned=any(a.span.by_sentence for a in crosses),
            memory_sentences=max(a.span.memory_sentences for a in own),
            answers=(*_answers(own, above), *sorted(cross_answers)),
        )


def _by_sentence(attentions: Sequence[SelfAttention | CrossAttention], above: LayerAbove | None) -> bool:
    return any(a.span.by_sentence for a in attentions) or (above is not None and above.by_sentence)


def _answers(own: Sequence[SelfAttention], above: LayerAbove | None) -> tuple[str, ...]:
    names = {name for a in own for name in (*a.span.answers, *a.score.answers)}
    return (*sorted(names), *(() if above is None else above.answers))


def self_attentions(stack: nn.Module) -> list[SelfAttention]:
    """Return the self-attentions of a stack; in a decoder, in the order of their caches."""
    return [module for module in stack.modules() if isinstance(module, SelfAttention)]


def cross_attentions(decoder: nn.Module) -> list[CrossAttention]:
    """Return the cross-attentions of a decoder, in the order of `SourceSide.keys_values`."""
    return [
        module
        for module in decoder.modules()
        if isinstance(module, CrossAttention) and not isinstance(module, ContextAttention)
    ]


def number_attentions(decoder: nn.Module) -> int:
    """Set the index of every attention of a decoder; return the number of caches."""
    for index, attention in enumerate(self_attentions(decoder)):
        attention.index = index
    for index, cross in enumerate(cross_attentions(decoder)):
        cross.index = index
    return len(self_attentions(decoder))
