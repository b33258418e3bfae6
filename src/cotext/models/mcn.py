"""Global context over local states (MCN; Zheng et al. 2020), for documents of any number of sentences.

The encoder reads every sentence by itself. On top of its layers, an additional one sees the whole row, with
vectors for how many sentences apart two tokens are; a gate mixes the two:

    hL = local layers of the sentence               hG = a layer over the row, of hL
    g = sigmoid(W [hL; hG] + b)                     h = LayerNorm((1 - g) * hL + g * hG)

A sentence that has no other to see keeps h = hL, also beside rows of many sentences: one model for sentences
and documents. The decoder translates sentence after sentence, and target sentence k sees source sentence k.
It has relative positions alone and remembers sentences before (`layers/transformer_xl.py`).

Shapes: N real tokens of all rows, D model.
"""

import torch
from torch import Tensor, nn

from cotext.layers.blocks import EncoderBlock, Size
from cotext.layers.gate import joint
from cotext.layers.kernels.dropout import Dropout
from cotext.layers.layout import AnyLayout, Layout
from cotext.layers.multi_head import RowSpan, Score, SelfAttention
from cotext.layers.segment_distance import SegmentDistanceScore
from cotext.layers.start import ZeroGate
from cotext.models.interface import DocumentLayer, DocumentSettings, Reach


class SegmentGate(DocumentLayer):
    """The encoder's top layer: states of the row, mixed into states of the sentence.

    `relative`: attention that knows how many sentences apart two tokens are. Without `gate` the two are added
    before the layer norm. Without `feed_forward` the layer is its attention
    alone, hG = MultiHead(SegmentAttention(hL)) as printed in section 4.1; with it, it has the parameters that
    table 1 counts. Where training starts from a sentence model, h passes a gate that begins at zero.
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
        """All that attention over rows sees."""
        return row

    def forward(self, x: Tensor, layout: AnyLayout) -> Tensor:
        """Let the rows of several sentences see themselves; the others stay as they are: [N, D] -> [N, D]."""
        assert isinstance(layout, Layout)
        found = None if layout.shared.source_sentences == 0 else layout.several
        if found is None:
            return x
        which_M, rows = found
        if which_M is None:
            return self._fused(x, layout)
        return x.index_copy(0, which_M, self._fused(x.index_select(0, which_M), rows.bound(layout.shared)))

    def _fused(self, local_ND: Tensor, layout: Layout) -> Tensor:
        wide_ND = self.layer(local_ND, layout)
        if isinstance(self.layer, SelfAttention):
            wide_ND = self.dropout(wide_ND)
        # With mixed precision, products come in less of it than the stream.
        wide_ND = wide_ND.to(local_ND.dtype)
        if self.gate is None:
            fused = local_ND + wide_ND
        else:
            fused = torch.lerp(
                local_ND, wide_ND, joint(self.gate, local_ND, wide_ND).sigmoid().to(local_ND.dtype)
            )
        out: Tensor = self.norm(fused)
        return out if self.start is None else self.start(local_ND, out)
