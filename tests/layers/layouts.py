"""What stands around an attention that is tried alone: its rows, the source that it reads, and tables."""

from torch import Tensor

from cotext.layers.layout import Layout, Packed, Shared
from cotext.layers.multi_head import CrossAttention
from cotext.layers.positions import PositionTable
from cotext.layers.state import SourceSide


def layout(
    sentence: Tensor,
    dimension: int = 8,
    *,
    packed: Packed | None = None,
    causal: bool = False,
    source: SourceSide | None = None,
    relative: Tensor | None = None,
    source_sentences: int | None = None,
) -> Layout:
    """Complete rows of these sentences, -1 on padding, in double precision."""
    shared = Shared(PositionTable(dimension).double(), relative, source_sentences)
    rows = Layout(sentence, packed or Packed(), causal=causal, source=source)
    return rows.bound(shared, source)


def source_side(attention: CrossAttention, memory: Tensor, sentence: Tensor) -> SourceSide:
    """Source states [B, S, D] as one cross-attention reads them."""
    rows = layout(sentence, memory.size(-1))
    return SourceSide([attention.project(rows.pack(memory), rows)], sentence)
