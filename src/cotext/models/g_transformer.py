"""Gated global attention (G-Transformer; Bao et al. 2021) beside attention inside sentences.

A Transformer that reads whole documents spreads its attention over far too many tokens and does not learn.
In G-Transformer every attention (encoder, decoder, from target to source) sees the sentence of its query
alone: target sentence k sees source sentence k. In the top layers a second, global attention with weights of
its own sees the whole row (of the target, all that stands before), and a gate mixes the two, number by
number:

    g = sigmoid(W [local; global] + b)          out = g * local + (1 - g) * global

both after their output projections. Positions are absolute over the row. Sentences are set apart by brackets,
a begin and an end around each, and while decoding every sentence end moves on to the next source sentence.

Where training starts from a sentence model, local attention goes on from its attention, global attention
starts as a copy of the local one, and only gates are new. (The authors' own runs start global attention at
random: `train.init_copies: false`.)

Shapes: D model.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from cotext.layers.gate import joint
from cotext.layers.layout import AnyLayout
from cotext.layers.multi_head import CrossAttention, SelfAttention
from cotext.layers.start import StartsFromOthers, ZeroGate

# sigmoid(4) = 0.982: the share of local attention where training starts from a sentence model
GATE_START = 4.0


class GatedAttention(nn.Module, StartsFromOthers):
    """A local and a global attention of one kind over the same tokens, mixed by a gate."""

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
        """States shaped as x."""
        near, far = self.local(x, layout), self.wide(x, layout)
        mixed = torch.lerp(far, near, joint(self.gate, near, far).sigmoid())
        return mixed if self.start is None else self.start(near, mixed)

    def adopted_names(self) -> Mapping[str, str]:
        """Local and global attention of a gated layer both start as the one attention of a plain layer."""
        names = (name for name, _ in self.named_parameters())
        return {name: name.partition(".")[2] for name in names if name.startswith(("local.", "wide."))}

    def neutral_start(self) -> Mapping[str, float]:
        """Gates start almost closed to global attention, which has not learned yet what to look for.

        Behind a second gate that starts closed, they start half open.
        """
        return {"gate.weight": 0.0, "gate.bias": GATE_START if self.start is None else 0.0}
