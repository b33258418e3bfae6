"""Layouts: properties of the tokens of a batch that attention needs, computed once for all layers.

A `Layout` describes complete rows: an encoded source, a target in training or scoring, or the positions of a
non-autoregressive decoder. A `Step` describes the tokens that a decoder reads next, after those in its
caches. A row is one sequence of a batch, and may contain several sentences.

A layout depends only on sentence indices. It is created before the forward pass, on the CPU if the batch is
still there, with the properties that its stack requires (`Packed.answers`). The forward pass adds tables and
the encoded source (`bound`). It never reads tensor values, so that the CPU does not wait for the GPU.

Complete rows are packed without their padding, in row order. If some attention is restricted to sentences,
they are packed in the order of sentence buckets instead (`layers/buckets.py`):

    two rows    a a b b b        [B, T, D]   ->   [N, D]   a a b b b c d d      or   b b b a a d d c
                c d d . .

Shapes: B rows or entries, W beams, R rows (R = B * W), T tokens, S source tokens, N real tokens of all rows,
D model, H heads, K per head.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, Self

import torch
from torch import Tensor

from cotext.layers.buckets import ExtraTokens, MemoryLayout, Sentences, tokens_and_nodes
from cotext.layers.kernels.common import Packing, moved_left
from cotext.layers.kernels.gated_others import Apart
from cotext.layers.kernels.sdpa import TokenIndices
from cotext.layers.positions import LearnedPositions, PositionTable, Segments, is_current, ranks, visible
from cotext.layers.positions import causal as causal_mask
from cotext.layers.state import ContextSide, DecoderState, SlotMask, SourceSide

# --- Keys of a query's own sentence, and keys of other sentences: in rows, caches and sources.
#
# Shapes: B rows or entries, T queries, S keys.


def apart_by_sentence(query_BT: Tensor, key_BS: Tensor, mask: Tensor | None, causal: bool) -> Apart:
    """Divide the keys of one side by whether they are in the query's sentence; see `Keys` for the masks."""
    same = (query_BT[:, :, None] == key_BS[:, None, :])[:, None]
    seen = causal_mask(same.size(2), same.size(3), same.device) if causal else mask
    if seen is None:
        seen = torch.ones_like(same)
    return Apart.of(same & seen, seen & ~same, query_BT, key_BS, causal and same.size(2) == same.size(3))


def apart_from_source(source: SourceSide, sentence_BT: Tensor, mask: Tensor | None) -> Apart | None:
    """Separate the tokens of the translated source sentences from others; None if rows have one sentence."""
    if source.spans.size(1) == 1:
        return None
    start, stop = source.span_of(sentence_BT)
    at = torch.arange(source.tokens, device=sentence_BT.device)
    own = ((at >= start[:, :, None]) & (at < stop[:, :, None]))[:, None]
    others = ~own if mask is None else ~own & mask
    last = source.sentence.amax(dim=1, keepdim=True)  # later target sentences count as this one
    return Apart.of(own, others, sentence_BT.minimum(last), source.sentence)


def near_sentences(query_BT: Tensor, key_BS: Tensor, most: int) -> Tensor:
    """Return the mask of keys that are at most `most` sentences away: [B, 1, T, S].

    Queries without such keys, such as padding, attend to all: a softmax over no keys would be NaN.
    """
    real = (key_BS >= 0)[:, None]
    near = ((query_BT[:, :, None] - key_BS[:, None]).abs() <= most) & real
    return torch.where(near.any(dim=2, keepdim=True), near, real)[:, None]


@dataclass(frozen=True, slots=True)
class Shared:
    """Settings and tables that all attentions of one side share.

    `table`: encodings of positions. `relative` [2 * span + 1, K]: vectors of relative positions.
    `source_sentences`: maximum distance in sentences of attention over whole source rows; None: no limit.
    """

    table: PositionTable | LearnedPositions
    relative: Tensor | None = None
    source_sentences: int | None = None


