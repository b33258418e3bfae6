"""Transformer (Vaswani et al. 2017), the baseline that every other system departs from.

With one sentence a row it is the sentence model; with windows of sentences, the concatenation model of
Lupo et al. 2022, whose segment-shifted positions and segment embeddings are settings of its embedding.

    source -> embedding -> encoder blocks ----> keys and values
    target -> embedding -> decoder blocks <-----'  -> hidden -> embedding.weight -> logits

Shapes: B entries, R rows, S source tokens, T target tokens, D model, V vocabulary.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from cotext.data.batch import Source
from cotext.layers.blocks import DecoderBlock, EncoderBlock, SentenceEmbedding, Size, Stack
from cotext.layers.multi_head import CrossAttention, SelfAttention
from cotext.layers.positions import mean_sentence_length, ranks
from cotext.layers.stacks import decode_rows, encode_rows
from cotext.layers.state import DecoderState
from cotext.models.interface import TranslationModel


class Transformer(TranslationModel):
    """Encoder and decoder over one shared embedding.

    `shift` is the segment shift: a number of positions, or `sequence` for the mean sentence length of the
    row's *source* window, on both sides: while decoding, the target's own mean is not known yet.
    """

    def __init__(
        self, size: Size, embedding: SentenceEmbedding, shift: int | Literal["sequence"] = 0
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.shift = shift
        self.encoder = Stack(
            EncoderBlock(size, SelfAttention(*size.attention)) for _ in range(size.encoder_layers)
        )
        self.decoder = Stack(
            DecoderBlock(size, SelfAttention(*size.attention), CrossAttention(*size.attention))
            for _ in range(size.decoder_layers)
        )
        # Pre-norm leaves the last block's output unnormalised; post-norm needs nothing here.
        self.encoder_norm = nn.LayerNorm(size.dimension) if size.pre_norm else nn.Identity()
        self.decoder_norm = nn.LayerNorm(size.dimension) if size.pre_norm else nn.Identity()

    @property
    def output_weight(self) -> Tensor:
        """The output layer, shared with the embedding: [V, D]."""
        return self.embedding.weight

    def encode(self, source: Source) -> DecoderState:
        """Read the source and project it for the cross-attention of every decoder block."""
        sentence = source.sentence
        t = torch.arange(sentence.size(1), device=sentence.device).expand_as(sentence)
        shift = mean_sentence_length(sentence) if self.shift == "sequence" else None
        x_BSD = self.embedding(source.tokens, sentence, t, ranks(sentence), self._shift(shift))
        cross, mask = encode_rows(self.encoder, self.encoder_norm, x_BSD, sentence, self.decoder)
        return DecoderState(cross=cross, cross_mask=mask, shift=shift)

    def decode(self, tokens: Tensor, sentence: Tensor, state: DecoderState) -> Tensor:
        """Decoder inputs and their sentences [R, T] -> hidden states [R, T, D]; see `AutoregressiveModel`."""
        t, rank = state.places(sentence)
        told = self.embedding.input_sentence(sentence, state.sentence)
        x_RTD = self.embedding(tokens, told, t, rank, self._shift(state.shift))
        return decode_rows(self.decoder, self.decoder_norm, x_RTD, sentence, rank, state)

    def _shift(self, per_row: Tensor | None) -> Tensor | int:
        return per_row if per_row is not None else int(self.shift)
