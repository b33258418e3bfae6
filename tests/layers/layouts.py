"""What stands around an attention that is tried alone: its rows, the source that it reads, and tables."""

from collections.abc import Sequence

import torch
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


def doubles(*shape: int, seed: int = 0) -> Tensor:
    """Random numbers of the normal distribution, in double precision."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def sentences(rows: Sequence[Sequence[int]], first: int = 0) -> Tensor:
    """Sentence indices [B, T] of rows with sentences of these lengths, from `first` on; -1 on padding."""
    indices = [
        torch.arange(first, first + len(row)).repeat_interleave(torch.tensor(row, dtype=torch.long))
        for row in rows
    ]
    return torch.nn.utils.rnn.pad_sequence(indices, batch_first=True, padding_value=-1)
