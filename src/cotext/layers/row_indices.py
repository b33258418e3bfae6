"""What a model asks of the rows of a batch that follows from their sentence indices alone.

It can be found on the CPU, before the batch is on the device: which tokens are real, buckets of sentences,
masks, counts. Where it was not, the model finds it in its forward pass.
"""

from dataclasses import dataclass

from torch import Tensor

from cotext.layers.layout import Layout
from cotext.layers.state import SourceSide


@dataclass(frozen=True, slots=True)
class RowIndices:
    """The layouts of a batch.

    `source` lays out the rows that are read; `side` is what cross-attention sees of them, without keys and
    values; `target` lays out the rows that are written, where they are known. `context` is what a batch
    context found. `shift`: positions of no token move by more.
    """

    source: Layout
    side: SourceSide
    target: Layout | None = None
    context: object | None = None
    shift: int = 0

    def source_layout(self, sentence: Tensor) -> Layout | None:
        """The layout of these source rows, if it is known."""
        return self.source if sentence is self.source.sentence else None

    def target_layout(self, sentence: Tensor) -> Layout | None:
        """The same of target rows."""
        return self.target if self.target is not None and sentence is self.target.sentence else None
