"""Flat-Transformer (Ma et al. 2020): one encoder for context and current, its top for the current alone.

A source row is the context and the current sentence one after the other, told apart by a segment embedding.
The lower encoder blocks attend over the whole row; the top blocks, and the decoder, have the states of the
current sentence alone, which by then carry what they took from the context:

    context current -> embedding -> lower blocks -> the current sentence's states -> top blocks -> decoder

Where several sentences of a row are current they all go on. The segment is a matter of context or current,
not of which sentence it is; positions are those of the row.

Shapes: B entries, R rows, S source tokens, C current source tokens, T target tokens, D model, V vocabulary.
"""

import torch
from torch import Tensor, nn

from cotext.data.batch import Source
from cotext.layers.blocks import DecoderBlock, EncoderBlock, SentenceEmbedding, Size, Stack
from cotext.layers.kernels.packing import Ragged
from cotext.layers.masks import visible
from cotext.layers.multi_head import CrossAttention, SelfAttention
from cotext.layers.positions import ranks
from cotext.layers.stacks import decode_rows
from cotext.layers.state import DecoderState, SelfReach
from cotext.models.interface import TranslationModel

CURRENT, CONTEXT = 0, 1  # segments; all of the target is current


class FlatTransformer(TranslationModel):
    """Encoder and decoder over one shared embedding; the top `current_layers` encoder blocks see no context.

    Without context in its rows it is the baseline.
    """

    def __init__(self, size: Size, embedding: SentenceEmbedding, current_layers: int = 1) -> None:
        super().__init__()
        self.embedding = embedding
        self.context_layers = size.encoder_layers - current_layers
        self.encoder = Stack(
            EncoderBlock(size, SelfAttention(*size.attention)) for _ in range(size.encoder_layers)
        )
        self.decoder = Stack(
            DecoderBlock(size, SelfAttention(*size.attention), CrossAttention(*size.attention))
            for _ in range(size.decoder_layers)
        )
        self.encoder_norm = nn.LayerNorm(size.dimension) if size.pre_norm else nn.Identity()
        self.decoder_norm = nn.LayerNorm(size.dimension) if size.pre_norm else nn.Identity()

    @property
    def output_weight(self) -> Tensor:
        """The output layer, shared with the embedding: [V, D]."""
        return self.embedding.weight

    def encode(self, source: Source) -> DecoderState:
        """Read the source and project its current sentences for every cross-attention."""
        sentence = source.sentence
        first, stop = source.current[:, :1], source.current[:, 1:]
        is_current = (sentence >= first) & (sentence < stop)
        t = torch.arange(sentence.size(1), device=sentence.device).expand_as(sentence)
        segment = torch.where(is_current, CURRENT, CONTEXT)
        x = self.embedding(source.tokens, segment, t, ranks(sentence), 0)
        mask, ragged = visible(sentence), Ragged.of(sentence)
        x = x if ragged is None else ragged.pack(x)
        for block in list(self.encoder)[: self.context_layers]:
            x = block(x, (SelfReach(mask), ragged))
        x, mask, ragged = _keep(x, ragged, is_current)
        for block in list(self.encoder)[self.context_layers :]:
            x = block(x, (SelfReach(mask), ragged))
        x = self.encoder_norm(x)
        cross = [block.cross.project(x, ragged) for block in self.decoder]
        return DecoderState(cross=cross, cross_mask=mask)

    def decode(self, tokens: Tensor, sentence: Tensor, state: DecoderState) -> Tensor:
        """Decoder inputs and their sentences [R, T] -> hidden states [R, T, D]; see `AutoregressiveModel`."""
        t, rank = state.places(sentence)
        x_RTD = self.embedding(tokens, torch.full_like(sentence, CURRENT), t, rank, 0)
        return decode_rows(self.decoder, self.decoder_norm, x_RTD, sentence, rank, state)


def _keep(x: Tensor, ragged: Ragged | None, kept_BS: Tensor) -> tuple[Tensor, Tensor | None, Ragged | None]:
    """Go on with some of the tokens, moved up to the left: [B, C, D] or [N, D], their mask, ragged."""
    x_BSD = x if ragged is None else ragged.unpack(x)
    x_ND = Ragged(kept_BS).pack(x_BSD)
    count = kept_BS.sum(dim=1, keepdim=True)
    at_C = torch.arange(int(count.max()), device=x.device)
    real_BC = torch.where(at_C < count, 0, -1)
    fewer = Ragged.of(real_BC)
    x = x_ND if fewer is not None else x_ND.view(len(count), -1, x.size(-1))
    return x, visible(real_BC), fewer