@dataclass(frozen=True, slots=True)
class Packed:
    """What a stack requires of the tokens of complete rows.

    `by_sentence`: they are in buckets of sentences. `aligned`: buckets also have the tokens of each source
    sentence. `memory_sentences`: buckets also have this many earlier sentences. `current_only`: the stack
    outputs only current tokens. `answers`: layout properties to compute in advance, such as `source.spans`.
    """

    by_sentence: bool = False
    aligned: bool = False
    memory_sentences: int = 0
    current_only: bool = False
    answers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Keys:
    """The keys of one attention product.

    `mask` broadcasts to [B, H, T, S], True = may attend. `causal`, instead of a mask: query t attends to keys
    0 ... t. `positions` returns the positions in their rows of queries [B, T] and keys [B, S]; for source
    keys, query positions are `Layout.aligned_position`. `in_order`: keys and queries are the same tokens, at
    consecutive positions. `tokens` returns the batch indices of queries and keys, for recorded weights.
    `bias` [B, H, T, S] is added to the scaled scores. `apart` separates keys of the query's sentence from
    others; it returns None if all rows are single sentences.
    """

    mask: Tensor | None = None
    causal: bool = False
    in_order: bool = False
    positions: Callable[[], tuple[Tensor, Tensor]] | None = None
    tokens: Callable[[], TokenIndices] | None = None
    bias: Tensor | None = None
    apart: Callable[[], Apart | None] = lambda: None

    @cached_property
    def distance(self) -> Tensor:
        """Key - query positions: [B, T, S]."""
        assert self.positions is not None
        query, key = self.positions()
        return key[:, None, :] - query[:, :, None]


