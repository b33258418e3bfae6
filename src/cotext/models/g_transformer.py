"""Gated global attention (G-Transformer; Bao et al. 2021) in addition to attention inside sentences.

A Transformer that reads whole documents spreads its attention over too many tokens and does not learn. In
G-Transformer, every attention (encoder, decoder, cross-attention) is restricted to the sentence of its query:
target sentence k attends to source sentence k. In the top layers, a second, global attention with separate
weights covers the whole row (on the target, all earlier tokens). A gate mixes the two, per dimension:

    g = sigmoid(W [local; global] + b)          out = g * local + (1 - g) * global

Both are taken after their output projections. Positions are absolute over the row. Each sentence is enclosed
in brackets (a begin and an end symbol). While decoding, each sentence end moves on to the next source
sentence.

If training starts from a sentence model, local attention continues from its attention. Global attention
starts as a copy of local attention, and only gates are new. (The authors' runs start global attention at
random: `train.init_copies: false`.) Positions then restart in every sentence. So global attention has a bias
by the distance of other sentences (`layers/spans.py`), if `model.attention.others` is `gated`.

Shapes: D model.
"""

from collections.abc import Mapping

from torch import Tensor, nn

from cotext.layers.layout import AnyLayout
from cotext.layers.linear import gated
from cotext.layers.multi_head import CrossAttention, SelfAttention
from cotext.layers.start import AlmostClosed, ZeroGate


class GatedAttention(nn.Module, AlmostClosed):
    """A local and a global attention over the same tokens, mixed by a gate."""

    def __init__(
        self,
        dimension: int,
        local: SelfAttention | CrossAttention,
        wide: SelfAttention | CrossAttention,
        neutral_start: bool = False,
    ) -> None:
        super().__init__()
        self.local = local
        self.wide = wide
        self.gate = nn.Linear(2 * dimension, dimension)
        self.start = ZeroGate(dimension) if neutral_start else None

    def forward(self, x: Tensor, layout: AnyLayout) -> Tensor:
        return gated(self.gate, self.local(x, layout), self.wide(x, layout), self.start)

    def adopted_names(self) -> Mapping[str, str]:
        """Return the names to copy: both attentions start as copies of the attention of a plain layer."""
        names = (name for name, _ in self.named_parameters())
        return {name: name.partition(".")[2] for name in names if name.startswith(("local.", "wide."))}
