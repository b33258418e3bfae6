"""The slot `model.batch_context`: attention between the rows of a batch, before the first block.

Shapes: B entries, R rows, E finished entries, S source tokens, T target tokens, D model.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cotext.data.batch import Source
from cotext.layers.flat_batch import ExtraKeys, RowOrder
from cotext.layers.layout import ContextLayout
from cotext.layers.state import TargetContext
from cotext.models.row_embedder import RowEmbedder


@dataclass(frozen=True, slots=True)
class BatchSides:
    """The sides on which rows attend to each other; `cross_document`: in training, also between documents."""

    source: bool = True
    target: bool = True
    cross_document: bool = False


class BatchContext(nn.Module, ABC):
    """Attention between the rows of a document before the first block."""

    def __init__(self, sides: BatchSides) -> None:
        super().__init__()
        self.sides = sides

    def order_of(self, source: Source, training: bool) -> RowOrder:
        """Return the order of the rows of a source, and their groups."""
        crosses = self.sides.cross_document and training
        return RowOrder.of(source.document, source.first_sentence, source.current, crosses)

    def left_out(self) -> bool:
        """Whether to skip this attention for the next batch; random while it is blended in."""
        return False

    def source_layout(self, source: Source, training: bool) -> ContextLayout:
        """Return the data about source rows that depend only on their indices, such as masks."""
        return ContextLayout(source.sentence)

    @abstractmethod
    def target_layout(self, source: Source, sentence: Tensor, training: bool) -> ContextLayout:
        """Return such data for complete target rows with inputs of `sentence` [B, T]."""

    @abstractmethod
    def read(self, source: Source, embed: RowEmbedder, found: Any) -> Tensor:
        """Return embedded source rows [B, S', D] with context of other rows; `found`: see `source_layout`."""

    @abstractmethod
    def target(self, source: Source, embed: RowEmbedder, found: Any) -> TargetContext | None:
        """Return the target side, with which the decoder attends to other rows; None if it does not."""


class RowsTarget(TargetContext):
    """A target side on which rows attend to complete rows of their document.

    `complete`: the keys that they attend to. First come the extra rows, then rows that are finished.
    """

    def __init__(self, parent: BatchContext, source: Source, embed: RowEmbedder) -> None:
        self.embed, self.source = embed, source
        self.rows = parent.order_of(source, parent.training)
        hidden = embed.weight.new_empty(0, embed.weight.size(1))
        self.complete = ExtraKeys(hidden, self.rows.take(self.rows.group.new_empty(0)))
        if source.extra_rows is not None:
            given, other = source.extra_rows, source.extra_rows.source
            order = parent.order_of(other, parent.training)
            self.complete = self.keys_of(given.target_input, given.input_sentence, other, order)

    @abstractmethod
    def keys_of(self, tokens: Tensor, sentence: Tensor, source: Source, order: RowOrder) -> ExtraKeys:
        """Return keys of complete rows [R, T], to which other rows attend; `order` [R]: of complete rows."""

    def finish(self, entries: Tensor, tokens: Tensor, sentence: Tensor) -> None:
        """Add finished rows to the complete rows: decoder inputs [E, T], -1 on padding."""
        ended = self.keys_of(tokens, sentence, self.source.select(entries), self.rows.take(entries))
        hidden = torch.cat((self.complete.hidden, ended.hidden))
        self.complete = ExtraKeys(hidden, self.complete.order.join(ended.order))

    def select(self, entries: Tensor) -> None:
        self.source = self.source.select(entries)
        self.rows = self.rows.take(entries)
        # No remaining row attends to a document that is finished completely.
        order = self.complete.order
        needed = torch.isin(order.group, self.rows.group).nonzero().flatten()
        self.complete = ExtraKeys(self.complete.hidden[needed], order.take(needed))
