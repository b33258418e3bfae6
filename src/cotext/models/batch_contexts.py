"""Batch contexts: DocFlat, here, and ABD and MBE, below.

Flat-batch attention (DocFlat; Wu et al. 2023) between the current sentences of the rows of a document.

A row is a sentence in its local context; a batch contains the rows of a document. Before the first block, the
embeddings of all current sentences attend to each other as one sequence, and a gate weights the result.
Context sentences do not change:

    source -> embedding -> flat-batch attention, gate -> encoder blocks ---> keys and values
    target -> embedding -> flat-batch attention, gate -> decoder blocks <--'     (causal on the target)

On the target, a token attends to its own row up to itself, and to rows whose current sentences end where its
own begin. Rows of different documents do not attend to each other. With `cross_document` they do during
training, as in the paper, but never in translation. Extra rows are attended to but not decoded; this layer
needs only their token embeddings.

Shapes: B entries, R rows, S source tokens, T target tokens, P tokens in front of a cache, M tokens of extra
rows, D model.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cotext.data.batch import Source
from cotext.layers.flat_batch import (
    ActiveGroups,
    ExtraKeys,
    FlatBatchAttention,
    FlatContext,
    FlatLayout,
    GateKind,
    PrefixedCache,
    RowOrder,
    Sequences,
)
from cotext.layers.kernels.common import Dropout
from cotext.layers.kernels.sdpa import TokenIndices, attend
from cotext.layers.layout import ContextLayout
from cotext.layers.linear import Blended, ZeroGate, outputs
from cotext.layers.multi_head import AttentionSize, merge_heads, projection, split_heads
from cotext.layers.positions import causal, is_current
from cotext.layers.state import DecoderState, TargetContext
from cotext.models.slots import BatchContext, BatchSides, RowEmbedder, RowsTarget


class FlatBatch(BatchContext):
    """Flat-batch attention on either side.

    `gate`: "continuous" (C in the paper), "discrete" (D; 0 or 1, from `threshold` on) or "identity" (I; no
    gate).
    """

    def __init__(
        self, size: AttentionSize, sides: BatchSides, gate: GateKind = "continuous", threshold: float = 0.5
    ) -> None:
        super().__init__(sides)

        def context() -> FlatContext:
            return FlatContext(FlatBatchAttention(size), size.dimension, gate, threshold, size.neutral_start)

        self.source_context = context() if sides.source else None
        self.target_context = context() if sides.target else None

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

    If every entry is alone in its group, complete rows are placed before its cache; `lead` is the mask of
    their tokens. If groups have several entries, `active` holds the attention masks between them.
    """

    def __init__(self, parent: FlatBatch, context: FlatContext, source: Source, embed: RowEmbedder) -> None:
        super().__init__(parent, source, embed)
        self.context = context
        self.meets = False
        self.cache = 0
        self.lead: Tensor | None = None  # [B, P]
        self.active: ActiveGroups | None = None

    def keys_of(self, tokens: Tensor, sentence: Tensor, source: Source, order: RowOrder) -> ExtraKeys:
        """Return the current tokens."""
        chosen = is_current(sentence, source.current)
        return _extra_keys(self.embed.target(tokens, sentence, source), chosen, order)

    def open(self, state: DecoderState) -> None:
        entries = len(self.rows.group)
        # Entries of one group must attend to each other while they are decoded.
        self.meets = len(torch.unique(self.rows.group)) < entries
        like = state.caches[0].slots[0]
        keys = values = like.new_empty(entries, like.size(1), 0, like.size(3))
        if not self.meets:
            # Entry i is the only one of its group.
            entry_M, token_M = self.rows.follows(self.complete.order).nonzero(as_tuple=True)
            if len(token_M):
                laid = Sequences(entry_M, self.complete.order.begin[token_M], entries)
                keys, values = (
                    laid.slots.unpack(x[token_M].flatten(1)).view(entries, -1, *x.shape[1:]).transpose(1, 2)
                    for x in self.context.attention.keys_values(self.complete.hidden)
                )
                self.lead = laid.real_GL
        self.cache = len(state.caches)
        state.caches.append(PrefixedCache(keys.to(like.dtype), values.to(like.dtype), state.capacity))

    def finish(self, entries: Tensor, tokens: Tensor, sentence: Tensor) -> None:
        if self.meets:  # otherwise, no other row attends to them
            super().finish(entries, tokens, sentence)

    def select(self, entries: Tensor) -> None:
        super().select(entries)
        self.lead = None if self.lead is None else self.lead.index_select(0, entries)
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
        if self.meets:
            by_beam = own.reshape(entries, state.beam, tokens, -1)
            seen = self._groups().attend(attention, q, k, v, by_beam)
        else:
            if self.lead is not None:
                lead = self.lead[:, None, None].expand(-1, -1, own.size(2), -1)
                own = torch.cat((lead, own), dim=3)
            seen = attention.mix(q, k, v, own)
        current = is_current(sentence.view(entries, -1), self.source.current)
        return torch.where(current[:, :, None], self.context.combine(h, seen), h).view_as(x_RTD)

    def _groups(self) -> ActiveGroups:
        """Return the masks between entries, which stay the same until a row is finished."""
        if self.active is None:
            ended = self.context.attention.keys_values(self.complete.hidden)
            self.active = ActiveGroups(self.rows, ended, self.complete.order)
        return self.active

    def _own(self, sentence: Tensor, state: DecoderState) -> Tensor:
        """Return the current tokens of its past that an input attends to: [R, T] -> [B, 1, W * T, slots]."""
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


