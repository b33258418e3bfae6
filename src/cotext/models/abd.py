"""Attention between datapoints (ABD; Kossen et al. 2021, as Wu et al. 2023 adapt it in appendix C).

Each row of a document is represented by one vector, the mean of its embeddings. These vectors attend to each
other, and the result is added to all tokens of the row, before the first block:

    H' = norm(H + MHSA(mean of each row))                                              equation 11

This holds for the source, which is fully known. On the target, rows are overlapping windows. The mean of an
earlier row would contain words that the context labels of a later row still have to predict. On the target,
rows therefore attend to each other only through their current sentences, as in flat-batch attention, which
ABD replaces in the paper. Context does not change.

    row 1    x x | a a      mean of row 1: (a + a) / 2; context (before |) is neither query nor key
    row 2    a a | b b      the first b attends to b and mean 1, the second b to (b + b) / 2 and mean 1

A current token attends to the mean of the current tokens of its row up to itself. It also attends to the
complete means of rows that end before the current sentences of its row begin. Nothing at or after the token
in its document has an effect.

Rows of different documents do not attend to each other; with `cross_document` they do in training, as in the
paper, but never in translation. The means of extra rows are also attended to.

Shapes: B entries, R rows, S source tokens, T target tokens, W beams, Q = W * T, N rows with means, M complete
ones, m of them before an entry, D model, H heads, K per head.
"""

import torch
from torch import Tensor, nn

from cotext.data.batch import Source
from cotext.layers.flat_batch import ExtraKeys, RowOrder
from cotext.layers.kernels.common import Dropout
from cotext.layers.kernels.sdpa import TokenIndices, attend
from cotext.layers.layout import ContextLayout
from cotext.layers.linear import outputs
from cotext.layers.multi_head import AttentionSize, merge_heads, projection, split_heads
from cotext.layers.positions import is_current
from cotext.layers.start import ZeroGate
from cotext.layers.state import DecoderState
from cotext.models.slots import BatchContext, BatchSettings, RowEmbedder, RowsTarget


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
        """Tokens [B, Q, D] attend to the mean of their row so far and to complete means: -> [B, Q, D].

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

    def __init__(self, size: AttentionSize, settings: BatchSettings) -> None:
        super().__init__(settings)
        self.source_rows = DatapointAttention(size) if settings.source else None
        self.target_rows = DatapointAttention(size) if settings.target else None

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

        [R, T, D] and [R, T, 1]; zeros if there are none yet. `keep`: store the last sums for later tokens.
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
