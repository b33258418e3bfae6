"""Transformer (Vaswani et al. 2017) with slots: the skeleton of all systems that translate from left to
right.

    source -> embedding -> batch context -> encoder blocks -> document layer ----> keys and values
    target -> embedding -> batch context -> decoder blocks <-----------------------'
                                            -> document layer -> hidden -> embedding.weight -> logits

Without parts in its slots, on rows of one sentence, it is the sentence model; with windows of sentences, the
concatenation model of Lupo et al. 2022, whose segment-shifted positions and segment embeddings are settings
of its embedding. `models/build.py` fills the slots.

Shapes: B entries, R rows, S source tokens, T target tokens, D model, V vocabulary.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from cotext.data.batch import Source
from cotext.layers.blocks import Stacks, cross_attentions, number_attentions, through
from cotext.layers.embedding import CONTEXT, CURRENT, SentenceEmbedding, Side
from cotext.layers.layout import Layout, Shared, Step
from cotext.layers.masks import is_current
from cotext.layers.positions import mean_sentence_length, ranks
from cotext.layers.row_indices import RowIndices
from cotext.layers.state import DecoderState, SourceSide
from cotext.models.batch_context import BatchContext, ContextIndices, TargetContext
from cotext.models.interface import DocumentLayer, TranslationModel


@dataclass(frozen=True, slots=True)
class Parts:
    """What stands in the slots of a model beside its stacks; None: nothing.

    `relative` [2 * span + 1, K]: a table of relative positions that all self-attentions share. `shift` is the
    segment shift: a number of positions, or `sequence` for the mean sentence length of the row's *source*
    window, on both sides: while decoding, the target's own mean is not known yet. `source_sentences`: how
    many source sentences away attention over whole source rows sees; None: all. `output_bias` [V]: a bias of
    the output layer.
    """

    batch_context: BatchContext | None = None
    source_document: DocumentLayer | None = None
    target_document: DocumentLayer | None = None
    relative: nn.Parameter | None = None
    shift: int | Literal["sequence"] = 0
    source_sentences: int | None = None
    output_bias: nn.Parameter | None = None


class Transformer(TranslationModel):
    """Encoder and decoder over one shared embedding."""

    def __init__(self, embedding: SentenceEmbedding, stacks: Stacks, parts: Parts) -> None:
        super().__init__()
        self.embedding = embedding
        self.encoder, self.decoder = stacks.encoder, stacks.decoder
        self.encoder_norm, self.decoder_norm = stacks.encoder_norm, stacks.decoder_norm
        self._source_packed, self._target_packed = stacks.source_packed, stacks.target_packed
        self.batch_context = parts.batch_context
        self.source_document, self.target_document = parts.source_document, parts.target_document
        self.relative = parts.relative
        self.shift, self.source_sentences = parts.shift, parts.source_sentences
        self.sees_other_rows = parts.batch_context is not None
        # Of a document layer, where every row is one sentence.
        self.spares_parameters = parts.source_document is not None or parts.target_document is not None
        self.output_bias = parts.output_bias
        self._caches = number_attentions(stacks.decoder)
        self._crosses = cross_attentions(stacks.decoder)
        if parts.target_document is not None:
            parts.target_document.index = self._caches
            self._caches += parts.target_document.caches

    @property
    def output_weight(self) -> Tensor:
        """The output layer, shared with the embedding: [V, D]."""
        return self.embedding.weight

    def _shared(self, side: Side) -> Shared:
        return Shared(self.embedding.encoding(side), self.relative, self.source_sentences)

    def _embedder(self, indices: RowIndices | None = None) -> "RowEmbedder":
        return RowEmbedder(self.embedding, self.shift, None if indices is None else indices.shift)

    def indices(
        self, source: Source, input_sentence: Tensor | None = None, training: bool = False
    ) -> RowIndices:
        """See `TranslationModel`."""
        context = None
        read, written = source.sentence, input_sentence
        if self.batch_context is not None:
            context = self.batch_context.indices(source, input_sentence, training)
            read, written = context.source_sentence, context.target_sentence
        whole = layout = self._source_layout(source, read)
        for block in self.encoder:
            layout = block.prepare(layout)
        if self.source_document is not None:
            self.source_document.prepare(layout)
        for cross in self._crosses:
            layout = cross.span.narrowed(layout)
        layout.answer("packing")
        side = SourceSide([], layout.sentence)
        target = None if written is None else self._target_layout(written, side)
        if target is not None:
            for decoder_block in self.decoder:
                decoder_block.prepare(target)
            if self.target_document is not None:
                self.target_document.prepare(target)
        return RowIndices(whole, side, target, context, self._most_shift(source, input_sentence))

    def _source_layout(self, source: Source, sentence: Tensor) -> Layout:
        return Layout(sentence, self._shared("source"), self._source_packed, current=source.current)

    def _target_layout(self, sentence: Tensor, source: SourceSide) -> Layout:
        return Layout(sentence, self._shared("target"), self._target_packed, causal=True, source=source)

    def _most_shift(self, source: Source, input_sentence: Tensor | None) -> int:
        """By how many positions segments shift the last sentence of any row, on either side."""
        of_rows = self._embedder().shift_of(source)
        longest = self.shift if of_rows is None else int(of_rows.max())
        assert longest != "sequence"
        if longest == 0:
            return 0
        sides = [source.sentence] if input_sentence is None else [source.sentence, input_sentence]
        return longest * (1 + max(int(sentence.max()) for sentence in sides))

    def encode(self, source: Source) -> DecoderState:
        """Read the source and project it for the cross-attention of every decoder block."""
        indices = source.indices
        if indices is None and (self.batch_context is not None or self.recomputes):
            indices = self.indices(source, training=self.training)
        assert indices is None or isinstance(indices, RowIndices)
        embed, sentence = self._embedder(indices), source.sentence
        context = None
        if self.batch_context is None:
            x = embed.source(source)
        else:
            assert indices is not None
            assert isinstance(indices.context, ContextIndices)
            x, sentence = self.batch_context.read(source, embed, indices.context)
            context = self.batch_context.target(source, embed, indices.context)
        known = None if indices is None else indices.source_layout(sentence)
        if known is None:
            # Layers find what they ask for on the way.
            layout, indices = self._source_layout(source, sentence), None
        else:
            layout = known.bound(self._shared("source"))
        x = layout.pack(x)
        for block in self.encoder:
            x, layout = block.enter(x, layout)
            x = through(block, x, layout, self.recomputes)
        x = self.encoder_norm(x)
        if self.source_document is not None:
            x = self.source_document(x, layout)
        for cross in self._crosses:
            x, layout = cross.span.enter(x, layout)
        keys_values = [cross.project(x, layout) for cross in self._crosses]
        side = SourceSide([], layout.sentence) if indices is None else indices.side
        return DecoderState(
            side.filled(keys_values),
            attentions=self._caches,
            parts=[] if context is None else [context],
            shift=embed.shift_of(source),
            last=embed.last_of(source),
            indices=indices,
        )

    def decode(self, tokens: Tensor, sentence: Tensor, state: DecoderState) -> Tensor:
        """Decoder inputs and their sentences [R, T] -> hidden states [R, T, D]; see `AutoregressiveModel`."""
        context, indices = _target_context(state), state.indices
        assert indices is None or isinstance(indices, RowIndices)
        if context is not None:
            sentence = context.extend(sentence, state)
        position, rank = state.positions(sentence)
        x_RTD = self._embedder(indices).next(tokens, sentence, position, rank, state)
        if context is not None:
            x_RTD = context.mix(x_RTD, sentence, state)
        if state.caches:
            step = Step(sentence, position, rank, state, self._shared("target"))
            return self._step(x_RTD, step)[:, -tokens.size(1) :]
        known = None if indices is None else indices.target_layout(sentence)
        if known is None:
            known = self._target_layout(sentence, state.source)
        layout = known.bound(self._shared("target"), state.source)
        x = layout.pack(x_RTD)
        for block in self.decoder:
            x = through(block, x, layout, self.recomputes)
        x = self.decoder_norm(x)
        if self.target_document is not None:
            x = self.target_document(x, layout)
        return layout.unpack(x)[:, -tokens.size(1) :]

    def _step(self, x: Tensor, step: Step) -> Tensor:
        """The next tokens [R, T, D] after those in the caches."""
        for block in self.decoder:
            x = block(x, step)
        x = self.decoder_norm(x)
        if self.target_document is not None:
            x = self.target_document(x, step)
        step.state.step(step.sentence, step.rank)
        return x


def _target_context(state: DecoderState) -> TargetContext | None:
    return next((part for part in state.parts if isinstance(part, TargetContext)), None)


@dataclass(frozen=True, slots=True)
class RowEmbedder:
    """Embeddings with positions and segments: `Embedder`, and those of the next decoder inputs."""

    embedding: SentenceEmbedding
    shift: int | Literal["sequence"]
    most_shift: int | None = None  # above all shifts of tokens, if it is known

    @property
    def weight(self) -> Tensor:
        """Vectors of all target tokens: [V, D]."""
        return self.embedding.weight

    def bare(self, source: Source) -> Tensor:
        """Vectors of source tokens alone, [B, S] -> [B, S, D]."""
        return self.embedding.bare(source.tokens, "source")

    def shift_of(self, source: Source) -> Tensor | None:
        """Segment shift of every row, where it is the row's own: [B]."""
        return mean_sentence_length(source.sentence) if self.shift == "sequence" else None

    def last_of(self, source: Source) -> Tensor | None:
        """Last current sentence of every row, where segments count back from it: [B]."""
        return source.current[:, 1] - 1 if self.embedding.from_current else None

    def source(self, source: Source, behind: int = 0) -> Tensor:
        """Source rows, [B, S] -> [B, S, D]; `behind` so many tokens of their first sentence."""
        sentence, rank = source.sentence, None
        segment = self.embedding.segments("source", sentence, self.last_of(source))
        if self.embedding.source.segments == "current":
            segment = torch.where(is_current(sentence, source.current), CURRENT, CONTEXT)
        if self.embedding.reads_ranks("source"):
            rank = ranks(sentence) + behind * (sentence == sentence[:, :1])
        return self.embedding.placed(
            self.bare(source),
            "source",
            sentence,
            torch.arange(behind, behind + sentence.size(1), device=sentence.device).expand_as(sentence),
            rank,
            self._shift(self.shift_of(source)),
            segment,
            self._below(behind + sentence.size(1)),
        )

    def target(self, tokens: Tensor, sentence: Tensor, source: Source) -> Tensor:
        """Complete decoder inputs of the rows of a source, [B, T] -> [B, T, D]."""
        position = torch.arange(sentence.size(1), device=sentence.device).expand_as(sentence)
        told = self.embedding.input_sentence(sentence, None)
        rank = ranks(sentence) if self.embedding.reads_ranks("target") else None
        segment = self._segment(told, self.last_of(source), position == 0)
        return self._target(tokens, told, position, rank, self.shift_of(source), segment, sentence.size(1))

    def next(
        self, tokens: Tensor, sentence: Tensor, position: Tensor, rank: Tensor, state: DecoderState
    ) -> Tensor:
        """The next decoder inputs, the last [R, T] of the tokens that the others [R, T'] describe."""
        extra = sentence.size(1) - tokens.size(1)
        told = self.embedding.input_sentence(sentence, state.sentence)
        complete = None if state.caches else sentence.size(1)
        told, position, rank = (each[:, extra:] for each in (told, position, rank))
        segment = self._segment(told, state.last, position == extra)  # a row opens behind what is extra
        return self._target(tokens, told, position, rank, state.shift, segment, complete)

    def first(self, x_RD: Tensor, side: Side) -> Tensor:
        """Vectors that stand in front of their rows: [R, D] -> [R, D]."""
        if self.embedding.source.positions != "none":
            x_RD = x_RD + self.embedding.encoding(side)(x_RD.new_zeros(len(x_RD), dtype=torch.long), 1)
        return self.embedding.finished(x_RD, side)

    def _target(
        self,
        tokens: Tensor,
        sentence: Tensor,
        position: Tensor,
        rank: Tensor | None,
        shift: Tensor | None,
        segment: Tensor | None,
        complete: int | None,
    ) -> Tensor:
        """`complete`: how many tokens the rows have, where they are complete."""
        x = self.embedding.bare(tokens, "target")
        below = None if complete is None else self._below(complete)
        return self.embedding.placed(
            x, "target", sentence, position, rank, self._shift(shift), segment, below
        )

    def _segment(self, sentence: Tensor, last: Tensor | None, opens: Tensor) -> Tensor | None:
        """Segments of decoder inputs where they are not the sentence; `opens`: the first input of a row."""
        if self.embedding.target.segments == "current":
            return torch.full_like(sentence, CURRENT)
        segment = self.embedding.segments("target", sentence, last)
        if segment is None or self.embedding.bracketed:
            return segment
        return segment.masked_fill(opens, 0)  # it closed the current sentence of the row before

    def _below(self, tokens: int) -> int | None:
        """Above the positions of all tokens of complete rows, if the most that they are shifted is known."""
        if self.shift == 0:
            return tokens
        return None if self.most_shift is None else tokens + self.most_shift

    def _shift(self, per_row: Tensor | None) -> Tensor | int:
        if per_row is not None:
            return per_row
        assert self.shift != "sequence"
        return self.shift