# --- Attention between datapoints (ABD; Kossen et al. 2021, as Wu et al. 2023 adapt it in appendix C).
#
# Each row of a document is represented by one vector, the mean of its embeddings. These vectors attend to
# each other, and the result is added to all tokens of the row, before the first block:
#
#     H' = norm(H + MHSA(mean of each row))                                              equation 11
#
# This holds for the source, which is fully known. On the target, rows are overlapping windows. The mean of an
# earlier row would contain words that the context labels of a later row still have to predict. On the target,
# rows therefore attend to each other only through their current sentences, as in flat-batch attention, which
# ABD replaces in the paper. Context does not change.
#
#     row 1    x x a a        mean of row 1: (a + a) / 2; `x` and `y` are neither queries nor keys
#     row 2    y y a b b      the first b attends to b and mean 1, the second b to (b + b) / 2 and mean 1
#
# A current token attends to the mean of the current tokens of its row up to itself. It also attends to the
# complete means of rows that end before the current sentences of its row begin. Nothing at or after the token
# in its document has an effect.
#
# Rows of different documents do not attend to each other; with `cross_document` they do in training, as in
# the paper, but never in translation. The means of extra rows are also attended to.
#
# Shapes: B entries, R rows, S source tokens, T target tokens, W beams, Q = W * T, N rows with means, M
# complete ones, m of them before an entry, D model, H heads, K per head.


