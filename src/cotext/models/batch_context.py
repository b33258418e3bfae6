"""The slot `model.batch_context`: attention between the rows of a batch, before the first block.

Shapes: B entries, R rows, S source tokens, T target tokens, D model, V vocabulary.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from cotext.data.batch import Source
from cotext.layers.embedding import Side
from cotext.layers.flat_batch import RowOrder
from cotext.layers.layouts import ContextLayout
from cotext.layers.state import TargetContext


class Embedder(Protocol):
    """Embeddings of complete rows, for the parts of a model."""

    @property
    def weight(self) -> Tensor:
        """Embeddings of all target tokens: [V, D]."""

    def bare(self, source: Source) -> Tensor:
        """Return source embeddings without positions, [B, S] -> [B, S, D]."""

    def source(self, source: Source, behind: int = 0) -> Tensor:
        """Embed source rows, [B, S] -> [B, S, D], after `behind` extra tokens of their first sentence."""

    def target(self, tokens: Tensor, sentence: Tensor, source: Source) -> Tensor:
        """Embed complete decoder inputs of the rows of a source, [B, T] -> [B, T, D]."""

    def first(self, x_RD: Tensor, side: Side) -> Tensor:
        """Embed extra vectors before their rows: [R, D] -> [R, D]."""


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
    def read(self, source: Source, embed: Embedder, found: Any) -> Tensor:
        """Return embedded source rows [B, S', D] with context of other rows; `found`: see `source_layout`."""

    @abstractmethod
    def target(self, source: Source, embed: Embedder, found: Any) -> TargetContext | None:
        """Return the target side, with which the decoder attends to other rows; None if it does not."""
