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
decides its translation). Extra rows take part with the means of their embeddings.

Shapes: B entries, R rows, S source tokens, T target tokens, W beams, Q = W * T, N rows whose means are seen,
M complete ones, m of them before an entry, D model, H heads, K per head.
"""

import torch
from torch import Tensor, nn

from cotext.data.batch import Source
from cotext.layers.flat_batch import ExtraKeys
from cotext.layers.int8_linear import outputs
from cotext.layers.kernels.dropout import Dropout
from cotext.layers.kernels.sdpa import TokenIndices, attend
from cotext.layers.layouts import ContextLayout
from cotext.layers.masks import is_current
from cotext.layers.multi_head import AttentionSize, merge_heads, projection, split_heads
from cotext.layers.start import ZeroGate
from cotext.layers.state import DecoderState
from cotext.models.batch_context import BatchContext, BatchSides, Embedder, TargetContext


class DatapointAttention(nn.Module):
    """Multi-head attention between the means of rows, and the way back into the rows.

    Where training starts from a model whose embeddings no layer norm reaches, what is added passes a gate
    that begins at zero.
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
        """Rows [B, S, D], whose means are the first of N, and which means each sees -> [B, S, D].

        For whoever watches, a row is the first of its current tokens.
        """
        rows = len(x_BSD)

        def tokens() -> TokenIndices:
            each = torch.arange(rows, device=x_BSD.device)
            token_B = current_BS.byte().argmax(dim=1) + each * x_BSD.size(1)
            extra = token_B.new_full((len(mean_ND) - rows,), -1)
            return TokenIndices(token_B[None], torch.cat((token_B, extra))[None])

        q, k, v = (split_heads(part[None], self.heads) for part in self.qkv(mean_ND).chunk(3, dim=-1))
        dropout = self.dropout.rate if self.training else 0.0
        mixed = merge_heads(attend(q[:, :, :rows], k, v, sees_BN, False, dropout, tokens))
        return self._added(x_BSD, self.out(mixed)[0, :, None])

    def causal(
        self, x_BQD: Tensor, running_BQD: Tensor, complete_MD: Tensor, sees_BM: Tensor, count: int
    ) -> Tensor:
        """Tokens [B, Q, D] -> [B, Q, D]: each sees the mean of its current sentence so far and whole
        ones of others.

        `count`: the most of them that a row sees, at least 1.
        """
        size = x_BQD.size(2)
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

    def _added(self, x: Tensor, seen: Tensor) -> Tensor:
        """Embeddings with what they saw: [B, T, D], and what broadcasts to it -> [B, T, D]."""
        out: Tensor = self.norm(x + seen)
        return out if self.start is None else self.start(x, out)


class Datapoints(BatchContext):
    """Attention between datapoints on either side."""

    def __init__(self, size: AttentionSize, sides: BatchSides) -> None:
        super().__init__(sides)
        self.source_rows = DatapointAttention(size) if sides.source else None
        self.target_rows = DatapointAttention(size) if sides.target else None

    def target_layout(self, source: Source, sentence: Tensor, training: bool) -> ContextLayout:
        """See `BatchContext`; the most complete means that a row sees."""
        if self.target_rows is None:
            return ContextLayout(sentence)
        rows = complete = self.order_of(source, training)
        has_mean = is_current(sentence, source.current).any(dim=1)
        if source.extra_rows is not None:
            other = source.extra_rows.source
            of_extra = is_current(source.extra_rows.input_sentence, other.current).any(dim=1)
            has_mean = torch.cat((has_mean, of_extra))
            complete = rows.join(self.order_of(other, training))
        return ContextLayout(sentence, _most(rows.follows(complete) & has_mean))

    def read(self, source: Source, embed: Embedder, found: None) -> Tensor:
        """See `BatchContext`."""
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
        seen: Tensor = self.source_rows(x_BSD, means, rows.group[:, None] == group, current_BS)
        return seen

    def target(self, source: Source, embed: Embedder, found: None) -> "DatapointsTarget | None":
        """See `BatchContext`."""
        attention = self.target_rows
        return None if attention is None else DatapointsTarget(self, attention, source, embed)