class DatapointAttention(nn.Module):
    """Multi-head attention between the means of rows, added to the tokens of the rows.

    If training starts from a model without a layer norm on its embeddings, the sum passes a gate that starts
    at zero.
    """

    def __init__(self, size: AttentionSize) -> None:
        super().__init__()
        self.heads = size.heads
        self.dropout = Dropout(size.dropout)
        self.qkv = projection(size.dimension, 3)
        self.out = projection(size.dimension)
        self.norm = nn.LayerNorm(size.dimension)
        self.start = ZeroGate(size.dimension) if size.neutral_start else None

    def forward(self, x_BSD: Tensor, mean_ND: Tensor, sees_BN: Tensor, current_BS: Tensor) -> Tensor:
        """Add the attention over N means to rows [B, S, D]; their own means are the first: -> [B, S, D].

        In recorded weights, a row is represented by the first of its current tokens.
        """
        rows = len(x_BSD)

        def tokens() -> TokenIndices:
            row_B = torch.arange(rows, device=x_BSD.device)
            token_B = current_BS.byte().argmax(dim=1) + row_B * x_BSD.size(1)
            extra = token_B.new_full((len(mean_ND) - rows,), -1)
            return TokenIndices(token_B[None], torch.cat((token_B, extra))[None])

        q, k, v = (split_heads(part[None], self.heads) for part in self.qkv(mean_ND).chunk(3, dim=-1))
        dropout = self.dropout.rate if self.training else 0.0
        mixed = merge_heads(attend(q[:, :, :rows], k, v, sees_BN, False, dropout, tokens))
        return self._added(x_BSD, self.out(mixed)[0, :, None])

    def causal(
        self, x_BQD: Tensor, running_BQD: Tensor, complete_MD: Tensor, sees_BM: Tensor, count: int
    ) -> Tensor:
        """Tokens [B, Q, D] attend to the mean of their sentence so far and to complete means: -> [B, Q, D].

        `count`: the largest number of complete means of a row, at least 1.
        """
        size = x_BQD.size(2)
        # A stable sort moves the visible means to the front, in their order.
        index_Bm = (~sees_BM).byte().argsort(dim=1, stable=True)[:, :count]
        q, own_k, own_v = (split_heads(p, self.heads) for p in self.qkv(running_BQD).chunk(3, dim=-1))
        own_score = (q * own_k).sum(dim=-1, keepdim=True)
        key_value = outputs(self.qkv, complete_MD, size)
        k, v = (split_heads(part, self.heads) for part in key_value[index_Bm].chunk(2, dim=-1))
        hidden = ~sees_BM.gather(1, index_Bm)[:, None, None]
        scores = (q @ k.transpose(-2, -1)).masked_fill(hidden, -torch.inf)
        scores = torch.cat((scores, own_score), dim=-1) * q.size(-1) ** -0.5
        weights = self.dropout(scores.softmax(dim=-1))
        mixed = weights[..., :count] @ v + weights[..., count:] * own_v
        return self._added(x_BQD, self.out(merge_heads(mixed)))

    def _added(self, x: Tensor, output: Tensor) -> Tensor:
        """Add the attention output to the embeddings, [B, T, D], to which it broadcasts."""
        out: Tensor = self.norm(x + output)
        return out if self.start is None else self.start(x, out)


class Datapoints(BatchContext):
    """Attention between datapoints on either side."""

    def __init__(self, size: AttentionSize, sides: BatchSides) -> None:
        super().__init__(sides)
        self.source_rows = DatapointAttention(size) if sides.source else None
        self.target_rows = DatapointAttention(size) if sides.target else None

    def target_layout(self, source: Source, sentence: Tensor, training: bool) -> ContextLayout:
        """See `BatchContext`; computes the largest number of complete means of a row."""
        if self.target_rows is None:
            return ContextLayout(sentence)
        rows = complete = self.order_of(source, training)
        has_mean = is_current(sentence, source.current).any(dim=1)
        if source.extra_rows is not None:
            other = source.extra_rows.source
            extra_has_mean = is_current(source.extra_rows.input_sentence, other.current).any(dim=1)
            has_mean = torch.cat((has_mean, extra_has_mean))
            complete = rows.join(self.order_of(other, training))
        return ContextLayout(sentence, _most(rows.follows(complete) & has_mean))

    def read(self, source: Source, embed: RowEmbedder, found: None) -> Tensor:
        x_BSD, sentence = embed.source(source), source.sentence
        if self.source_rows is None:
            return x_BSD
        rows = self.order_of(source, self.training)
        means, group = _means(x_BSD, sentence >= 0), rows.group
        if source.extra_rows is not None:
            other = source.extra_rows.source
            means = torch.cat((means, _means(embed.source(other), other.sentence >= 0)))
            group = torch.cat((group, self.order_of(other, self.training).group))
        current_BS = is_current(sentence, source.current)
        mixed: Tensor = self.source_rows(x_BSD, means, rows.group[:, None] == group, current_BS)
        return mixed

    def target(self, source: Source, embed: RowEmbedder, found: None) -> "DatapointsTarget | None":
        attention = self.target_rows
        return None if attention is None else DatapointsTarget(self, attention, source, embed)


