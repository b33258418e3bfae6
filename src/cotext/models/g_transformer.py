"""G-Transformer (Bao et al. 2021): attention stays inside sentences, and only the top layers look beyond.

A Transformer that reads whole documents spreads its attention over far too many tokens and does not learn.
In this model every attention (encoder, decoder, from target to source) sees the sentence of its query alone:
target sentence k sees source sentence k. In the top layers a second, global attention with weights of its own
sees the whole row (of the target, what was written so far), and a gate mixes the two, number by number:

    g = sigmoid(W [local; global] + b)          out = g * local + (1 - g) * global

both after their output projections. Positions are absolute over the row. Sentences are set apart by brackets,
a begin and an end around each, and while decoding every sentence end moves on to the next source sentence.

Shapes: R rows, S source tokens, T target tokens, N real tokens of all rows, D model, V vocabulary.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from cotext.data.batch import Source
from cotext.layers.blocks import DecoderBlock, EncoderBlock, SentenceEmbedding, Size, Stack
from cotext.layers.buckets import LocalCrossAttention, LocalSelfAttention, Sentences, sentence_spans
from cotext.layers.masks import visible
from cotext.layers.multi_head import CrossAttention, SelfAttention
from cotext.layers.positions import ranks
from cotext.layers.state import DecoderState, SelfReach
from cotext.models.interface import TranslationModel

Attention = TypeVar("Attention", bound=nn.Module)

# sigmoid(4) = 0.982: the share of local attention where training starts from a sentence model
GATE_START = 4.0


class Gated(nn.Module, Generic[Attention]):
    """A local and a global attention over the same tokens, mixed by a gate."""

    def __init__(self, dimension: int, local: Attention, wide: Attention) -> None:
        super().__init__()
        self.local = local
        self.wide = wide
        self.gate = nn.Linear(2 * dimension, dimension)

    def forward(self, x: Tensor, local: tuple[Any, ...], wide: tuple[Any, ...]) -> Tensor:
        """[..., D] -> [..., D]; `local` and `wide` are what the two are called with beside x."""
        near, far = self.local(x, *local), self.wide(x, *wide)
        of_near, of_far = self.gate.weight.chunk(2, dim=1)  # W [local; global], without putting them together
        gate = (linear(near, of_near, self.gate.bias) + linear(far, of_far)).sigmoid()
        return torch.lerp(far, near, gate)


class GTransformer(TranslationModel):
    """Encoder and decoder over one shared embedding; the top `global_layers` of both look beyond sentences.

    Without global layers it has the baseline's parameters, and over rows of one sentence it is the baseline.
    With them it can start from a sentence model: local attention goes on from it, global attention starts as
    a copy of the local one, and only gates are new. (The authors' own runs start global attention at random:
    `train.init_copies: false`.)
    """

    def __init__(self, size: Size, embedding: SentenceEmbedding, global_layers: int = 2) -> None:
        super().__init__()
        self.embedding = embedding
        self.global_layers = global_layers

        def own(looks_beyond: bool) -> nn.Module:
            local = LocalSelfAttention(*size.attention)
            return Gated(size.dimension, local, SelfAttention(*size.attention)) if looks_beyond else local

        def cross(looks_beyond: bool) -> CrossAttention | Gated[CrossAttention]:
            local: CrossAttention = LocalCrossAttention(*size.attention)
            return Gated(size.dimension, local, CrossAttention(*size.attention)) if looks_beyond else local

        first = size.encoder_layers - global_layers
        self.encoder = Stack(EncoderBlock(size, own(i >= first)) for i in range(size.encoder_layers))
        first = size.decoder_layers - global_layers
        self.decoder = Stack(
            DecoderBlock(size, own(i >= first), cross(i >= first)) for i in range(size.decoder_layers)
        )
        self.encoder_norm = nn.LayerNorm(size.dimension) if size.pre_norm else nn.Identity()
        self.decoder_norm = nn.LayerNorm(size.dimension) if size.pre_norm else nn.Identity()

    @property
    def output_weight(self) -> Tensor:
        """The output layer, shared with the embedding: [V, D]."""
        return self.embedding.weight

    def adopted_names(self) -> Mapping[str, str]:
        """Local and global attention of a gated layer both start as the one attention of a plain layer."""
        names = (name for name, _ in self.named_parameters())
        plain = ((name, name.replace(".local.", ".").replace(".wide.", ".")) for name in names)
        return {name: other for name, other in plain if name != other}

    def neutral_start(self) -> Mapping[str, float]:
        """Gates start almost closed to global attention, which has not learned yet what to look for."""
        gates = (name for name, _ in self.named_parameters() if ".gate." in name)
        return {name: GATE_START if name.endswith("bias") else 0.0 for name in gates}

    def encode(self, source: Source) -> DecoderState:
        """Read the source and project it for the cross-attention of every decoder block."""
        sentence = source.sentence
        t = torch.arange(sentence.size(1), device=sentence.device).expand_as(sentence)
        x_BSD = self.embedding(source.tokens, sentence, t, ranks(sentence), 0)
        sentences, mask = Sentences(sentence), visible(sentence)
        local, wide = (SelfReach(None), sentences), (SelfReach(mask), sentences.rows)
        x = sentences.rows.pack(x_BSD)
        for block in self.encoder:
            x = block(x, (local, wide) if isinstance(block.attention, Gated) else local)
        x = self.encoder_norm(x)
        cross = [attention.project(x, sentences.rows) for attention in self._cross_attentions()]
        return DecoderState(cross=cross, cross_mask=mask, cross_spans=sentence_spans(sentence))

    def decode(self, tokens: Tensor, sentence: Tensor, state: DecoderState) -> Tensor:
        """Decoder inputs and their sentences [R, T] -> hidden states [R, T, D]; see `AutoregressiveModel`."""
        t, rank = state.places(sentence)
        told = self.embedding.input_sentence(sentence, state.sentence)
        x = self.embedding(tokens, told, t, rank, 0)
        reach = state.reach(tokens.size(1), tokens.device)
        sentences = rows = mask = None
        local, seen = reach, slice(None)
        if state.caches:
            local = state.reach_within(sentence, reach)
            seen, mask = state.source_within(sentence)
        else:
            sentences = Sentences(sentence, state.cross_spans, state.cross[0][0].size(2))
            rows = sentences.rows
            x = rows.pack(x)
        for i, block in enumerate(self.decoder):
            keys, values = state.cross[i]
            own: tuple[Any, ...] = (local, sentences, state.cache(i))
            source: tuple[Any, ...] = ((keys[:, :, seen], values[:, :, seen]), mask, sentences)
            if isinstance(block.attention, Gated):
                j = i + self.global_layers  # behind those of all local attentions
                own = own, (reach, rows, state.cache(j))
                source = source, (state.cross[j], state.cross_mask, rows)
            x = block(x, own, source)
        if state.caches:
            state.step(sentence, rank)
        x = self.decoder_norm(x)
        return x if rows is None else rows.unpack(x)

    def _cross_attentions(self) -> Iterator[CrossAttention]:
        """Those that the state holds keys and values for: the local ones, then the global ones."""
        crosses = [block.cross for block in self.decoder]
        yield from (cross.local if isinstance(cross, Gated) else cross for cross in crosses)
        yield from (cross.wide for cross in crosses if isinstance(cross, Gated))
