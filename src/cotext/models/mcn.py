"""MCN (Zheng et al. 2020): local and global context of a document, any number of sentences long."""

from torch import Tensor

from cotext.data.batch import Source
from cotext.layers.blocks import SentenceEmbedding, Size
from cotext.layers.state import DecoderState
from cotext.models.base import TranslationModel


class MCN(TranslationModel):
    """Encoder of local layers below a global one; decoder that remembers the sentences before."""

    def __init__(
        self,
        size: Size,
        embedding: SentenceEmbedding,
        local: bool = True,
        relative: bool = True,
        gate: bool = True,
        xl: bool = True,
        memory_sentences: int = 1,
        context: int | None = None,
    ) -> None:
        super().__init__()
        raise NotImplementedError

    @property
    def output_weight(self) -> Tensor:
        """The output layer, shared with the embedding: [V, D]."""
        raise NotImplementedError

    def encode(self, source: Source) -> DecoderState:
        """Read the source."""
        raise NotImplementedError

    def decode(self, tokens: Tensor, sentence: Tensor, state: DecoderState) -> Tensor:
        """Decoder inputs and their sentences [R, T] -> hidden states [R, T, D]."""
        raise NotImplementedError