class Layout:
    """The layout of complete rows.

    `sentence` [B, T] is -1 on padding, which is on the right. `source`: the source side of decoder rows; a
    forward pass replaces it by the encoded source. `mask` [B, 1, 1, T] hides padding; it is None if there is
    no padding.
    """

    shared: Shared
    context_side: ContextSide | None = None

    def __init__(
        self,
        sentence: Tensor,
        packed: Packed,
        *,
        causal: bool = False,
        source: SourceSide | None = None,
        current: Tensor | None = None,
        indices: Tensor | None = None,
    ) -> None:
        self.sentence, self.packed = sentence, packed
        self.causal, self._source, self._current = causal, source, current
        self.longest = sentence.size(1)  # upper bound of all positions
        self._indices = indices  # token indices in the batch, if these are only some of its tokens
        self.mask = visible(sentence)
        # Computed now: the forward pass must not read tensor values.
        for name in ("packing", "top", *packed.answers):
            attrgetter(name)(self)

    def bound(
        self, shared: Shared, source: SourceSide | None = None, context: ContextSide | None = None
    ) -> Self:
        """Return a copy for one forward pass, with its tables, its encoded source and encoded context."""
        bound = copy(self)
        bound.shared, bound._source, bound.context_side = shared, source, context
        return bound

    @cached_property
    def of_context(self) -> "Layout":
        """The same rows, with the encoded context in the place of the source."""
        of_context = self.bound(self.shared, self.context_side)
        of_context.__dict__.pop("source_keys", None)
        return of_context

    @cached_property
    def has_context(self) -> Tensor:
        """Whether the row of each packed token has context: [N, 1] or [B, T, 1]."""
        assert self.context_side is not None
        return self.pack(self.context_side.exists[:, None, None].expand(*self.sentence.shape, 1))

    @property
    def source(self) -> SourceSide:
        assert self._source is not None
        return self._source

    @cached_property
    def sentences(self) -> Sentences:
        """The sentences of all rows, in buckets."""
        spans, tokens = None, 0
        if self.packed.aligned:
            spans, tokens = self.source.spans, self.source.tokens
        return Sentences(self.sentence, spans, tokens, self.packed.memory_sentences)

    @cached_property
    def packing(self) -> Packing | None:
        """Indices of the real tokens; None if rows are not packed."""
        return self.sentences.rows if self.packed.by_sentence else Packing.of(self.sentence)

    def pack(self, x_BTD: Tensor) -> Tensor:
        """Pack rows: [B, T, D] -> [N, D]; return them unchanged if there is no packing."""
        return x_BTD if self.packing is None else self.packing.pack(x_BTD)

    def unpack(self, x: Tensor) -> Tensor:
        """Reverse `pack`, with zeros on padding."""
        return x if self.packing is None else self.packing.unpack(x)

    @property
    def token_indices(self) -> Tensor:
        """Index of every token in the batch, -1 on padding (`TokenIndices`): [B, T]."""
        if self._indices is not None:
            return self._indices
        token_BT = torch.arange(self.sentence.numel(), device=self.sentence.device).view_as(self.sentence)
        return torch.where(self.sentence >= 0, token_BT, -1)

    @cached_property
    def position(self) -> Tensor:
        """Position of every token in its row: [B, T]."""
        return torch.arange(self.sentence.size(1), device=self.sentence.device).expand_as(self.sentence)

    @cached_property
    def rank(self) -> Tensor:
        """Position of every token in its sentence: [B, T]."""
        return ranks(self.sentence)

    @cached_property
    def packed_position(self) -> Tensor:
        """Position of every packed token in its row: [N], or [B, T] without packing."""
        position = self.position
        return position if self.packing is None else position.flatten()[self.packing.index_N]

    @property
    def absolute(self) -> Tensor:
        """Encodings of the positions of all tokens, packed: [N, D] or [B, T, D]."""
        table = self.shared.table
        # Learned vectors have gradients: a layer that is recomputed must look them up again.
        return self._sinusoids if isinstance(table, PositionTable) else table(self.packed_position)

    @cached_property
    def _sinusoids(self) -> Tensor:
        encoded: Tensor = self.shared.table(self.packed_position, self.longest)
        return encoded

    @cached_property
    def is_current(self) -> Tensor:
        """True for tokens of current sentences: [B, T]."""
        assert self._current is not None
        return is_current(self.sentence, self._current)

    @cached_property
    def has_several(self) -> bool:
        """Whether any row has several sentences."""
        return bool(self._of_several.any())

    @cached_property
    def _of_several(self) -> Tensor:
        """True for rows of several sentences: [B]."""
        return self.sentence.max(dim=1).values > self.sentence[:, 0]

    @cached_property
    def among_several(self) -> Tensor:
        """Whether the row of each packed token has several sentences: [N, 1] or [B, T, 1]."""
        return self.pack(self._of_several[:, None, None].expand(*self.sentence.shape, 1))

    @cached_property
    def current_part(self) -> "tuple[Packing, Layout]":
        """The current tokens of every row: their indices, and their layout, shifted to the left."""
        sentence, position = moved_left(self.is_current, (self.sentence, -1), (self.position, 0))
        # The current tokens keep their positions in the original row.
        fewer = Layout(sentence, Packed(answers=self.packed.answers))
        fewer.__dict__["position"] = position
        fewer.longest = self.longest
        return Packing(self.is_current), fewer

    @property
    def top(self) -> "Layout":
        """The layout after the last layer of a stack."""
        return self.current_part[1] if self.packed.current_only else self

    def of_current(self, x: Tensor) -> tuple[Tensor, "Layout"]:
        """Return states and layout of only the current tokens, if the stack requires this."""
        if not self.packed.current_only:
            return x, self
        tokens, fewer = self.current_part
        fewer, x_ND = fewer.bound(self.shared), tokens.pack(self.unpack(x))
        return (x_ND if fewer.packing is not None else x_ND.view(*fewer.sentence.shape, -1)), fewer

    @cached_property
    def row_keys(self) -> Keys:
        """Keys of self-attention over whole rows."""
        # Padding is to the right of all real tokens, so the causal mask already hides it.
        mask = None if self.causal else self.mask
        if self.shared.source_sentences is not None and not self.causal:
            mask = near_sentences(self.sentence, self.sentence, self.shared.source_sentences)
        indices = self._indices
        tokens = None if indices is None else lambda: TokenIndices(indices, indices)
        return Keys(
            mask, self.causal, True, lambda: (self.position, self.position), tokens, apart=lambda: self.apart
        )

    @cached_property
    def apart(self) -> Apart | None:
        """Keys of the query's sentence, and of other sentences; None if all rows are single sentences."""
        if not self.has_several:
            return None
        return apart_by_sentence(self.sentence, self.sentence, self.row_keys.mask, self.causal)

    @cached_property
    def source_apart(self) -> Apart | None:
        """Keys of the translated source sentence, and of other sentences; None if there are no others."""
        return apart_from_source(self.source, self.sentence, self.source_keys.mask)

    @cached_property
    def source_keys(self) -> Keys:
        """Keys of cross-attention over whole source rows."""
        return _source_keys(self, self.sentence)

    @cached_property
    def segments(self) -> Segments:
        """Distances between sentences."""
        return Segments(self.sentence)

    @cached_property
    def memory(self) -> MemoryLayout:
        """For each sentence, the tokens of the sentences before it."""
        return MemoryLayout(self.sentences)

    @cached_property
    def nodes(self) -> list[ExtraTokens]:
        """The tokens of the sentences of each bucket, and nodes of other sentences (`buckets.py`)."""
        return tokens_and_nodes(self.sentences, self.sentence, self.sentence, crosses=False)

    @cached_property
    def source_nodes(self) -> list[ExtraTokens]:
        """The source tokens of the sentences of each bucket, and nodes of other source sentences."""
        return tokens_and_nodes(self.sentences, self.sentence, self.source.sentence, crosses=True)

    @cached_property
    def aligned_position(self) -> Tensor:
        """Position in the source row that corresponds to every target token: [B, T].

        Token r of target sentence k corresponds to the start of source sentence k plus r.
        """
        start, _ = self.source.span_of(self.sentence)
        return start + self.rank


