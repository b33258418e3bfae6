"""Attention to context sentences that were encoded apart, inside the blocks of encoder and decoder.

Shapes: B entries, R rows, T tokens, N real tokens, D model. States are [N, D], [B, T, D] or, while decoding,
[B, W * T, D].
"""

from dataclasses import replace

from torch import Tensor, nn

from cotext.layers.kernels.sdpa import TokenIndices
from cotext.layers.layout import AnyLayout, Keys, Layout
from cotext.layers.multi_head import AttentionSize, CrossAttention, RowSpan, Score
from cotext.layers.state import ContextSide, KeysValues


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
