"""Encoder and decoder blocks, and their attention to context sentences that were encoded apart.

Shapes: B entries, R rows, T tokens, S source tokens, N real tokens, D model. States of attention to context
are [N, D], [B, T, D] or, while decoding, [B, W * T, D].

    post-norm   x = norm(x + f(x))         pre-norm   x = x + f(norm(x)), one more norm at the top
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from cotext.layers.kernels.common import Dropout
from cotext.layers.kernels.sdpa import TokenIndices
from cotext.layers.layout import AnyLayout, Keys, Layout, Packed
from cotext.layers.multi_head import (
    Activation,
    AttentionSize,
    CrossAttention,
    FeedForward,
    RowSpan,
    Score,
    SelfAttention,
)
from cotext.layers.state import ContextSide, KeysValues


class ContextSpan(RowSpan):
    """All context tokens; queries of rows without context are zero, like queries of padding."""

    def product(self, score: Score, q_BHTK: Tensor, kv: KeysValues, keys: Keys, layout: AnyLayout) -> Tensor:
        side = layout.source
        assert isinstance(side, ContextSide)
        if isinstance(layout, Layout):
            # Recorded weights leave out rows without context.
            query = layout.token_indices.where(side.exists[:, None], -1)
            keys = replace(keys, tokens=lambda: TokenIndices(query, side.index))
        # Zeros keep the product finite; `has_context` discards its result.
        return score.attend(q_BHTK * side.exists[:, None, None, None], kv, keys, layout)


class ContextAttention(CrossAttention):
    """Multi-head attention to the context of a row; `index` counts these attentions over both stacks."""

    def __init__(self, size: AttentionSize) -> None:
        super().__init__(size, ContextSpan(), Score(size))

    def forward(self, x: Tensor, layout: AnyLayout) -> Tensor:
        return super().forward(x, layout.of_context)


class ContextSublayer(nn.Module):
    """The part of a block that attends to context; a gate g mixes it in: g * states + (1 - g) * result.

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
        """Return what the encoder, a layer on top and the decoder require of source rows."""
        own, crosses = self_attentions(self.encoder), cross_attentions(self.decoder)
        return Packed(
            by_sentence=_by_sentence(own, above),
            # Both sides must agree: dropped context has no keys for cross-attention.
            current_only=any(span.current_only for span in [a.span for a in own] + [a.span for a in crosses]),
            answers=_answers(own, above),
        )

    def target_packed(self, above: LayerAbove | None = None) -> Packed:
        """Return what the decoder and a layer on top of it require of target rows."""
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
