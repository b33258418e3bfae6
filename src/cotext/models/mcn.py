"""MCN (Zheng et al. 2020): local and global context of a document that has any number of sentences.

The encoder reads every sentence by itself. On top of its layers, an additional one looks at the whole row,
knowing how many sentences apart two tokens are; a gate mixes the two:

    hL = local layers of the sentence               hG = a layer with SegmentAttention over the row, of hL
    g = sigmoid(W [hL; hG] + b)                     h = LayerNorm((1 - g) * hL + g * hG)

A sentence that has nobody to look at keeps h = hL, also beside rows of many sentences: one model for
sentences and documents. The decoder writes sentence after sentence, and target sentence k sees source
sentence k. It has relative positions alone and remembers sentences before, see `layers/recurrence.py`.

Shapes: R rows, S source tokens, T target tokens, N real tokens of all rows, D model, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from cotext.data.batch import Source
from cotext.layers.blocks import DecoderBlock, EncoderBlock, SentenceEmbedding, Size, Stack
from cotext.layers.buckets import LocalCrossAttention, LocalSelfAttention, Sentences, sentence_spans
from cotext.layers.kernels.dropout import Dropout
from cotext.layers.kernels.packing import Ragged
from cotext.layers.kernels.sdpa import Places
from cotext.layers.masks import visible
from cotext.layers.multi_head import CrossAttention
from cotext.layers.positions import ranks
from cotext.layers.segments import SegmentAttention, Segments
from cotext.layers.state import SelfReach
from cotext.layers.transformer_xl import MemoryLayout, Reach, RecurrentSelfAttention, RecurrentState
from cotext.models.interface import TranslationModel


class GlobalContext(nn.Module):
    """The encoder's top layer: what the row says, mixed into what the sentence says.

    Without `gate` the two are added before the layer norm. Without `feed_forward` the layer is its attention
    alone, hG = MultiHead(SegmentAttention(hL)) as printed in section 4.1; with it, it has the parameters that
    table 1 counts.
    """

    def __init__(self, size: Size, relative: bool, gate: bool, feed_forward: bool = True) -> None:
        super().__init__()
        attention = SegmentAttention(*size.attention, relative)
        self.layer = EncoderBlock(size, attention) if feed_forward else attention
        self.gate = nn.Linear(2 * size.dimension, size.dimension) if gate else None
        self.norm = nn.LayerNorm(size.dimension)
        self.dropout = Dropout(size.dropout)

    def forward(self, local_ND: Tensor, sentence: Tensor, rows: Ragged, context: int | None) -> Tensor:
        """Let the rows of several sentences look at themselves; the others stay as they are.

        [N, D] -> [N, D], the tokens of rows with sentence indices [B, S], as `rows` packs them; `context`:
        how many sentences away a token sees, None: all.
        """
        several = sentence.max(dim=1).values > sentence[:, 0]
        if context == 0 or not bool(several.any()):
            return local_ND
        if bool(several.all()):
            return self._fused(local_ND, Segments(sentence, context, rows))
        tokens = sentence.size(1)
        which_M = several[rows.place_N // tokens].nonzero()[:, 0]
        chosen = Ragged(sentence[several] >= 0)
        row = several.long().cumsum(dim=0) - 1
        place_M = rows.place_N[which_M]
        chosen.place_N = row[place_M // tokens] * tokens + place_M % tokens
        index = torch.arange(sentence.numel(), device=sentence.device).view_as(sentence)
        told = torch.where(sentence >= 0, index, -1)[several]
        segments = Segments(sentence[several], context, chosen, lambda: Places(told, told))
        return local_ND.index_copy(0, which_M, self._fused(local_ND.index_select(0, which_M), segments))

    def _fused(self, local_ND: Tensor, segments: Segments) -> Tensor:
        if isinstance(self.layer, EncoderBlock):
            wide_ND = self.layer(local_ND, (segments,))
        else:
            wide_ND = self.dropout(self.layer(local_ND, segments))
        # With mixed precision, products come in less of it than the stream.
        wide_ND = wide_ND.to(local_ND.dtype)
        fused: Tensor
        if self.gate is None:
            fused = local_ND + wide_ND
        else:
            of_local, of_wide = self.gate.weight.chunk(2, dim=1)  # W [hL; hG], without putting them together
            gate = (linear(local_ND, of_local, self.gate.bias) + linear(wide_ND, of_wide)).sigmoid()
            fused = torch.lerp(local_ND, wide_ND, gate.to(local_ND.dtype))
        out: Tensor = self.norm(fused)
        return out


class MCN(TranslationModel):
    """Encoder and decoder over one shared embedding; each part of the paper's table 3 can be switched off.

    `local`: the encoder's layers stay inside sentences, and a further one on top sees the row (for
    `feed_forward` see `GlobalContext`); if not, there is no further layer and no fusion (and `gate` has no
    meaning), but every layer sees the whole row, with vectors of its own if `relative`. `xl`: the decoder has
    relative positions and remembers `memory_sentences`; if not, its positions begin anew in every sentence,
    which sees itself alone. `context`: how many source sentences away a token sees, None: all; with 0 the
    further layer is left out. `cross_context`: cross-attention sees all source sentences of the row; if not,
    that of the target sentence alone.

    Positions and segments of the embedding are those of the source; the target has no segments.
    """

    spares_parameters = True  # of the global layer, where every row is one sentence

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
        feed_forward: bool = True,
        cross_context: bool = False,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.xl, self.memory_sentences, self.context = xl, memory_sentences if xl else 0, context
        self.cross_context = cross_context

        def own_attention() -> nn.Module:
            return (
                LocalSelfAttention(*size.attention) if local else SegmentAttention(*size.attention, relative)
            )

        blocks: list[nn.Module] = [EncoderBlock(size, own_attention()) for _ in range(size.encoder_layers)]
        if local and context != 0:
            blocks.append(GlobalContext(size, relative, gate, feed_forward))
        self.encoder = Stack(blocks)
        own = RecurrentSelfAttention if xl else LocalSelfAttention
        cross = CrossAttention if cross_context else LocalCrossAttention
        self.decoder = Stack(
            DecoderBlock(size, own(*size.attention), cross(*size.attention))
            for _ in range(size.decoder_layers)
        )
        self.encoder_norm = nn.LayerNorm(size.dimension) if size.pre_norm else nn.Identity()
        self.decoder_norm = nn.LayerNorm(size.dimension) if size.pre_norm else nn.Identity()

    @property
    def output_weight(self) -> Tensor:
        """The output layer, shared with the embedding: [V, D]."""
        return self.embedding.weight

    def encode(self, source: Source) -> RecurrentState:
        """Read the source and project it for the cross-attention of every decoder block."""
        sentence = source.sentence
        t = torch.arange(sentence.size(1), device=sentence.device).expand_as(sentence)
        x_BSD = self.embedding(source.tokens, sentence, t, ranks(sentence), 0)
        sentences = Sentences(sentence)
        x = sentences.rows.pack(x_BSD)
        own: tuple[Any, ...] = (SelfReach(None), sentences)
        segments = None
        for block in self.encoder:
            if isinstance(block, GlobalContext):
                x = block(self.encoder_norm(x), sentence, sentences.rows, self.context)
            elif isinstance(block.attention, SegmentAttention):
                segments = segments or Segments(sentence, self.context, sentences.rows)
                x = block(x, (segments,))
            else:
                x = block(x, own)
        if not isinstance(self.encoder[-1], GlobalContext):
            x = self.encoder_norm(x)
        return RecurrentState(
            cross=[block.cross.project(x, sentences.rows) for block in self.decoder],
            cross_mask=visible(sentence),
            cross_spans=sentence_spans(sentence),
        )

    def decode(self, tokens: Tensor, sentence: Tensor, state: RecurrentState) -> Tensor:
        """Decoder inputs and their sentences [R, T] -> hidden states [R, T, D]; see `AutoregressiveModel`."""
        if state.caches:
            return self._decode_step(tokens, sentence, state)
        spans = None if self.cross_context else state.cross_spans
        sentences = Sentences(sentence, spans, state.cross[0][0].size(2), self.memory_sentences)
        source = (state.cross_mask, sentences.rows) if self.cross_context else (None, sentences)
        x = sentences.rows.pack(self.embedding.words(tokens, None if self.xl else ranks(sentence)))
        own: tuple[Any, ...] = (SelfReach(None, causal=True), sentences)
        past = MemoryLayout(sentences) if self.xl else None
        projected = [] if past is None else self._project_distances(past.distances, x)
        for i, block in enumerate(self.decoder):
            if past is not None:
                own = (past, projected[i])
            x = block(x, own, (state.cross[i], *source))
        return sentences.rows.unpack(self.decoder_norm(x))

    def _decode_step(self, tokens: Tensor, sentence: Tensor, state: RecurrentState) -> Tensor:
        t, rank = state.places(sentence)
        reach = state.reach(tokens.size(1), tokens.device)
        reach = state.reach_within(sentence, reach, self.memory_sentences)
        seen, mask = slice(None), state.cross_mask
        if not self.cross_context:
            seen, mask = state.source_within(sentence)
        x = self.embedding.words(tokens, None if self.xl else rank)
        distance = None
        if self.xl:
            assert reach.mask is not None
            # Places that nobody sees may be any number of places ahead or behind.
            distance = torch.where(reach.mask[:, 0], -state.distances(t, reach.first), 0)
            longest = int(distance.max()) + 1
            if not state.distances_of or len(state.distances_of[0]) < longest:
                state.distances_of = self._project_distances(2 * longest, x)
        for i, block in enumerate(self.decoder):
            own: tuple[Any, ...] = (reach, None, state.caches[i])
            if distance is not None:
                own = (Reach(reach, distance, state.caches[i]), state.distances_of[i])
            keys, values = state.cross[i]
            x = block(x, own, ((keys[:, :, seen], values[:, :, seen]), mask))
        state.step(sentence, rank)
        out: Tensor = self.decoder_norm(x)
        return out

    def _project_distances(self, count: int, like: Tensor) -> list[Tensor]:
        """The distances 0 ... count as every layer of the decoder sees them: [count, D] each."""
        distances = self.embedding.table(torch.arange(count, device=like.device)).to(like.dtype)
        attentions = (block.attention for block in self.decoder)
        return [a.place(distances) for a in attentions if isinstance(a, RecurrentSelfAttention)]
