"""What fills the slot `model.batch_context`: rows of a batch that see each other before the first block.

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
from cotext.layers.state import DecoderState


class Embedder(Protocol):
    """The embeddings of complete rows, as the parts of a model may ask for them."""

    @property
    def weight(self) -> Tensor:
        """Vectors of all target tokens: [V, D]."""

    def bare(self, source: Source) -> Tensor:
        """Vectors of source tokens alone, [B, S] -> [B, S, D]."""

    def source(self, source: Source, behind: int = 0) -> Tensor:
        """Source rows, [B, S] -> [B, S, D]; `behind` so many tokens of their first sentence."""

    def target(self, tokens: Tensor, sentence: Tensor, source: Source) -> Tensor:
        """Complete decoder inputs of the rows of a source, [B, T] -> [B, T, D]."""

    def first(self, x_RD: Tensor, side: Side) -> Tensor:
        """Vectors that stand in front of their rows: [R, D] -> [R, D]."""


class TargetContext(ABC):
    """What a decoder sees of other rows: a part of its state, see `StatePart`."""

    extra_slots: int = 0

    def open(self, state: DecoderState) -> None:  # noqa: B027
        """See `StatePart`."""

    def finish(self, entries: Tensor, tokens: Tensor, sentence: Tensor) -> None:  # noqa: B027
        """See `StatePart`."""

    @abstractmethod
    def select(self, entries: Tensor) -> None:
        """See `StatePart`."""

    def select_rows(self, rows: Tensor) -> None:  # noqa: B027
        """See `StatePart`."""

    def extend(self, sentence: Tensor, state: DecoderState) -> Tensor:
        """Sentence indices of decoder inputs, those of extra tokens in front: [R, T] -> [R, T']."""
        return sentence

    @abstractmethod
    def mix(self, x_RTD: Tensor, sentence: Tensor, state: DecoderState) -> Tensor:
        """Embedded decoder inputs [R, T, D] and what they see of other rows -> [R, T', D]."""


@dataclass(frozen=True, slots=True)
class BatchSides:
    """On which sides rows see each other; `cross_document`: in training, those of other documents too."""

    source: bool = True
    target: bool = True
    cross_document: bool = False


class BatchContext(nn.Module, ABC):
    """Rows of a document that see each other before the first block."""

    def __init__(self, sides: BatchSides) -> None:
        super().__init__()
        self.sides = sides

    def order_of(self, source: Source, training: bool) -> RowOrder:
        """Order of the rows of a source, and which of them meet."""
        crosses = self.sides.cross_document and training
        return RowOrder.of(source.document, source.first_sentence, source.current, crosses)

    def left_out(self) -> bool:
        """Whether the next batch is read without it; a draw, while it is blended in."""
        return False

    def source_layout(self, source: Source, training: bool) -> ContextLayout:
        """What it needs of source rows that follows from their indices alone."""
        return ContextLayout(source.sentence)

    @abstractmethod
    def target_layout(self, source: Source, sentence: Tensor, training: bool) -> ContextLayout:
        """The same of complete target rows, whose decoder inputs are of `sentence` [B, T]."""

    @abstractmethod
    def read(self, source: Source, embed: Embedder, found: Any) -> Tensor:
        """Embedded source rows [B, S', D], with what they see of others; `found` by `source_layout`."""

    @abstractmethod
    def target(self, source: Source, embed: Embedder, found: Any) -> TargetContext | None:
        """What the decoder is to see of other rows, if anything."""
