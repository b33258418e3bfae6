"""Encoder and decoder blocks.

Shapes: B entries, R rows, T tokens, S source tokens, D model.

    post-norm   x = norm(x + f(x))         pre-norm   x = x + f(norm(x)), one more norm at the top
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from cotext.layers.kernels.dropout import Dropout
from cotext.layers.layout import AnyLayout, Layout, Packed
from cotext.layers.multi_head import (
    Activation,
    AttentionSize,
    CrossAttention,
    FeedForward,
    SelfAttention,
)


@dataclass(frozen=True, slots=True)
class Size:
    """Sizes of a Transformer; `neutral_start`: parts beyond a plain one change nothing at first."""

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
        """Of an attention."""
        return AttentionSize(self.dimension, self.heads, self.attention_dropout, self.neutral_start)

    def feed_forward_layer(self) -> FeedForward:
        """A feed-forward layer."""
        return FeedForward(self.dimension, self.feed_forward, self.activation_dropout, self.activation)

    def norm(self) -> nn.Module:
        """Norm above a stack, which pre-norm leaves unnormalised; post-norm needs none."""
        return nn.LayerNorm(self.dimension) if self.pre_norm else nn.Identity()


Block = TypeVar("Block", bound=nn.Module)


class Stack(nn.ModuleList, Generic[Block]):
    """Blocks of one kind, in order; a ModuleList that knows what it holds."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        super().__init__(blocks)

    def __iter__(self) -> Iterator[Block]:
        return super().__iter__()  # type: ignore[return-value]


class Residual(nn.Module):
    """A sublayer's way back into the stream: dropout, addition and layer norm in either order."""

    def __init__(self, dimension: int, dropout: float, pre_norm: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dimension)
        self.dropout = Dropout(dropout)
        self.pre_norm = pre_norm

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """[R, T, D] -> [R, T, D]."""
        out: Tensor
        if self.pre_norm:
            out = x + self.dropout(sublayer(self.norm(x)))
        else:
            out = self.norm(x + self.dropout(sublayer(x)))
        return out


class EncoderBlock(nn.Module):
    """Self-attention and feed-forward."""

    def __init__(self, size: Size, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention
        self.current_only = any(own.span.current_only for own in self_attentions(attention))
        self.feed_forward = size.feed_forward_layer()
        self.after_attention = Residual(size.dimension, size.dropout, size.pre_norm)
        self.after_feed_forward = Residual(size.dimension, size.dropout, size.pre_norm)

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """[B, S, D] -> [B, S, D], or without padding [N, D] -> [N, D]."""
        x = self.after_attention(x, lambda x: self.attention(x, layout))
        x = self.after_feed_forward(x, self.feed_forward)
        return x


class DecoderBlock(nn.Module):
    """Self-attention, cross-attention and feed-forward."""

    def __init__(self, size: Size, attention: nn.Module, cross: nn.Module) -> None:
        super().__init__()
        self.attention = attention
        self.cross = cross
        self.feed_forward = size.feed_forward_layer()
        self.after_attention = Residual(size.dimension, size.dropout, size.pre_norm)
        self.after_cross = Residual(size.dimension, size.dropout, size.pre_norm)
        self.after_feed_forward = Residual(size.dimension, size.dropout, size.pre_norm)

    def forward(self, x: Tensor, layout: AnyLayout) -> Tensor:
        """[R, T, D] -> [R, T, D], or without padding [N, D] -> [N, D]."""
        x = self.after_attention(x, lambda x: self.attention(x, layout))
        x = self.after_cross(x, lambda x: self.cross(x, layout))
        x = self.after_feed_forward(x, self.feed_forward)
        return x


def through(block: EncoderBlock | DecoderBlock, x: Tensor, layout: Layout, recomputed: bool) -> Tensor:
    """States of complete rows after a block.

    `recomputed`: of what is inside the block nothing is kept for the backward pass, which computes it once
    more, with the same random numbers (Chen et al. 2016).
    """
    if recomputed and torch.is_grad_enabled():
        kept: Tensor = checkpoint(block, x, layout, use_reentrant=False)
        return kept
    out: Tensor = block(x, layout)
    return out


class LayerAbove(Protocol):
    """What a layer above a stack needs of complete rows: see `Packed`."""

    by_sentence: bool
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stacks:
    """Encoder and decoder blocks, and the norms above them."""

    encoder: Stack[EncoderBlock]
    decoder: Stack[DecoderBlock]
    encoder_norm: nn.Module
    decoder_norm: nn.Module

    def source_packed(self, above: LayerAbove | None = None) -> Packed:
        """What the encoder, a layer above it, and the decoder need of source rows."""
        own, crosses = self_attentions(self.encoder), cross_attentions(self.decoder)
        return Packed(
            by_sentence=_by_sentence(own, above),
            current_only=any(span.current_only for span in [a.span for a in own] + [a.span for a in crosses]),
            answers=_answers(own, above),
        )

    def target_packed(self, above: LayerAbove | None = None) -> Packed:
        """What the decoder and a layer above it need of target rows."""
        own, crosses = self_attentions(self.decoder), cross_attentions(self.decoder)
        of_crosses = {name for a in crosses for name in (*a.span.source_answers, *a.score.source_answers)}
        return Packed(
            by_sentence=_by_sentence([*own, *crosses], above),
            aligned=any(a.span.by_sentence for a in crosses),
            memory_sentences=max(a.span.memory_sentences for a in own),
            answers=(*_answers(own, above), *sorted(of_crosses)),
        )


def _by_sentence(attentions: Sequence[SelfAttention | CrossAttention], above: LayerAbove | None) -> bool:
    return any(a.span.by_sentence for a in attentions) or (above is not None and above.by_sentence)


def _answers(own: Sequence[SelfAttention], above: LayerAbove | None) -> tuple[str, ...]:
    found = {name for a in own for name in (*a.span.answers, *a.score.answers)}
    return (*sorted(found), *(() if above is None else above.answers))


def self_attentions(stack: nn.Module) -> list[SelfAttention]:
    """Those of a stack; in a decoder, these have caches, in the order of their indices."""
    return [module for module in stack.modules() if isinstance(module, SelfAttention)]


def cross_attentions(decoder: nn.Module) -> list[CrossAttention]:
    """Those that the source has keys and values for, in the order of their indices."""
    return [module for module in decoder.modules() if isinstance(module, CrossAttention)]


def number_attentions(decoder: nn.Module) -> int:
    """Give every attention of a decoder its index; returns how many caches there are."""
    for index, own in enumerate(self_attentions(decoder)):
        own.index = index
    for index, cross in enumerate(cross_attentions(decoder)):
        cross.index = index
    return len(self_attentions(decoder))
