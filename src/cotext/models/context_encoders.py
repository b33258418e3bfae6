"""Encoders for context sentences: of DocT, below, and of Voita et al. 2018, at the end.

Document-aware Transformer (DocT; J. Zhang et al. 2018): context attention in every layer. Earlier source
sentences are one sequence. A separate encoder stack encodes it, with the same embedding as for the current
sentence. After the self-attention of every encoder and decoder block, states x attend to the output C of this
stack:

    y = MultiHead(x, C)        g = sigmoid(Wx x + Wy y)        x' = LayerNorm(g * x + (1 - g) * y)

These equations are those of the authors' code (THUNLP-MT/Document-Transformer, 5bcc7f4:
thumt/models/contextual_transformer.py): gates have no bias, and there is no additional residual connection
and no dropout. With pre-norm, y is computed from LayerNorm(x), and x' is not normalised. In the authors'
training, all parameters of the sentence model are frozen (`train.freeze`).

Shapes: B rows, D model; states as in `layers/multi_head.py`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cotext.layers.layout import AnyLayout, Layout
from cotext.layers.linear import AlmostClosed, ZeroGate, gated
from cotext.layers.multi_head import ContextSublayer, Size, Stack, Stacks, TransformerBlock
from cotext.models.slots import ContextEncoder, ContextRows, RowEmbedder


class SeparateContext(ContextEncoder):
    """A separate stack, whose output every block attends to."""

    def __init__(self, size: Size, layers: Sequence[TransformerBlock], stacks: Stacks) -> None:
        super().__init__(size, layers, stacks)
        for block in (*stacks.encoder, *stacks.decoder):
            block.context_attention = GatedSublayer(size)

    def read(self, rows: ContextRows, layout: Layout, embed: RowEmbedder, encoder: Stack) -> Tensor:
        x = layout.pack(embed.source(rows.context))
        for block in self.layers:
            x = block(x, layout)
        states: Tensor = self.norm(x)
        return states


class GatedSublayer(ContextSublayer):
    """Context attention with a gate instead of the residual connection."""

    def __init__(self, size: Size) -> None:
        super().__init__(size.attention, bias=False)
        self.norm, self.pre_norm = nn.LayerNorm(size.dimension), size.pre_norm
        self.start = ZeroGate(size.dimension) if size.neutral_start else None

    def behind(self, x: Tensor, layout: AnyLayout) -> Tensor:
        y = self.attention(self.norm(x) if self.pre_norm else x, layout)
        mixed = gated(self.gate, x, y)
        if not self.pre_norm:
            mixed = self.norm(mixed)
        if self.start is not None:
            mixed = self.start(x, mixed)
        return torch.where(layout.has_context, mixed, x)


# --- Context-aware encoder of Voita et al. 2018, which shares its lower layers with a context encoder.
#
# Context sentences pass all encoder layers but the last, and a last layer of their own. A trained vector
# stands before them, by which the shared layers know context from current sentences. In the last encoder
# layer, a gate mixes self-attention with attention to the context C (section 3, equations 2 and 3, for every
# token):
#
#     s = SelfAttention(x)    c = MultiHead(x, C)    g = sigmoid(W [s; c] + b)    s' = g * s + (1 - g) * c
#
# Residual connection and layer norm follow, as in any layer. The decoder is that of the sentence model. The
# authors published no code for this paper. Equations are those of the paper, of which no copy was at hand.


class SharedContext(ContextEncoder):
    """The encoder's layers but the last, and a last layer of its own; only the last layer attends to it."""

    extra_tokens = 1

    def __init__(self, size: Size, layers: Sequence[TransformerBlock], stacks: Stacks) -> None:
        super().__init__(size, layers, stacks)
        self.first = nn.Parameter(torch.randn(size.dimension) * size.dimension**-0.5)
        [*_, last] = stacks.encoder
        last.context_attention = BesideSelfAttention(size)

    def read(self, rows: ContextRows, layout: Layout, embed: RowEmbedder, encoder: Stack) -> Tensor:
        first_BD = embed.first(self.first.expand(len(rows.context.tokens), -1), "source")
        x = layout.pack(torch.cat((first_BD[:, None], embed.source(rows.context, behind=1)), dim=1))
        [*shared, _] = encoder
        for block in (*shared, *self.layers):
            x = block(x, layout)
        states: Tensor = self.norm(x)
        return states


class BesideSelfAttention(ContextSublayer, AlmostClosed):
    """A gated sum of self-attention and context attention."""

    def __init__(self, size: Size) -> None:
        super().__init__(size.attention, bias=True)
        self.start = ZeroGate(size.dimension) if size.neutral_start else None

    def beside(self, x: Tensor, own: Tensor, layout: AnyLayout) -> Tensor:
        mixed = gated(self.gate, own, self.attention(x, layout), self.start)
        return torch.where(layout.has_context, mixed, own)
