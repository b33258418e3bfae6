"""Transformer (Vaswani et al. 2017) with slots: the base model of all autoregressive systems.

    source -> embedding -> batch context -> encoder blocks -> document layer ----> keys and values
       '---> context encoder, to whose states blocks attend                             |
    target -> embedding -> batch context -> decoder blocks <-----------------------'
                                            -> document layer -> hidden -> embedding.weight -> logits

Without parts in its slots, and with one sentence per row, it is the sentence model. With windows of
sentences, it is the concatenation model of Lupo et al. 2022. Their segment-shifted positions and segment
embeddings are settings of its embedding. Without encoder blocks and cross-attention, it is a language model,
which ignores the source. `models/build.py` fills the slots.

Shapes: B entries, R rows, S source tokens, T target tokens, D model, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from cotext.data.batch import RowCache, Source
from cotext.layers.blocks import Stacks, cross_attentions, number_attentions, self_attentions, through
from cotext.layers.embedding import SentenceEmbedding, Side
from cotext.layers.layout import AnyLayout, Layout, Layouts, Shared, Step
from cotext.layers.positions import mean_sentence_length
from cotext.layers.state import ContextSide, DecoderState, KeysValues, SourceSide
from cotext.models.interface import DocumentLayer, TranslationModel
from cotext.models.slots import BatchContext, ContextEncoder, RowEmbedder, context_attentions


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts in the slots of a model, in addition to its stacks; None: empty.

    `relative` [2 * span + 1, K]: a table of relative positions that all self-attentions share. `shift`: the
    segment shift in positions, or `sequence`: the mean sentence length of the *source* row, on both sides,
    because that of the target is not known while decoding. `source_sentences`: how many sentences away
    attention over whole source rows reaches; None: no limit. `cached_sentences`: how many earlier target
    sentences a layer of the decoder attends to at most. `output_bias` [V]: a bias of the output layer.
    """

    batch_context: BatchContext | None = None
    context_encoder: ContextEncoder | None = None
    source_document: DocumentLayer | None = None
    target_document: DocumentLayer | None = None
    relative: nn.Parameter | None = None
    shift: int | Literal["sequence"] = 0
    source_sentences: int | None = None
    cached_sentences: float = inf
    output_bias: nn.Parameter | None = None


