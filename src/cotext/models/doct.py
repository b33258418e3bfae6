"""Document-aware Transformer (DocT; J. Zhang et al. 2018): context attention in every layer.

Earlier source sentences are one sequence. A separate encoder stack encodes it, with the same embedding as for
the current sentence. After the self-attention of every encoder and decoder block, states x attend to the
output C of this stack:

    y = MultiHead(x, C)        g = sigmoid(Wx x + Wy y)        x' = LayerNorm(g * x + (1 - g) * y)

These equations are those of the authors' code (THUNLP-MT/Document-Transformer, 5bcc7f4:
thumt/models/contextual_transformer.py): gates have no bias, and there is no additional residual connection
and no dropout. With pre-norm, y is computed from LayerNorm(x), and x' is not normalised. In the authors'
training, all parameters of the sentence model are frozen (`train.freeze`).

Shapes: D model; states as in `layers/blocks.py`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cotext.layers.blocks import ContextSublayer, Size, Stack, Stacks, TransformerBlock
from cotext.layers.layout import AnyLayout, Layout
from cotext.layers.linear import gated
from cotext.layers.start import ZeroGate
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
