"""Slots of a model, and the embeddings of rows that their parts receive.

Shapes: B entries, R rows, E finished entries, S source tokens, C context tokens, T target tokens, D model, V
vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from cotext.config.model import BatchConfig
from cotext.data.batch import Source
from cotext.layers.blocks import ContextAttention, Size, Stack, Stacks, TransformerBlock
from cotext.layers.embedding import CONTEXT, CURRENT, SentenceEmbedding, Side
from cotext.layers.flat_batch import ExtraKeys, RowOrder
from cotext.layers.kernels.common import moved_left
from cotext.layers.layout import ContextLayout, Layout, Packed
from cotext.layers.positions import is_current, mean_sentence_length, ranks
from cotext.layers.state import ContextSide, DecoderState, TargetContext


@dataclass(frozen=True, slots=True)
class RowEmbedder:
    """Embeddings of complete rows, also for the parts of a model, and of the next decoder inputs."""

    embedding: SentenceEmbedding
    shift: int | Literal["sequence"] | Tensor  # the same in all rows, or [B]
    most_shift: int  # upper bound of the shifts in complete rows

    def bare(self, source: Source) -> Tensor:
        """Return source embeddings without positions, [B, S] -> [B, S, D]."""
        return self.embedding.bare(source.tokens, "source")

    def shift_of(self, source: Source) -> Tensor | None:
        """Return the segment shift of every row, if it differs between rows: [B]."""
        if isinstance(self.shift, Tensor):
            return self.shift
        return mean_sentence_length(source.sentence) if self.shift == "sequence" else None

    def source(self, source: Source, behind: int = 0) -> Tensor:
        """Embed source rows, [B, S] -> [B, S, D], after `behind` extra tokens of their first sentence."""
        sentence, rank = source.sentence, None
        segment = self.embedding.segments("source", sentence, source.current[:, 0])
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
            behind + sentence.size(1) + self.most_shift,
        )

    def target(self, tokens: Tensor, sentence: Tensor, source: Source) -> Tensor:
        """Embed complete decoder inputs of the rows of a source, [B, T] -> [B, T, D]."""
        position = torch.arange(sentence.size(1), device=sentence.device).expand_as(sentence)
        closed = self.embedding.input_sentence(sentence, None)
        rank = ranks(sentence) if self.embedding.reads_ranks("target") else None
        segment = self._segment(closed, source.current[:, 0], position == 0)
        return self._target(tokens, closed, position, rank, self.shift_of(source), segment, sentence.size(1))

    def next(
        self, tokens: Tensor, sentence: Tensor, position: Tensor, rank: Tensor, state: DecoderState
    ) -> Tensor:
        """Embed the next inputs [R, T]; the other arguments, [R, T'], also describe extra tokens in front."""
        extra = sentence.size(1) - tokens.size(1)
        closed = self.embedding.input_sentence(sentence, state.sentence)
        most: int | None = sentence.size(1)
        if state.caches:
            # Free search may write more sentences than the source has, with larger shifts. A continued row
            # may be longer than its slots, which contain only the sentences that it attends to.
            most = state.capacity if self.shift == 0 and state.rows.caches is None else None
        if extra:
            closed, position, rank = (values[:, extra:] for values in (closed, position, rank))
        segment = None
        if self.embedding.target.segments != "none":
            assert state.first is not None
            opens = position == extra  # the first input after extra tokens
            segment = self._segment(closed, state.first, opens)
        return self._target(tokens, closed, position, rank, state.shift, segment, most)

    def first(self, x_RD: Tensor, side: Side) -> Tensor:
        """Embed extra vectors before their rows: [R, D] -> [R, D]."""
        if (self.embedding.source if side == "source" else self.embedding.target).positions != "none":
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
        most: int | None,
    ) -> Tensor:
        """`most`: an upper bound of the tokens of a row, if there is one."""
        x = self.embedding.bare(tokens, "target")
        below = None if most is None else most + self.most_shift
        return self.embedding.placed(
            x, "target", sentence, position, rank, self._shift(shift), segment, below
        )

    def _segment(self, sentence: Tensor, first: Tensor, opens: Tensor) -> Tensor | None:
        """Return segments of decoder inputs if they are not sentences; `opens`: the first input of a row."""
        if self.embedding.target.segments == "current":
            return torch.where(sentence < first[:, None], CONTEXT, CURRENT)
        segment = self.embedding.segments("target", sentence, first)
        if segment is None or self.embedding.made.bracketed:
            return segment
        return segment.masked_fill(opens, 0)  # this input closed the current sentence of the previous row

    def _shift(self, per_row: Tensor | None) -> Tensor | int:
        if per_row is not None:
            return per_row
        assert isinstance(self.shift, int)
        return self.shift


# --- The slot `model.batch_context`: attention between the rows of a batch, before the first block.


BatchSettings = BatchConfig  # the name that parts use


class BatchContext(nn.Module, ABC):
    """Attention between the rows of a document before the first block."""

    extra_tokens = (0, 0)  # see `System`

    def __init__(self, settings: BatchSettings) -> None:
        super().__init__()
        self.settings = settings

    def order_of(self, source: Source, training: bool) -> RowOrder:
        """Return the order of the rows of a source, and their groups."""
        crosses = self.settings.cross_document and training
        return RowOrder.of(source.document, source.first_sentence, source.current, crosses)

    def left_out(self) -> bool:
        """Whether to skip this attention for the next batch; random while it is blended in."""
        return False

    def source_layout(self, source: Source, training: bool) -> ContextLayout:
        """Return the data about source rows that depend only on their indices, such as masks."""
        return ContextLayout(source.sentence)

    @abstractmethod
    def target_layout(self, source: Source, sentence: Tensor, training: bool) -> ContextLayout:
        """Return the same for complete target rows; `sentence` [B, T]: the sentences of their inputs."""

    @abstractmethod
    def read(self, source: Source, embed: RowEmbedder, found: Any) -> Tensor:
        """Return embedded source rows [B, S', D] with context of other rows; `found`: see `source_layout`."""

    @abstractmethod
    def target(self, source: Source, embed: RowEmbedder, found: Any) -> TargetContext | None:
        """Return the target side, with which the decoder attends to other rows; None if it does not."""


