"""Flat-batch attention (DocFlat; Wu et al. 2023) between the current sentences of the rows of a document.

A row is a sentence in its local context; a batch contains the rows of a document. Before the first block, the
embeddings of all current sentences attend to each other as one sequence, and a gate weights the result.
Context sentences do not change:

    source -> embedding -> flat-batch attention, gate -> encoder blocks ---> keys and values
    target -> embedding -> flat-batch attention, gate -> decoder blocks <--'     (causal on the target)

On the target, a token attends to its own row up to itself, and to rows whose current sentences end before its
own begin. Rows of different documents do not attend to each other. With `cross_document` they do during
training, as in the paper, but never in translation. Extra rows are attended to but not decoded; this layer
needs only their token embeddings.

Shapes: B entries, R rows, S source tokens, T target tokens, M tokens of extra rows, D model.
"""

import torch
from torch import Tensor

from cotext.data.batch import Source
from cotext.layers.flat_batch import ActiveGroups, ExtraKeys, FlatContext, FlatLayout, RowOrder
from cotext.layers.layout import ContextLayout
from cotext.layers.multi_head import AttentionSize
from cotext.layers.positions import causal, is_current
from cotext.layers.state import DecoderState, KeyValueCache
from cotext.models.slots import BatchContext, BatchSettings, RowEmbedder, RowsTarget


class FlatBatch(BatchContext):
    """Flat-batch attention on either side; the paper calls its kinds of gates "C", "D" and "I"."""

    def __init__(self, size: AttentionSize, settings: BatchSettings) -> None:
        super().__init__(settings)
        gate = settings.gate, settings.threshold
        self.source_context = FlatContext(size, *gate) if settings.source else None
        self.target_context = FlatContext(size, *gate) if settings.target else None

    def source_layout(self, source: Source, training: bool) -> ContextLayout:
        return self._layout(source, source.sentence, training, self.source_context, causal=False)

    def target_layout(self, source: Source, sentence: Tensor, training: bool) -> ContextLayout:
        return self._layout(source, sentence, training, self.target_context, causal=True)

    def _layout(
        self, source: Source, sentence: Tensor, training: bool, context: FlatContext | None, causal: bool
    ) -> ContextLayout:
        if context is None:
            return ContextLayout(sentence)
        rows, beside = self.order_of(source, training), None
        if (extra := source.extra_rows) is not None:
            other = extra.source
            seen = extra.input_sentence if causal else other.sentence
            row_M = is_current(seen, other.current).nonzero()[:, 0]
            beside = self.order_of(other, training).take(row_M) if len(row_M) else None
        layout = FlatLayout(is_current(sentence, source.current), rows, causal, beside)
        return ContextLayout(sentence, layout)

    def read(self, source: Source, embed: RowEmbedder, found: FlatLayout) -> Tensor:
        x_BSD, extra = embed.source(source), None
        if self.source_context is None:
            return x_BSD
        if source.extra_rows is not None:
            other = source.extra_rows.source
            chosen = is_current(other.sentence, other.current)
            extra = _extra_keys(embed.source(other), chosen, self.order_of(other, self.training))
        mixed: Tensor = self.source_context(x_BSD, found, extra)
        return mixed

    def target(self, source: Source, embed: RowEmbedder, found: FlatLayout) -> "FlatTarget | None":
        context = self.target_context
        return None if context is None else FlatTarget(self, context, source, embed)


class FlatTarget(RowsTarget):
    """Flat-batch attention of a decoder to its own rows and to the current tokens of complete rows.

    `active` holds the attention masks between the entries of a group, and to complete rows.
    """

    def __init__(self, parent: FlatBatch, context: FlatContext, source: Source, embed: RowEmbedder) -> None:
        super().__init__(parent, source, embed)
        self.context = context
        self.cache = 0
        self.active: ActiveGroups | None = None

    def keys_of(self, tokens: Tensor, sentence: Tensor, source: Source, order: RowOrder) -> ExtraKeys:
        """Return the current tokens."""
        chosen = is_current(sentence, source.current)
        return _extra_keys(self.embed.target(tokens, sentence, source), chosen, order)

    def open(self, state: DecoderState) -> None:
        self.cache = len(state.caches)
        like = state.caches[0].slots[0]
        state.caches.append(KeyValueCache(1, like.size(0), state.capacity, like))

    def select(self, entries: Tensor) -> None:
        super().select(entries)
        self.active = None

    def mix(self, x_RTD: Tensor, sentence: Tensor, state: DecoderState) -> Tensor:
        """Add flat-batch attention to embedded decoder inputs: [R, T, D] -> [R, T, D]."""
        if state.caches:
            return self._step(x_RTD, sentence, state)
        extra = None if self.complete.empty else self.complete
        mixed: Tensor = self.context(x_RTD, state.layouts.target_context.found, extra)
        return mixed

    def _step(self, x_RTD: Tensor, sentence: Tensor, state: DecoderState) -> Tensor:
        """Attend from the next tokens of rows that are being decoded: [R, T, D] -> [R, T, D]."""
        attention = self.context.attention
        entries, tokens = len(self.source.current), sentence.size(1)
        h = x_RTD.reshape(entries, -1, x_RTD.size(-1))
        q, k, v = attention.project(h)
        cache, own = state.caches[self.cache], self._own(sentence, state)
        cache.write(0, k, v, state.used)
        k, v = cache.read(0, own.size(3))
        by_beam = own.reshape(entries, state.beam, tokens, -1)
        seen = self._groups().attend(attention, q, k, v, by_beam)
        current = is_current(sentence.view(entries, -1), self.source.current)
        return torch.where(current[:, :, None], self.context.combine(h, seen), h).view_as(x_RTD)

    def _groups(self) -> ActiveGroups:
        """Return the masks between entries, which stay the same until a row is finished."""
        if self.active is None:
            ended = self.context.attention.keys_values(self.complete.hidden)
            self.active = ActiveGroups(self.rows, ended, self.complete.order)
        return self.active

    def _own(self, sentence: Tensor, state: DecoderState) -> Tensor:
        """Return the current past tokens that each input attends to: [R, T] -> [B, 1, W * T, slots]."""
        tokens = sentence.size(1)
        slots = state.slot_mask(tokens, sentence.device)
        mask = is_current(state.sentences_of_slots(sentence), self.source.current)[:, None, None]
        if slots.mask is not None:
            mask = mask & slots.mask
        elif slots.causal:
            mask = mask & causal(tokens, slots.stop, mask.device)
        return mask.expand(-1, -1, state.beam * tokens, -1)


def _extra_keys(x_RTD: Tensor, chosen: Tensor, order: RowOrder) -> ExtraKeys:
    """Return the chosen tokens [R, T] of complete rows, and the order of each."""
    return ExtraKeys(x_RTD[chosen], order.take(chosen.nonzero()[:, 0]))
