"""Global context over local states (MCN; Zheng et al. 2020), for documents of any number of sentences.

The encoder reads every sentence separately. An additional layer on top covers the whole row, with vectors for
the distance of two tokens in sentences. A gate mixes local and global states:

    hL = local layers of the sentence               hG = a layer over the row, of hL
    g = sigmoid(W [hL; hG] + b)                     h = LayerNorm((1 - g) * hL + g * hG)

A row of a single sentence keeps h = hL, also in a batch with longer rows: one model for sentences and
documents. The decoder translates sentence by sentence; target sentence k attends to source sentence k. It has
only relative positions, and a memory of earlier sentences (`layers/transformer_xl.py`).

Shapes: N real tokens of all rows, D model.
"""

import torch
from torch import Tensor, nn

from cotext.layers.blocks import EncoderBlock, Size
from cotext.layers.int8_linear import joint
from cotext.layers.kernels.dropout import Dropout
from cotext.layers.layout import AnyLayout, Layout
from cotext.layers.multi_head import RowSpan, Score, SelfAttention
from cotext.layers.segment_distance import SegmentDistanceScore
from cotext.layers.start import ZeroGate
from cotext.models.interface import DocumentLayer, DocumentSettings, Reach


class SegmentGate(DocumentLayer):
    """The top layer of the encoder, which mixes states of the row into states of the sentence.

    `relative`: attention depends on the distance in sentences. Without `gate`, the two states are added
    before the layer norm. Without `feed_forward`, the layer is only its attention, hG =
    MultiHead(SegmentAttention(hL)), as printed in section 4.1; with it, it has the number of parameters in
    table 1. If training starts from a sentence model, h passes a gate that starts at zero.
    """

    by_sentence = True
    answers = ("several",)
    settings = ("relative", "gate", "feed_forward")

    def __init__(self, size: Size, settings: DocumentSettings) -> None:
        super().__init__(size, settings)
        score = SegmentDistanceScore if settings.relative else Score
        attention = SelfAttention(size.attention, RowSpan(), score(size.attention))
        self.layer = EncoderBlock(size, attention) if settings.feed_forward else attention
        self.gate = nn.Linear(2 * size.dimension, size.dimension) if settings.gate else None
        self.norm = nn.LayerNorm(size.dimension)
        self.start = ZeroGate(size.dimension) if size.neutral_start else None
        self.dropout = Dropout(size.dropout)

    @classmethod
    def reach(cls, settings: DocumentSettings, row: Reach) -> Reach:
        return row

    def forward(self, x: Tensor, layout: AnyLayout) -> Tensor:
        """Apply attention to rows of several sentences; others do not change: [N, D] -> [N, D]."""
        assert isinstance(layout, Layout)
        several = None if layout.shared.source_sentences == 0 else layout.several
        if several is None:
            return x
        which_M, rows = several
        if which_M is None:
            return self._fused(x, layout)
        return x.index_copy(0, which_M, self._fused(x.index_select(0, which_M), rows.bound(layout.shared)))

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
