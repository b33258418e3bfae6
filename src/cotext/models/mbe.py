"""Mini-batch embedding (MBE; Morishita et al. 2021, as Wu et al. 2023 compare with it).

The mean of the embeddings of all source tokens of the batch stands before every row, on the source and on the
target side, as one more token of its first sentence; everything above is the baseline:

    mean a b c eos -> encoder -> keys and values        mean bos x y -> decoder

Words alone are averaged, without positions. The rows of a document have a mean of their own, extra rows
included; in the paper all rows share one (`cross_document`, in training: a document alone decides its
translation).

Shapes: B entries, R rows, S source tokens, T target tokens, D model.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from cotext.data.batch import Source
from cotext.layers.blocks import DecoderBlock, EncoderBlock, SentenceEmbedding, Size, Stack
from cotext.layers.multi_head import CrossAttention, SelfAttention
from cotext.layers.positions import ranks
from cotext.layers.stacks import decode_rows, encode_rows
from cotext.layers.state import DecoderState
from cotext.models.interface import TranslationModel


@dataclass(slots=True, kw_only=True)
class BatchEmbeddingState(DecoderState):
    """A state whose rows begin with a token that nobody wrote."""

    mean: Tensor  # [B, D]

    def open(self, places: int) -> None:
        """Allocate caches for `places` tokens a row, padding included, and the mean."""
        DecoderState.open(self, places + 1)

    def select(self, entries: Tensor, beam: int) -> None:
        """Keep the given entries [B'] with all `beam` rows of each."""
        DecoderState.select(self, entries, beam)
        self.mean = self.mean.index_select(0, entries)


class BatchEmbedding(TranslationModel):
    """Encoder and decoder over one shared embedding; the mean can be left out on either side.

    With both left out it is the baseline.
    """

    sees_other_rows = True

    def __init__(
        self,
        size: Size,
        embedding: SentenceEmbedding,
        source: bool = True,
        target: bool = True,
        cross_document: bool = False,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.source, self.target, self.cross_document = source, target, cross_document
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
        """Read the source and project it for the cross-attention of every decoder block."""
        mean_BD = self._mean(source)
        sentence = _begun(source.sentence) if self.source else source.sentence
        t = torch.arange(sentence.size(1), device=sentence.device).expand_as(sentence)
        x_BSD = self._embedded(source.tokens, sentence, t, ranks(sentence), mean_BD)
        cross, mask = encode_rows(self.encoder, self.encoder_norm, x_BSD, sentence, self.decoder)
        if not self.target:
            return DecoderState(cross=cross, cross_mask=mask)
        return BatchEmbeddingState(cross=cross, cross_mask=mask, mean=mean_BD)

    def decode(self, tokens: Tensor, sentence: Tensor, state: DecoderState) -> Tensor:
        """Decoder inputs and their sentences [R, T] -> hidden states [R, T, D]; see `AutoregressiveModel`."""
        mean_RD = tokens.new_empty(0)
        if isinstance(state, BatchEmbeddingState) and state.length is None:
            sentence = _begun(sentence)
            mean_RD = state.mean.repeat_interleave(state.beam, dim=0)
        t, rank = state.places(sentence)
        told = self.embedding.input_sentence(sentence, state.sentence)
        x_RTD = self._embedded(tokens, told, t, rank, mean_RD)
        hidden_RTD = decode_rows(self.decoder, self.decoder_norm, x_RTD, sentence, rank, state)
        return hidden_RTD[:, -tokens.size(1) :]

    def _embedded(self, tokens: Tensor, sentence: Tensor, t: Tensor, rank: Tensor, mean_RD: Tensor) -> Tensor:
        """Tokens [R, T], after the mean where `sentence`, `t` and `rank` have a place for it."""
        if sentence.size(1) == tokens.size(1):
            x_RTD: Tensor = self.embedding(tokens, sentence, t, rank, 0)
            return x_RTD
        x_RTD = self.embedding(tokens, sentence[:, 1:], t[:, 1:], rank[:, 1:], 0)
        first = self.embedding.dropout(mean_RD + self.embedding.table(t[:, 0]))
        return torch.cat((first[:, None], x_RTD), dim=1)

    def _mean(self, source: Source) -> Tensor:
        """Of the words of all rows that belong together, for every row that is answered for: [B, D]."""
        sides = [source] if source.extra_rows is None else [source, source.extra_rows.source]
        sums, counts = zip(*(self._sum(side) for side in sides), strict=True)
        sum_D, count = torch.cat(sums), torch.cat(counts)
        document = torch.cat([side.document for side in sides])
        crosses = self.cross_document and self.training
        distinct, group = torch.unique(document * (not crosses), return_inverse=True)
        sum_GD = sum_D.new_zeros(len(distinct), sum_D.size(1)).index_add(0, group, sum_D)
        count_G = count.new_zeros(len(distinct), 1).index_add(0, group, count)
        return (sum_GD / count_G)[group[: len(source.document)]]

    def _sum(self, source: Source) -> tuple[Tensor, Tensor]:
        """Of the words of each row, and how many they are: [R, D], [R, 1]."""
        real_RS = (source.sentence >= 0).to(self.embedding.weight.dtype)
        words_RSD = embedding(source.tokens, self.embedding.weight) * self.embedding.scale
        return (words_RSD * real_RS[:, :, None]).sum(dim=1), real_RS.sum(dim=1, keepdim=True)


def _begun(sentence: Tensor) -> Tensor:
    """Rows with one more token in their first sentence: [R, T] sentence indices -> [R, 1 + T]."""
    return torch.cat((sentence[:, :1], sentence), dim=1)
