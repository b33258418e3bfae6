"""What tests of attention share: rows and their layouts, random numbers, attention in plain products."""

import math
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


def attended(query: Tensor, keys: Tensor, values: Tensor, heads: int = 2) -> Tensor:
    """Attention of one query [D] to keys and values [S, D], head by head, without projections."""
    parts = zip(query.chunk(heads), keys.chunk(heads, dim=1), values.chunk(heads, dim=1), strict=True)
    return torch.cat([(k @ q / math.sqrt(len(q))).softmax(dim=0) @ v for q, k, v in parts])