class DatapointsTarget(TargetContext):
    """Attention between datapoints of a decoder.

    `complete` are the means of rows that are seen and will not change: extra rows, then rows that have ended.
    """

    def __init__(
        self, parent: Datapoints, attention: DatapointAttention, source: Source, embed: Embedder
    ) -> None:
        self.attention, self.embed, self.source = attention, embed, source
        self.rows, self.current = parent.order_of(source, parent.training), source.current
        hidden = embed.weight.new_empty(0, embed.weight.size(1))
        self.complete = ExtraKeys(hidden, self.rows.take(self.rows.group.new_empty(0)))
        if source.extra_rows is not None:
            given, other = source.extra_rows, source.extra_rows.source
            means, found = self._complete_means(given.target_input, given.input_sentence, other)
            self.complete = ExtraKeys(means, parent.order_of(other, parent.training).take(found))
        self.total: Tensor | None = None  # [R, 1, D], sum of the current embeddings so far
        self.count: Tensor | None = None  # [R, 1, 1]

    def _complete_means(self, tokens: Tensor, sentence: Tensor, source: Source) -> tuple[Tensor, Tensor]:
        """Means of the current target tokens of complete rows [R, T] that have any, [E, D]; which, [E]."""
        current_RT = is_current(sentence, source.current)
        found = current_RT.any(dim=1).nonzero().flatten()
        x_RTD = self.embed.target(tokens, sentence, source)
        return _means(x_RTD[found], current_RT[found]), found

    def finish(self, entries: Tensor, tokens: Tensor, sentence: Tensor) -> None:
        """Keep the means of ended rows, for those that go on: decoder inputs [E, T], -1 on padding."""
        ended, found = self._complete_means(tokens, sentence, self.source.select(entries))
        means = torch.cat((self.complete.hidden, ended))
        self.complete = ExtraKeys(means, self.complete.order.join(self.rows.take(entries[found])))

    def select(self, entries: Tensor) -> None:
        """Keep the given entries [B']."""
        self.source = self.source.select(entries)
        self.rows = self.rows.take(entries)
        self.current = self.current.index_select(0, entries)
        # What ended in documents that are done is nobody's concern.
        order = self.complete.order
        needed = torch.isin(order.group, self.rows.group).nonzero().flatten()
        self.complete = ExtraKeys(self.complete.hidden[needed], order.take(needed))

    def select_rows(self, rows: Tensor) -> None:
        """Row i continues what row rows[i] was."""
        if self.total is not None and self.count is not None:
            self.total, self.count = self.total.index_select(0, rows), self.count.index_select(0, rows)

    def mix(self, x_RTD: Tensor, sentence: Tensor, state: DecoderState) -> Tensor:
        """Embeddings of target tokens, the current ones with what they see: [R, T, D] -> [R, T, D]."""
        current_RT = is_current(sentence, self.current.repeat_interleave(state.beam, dim=0))
        running_RTD, count_RT1 = self._running(x_RTD, current_RT, bool(state.caches))
        # Of entries that are being decoded, the first beam; some have decoded context alone.
        complete = torch.cat((self.complete.hidden, running_RTD[:: state.beam, -1]))
        sees = self.rows.follows(self.complete.order.join(self.rows))
        sees[:, len(self.complete.hidden) :] &= count_RT1[:: state.beam, -1, 0] > 0
        x, running = (y.reshape(len(sees), -1, y.size(2)) for y in (x_RTD, running_RTD))
        count = _most(sees) if state.caches else state.layouts.target_context.found
        seen = self.attention.causal(x, running, complete, sees, count).view_as(x_RTD)
        return torch.where(current_RT[:, :, None], seen, x_RTD)

    def _running(self, x_RTD: Tensor, current_RT: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
        """Mean of the current tokens of each row up to every token, and how many they are.

        [R, T, D], [R, T, 1]; zeros where there are none. `keep`: the last are needed by the next tokens.
        """
        counted = current_RT[:, :, None].to(x_RTD.dtype)
        total, count = (x_RTD * counted).cumsum(dim=1), counted.cumsum(dim=1)
        if self.total is not None and self.count is not None:
            total, count = total + self.total, count + self.count
        if keep:
            self.total, self.count = total[:, -1:], count[:, -1:]
        return total / count.clamp(min=1), count


def _most(sees_BM: Tensor) -> int:
    """The most that anybody sees, at least 1."""
    return max(1, int(sees_BM.sum(dim=1).max()))


def _means(x_RTD: Tensor, counted_RT: Tensor) -> Tensor:
    """Of the tokens of each row that count: [R, D]."""
    counted = counted_RT[:, :, None].to(x_RTD.dtype)
    return (x_RTD * counted).sum(dim=1) / counted.sum(dim=1)
