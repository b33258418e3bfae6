"""MCN (Zheng et al. 2020): combines sentence-level encoder states with document-level context.

The encoder reads every sentence separately. An additional layer attends over the whole row (a sequence of
sentences), with embeddings of the distance between two tokens, counted in sentences. A gate mixes local
(sentence-level) and global (document-level) states:

    hL = encoder layers, within a sentence          hG = layer(hL), with attention over the whole row
    g = sigmoid(W [hL; hG] + b)                     h = LayerNorm((1 - g) * hL + g * hG)

For a row of one sentence, h = hL, also in a batch with longer rows. Thus one model translates both single
sentences and documents. The decoder translates sentence by sentence; target sentence k attends to source
sentence k. It has only relative positions, and a memory of earlier sentences (`layers/transformer_xl.py`).

Shapes: N = number of tokens of all rows without padding, D = model dimension.
"""

import torch
from torch import Tensor, nn

from cotext.layers.blocks import Size, TransformerBlock
from cotext.layers.kernels.common import Dropout
from cotext.layers.layout import AnyLayout, Layout
from cotext.layers.linear import joint
from cotext.layers.multi_head import RowSpan, Score, SelfAttention
from cotext.layers.scores import SegmentDistanceScore
from cotext.layers.start import ZeroGate
from cotext.models.interface import DocumentLayer, DocumentSettings, Reach


class SegmentGate(DocumentLayer):
    """The top encoder layer, which adds document-level states to the sentence-level states.

    `relative`: attention depends on the distance in sentences. Without `gate`, the two states are added
    before the layer norm. Without `feed_forward`, the layer consists only of attention: hG =
    MultiHead(SegmentAttention(hL)), as in section 4.1. With `feed_forward`, the number of parameters is
    that of table 1. If training starts from a sentence model, h passes a gate that starts at zero.
    """

    by_sentence = True
    answers = ("has_several", "segments")
    settings = ("relative", "gate", "feed_forward")

    def __init__(self, size: Size, settings: DocumentSettings) -> None:
        super().__init__(size, settings)
        score = SegmentDistanceScore if settings.relative else Score
        attention = SelfAttention(size.attention, RowSpan(), score(size.attention))
        self.layer = TransformerBlock(size, attention) if settings.feed_forward else attention
        self.gate = nn.Linear(2 * size.dimension, size.dimension) if settings.gate else None
        self.norm = nn.LayerNorm(size.dimension)
        self.start = ZeroGate(size.dimension) if size.neutral_start else None
        self.dropout = Dropout(size.dropout)

    @classmethod
    def reach(cls, settings: DocumentSettings, row: Reach) -> Reach:
        return row

    def forward(self, x: Tensor, layout: AnyLayout) -> Tensor:
        """Apply the layer to rows of several sentences; return other rows unchanged: [N, D] -> [N, D]."""
        assert isinstance(layout, Layout)
        if layout.shared.source_sentences == 0 or not layout.has_several:
            return x
        return torch.where(layout.among_several, self._fused(x, layout), x)

    def _fused(self, local_ND: Tensor, layout: Layout) -> Tensor:
        wide_ND = self.layer(local_ND, layout)
        if isinstance(self.layer, SelfAttention):
            wide_ND = self.dropout(wide_ND)
        # Under autocast, the output has a lower precision than the input.
        wide_ND = wide_ND.to(local_ND.dtype)
        if self.gate is None:
            fused = local_ND + wide_ND
        else:
            fused = torch.lerp(
                local_ND, wide_ND, joint(self.gate, local_ND, wide_ND).sigmoid().to(local_ND.dtype)
            )
        out: Tensor = self.norm(fused)
        return out if self.start is None else self.start(local_ND, out)
