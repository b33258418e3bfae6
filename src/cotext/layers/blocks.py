"""Encoder and decoder blocks, and what stands before them: the embedding of tokens that know their sentence.

Shapes: B entries, R rows, T tokens, S source tokens, D model, V vocabulary.

    post-norm   x = norm(x + f(x))         pre-norm   x = x + f(norm(x)), one more norm at the top
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor, nn

from cotext.layers.kernels.dropout import Dropout
from cotext.layers.multi_head import FeedForward
from cotext.layers.positions import Kind, PositionTable, closed_sentence, place, sinusoidal


@dataclass(frozen=True, slots=True)
class Size:
    """The numbers that make a Transformer larger or smaller."""

    dimension: int
    feed_forward: int
    heads: int
    encoder_layers: int
    decoder_layers: int
    dropout: float = 0.0
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    pre_norm: bool = False

    @property
    def attention(self) -> tuple[int, int, float]:
        """What an attention is built from: dimension, heads, dropout of its weights."""
        return self.dimension, self.heads, self.attention_dropout


Block = TypeVar("Block", bound=nn.Module)
Cross = TypeVar("Cross", bound=nn.Module)


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
    """Self-attention and feed-forward; the attention is the model's own kind."""

    def __init__(self, size: Size, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention
        self.feed_forward = FeedForward(size.dimension, size.feed_forward, size.activation_dropout)
        self.after_attention = Residual(size.dimension, size.dropout, size.pre_norm)
        self.after_feed_forward = Residual(size.dimension, size.dropout, size.pre_norm)

    def forward(self, x: Tensor, own: tuple[Any, ...]) -> Tensor:
        """[B, S, D] -> [B, S, D], or without padding [N, D] -> [N, D].

        `own` is what the attention is called with beside x.
        """
        x = self.after_attention(x, lambda x: self.attention(x, *own))
        x = self.after_feed_forward(x, self.feed_forward)
        return x


class DecoderBlock(nn.Module, Generic[Cross]):
    """Self-attention, cross-attention and feed-forward; the attentions are the model's own kinds."""

    def __init__(self, size: Size, attention: nn.Module, cross: Cross) -> None:
        super().__init__()
        self.attention = attention
        self.cross = cross
        self.feed_forward = FeedForward(size.dimension, size.feed_forward, size.activation_dropout)
        self.after_attention = Residual(size.dimension, size.dropout, size.pre_norm)
        self.after_cross = Residual(size.dimension, size.dropout, size.pre_norm)
        self.after_feed_forward = Residual(size.dimension, size.dropout, size.pre_norm)

    def forward(self, x: Tensor, own: tuple[Any, ...], source: tuple[Any, ...]) -> Tensor:
        """[R, T, D] -> [R, T, D], or without padding [N, D] -> [N, D].

        `own` and `source` are what self-attention and cross-attention are called with beside x.
        """
        x = self.after_attention(x, lambda x: self.attention(x, *own))
        x = self.after_cross(x, lambda x: self.cross(x, *source))
        x = self.after_feed_forward(x, self.feed_forward)
        return x


class SentenceEmbedding(nn.Module):
    """Token + position + segment, the last two from the sentence index of the token.

    Segments are `learned` (Devlin et al. 2019) or `sinusoidal` (Lupo et al. 2022, section 4.6.2). Sentence
    indices past the last learned segment share it. `weight` [V, D] also serves as the output layer.

    `bracketed`: every sentence begins with a symbol of its own; if not, a separator has the position and the
    segment of the sentence that it closes, on the source and on the target side (Lupo et al. 2022, section
    3.2). `from_first`: the shift and sinusoidal segments reach the first sentence of a row too, as published;
    if not, a row of one sentence is what it is without them.
    """

    def __init__(
        self,
        vocabulary: int,
        dimension: int,
        dropout: float,
        positions: Kind = "absolute",
        segments: Literal["none", "learned", "sinusoidal"] = "none",
        max_segments: int = 1,
        bracketed: bool = False,
        from_first: bool = True,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocabulary, dimension) * dimension**-0.5)
        self.scale = math.sqrt(dimension)
        self.positions = positions
        self.table = PositionTable(dimension)
        self.segments = segments
        self.max_segments = max_segments
        self.bracketed, self.from_first = bracketed, from_first
        # Zeros: a model with learned segments starts as the baseline and departs from it by learning alone.
        self.segment = nn.Parameter(torch.zeros(max_segments, dimension)) if segments == "learned" else None
        self.dropout = Dropout(dropout)

    def forward(
        self, tokens: Tensor, sentence: Tensor, t: Tensor, rank: Tensor, shift: Tensor | int
    ) -> Tensor:
        """All [R, T], `shift` a number or [R] -> [R, T, D]."""
        return self.placed(self.bare(tokens), sentence, t, rank, shift)

    def input_sentence(self, sentence: Tensor, before: Tensor | None) -> Tensor:
        """What `forward` is to be given as `sentence` for decoder inputs: see `closed_sentence`."""
        return sentence if self.bracketed else closed_sentence(sentence, before)

    def bare(self, tokens: Tensor) -> Tensor:
        """Tokens that do not know where they stand: [...] -> [..., D]."""
        return nn.functional.embedding(tokens, self.weight) * self.scale

    def placed(self, x: Tensor, sentence: Tensor, t: Tensor, rank: Tensor, shift: Tensor | int) -> Tensor:
        """Tell vectors [R, T, D] where they stand."""
        x = x + self.table(place(self.positions, t, rank, sentence, shift, self.from_first))
        k = sentence.clamp(min=0)
        if self.segment is not None:
            x = x + self.segment[k.clamp(max=self.max_segments - 1)]
        elif self.segments == "sinusoidal":
            encoded = sinusoidal(k, x.size(-1)).to(x.dtype)
            x = x + (encoded if self.from_first else encoded * (k > 0)[:, :, None])
        dropped: Tensor = self.dropout(x)
        return dropped

    def words(self, tokens: Tensor, position: Tensor | None) -> Tensor:
        """Tokens [R, T] without segments, at the given positions or at none -> [R, T, D]."""
        x = self.bare(tokens)
        dropped: Tensor = self.dropout(x if position is None else x + self.table(position))
        return dropped
