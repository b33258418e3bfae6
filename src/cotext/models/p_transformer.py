"""P-Transformer (Li et al. 2022): attention that is told again, in every layer, where its tokens stand.

In a plain Transformer positions enter once, at the bottom, and have vanished at the top of the encoder when a
row is a whole document: cross-attention cannot find its place any more. Here queries and keys are made from
H + P in every layer, values from H alone, and self-attention knows relative positions beside:

    self     softmax(((H + P) Wq ((H + P) Wk)^T + (H + P) Wq R^T) / sqrt(K)) H Wv          equations 10, 11
    cross    softmax((Ht + Pt) Wq ((Hs + Ps) Wk)^T / sqrt(K)) Hs Wv                       equation 7

P is sinusoidal and adds no parameters; R is one table for all heads, layers and both stacks. The printed
scale is sqrt(D); heads of size K are scaled by sqrt(K), as everywhere.

Shapes: B entries, R rows, S source tokens, T target tokens, D model, K per head, N real tokens of all rows.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from cotext.data.batch import Source
from cotext.layers.blocks import DecoderBlock, EncoderBlock, SentenceEmbedding, Size, Stack
from cotext.layers.kernels.packing import Ragged
from cotext.layers.kernels.relative import attend_at_distances, attend_relative
from cotext.layers.kernels.sdpa import attend
from cotext.layers.masks import visible
from cotext.layers.multi_head import merge_heads, projection, side_by_side, split_heads
from cotext.layers.positions import PositionTable, ranks
from cotext.layers.state import DecoderState, KeyValueCache, SelfReach
from cotext.models.interface import TranslationModel

SPAN = 512  # distances beyond it share the table's ends: no row of the paper is longer


class PositionAwareSelfAttention(nn.Module):
    """Self-attention whose queries and keys know absolute positions, and whose scores relative ones."""

    def __init__(self, dimension: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.qkv = projection(dimension, 3)
        self.out = projection(dimension)

    def forward(
        self,
        h_RTD: Tensor,
        p_RTD: Tensor | None,
        relative: Tensor | None,
        reach: SelfReach,
        ragged: Ragged | None = None,
        cache: KeyValueCache | None = None,
        distance_BTS: Tensor | None = None,
    ) -> Tensor:
        """[R, T, D] -> [R, T, D]; `distance_BTS`, of keys from queries, where they are not in order."""
        h = h_RTD if cache is None else side_by_side(h_RTD, cache.entries)
        p = p_RTD if p_RTD is None or cache is None else side_by_side(p_RTD, cache.entries)
        qkv = _aware(self.qkv, h, p, 2 * h.size(-1))
        if ragged is not None:
            qkv = ragged.unpack(qkv)
        q, k, v = (split_heads(part, self.heads) for part in qkv.chunk(3, dim=-1))
        if cache is not None:
            cache.write(k, v, reach.start)
            k, v = cache.read(reach.places)
        dropout = self.dropout if self.training else 0.0
        if relative is None:
            mixed = attend(q, k, v, reach.mask, reach.causal, dropout)
        elif distance_BTS is None:
            mixed = attend_relative(q, k, v, relative, reach.mask, reach.causal, dropout)
        else:
            mixed = attend_at_distances(q, k, v, relative, reach.mask, distance_BTS)
        merged = merge_heads(mixed)
        out_RTD: Tensor = self.out(merged if ragged is None else ragged.pack(merged)).view_as(h_RTD)
        return out_RTD


class PositionAwareCrossAttention(nn.Module):
    """Cross-attention whose queries and keys know the absolute positions of their own sides."""

    def __init__(self, dimension: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.query = projection(dimension)
        self.key_value = projection(dimension, 2)
        self.out = projection(dimension)

    def project(
        self, h_BSD: Tensor, p_BSD: Tensor | None, ragged: Ragged | None = None
    ) -> tuple[Tensor, Tensor]:
        """Keys, from H + P, and values, from H, of the source states: two [B, H, S, K]."""
        key_value = _aware(self.key_value, h_BSD, p_BSD, h_BSD.size(-1))
        k, v = (key_value if ragged is None else ragged.unpack(key_value)).chunk(2, dim=-1)
        return split_heads(k, self.heads), split_heads(v, self.heads)

    def forward(
        self,
        h_RTD: Tensor,
        p_RTD: Tensor | None,
        keys_values: tuple[Tensor, Tensor],
        mask: Tensor | None,
        ragged: Ragged | None = None,
    ) -> Tensor:
        """[R, T, D] -> [R, T, D]."""
        k, v = keys_values
        query = self.query(h_RTD if p_RTD is None else h_RTD + p_RTD)
        query = ragged.unpack(query) if ragged is not None else side_by_side(query, k.size(0))
        dropout = self.dropout if self.training else 0.0
        merged = merge_heads(attend(split_heads(query, self.heads), k, v, mask, False, dropout))
        out_RTD: Tensor = self.out(merged if ragged is None else ragged.pack(merged)).view_as(h_RTD)
        return out_RTD


def _aware(fused: nn.Linear, h: Tensor, p: Tensor | None, outputs: int) -> Tensor:
    """A fused projection whose first `outputs` numbers come from H + P, the others from H."""
    if p is None:
        projected: Tensor = fused(h)
        return projected
    weight, bias = fused.weight, fused.bias
    aware = linear(h + p, weight[:outputs], bias[:outputs])
    return torch.cat((aware, linear(h, weight[outputs:], bias[outputs:])), dim=-1)


class PTransformer(TranslationModel):
    """Encoder and decoder over one shared embedding; each part of the paper's idea can be switched off.

    With all four switches off, or P and the relative table zero, it is the baseline Transformer.
    """

    def __init__(
        self,
        size: Size,
        embedding: SentenceEmbedding,
        self_source: bool = True,
        self_target: bool = True,
        cross: bool = True,
        relative: bool = True,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.position = PositionTable(size.dimension)
        self.self_source, self.self_target, self.cross = self_source, self_target, cross
        # Zeros: relative positions are learned from the baseline's start.
        vectors = torch.zeros(2 * SPAN + 1, size.dimension // size.heads)
        self.relative = nn.Parameter(vectors) if relative else None
        self.encoder = Stack(
            EncoderBlock(size, PositionAwareSelfAttention(*size.attention))
            for _ in range(size.encoder_layers)
        )
        self.decoder = Stack(
            DecoderBlock(
                size,
                PositionAwareSelfAttention(*size.attention),
                PositionAwareCrossAttention(*size.attention),
            )
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
        sentence = source.sentence
        t = torch.arange(sentence.size(1), device=sentence.device).expand_as(sentence)
        mask, ragged = visible(sentence), Ragged.of(sentence)
        h = self.embedding(source.tokens, sentence, t, ranks(sentence), 0)
        p = self.position(t)
        if ragged is not None:
            h, p = ragged.pack(h), ragged.pack(p)
        own = (p if self.self_source else None, self.relative, SelfReach(mask), ragged)
        for block in self.encoder:
            h = block(h, own)
        h = self.encoder_norm(h)
        keys_from = p if self.cross else None
        cross = [block.cross.project(h, keys_from, ragged) for block in self.decoder]
        return DecoderState(cross=cross, cross_mask=mask)

    def decode(self, tokens: Tensor, sentence: Tensor, state: DecoderState) -> Tensor:
        """Decoder inputs and their sentences [R, T] -> hidden states [R, T, D]; see `AutoregressiveModel`."""
        t, rank = state.places(sentence)
        reach = state.reach(tokens.size(1), tokens.device)
        distance = state.distances(t) if state.used else None
        ragged = None if state.caches else Ragged.of(sentence)
        told = self.embedding.input_sentence(sentence, state.sentence)
        h = self.embedding(tokens, told, t, rank, 0)
        p = self.position(t)
        if ragged is not None:
            h, p = ragged.pack(h), ragged.pack(p)
        own_p, cross_p = p if self.self_target else None, p if self.cross else None
        for i, block in enumerate(self.decoder):
            cache = state.caches[i] if state.caches else None
            own = (own_p, self.relative, reach, ragged, cache, distance)
            h = block(h, own, (cross_p, state.cross[i], state.cross_mask, ragged))
        if state.caches:
            state.step(sentence, rank)
        h = self.decoder_norm(h)
        return h if ragged is None else ragged.unpack(h)