def _source_keys(layout: "AnyLayout", sentence_BT: Tensor) -> Keys:
    source, mask, most = layout.source, layout.source.mask, layout.shared.source_sentences
    if most is not None and not isinstance(source, ContextSide):
        last = source.sentence.amax(dim=1, keepdim=True)  # later target sentences count as this one
        mask = near_sentences(sentence_BT.minimum(last), source.sentence, most)

    def positions() -> tuple[Tensor, Tensor]:
        return layout.aligned_position, torch.arange(source.tokens, device=source.sentence.device)[None]

    return Keys(mask, positions=positions, apart=lambda: layout.source_apart)


class Step:
    """The next tokens of rows that are being decoded, after the tokens in the caches of `state`.

    In all properties, the T tokens of all beams of an entry are next to each other.
    """

    def __init__(
        self, sentence: Tensor, position: Tensor, rank: Tensor, state: DecoderState, shared: Shared
    ) -> None:
        """`sentence`, `position` in the row, `rank` in the sentence, [R, T]: see `DecoderState.positions`."""
        self.sentence, self.position, self.rank = sentence, position, rank
        self.state, self.shared = state, shared
        self.source: SourceSide = state.source
        # The mask of whole rows is the same in all layers: compute it once per step.
        self.row = state.slot_mask(sentence.size(1), sentence.device)
        self._within: dict[int, SlotMask] = {}

    def side_by_side(self, x_RTD: Tensor) -> Tensor:
        """The tokens of an entry's beams as one row: [R, T, D] -> [B, W * T, D]."""
        return x_RTD if self.state.beam == 1 else x_RTD.reshape(self.state.entries, -1, x_RTD.size(-1))

    @property
    def context_side(self) -> ContextSide | None:
        return self.state.context_side

    @cached_property
    def of_context(self) -> "Step":
        """See `Layout.of_context`."""
        assert self.context_side is not None
        of_context = copy(self)
        of_context.source = self.context_side
        of_context.__dict__.pop("source_keys", None)
        return of_context

    @cached_property
    def has_context(self) -> Tensor:
        """See `Layout.has_context`: [B, 1, 1]."""
        assert self.context_side is not None
        return self.context_side.exists[:, None, None]

    def within(self, memory_sentences: int) -> SlotMask:
        """Return the slots of the tokens' own sentence and of this many earlier sentences."""
        if memory_sentences not in self._within:
            self._within[memory_sentences] = self.state.within_sentence(
                self.sentence, self.row, memory_sentences
            )
        return self._within[memory_sentences]

    @cached_property
    def packed_position(self) -> Tensor:
        """Position of every token in its row: [B, W * T]."""
        return self.position.reshape(self.state.entries, -1)

    @cached_property
    def absolute(self) -> Tensor:
        """Encodings of the positions of the tokens in their rows: [B, W * T, D]."""
        encoded: Tensor = self.shared.table(self.packed_position)
        return encoded

    @cached_property
    def aligned_position(self) -> Tensor:
        """See `Layout.aligned_position`: [B, W * T]."""
        start, _ = self.source.span_of(self.packed_sentence)
        return start + self.rank.reshape(self.state.entries, -1)

    @cached_property
    def source_range(self) -> tuple[slice, Tensor]:
        """See `SourceSide.within`: a range of source tokens, and a mask [B, 1, W * T, range]."""
        return self.source.within(self.packed_sentence)

    @cached_property
    def source_keys(self) -> Keys:
        return _source_keys(self, self.packed_sentence)

    @cached_property
    def apart(self) -> Apart | None:
        """Slots of the tokens' own sentence and of other sentences; None if all rows are single sentences."""
        if self.source.spans.size(1) == 1:
            return None
        own, slots = self.packed_sentence, self.state.sentences_of_slots(self.sentence)
        return apart_by_sentence(own, slots, self.row.mask, self.row.causal)

    @cached_property
    def source_apart(self) -> Apart | None:
        return apart_from_source(self.source, self.packed_sentence, self.source_keys.mask)

    @property
    def packed_sentence(self) -> Tensor:
        """Sentence of every token: [B, W * T]."""
        return self.sentence.reshape(self.state.entries, -1)

    @cached_property
    def _row_keys(self) -> Keys:
        return self._keys(self.row)

    def keys(self, slots: SlotMask) -> Keys:
        # Tables of whole rows are the same in all layers.
        return self._row_keys if slots is self.row else self._keys(slots)

    def _keys(self, slots: SlotMask) -> Keys:
        begins = self.state.used == 0
        positions = partial(self._positions, slots.first)
        return Keys(slots.mask, slots.causal, begins, positions, apart=lambda: self.apart)

    def _positions(self, first: int) -> tuple[Tensor, Tensor]:
        past, new = self.state.slot_position, self.packed_position
        assert past is not None
        return new, torch.cat((past[:, first : self.state.used], new), dim=1)