class DatapointsTarget(RowsTarget):
    """Attention between datapoints of a decoder, with the means of complete rows."""

    def __init__(
        self, parent: Datapoints, attention: DatapointAttention, source: Source, embed: RowEmbedder
    ) -> None:
        super().__init__(parent, source, embed)
        self.attention = attention
        self.total: Tensor | None = None  # [R, 1, D], sum of the current embeddings so far
        self.count: Tensor | None = None  # [R, 1, 1]

    def keys_of(self, tokens: Tensor, sentence: Tensor, source: Source, order: RowOrder) -> ExtraKeys:
        """Return the means of the rows that have current tokens."""
        current_RT = is_current(sentence, source.current)
        indices = current_RT.any(dim=1).nonzero().flatten()
        x_RTD = self.embed.target(tokens, sentence, source)
        return ExtraKeys(_means(x_RTD[indices], current_RT[indices]), order.take(indices))

    def select_rows(self, rows: Tensor) -> None:
        if self.total is not None and self.count is not None:
            self.total, self.count = self.total.index_select(0, rows), self.count.index_select(0, rows)

    def mix(self, x_RTD: Tensor, sentence: Tensor, state: DecoderState) -> Tensor:
        """Add the attention output to the embeddings of current target tokens: [R, T, D] -> [R, T, D]."""
        current_RT = is_current(sentence, self.source.current.repeat_interleave(state.beam, dim=0))
        running_RTD, count_RT1 = self._running(x_RTD, current_RT, bool(state.caches))
        # The first beam represents an entry; entries that have decoded only context have no mean yet.
        complete = torch.cat((self.complete.hidden, running_RTD[:: state.beam, -1]))
        sees = self.rows.follows(self.complete.order.join(self.rows))
        sees[:, len(self.complete.hidden) :] &= count_RT1[:: state.beam, -1, 0] > 0
        x, running = (y.reshape(len(sees), -1, y.size(2)) for y in (x_RTD, running_RTD))
        count = _most(sees) if state.caches else state.layouts.target_context.found
        outputs = self.attention.causal(x, running, complete, sees, count).view_as(x_RTD)
        return torch.where(current_RT[:, :, None], outputs, x_RTD)

    def _running(self, x_RTD: Tensor, current_RT: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
        """Return the mean of the current tokens of each row up to every token, and their number.

        [R, T, D] and [R, T, 1]; zeros without any. `keep`: later tokens need the last ones.
        """
        counted = current_RT[:, :, None].to(x_RTD.dtype)
        total, count = (x_RTD * counted).cumsum(dim=1), counted.cumsum(dim=1)
        if self.total is not None and self.count is not None:
            total, count = total + self.total, count + self.count
        if keep:
            self.total, self.count = total[:, -1:], count[:, -1:]
        return total / count.clamp(min=1), count


def _most(sees_BM: Tensor) -> int:
    """Return the largest number of means that a row attends to, at least 1."""
    return max(1, int(sees_BM.sum(dim=1).max()))


def _means(x_RTD: Tensor, counted_RT: Tensor) -> Tensor:
    """Return the mean of the counted tokens of each row: [R, D]."""
    counted = counted_RT[:, :, None].to(x_RTD.dtype)
    return (x_RTD * counted).sum(dim=1) / counted.sum(dim=1)


# --- Mini-batch embedding (MBE; Morishita et al. 2021, as Wu et al. 2023 compare with it).
#
# The mean of the embeddings of all source tokens of the batch is placed before every source and target row,
# as another token of its first sentence:
#
#     mean a b c eos -> encoder -> keys and values        mean bos x y -> decoder
#
# Only word embeddings are averaged, without positions. Each document has its own mean over its rows, extra
# rows included. In the paper, all rows share one mean; `cross_document` does this in training, but never in
# translation, where a document must not depend on others.


@dataclass(frozen=True, slots=True)
class Groups:
    """The group of each row, then of each extra row: [B + C]; each of `count` groups has a mean."""

    group: Tensor
    count: int


class BatchMean(BatchContext, Blended):
    """The mean before source rows, target rows, or both.

    While it is blended in, a random share of batches has it, on both sides, because it shifts all positions.
    """

    what = "mean"

    def left_out(self) -> bool:
        return self.in_force < 1 and float(torch.rand(())) >= self.in_force

    def source_layout(self, source: Source, training: bool) -> ContextLayout:
        sides = [source] if source.extra_rows is None else [source, source.extra_rows.source]
        document = torch.cat([side.document for side in sides])
        crosses = self.sides.cross_document and training
        # One group for all documents if they share a mean.
        distinct, group = torch.unique(document * (not crosses), return_inverse=True)
        sentence = _begun(source.sentence) if self.sides.source else source.sentence
        return ContextLayout(sentence, Groups(group, len(distinct)))

    def target_layout(self, source: Source, sentence: Tensor, training: bool) -> ContextLayout:
        return ContextLayout(_begun(sentence) if self.sides.target else sentence)

    def read(self, source: Source, embed: RowEmbedder, found: Groups) -> Tensor:
        x_BSD = embed.source(source, behind=int(self.sides.source))
        if not self.sides.source:
            return x_BSD
        first = embed.first(self._mean(source, embed, found), "source")
        return torch.cat((first[:, None], x_BSD), dim=1)

    def target(self, source: Source, embed: RowEmbedder, found: Groups) -> "MeanTarget | None":
        return MeanTarget(self._mean(source, embed, found), embed) if self.sides.target else None

    def _mean(self, source: Source, embed: RowEmbedder, groups: Groups) -> Tensor:
        """Return the mean over the words of all rows of a group, for every row of the batch: [B, D]."""
        sides = [source] if source.extra_rows is None else [source, source.extra_rows.source]
        sums, counts = zip(*(_sum(side, embed) for side in sides), strict=True)
        sum_D, count = torch.cat(sums), torch.cat(counts)
        sum_GD = sum_D.new_zeros(groups.count, sum_D.size(1)).index_add(0, groups.group, sum_D)
        count_G = count.new_zeros(groups.count, 1).index_add(0, groups.group, count)
        return (sum_GD / count_G)[groups.group[: len(source.document)]]


class MeanTarget(TargetContext):
    """The mean as the first decoder input of every row: [B, D]."""

    extra_slots = 1

    def __init__(self, mean_BD: Tensor, embed: RowEmbedder) -> None:
        self.mean, self.embed = mean_BD, embed

    def select(self, entries: Tensor) -> None:
        self.mean = self.mean.index_select(0, entries)

    def extend(self, sentence: Tensor, state: DecoderState) -> Tensor:
        """Add a token to the first sentence of rows that begin: [R, T] -> [R, 1 + T]."""
        if state.length is not None:
            return sentence
        return _begun(sentence) if state.caches else state.layouts.target_context.sentence

    def mix(self, x_RTD: Tensor, sentence: Tensor, state: DecoderState) -> Tensor:
        if state.length is not None:
            return x_RTD
        first = self.embed.first(self.mean.repeat_interleave(state.beam, dim=0), "target")
        return torch.cat((first[:, None], x_RTD), dim=1)


def _sum(source: Source, embed: RowEmbedder) -> tuple[Tensor, Tensor]:
    """Return the sum of the word embeddings of each row, and their number: [R, D], [R, 1]."""
    real_RS = (source.sentence >= 0).to(embed.weight.dtype)
    words_RSD = embed.bare(source)
    return (words_RSD * real_RS[:, :, None]).sum(dim=1), real_RS.sum(dim=1, keepdim=True)


def _begun(sentence: Tensor) -> Tensor:
    """Add a token to the first sentence of rows: [R, T] sentence indices -> [R, 1 + T]."""
    return torch.cat((sentence[:, :1], sentence), dim=1)