class Transformer(TranslationModel):
    """Encoder and decoder with one shared embedding."""

    def __init__(self, embedding: SentenceEmbedding, stacks: Stacks, parts: Parts) -> None:
        super().__init__()
        self.embedding = embedding
        self.encoder, self.decoder = stacks.encoder, stacks.decoder
        self.encoder_norm, self.decoder_norm = stacks.encoder_norm, stacks.decoder_norm
        self._source_packed = stacks.source_packed(parts.source_document)
        self._target_packed = stacks.target_packed(parts.target_document)
        self.batch_context, self.context_encoder = parts.batch_context, parts.context_encoder
        self.source_document, self.target_document = parts.source_document, parts.target_document
        self.relative = parts.relative
        self.shift, self.source_sentences = parts.shift, parts.source_sentences
        if parts.batch_context is not None:
            self.sees_other_rows, self.extra_tokens = True, parts.batch_context.extra_tokens
        self.output_bias = parts.output_bias
        self._cached_sentences = parts.cached_sentences
        self._caches = number_attentions(stacks.decoder)
        self._crosses = cross_attentions(stacks.decoder)
        self._context_attentions = context_attentions(stacks)
        if parts.target_document is not None:
            parts.target_document.index = self._caches
            self._caches += parts.target_document.caches

    @property
    def spares_parameters(self) -> bool:
        # A language model does not use the tables of the source.
        return not self._crosses or super().spares_parameters

    def _shared(self, side: Side) -> Shared:
        return Shared(self.embedding.encoding(side), self.relative, self.source_sentences)

    def _embedder(self, layouts: Layouts) -> RowEmbedder:
        return RowEmbedder(self.embedding, self.shift, layouts.shift)

    def layouts(
        self, source: Source, input_sentence: Tensor | None = None, training: bool = False
    ) -> Layouts:
        layouts = self._source_layouts(source, training)
        if input_sentence is None:
            return layouts
        return self._with_target(layouts, source, input_sentence, training)

    def _source_layouts(self, source: Source, training: bool, left_out: bool = False) -> Layouts:
        context = None
        if self.batch_context is not None and not left_out:
            context = self.batch_context.source_layout(source, training)
        sentence = source.sentence if context is None else context.sentence
        context_rows = index = None
        if self.context_encoder is not None:
            context_rows = self.context_encoder.rows(source, self._source_packed)
        if context_rows is not None:
            sentence, index = context_rows.current.sentence, context_rows.index
        rows = Layout(sentence, self._source_packed, current=source.current, indices=index)
        sides = [source] if source.extra_rows is None else [source, source.extra_rows.source]
        shift = max(self._most_shift(side, side.sentence) for side in sides)
        side = SourceSide([], rows.top.sentence)
        return Layouts(rows, side, context=context, context_rows=context_rows, shift=shift)

    def _with_target(
        self, layouts: Layouts, source: Source, input_sentence: Tensor, training: bool
    ) -> Layouts:
        """Add the target rows [B, T] to the layouts of their source."""
        # A batch context may add a token before each row, which the layout must contain.
        context, sentence = None, input_sentence
        if self.batch_context is not None and layouts.context is not None:
            context = self.batch_context.target_layout(source, input_sentence, training)
            sentence = context.sentence
        return replace(
            layouts,
            target=Layout(sentence, self._target_packed, causal=True, source=layouts.side),
            input_sentence=input_sentence,
            target_context=context,
            shift=max(layouts.shift, self._most_shift(source, input_sentence)),
        )

    def _most_shift(self, source: Source, sentence: Tensor) -> int:
        """Return the largest shift of positions by segments, at the last sentence of a row: [B, T]."""
        if self.shift == 0:
            return 0
        shift = mean_sentence_length(source.sentence) if self.shift == "sequence" else self.shift
        return int((shift * (1 + sentence.amax(dim=1))).max())

    def encode(self, source: Source) -> DecoderState:
        """Encode the source and project it for the cross-attention of every decoder block."""
        layouts = source.layouts or self.layouts(source, training=self.training)
        if self.batch_context is not None and self.batch_context.left_out():
            layouts = self._source_layouts(source, self.training, left_out=True)
        embed, context = self._embedder(layouts), None
        if not self._crosses:
            return self._without_source(source, layouts)
        rows = source
        if layouts.context_rows is not None:
            rows, shift = layouts.context_rows.current, embed.shift_of(source)
            if shift is not None:  # both parts of a row are shifted as the whole row
                embed = replace(embed, shift=shift)
        context_side = self._read_context(layouts, embed)
        layout = layouts.source.bound(self._shared("source"), context=context_side)
        if source.caches is not None:
            memory = self._kept_memory(source, source.caches)
        else:
            if self.batch_context is None or layouts.context is None:
                embedded = embed.source(rows)
            else:
                embedded = self.batch_context.read(source, embed, layouts.context.found)
                context = self.batch_context.target(source, embed, layouts.context.found)
            x, layout = self._through_encoder(embedded, layout)
            x, layout = layout.of_current(x)
            memory = [cross.project(x, layout) for cross in self._crosses]
        return DecoderState(
            layouts.side.filled(memory),
            attentions=self._caches,
            rows=source,
            layouts=layouts,
            context=context,
            context_side=context_side,
            shift=embed.shift_of(source),
            first=source.current[:, 0],
        )

    def _through_encoder(self, x_BSD: Tensor, layout: Layout) -> tuple[Tensor, Layout]:
        """Return the states of embedded rows after the encoder and its document layer, and their layout."""
        x = layout.pack(x_BSD)
        for block in self.encoder:
            # Context tokens are not needed in the following layers and are removed.
            if block.current_only:
                x, layout = layout.of_current(x)
            x = through(block, x, layout, self.recomputes)
        x = self.encoder_norm(x)
        if self.source_document is not None:
            x = self.source_document(x, layout)
        return x, layout

    def _kept_memory(self, source: Source, rows: Sequence[RowCache]) -> list[KeysValues]:
        """Return source keys and values of each cross-attention; compute and keep those of new rows."""
        new = [n for n, row in enumerate(rows) if row.memory is None]
        if new:
            unknown = source.select(torch.tensor(new, device=source.tokens.device))
            layouts = self.layouts(unknown)
            embedded = self._embedder(layouts).source(unknown)
            x, layout = self._through_encoder(embedded, layouts.source.bound(self._shared("source")))
            parts = [part for cross in self._crosses for part in cross.project(x, layout)]
            for b, length in enumerate((unknown.sentence >= 0).sum(dim=1).tolist()):
                # Copies, so that the memory of other rows can be freed.
                rows[new[b]].memory = [part[b, :, :length].transpose(0, 1).clone() for part in parts]
        of_rows = zip(*(row.memory for row in rows if row.memory is not None), strict=True)
        padded = [pad_sequence([*part], batch_first=True).transpose(1, 2) for part in of_rows]
        return list(zip(padded[::2], padded[1::2], strict=True))

    def _without_source(self, source: Source, layouts: Layouts) -> DecoderState:
        """Return the state of a language model, which has no cross-attention."""
        heads = self_attentions(self.decoder)[0].heads
        # Caches take their shape and type from these keys and values of no token.
        size = self.output_weight.size(1) // heads
        none = self.output_weight.new_empty(len(source.tokens), heads, 0, size)
        side, first = layouts.side.filled([(none, none)]), source.current[:, 0]
        return DecoderState(side, attentions=self._caches, rows=source, layouts=layouts, first=first)

    def _read_context(self, layouts: Layouts, embed: RowEmbedder) -> ContextSide | None:
        """Encode context sentences apart and project them for every attention to them."""
        rows = layouts.context_rows
        if rows is None or self.context_encoder is None:
            return None
        layout = rows.layout.bound(self._shared("source"))
        states = self.context_encoder.read(rows, layout, embed, self.encoder)
        side: ContextSide = rows.side
        return side.filled([a.project(states, layout) for a in self._context_attentions])

    def decode(self, tokens: Tensor, sentence: Tensor, state: DecoderState) -> Tensor:
        if state.caches and state.used == 0 and state.rows.caches is not None:
            return self._continued(tokens, sentence, state, state.rows.caches)
        return self._next(tokens, sentence, state)

    def _continued(
        self, tokens: Tensor, sentence: Tensor, state: DecoderState, rows: Sequence[RowCache]
    ) -> Tensor:
        """Decode the first inputs of rows, and keep them for later calls.

        Inputs that were decoded before are not decoded again; their hidden states are zeros here.
        """
        lengths = (sentence >= 0).sum(dim=1)
        inputs = [tuple(row[:n]) for row, n in zip(tokens.tolist(), lengths.tolist(), strict=True)]
        read = [
            row.read if row.read is not None and row.read.begins(given) else None
            for row, given in zip(rows, inputs, strict=True)
        ]
        done = torch.tensor([len(r.tokens) if r else 0 for r in read], device=tokens.device)[:, None]
        rest = lengths[:, None] - done  # the number of inputs to decode
        at = torch.arange(int(rest.max()), device=tokens.device)
        if any(read):
            state.resume(read, at.numel() + state.capacity - tokens.size(1))
        index = (done + at).clamp(max=tokens.size(1) - 1)
        rest_sentence = sentence.gather(1, index).masked_fill(at >= rest, -1)
        hidden_RTD = self._next(tokens.gather(1, index), rest_sentence, state)
        for row, kept in zip(rows, state.read_inputs(inputs, self._cached_sentences), strict=True):
            row.read = kept
        whole_RTD = hidden_RTD.new_zeros(*tokens.shape, hidden_RTD.size(2))
        is_new = (torch.arange(tokens.size(1), device=tokens.device) >= done) & (sentence >= 0)
        whole_RTD[is_new] = hidden_RTD[rest_sentence >= 0]
        return whole_RTD

    def _next(self, tokens: Tensor, sentence: Tensor, state: DecoderState) -> Tensor:
        context = state.context
        # Layouts for training are made in advance; scoring makes them here.
        if not state.caches and state.layouts.input_sentence is not sentence:
            state.layouts = self._with_target(state.layouts, state.rows, sentence, self.training)
        layouts: Layouts = state.layouts
        if context is not None:  # it may add tokens before the row
            sentence = context.extend(sentence, state)
        position, rank = state.positions(sentence)
        x_RTD = self._embedder(layouts).next(tokens, sentence, position, rank, state)
        if context is not None:
            x_RTD = context.mix(x_RTD, sentence, state)
        layout: AnyLayout
        if state.caches:
            layout = Step(sentence, position, rank, state, self._shared("target"))
            x = layout.side_by_side(x_RTD)
        else:
            assert layouts.target is not None
            layout = layouts.target.bound(self._shared("target"), state.source, state.context_side)
            x = layout.pack(x_RTD)
        for block in self.decoder:
            x = through(block, x, layout, self.recomputes)
        x = self.decoder_norm(x)
        if self.target_document is not None:
            x = self.target_document(x, layout)
        if isinstance(layout, Step):
            state.step(sentence, rank)
            x = x if state.beam == 1 else x.view_as(x_RTD)
        else:
            x = layout.unpack(x)
        return x if context is None else x[:, -tokens.size(1) :]