AnyLayout = Layout | Step


def tokens_where(layout: AnyLayout, exists_BT: Tensor) -> Callable[[], TokenIndices] | None:
    """Return the tokens of queries with keys, and of all keys, for `watch_weights`; None in search."""
    if isinstance(layout, Step):
        return None
    return lambda: TokenIndices(torch.where(exists_BT, layout.token_indices, -1), layout.token_indices)


# --- All layouts of a batch, made before its forward pass.


@dataclass(frozen=True, slots=True)
class ContextLayout:
    """Sentences of rows [B, T], with tokens that a batch context adds in front; `found`: other data of it."""

    sentence: Tensor
    found: Any = None


@dataclass(frozen=True, slots=True)
class Layouts:
    """The layouts of a batch, made before its forward pass.

    `source`: layout of the encoder's rows. `side`: source side of cross-attention, without keys and values.
    `target`: layout of the decoder's rows, and `input_sentence` [B, T]: sentences of its inputs, if known.
    `context` and `target_context`: layouts of a batch context. `context_rows`: for a context encoder, the
    current and the context part of source rows. `shift`: upper bound of all position shifts. `texts`: maximum
    number of texts of a row, for `soft_copy`.
    """

    source: Layout
    side: SourceSide
    target: Layout | None = None
    input_sentence: Tensor | None = None
    context: ContextLayout | None = None
    target_context: ContextLayout | None = None
    context_rows: Any = None
    shift: int = 0
    texts: int = 1
