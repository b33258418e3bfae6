"""Context-aware encoder of Voita et al. 2018, which shares its lower layers with a context encoder.

Context sentences pass through all encoder layers except the last, then through a separate last layer. A
trained vector before them marks them as context for the shared layers. In the last encoder layer, a gate
mixes self-attention with attention to the context C (section 3, equations 2 and 3, for every token):

    s = SelfAttention(x)    c = MultiHead(x, C)    g = sigmoid(W [s; c] + b)    s' = g * s + (1 - g) * c

Residual connection and layer norm follow, as in any layer. The decoder is that of the sentence model. The
authors published no code. No copy of the paper was at hand to check the equations.

Shapes: B rows, D model; states as in `layers/blocks.py`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cotext.layers.blocks import ContextSublayer, Size, Stack, Stacks, TransformerBlock
from cotext.layers.layout import AnyLayout, Layout
from cotext.layers.linear import gated
from cotext.layers.start import AlmostClosed, ZeroGate
from cotext.models.slots import ContextEncoder, ContextRows, RowEmbedder


class SharedContext(ContextEncoder):
    """The lower encoder layers, then a separate one, to whose states the last encoder layer attends."""

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
