"""Attention between datapoints (ABD; Kossen et al. 2021, as Wu et al. 2023 adapt it in appendix C).

Rows of a document meet as one vector each: the means of their embeddings attend to each other, and what a row
saw is added to all its tokens, before the first block:

    H' = norm(H + MHSA(mean of each row))                                              equation 11

That is the source, which is known as a whole. On the target, rows are windows that overlap, and the mean of
an earlier row is made of words that the context labels of a later one have yet to predict. So rows meet
there as in flat-batch attention, whose place ABD takes in the paper: by their current sentences alone, and
context passes as it is.

    row 1    x x a a        mean of row 1: (a + a) / 2; `x` and `y` neither show nor see anything
    row 2    y y a b b      the first b sees b, and the mean of row 1; the second (b + b) / 2, and the same

A current token sees the mean of the current tokens of its row up to itself, and complete means of the rows
that end before the current sentences of its row begin: in no way what stands at or behind it in its document.

Rows of different documents do not meet; in the paper they do (`cross_document`, in training: a document alone
decides its translation). ExtraRows take part with the means of their embeddings.

Shapes: B entries, R rows, S source tokens, T target tokens, W beams, Q = W * T, N rows whose means are seen,
M complete ones, m of them before an entry, D model, H heads, K per head.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cotext.data.batch import Source
from cotext.layers.blocks import DecoderBlock, EncoderBlock, SentenceEmbedding, Size, Stack
from cotext.layers.flat_batch import ExtraKeys, RowOrder, is_current
from cotext.layers.kernels.dropout import Dropout
from cotext.layers.kernels.sdpa import Places, attend
from cotext.layers.multi_head import CrossAttention, SelfAttention, merge_heads, projection, split_heads
from cotext.layers.positions import ranks
from cotext.layers.stacks import decode_rows, encode_rows
from cotext.layers.state import DecoderState
from cotext.models.interface import TranslationModel


@dataclass(slots=True, kw_only=True)
class DatapointsState(DecoderState):
    """What attention between datapoints knows of the target.

    `complete` are the means of rows that are seen and will not change: extra rows, then rows that have ended.
    """

    rows: RowOrder  # [B]
    current: Tensor  # [B, 2]
    complete: ExtraKeys
    mean: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]  # see `Datapoints._written`
    total: Tensor | None = None  # [R, 1, D], sum of the current embeddings so far
    count: Tensor | None = None  # [R, 1, 1]

    def running(self, x_RTD: Tensor, current_RT: Tensor) -> tuple[Tensor, Tensor]:
        """Mean of the current tokens of each row up to every token, and how many they are.

        [R, T, D], [R, T, 1]; zeros where there are none. An open state keeps the last.
        """
        counted = current_RT[:, :, None].to(x_RTD.dtype)
        total, count = (x_RTD * counted).cumsum(dim=1), counted.cumsum(dim=1)
        if self.total is not None and self.count is not None:
            total, count = total + self.total, count + self.count
        if self.caches:
            self.total, self.count = total[:, -1:], count[:, -1:]
        return total / count.clamp(min=1), count

    def finish(self, entries: Tensor, tokens: Tensor, sentence: Tensor) -> None:
        """Keep the means of ended rows, for those that go on: decoder inputs [E, T], -1 on padding."""
        ended, written = self.mean(tokens, sentence, self.current[entries])
        means = torch.cat((self.complete.hidden, ended))
        self.complete = ExtraKeys(means, self.complete.standing.join(self.rows.take(entries[written])))

    def select(self, entries: Tensor, beam: int) -> None:
        """Keep the given entries [B'] with all `beam` rows of each."""
        DecoderState.select(self, entries, beam)
        self.rows = self.rows.take(entries)
        self.current = self.current.index_select(0, entries)
        # What ended in documents that are done is nobody's concern.
        standing = self.complete.standing
        needed = torch.isin(standing.group, self.rows.group).nonzero().flatten()
        self.complete = ExtraKeys(self.complete.hidden[needed], standing.take(needed))

    def _select_rows(self, rows: Tensor) -> None:
        DecoderState._select_rows(self, rows)
        if self.total is not None and self.count is not None:
            self.total, self.count = self.total.index_select(0, rows), self.count.index_select(0, rows)


class DatapointAttention(nn.Module):
    """Multi-head attention between the means of rows, and the way back into the rows."""

    def __init__(self, dimension: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = Dropout(dropout)
        self.qkv = projection(dimension, 3)
        self.out = projection(dimension)
        self.norm = nn.LayerNorm(dimension)

    def forward(self, x_BSD: Tensor, mean_ND: Tensor, sees_BN: Tensor, current_BS: Tensor) -> Tensor:
        """Rows [B, S, D], whose means are the first of N, and which means each sees -> [B, S, D].

        For whoever watches, a row is the first of its current tokens.
        """
        rows = len(x_BSD)

        def places() -> Places:
            place_B = current_BS.byte().argmax(dim=1) + torch.arange(rows, device=x_BSD.device) * x_BSD.size(
                1
            )
            beside = place_B.new_full((len(mean_ND) - rows,), -1)
            return Places(place_B[None], torch.cat((place_B, beside))[None])

        q, k, v = (split_heads(part[None], self.heads) for part in self.qkv(mean_ND).chunk(3, dim=-1))
        dropout = self.dropout.rate if self.training else 0.0
        mixed = merge_heads(attend(q[:, :, :rows], k, v, sees_BN, False, dropout, places))
        out_BSD: Tensor = self.norm(x_BSD + self.out(mixed)[0, :, None])
        return out_BSD

    def causal(self, x_BQD: Tensor, running_BQD: Tensor, complete_MD: Tensor, sees_BM: Tensor) -> Tensor:
        """Tokens [B, Q, D] -> [B, Q, D]: each sees the mean of its row so far and complete ones of others."""
        size = x_BQD.size(2)
        count = max(1, int(sees_BM.sum(dim=1).max()))
        index_Bm = (~sees_BM).byte().argsort(dim=1, stable=True)[:, :count]
        q, own_k, own_v = (split_heads(p, self.heads) for p in self.qkv(running_BQD).chunk(3, dim=-1))
        own_score = (q * own_k).sum(dim=-1, keepdim=True)
        key_value = nn.functional.linear(complete_MD, self.qkv.weight[size:], self.qkv.bias[size:])
        k, v = (split_heads(part, self.heads) for part in key_value[index_Bm].chunk(2, dim=-1))
        hidden = ~sees_BM.gather(1, index_Bm)[:, None, None]
        scores = (q @ k.transpose(-2, -1)).masked_fill(hidden, -torch.inf)
        scores = torch.cat((scores, own_score), dim=-1) * q.size(-1) ** -0.5
        weights = self.dropout(scores.softmax(dim=-1))
        mixed = weights[..., :count] @ v + weights[..., count:] * own_v
        out_BQD: Tensor = self.norm(x_BQD + self.out(merge_heads(mixed)))
        return out_BQD


class Datapoints(TranslationModel):
    """Encoder and decoder over one shared embedding; attention between datapoints on either side.

    With both sides left out it is the baseline.
    """

    sees_other_rows = True

    def __init__(
        self,
        size: Size,
        embedding: SentenceEmbedding,
        source: bool = True,
        target: bool = False,
        cross_document: bool = False,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.cross_document = cross_document
        self.encoder = Stack(
            EncoderBlock(size, SelfAttention(*size.attention)) for _ in range(size.encoder_layers)
        )
        self.decoder = Stack(
            DecoderBlock(size, SelfAttention(*size.attention), CrossAttention(*size.attention))
            for _ in range(size.decoder_layers)
        )
        self.encoder_norm = nn.LayerNorm(size.dimension) if size.pre_norm else nn.Identity()
        self.decoder_norm = nn.LayerNorm(size.dimension) if size.pre_norm else nn.Identity()
        self.source_rows = DatapointAttention(*size.attention) if source else None
        self.target_rows = DatapointAttention(*size.attention) if target else None

    @property
    def output_weight(self) -> Tensor:
        """The output layer, shared with the embedding: [V, D]."""
        return self.embedding.weight

    def encode(self, source: Source) -> DecoderState:
        """Read the source and project it for the cross-attention of every decoder block."""
        sentence, rows, extra_rows = source.sentence, self._standing(source), source.extra_rows
        x_BSD = self._embedded(source.tokens, sentence)
        if self.source_rows is not None:
            means, group = _means(x_BSD, sentence >= 0), rows.group
            if extra_rows is not None:
                beside = extra_rows.source
                x_CSD = self._embedded(beside.tokens, beside.sentence)
                means = torch.cat((means, _means(x_CSD, beside.sentence >= 0)))
                group = torch.cat((group, self._standing(beside).group))
            current_BS = is_current(sentence, source.current)
            x_BSD = self.source_rows(x_BSD, means, rows.group[:, None] == group, current_BS)
        cross, mask = encode_rows(self.encoder, self.encoder_norm, x_BSD, sentence, self.decoder)
        if self.target_rows is None:
            return DecoderState(cross=cross, cross_mask=mask)
        complete = ExtraKeys(x_BSD.new_empty(0, x_BSD.size(2)), rows.take(rows.group.new_empty(0)))
        if extra_rows is not None:
            beside = extra_rows.source
            means, written = self._written(extra_rows.target_input, extra_rows.input_sentence, beside.current)
            complete = ExtraKeys(means, self._standing(beside).take(written))
        return DatapointsState(
            cross=cross,
            cross_mask=mask,
            rows=rows,
            current=source.current,
            complete=complete,
            mean=self._written,
        )

    def decode(self, tokens: Tensor, sentence: Tensor, state: DecoderState) -> Tensor:
        """Decoder inputs and their sentences [R, T] -> hidden states [R, T, D]; see `AutoregressiveModel`."""
        t, rank = state.places(sentence)
        told = self.embedding.input_sentence(sentence, state.sentence)
        x_RTD = self.embedding(tokens, told, t, rank, 0)
        if isinstance(state, DatapointsState) and self.target_rows is not None:
            x_RTD = self._beside_others(self.target_rows, x_RTD, sentence, state)
        return decode_rows(self.decoder, self.decoder_norm, x_RTD, sentence, rank, state)

    def _beside_others(
        self, attention: DatapointAttention, x_RTD: Tensor, sentence: Tensor, state: DatapointsState
    ) -> Tensor:
        """Embeddings of target tokens, the current ones with what they see: [R, T, D] -> [R, T, D]."""
        current_RT = is_current(sentence, state.current.repeat_interleave(state.beam, dim=0))
        running_RTD, count_RT1 = state.running(x_RTD, current_RT)
        # Of entries that are being written, the first beam; some have written context alone.
        complete = torch.cat((state.complete.hidden, running_RTD[:: state.beam, -1]))
        sees = state.rows.follows(state.complete.standing.join(state.rows))
        sees[:, len(state.complete.hidden) :] &= count_RT1[:: state.beam, -1, 0] > 0
        x, running = (y.reshape(len(sees), -1, y.size(2)) for y in (x_RTD, running_RTD))
        seen = attention.causal(x, running, complete, sees).view_as(x_RTD)
        return torch.where(current_RT[:, :, None], seen, x_RTD)

    def _standing(self, source: Source) -> RowOrder:
        crosses = self.cross_document and self.training
        return RowOrder.of(source.document, source.first_sentence, source.current, crosses)

    def _embedded(self, tokens: Tensor, sentence: Tensor, told: Tensor | None = None) -> Tensor:
        """Complete rows [R, T] -> [R, T, D]; `told`: the sentence that the embedding of each is given."""
        t = torch.arange(sentence.size(1), device=sentence.device).expand_as(sentence)
        x_RTD: Tensor = self.embedding(tokens, sentence if told is None else told, t, ranks(sentence), 0)
        return x_RTD

    def _written(self, tokens: Tensor, sentence: Tensor, current: Tensor) -> tuple[Tensor, Tensor]:
        """Means of the current target tokens of complete rows [R, T] that have any, [E, D]; which, [E]."""
        current_RT = is_current(sentence, current)
        written = current_RT.any(dim=1).nonzero().flatten()
        x_RTD = self._embedded(tokens, sentence, self.embedding.input_sentence(sentence, None))
        return _means(x_RTD[written], current_RT[written]), written


def _means(x_RTD: Tensor, counted_RT: Tensor) -> Tensor:
    """Of the tokens of each row that count: [R, D]."""
    counted = counted_RT[:, :, None].to(x_RTD.dtype)
    return (x_RTD * counted).sum(dim=1) / counted.sum(dim=1)
