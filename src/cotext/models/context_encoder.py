"""The slot `model.context_encoder`: context sentences of the source are encoded apart from the current ones.

    source row    c c c | x x x        context c -> context encoder ---.
                                       current x -> encoder <----------+
                                                       `-> decoder <---'      attention to the context

Each of the two parts is a separate sequence, with positions from its beginning. Blocks attend to the states
of the context by `ContextAttention`. Rows without context are translated as by the model without this slot.

Shapes: B rows, S source tokens, C context tokens, D model.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from cotext.data.batch import Source
from cotext.layers.blocks import ContextAttention, Size, Stack, Stacks, TransformerBlock
from cotext.layers.kernels.packing import moved_left
from cotext.layers.layout import Layout, Packed
from cotext.layers.positions import is_current
from cotext.layers.state import ContextSide
from cotext.models.row_embedder import RowEmbedder


@dataclass(frozen=True, slots=True)
class ContextRows:
    """The two parts of source rows, and the layout of the context part.

    In rows without context, the first current token stands in for it (`ContextSide.exists`).
    """

    current: Source
    context: Source
    layout: Layout
    side: ContextSide
    index: Tensor  # [B, S'], of the current tokens in the batch


class ContextEncoder(nn.Module, ABC):
    """Encodes context sentences; its subclasses insert `ContextAttention` into blocks.

    `extra_tokens`: number of tokens that it adds before the context.
    """

    extra_tokens: ClassVar[int] = 0

    def __init__(self, size: Size, layers: Sequence[TransformerBlock], stacks: Stacks) -> None:
        """`layers`: separate encoder blocks, as many as `model.context_layers`; `stacks` are changed."""
        super().__init__()
        self.layers, self.norm = Stack(layers), size.norm()

    def rows(self, source: Source, packed: Packed) -> ContextRows | None:
        """Divide source rows; return None if no row has context."""
        context = (source.sentence >= 0) & ~is_current(source.sentence, source.current)
        exists = context.any(dim=1)
        if not bool(exists.any()):
            return None
        current, current_index = _part(source, (source.sentence >= 0) & ~context)
        context[:, 0] |= ~exists
        part, index = _part(source, context)
        extra = part.sentence[:, : self.extra_tokens]
        sentence = torch.cat((extra, part.sentence), dim=1)
        index = torch.cat((torch.full_like(extra, -1), index.where(exists[:, None], -1)), dim=1)
        layout = Layout(sentence, packed, indices=index)
        return ContextRows(current, part, layout, ContextSide(sentence, exists, index), current_index)

    @abstractmethod
    def read(self, rows: ContextRows, layout: Layout, embed: RowEmbedder, encoder: Stack) -> Tensor:
        """Encode the context; return its states, packed by `layout`."""


def context_attentions(stacks: Stacks) -> list[ContextAttention]:
    """Number the context attentions of both stacks, and return them in this order."""
    blocks = (*stacks.encoder, *stacks.decoder)
    found = [b.context_attention.attention for b in blocks if b.context_attention is not None]
    for index, attention in enumerate(found):
        attention.index = index
    return found


def _part(source: Source, chosen_BS: Tensor) -> tuple[Source, Tensor]:
    """Return source rows of the chosen tokens only, moved to the left, and the former index of each token."""
    place = torch.arange(chosen_BS.numel(), device=chosen_BS.device).view_as(chosen_BS)
    sides = (source.tokens, 0), (source.sentence, -1), (place, -1)
    tokens, sentence, index = moved_left(chosen_BS, *sides)
    return replace(source, tokens=tokens, sentence=sentence, extra_rows=None, layouts=None), index