class RowsTarget(TargetContext):
    """A target side on which rows attend to complete rows of their document.

    `complete`: the keys that they attend to. First come the extra rows, then rows that are finished.
    """

    def __init__(self, parent: BatchContext, source: Source, embed: RowEmbedder) -> None:
        self.embed, self.source = embed, source
        self.rows = parent.order_of(source, parent.training)
        hidden = embed.embedding.weight[:0]
        self.complete = ExtraKeys(hidden, self.rows.take(self.rows.group.new_empty(0)))
        if source.extra_rows is not None:
            given, other = source.extra_rows, source.extra_rows.source
            order = parent.order_of(other, parent.training)
            self.complete = self.keys_of(given.target_input, given.input_sentence, other, order)

    @abstractmethod
    def keys_of(self, tokens: Tensor, sentence: Tensor, source: Source, order: RowOrder) -> ExtraKeys:
        """Return keys of complete rows [R, T], to which other rows attend; `order` [R]: their order."""

    def finish(self, entries: Tensor, tokens: Tensor, sentence: Tensor) -> None:
        """Add finished rows to the complete rows: decoder inputs [E, T], -1 on padding."""
        ended = self.keys_of(tokens, sentence, self.source.select(entries), self.rows.take(entries))
        hidden = torch.cat((self.complete.hidden, ended.hidden))
        self.complete = ExtraKeys(hidden, self.complete.order.join(ended.order))

    def select(self, entries: Tensor) -> None:
        self.source = self.source.select(entries)
        self.rows = self.rows.take(entries)
        # No remaining row attends to a document that is finished completely.
        order = self.complete.order
        needed = torch.isin(order.group, self.rows.group).nonzero().flatten()
        self.complete = ExtraKeys(self.complete.hidden[needed], order.take(needed))


# --- The slot `model.context_encoder`: source context is encoded apart from the current sentences.
#
#     source row    c c c | x x x        context c -> context encoder ---.
#                                        current x -> encoder <----------+
#                                                        `-> decoder <---'      attention to the context
#
# Each of the two parts is a separate sequence, with positions from its beginning. Blocks attend to the states
# of the context by `ContextAttention`. Rows without context are translated as by the model without this slot.


@dataclass(frozen=True, slots=True)
class ContextRows:
    """The two parts of source rows, and the layout of the context part.

    In rows without context, the first current token stands in for it (`ContextSide.exists`).
    """

    current: Source
    context: Source
    layout: Layout
    side: ContextSide
    index: Tensor  # [B, S'], of the current tokens in the batch


class ContextEncoder(nn.Module, ABC):
    """Encodes context sentences; its subclasses insert `ContextAttention` into blocks.

    `extra_tokens`: number of tokens that it adds before the context.
    """

    extra_tokens: ClassVar[int] = 0
    spares_parameters = True  # rows without context do not use it

    def __init__(self, size: Size, layers: Sequence[TransformerBlock], stacks: Stacks) -> None:
        """`layers`: separate encoder blocks, as many as `model.context_layers`; `stacks` are changed."""
        super().__init__()
        self.layers, self.norm = Stack(layers), size.norm()

    def rows(self, source: Source, packed: Packed) -> ContextRows | None:
        """Divide source rows; return None if no row has context."""
        context = (source.sentence >= 0) & ~is_current(source.sentence, source.current)
        exists = context.any(dim=1)
        if not bool(exists.any()):
            return None
        current, current_index = _part(source, (source.sentence >= 0) & ~context)
        context[:, 0] |= ~exists
        part, index = _part(source, context)
        extra = part.sentence[:, : self.extra_tokens]
        sentence = torch.cat((extra, part.sentence), dim=1)
        index = torch.cat((torch.full_like(extra, -1), index.where(exists[:, None], -1)), dim=1)
        layout = Layout(sentence, packed, indices=index)
        return ContextRows(current, part, layout, ContextSide(sentence, exists, index), current_index)

    @abstractmethod
    def read(self, rows: ContextRows, layout: Layout, embed: RowEmbedder, encoder: Stack) -> Tensor:
        """Encode the context; return its states, packed by `layout`."""


def context_attentions(stacks: Stacks) -> list[ContextAttention]:
    """Number the context attentions of both stacks, and return them in this order."""
    blocks = (*stacks.encoder, *stacks.decoder)
    found = [b.context_attention.attention for b in blocks if b.context_attention is not None]
    for index, attention in enumerate(found):
        attention.index = index
    return found


def _part(source: Source, chosen_BS: Tensor) -> tuple[Source, Tensor]:
    """Return source rows of the chosen tokens only, moved to the left, and the former index of each token."""
    place = torch.arange(chosen_BS.numel(), device=chosen_BS.device).view_as(chosen_BS)
    sides = (source.tokens, 0), (source.sentence, -1), (place, -1)
    tokens, sentence, index = moved_left(chosen_BS, *sides)
    return replace(source, tokens=tokens, sentence=sentence, extra_rows=None, layouts=None), index
