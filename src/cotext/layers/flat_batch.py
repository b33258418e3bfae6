"""Flat-batch attention: the current tokens of all rows of a document form one sequence.

A row is a window of a document: current sentences with their context. Flat-batch attention (Wu et al. 2023,
section 3.2) drops the context. It arranges the current tokens in document order, and these tokens attend to
each other:

    row 0    document 7, sentence 2    x x a a          sequence 0    b b b a a
    row 1    document 7, sentence 1    x b b b          sequence 1    c c . . .
    row 2    document 9, sentence 5    x x x c c

On the target side, a token attends to its own row up to itself, and to the rows that end before its own row
begins. Rows share current sentences if `view.mixed_with` is used, or a window is drawn twice. Such rows must
not attend to each other, because each contains labels of the other.

Shapes: B entries, N current tokens of all rows, M tokens of other rows, G sequences, L tokens of the longest,
T tokens, D model, H heads, K dimensions per head.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from cotext.layers.kernels.common import Packing
from cotext.layers.kernels.sdpa import TokenIndices, attend
from cotext.layers.linear import outputs
from cotext.layers.multi_head import AttentionSize, merge_heads, projection, split_heads
from cotext.layers.start import ZeroGate

# Offset between documents, in sentences, if all documents are put into one order.
LONGEST_DOCUMENT = 2**32

GateKind = Literal["continuous", "discrete", "identity"]


@dataclass(frozen=True, slots=True)
class RowOrder:
    """Groups of rows, or of their tokens, that attend to each other, and their current sentences."""

    group: Tensor  # [N]
    begin: Tensor  # [N], first current sentence
    end: Tensor  # [N], last current sentence + 1

    @staticmethod
    def of(document: Tensor, first_sentence: Tensor, current: Tensor, cross_document: bool) -> "RowOrder":
        """Group rows by document; with `cross_document`, put all rows into one group, in document order.

        `first_sentence` [N] is the index of the first sentence of each row in its document; `current` [N, 2]
        counts from there.
        """
        begin, end = (first_sentence[:, None] + current).unbind(dim=1)
        if not cross_document:
            return RowOrder(document, begin, end)
        # One order over all documents, in which no two documents overlap.
        before = document * LONGEST_DOCUMENT
        return RowOrder(torch.zeros_like(document), before + begin, before + end)

    def take(self, index: Tensor) -> "RowOrder":
        """Return the rows with the given indices."""
        return RowOrder(*(x.index_select(0, index) for x in (self.group, self.begin, self.end)))

    def join(self, other: "RowOrder") -> "RowOrder":
        """Return these rows, followed by the rows of the argument."""
        pairs = (self.group, other.group), (self.begin, other.begin), (self.end, other.end)
        return RowOrder(*(torch.cat(pair) for pair in pairs))

    def follows(self, other: "RowOrder") -> Tensor:
        """True where a row begins at or after the end of another row of its group: [N, M]."""
        return (self.group[:, None] == other.group) & (self.begin[:, None] >= other.end)

    @property
    def apart(self) -> bool:
        """Whether no two rows of a group share a current sentence."""
        order = _in_order(self.group, self.begin)
        group, begin, end = (x[order] for x in (self.group, self.begin, self.end))
        return not bool(((group[1:] == group[:-1]) & (begin[1:] < end[:-1])).any())


def _in_order(group: Tensor, order: Tensor) -> Tensor:
    """Return the indices that sort by group, then by `order`, stably: [N]."""
    # Two stable sorts: by the minor key first.
    by_order = order.argsort(stable=True)
    return by_order[group[by_order].argsort(stable=True)]


@dataclass(frozen=True, slots=True)
class ExtraKeys:
    """Tokens of rows that are attended to but not decoded."""

    hidden: Tensor  # [M, D]
    order: RowOrder  # of each token

    @property
    def empty(self) -> bool:
        return self.hidden.size(0) == 0


class Sequences:
    """Tokens arranged as padded sequences, one per group, sorted by `order`: [N] <-> [G, L]."""

    def __init__(self, group: Tensor, order: Tensor, groups: int) -> None:
        """Groups must be numbered 0 .. groups - 1; some may be empty."""
        length_G = torch.bincount(group, minlength=groups)
        at_L = torch.arange(int(length_G.max()), device=length_G.device)
        self.real_GL = at_L < length_G[:, None]
        self.slots = Packing(self.real_GL)
        slot_N = torch.empty_like(self.slots.index_N)
        slot_N[_in_order(group, order)] = self.slots.index_N
        self.slots.index_N = slot_N

    @property
    def mask(self) -> Tensor | None:
        """A mask that hides padding keys, [G, 1, 1, L]; None if nothing is padded."""
        return None if bool(self.real_GL.all()) else self.real_GL[:, None, None]

    def numbers(self, x_N: Tensor, padding: int) -> Tensor:
        """Arrange one integer per token: [N] -> [G, L]."""
        laid = x_N.new_full((self.real_GL.numel(),), padding)
        laid[self.slots.index_N] = x_N
        return laid.view_as(self.real_GL)


class NeuralContextGate(nn.Module):
    """The gate of the attention output, per dimension: equations 8 to 10.

    The gate is a linear layer and a sigmoid. If it is `discrete`, values from `threshold` on become 1 and
    others 0, and gradients are the gradients of the sigmoid.
    """

    def __init__(self, dimension: int, discrete: bool, threshold: float) -> None:
        super().__init__()
        self.linear = projection(dimension)
        self.discrete = discrete
        self.threshold = threshold

    def forward(self, seen: Tensor) -> Tensor:
        """Attention output of current tokens [..., D] -> gate values [..., D]."""
        gate: Tensor = self.linear(seen).sigmoid()
        if self.discrete:
            # Straight-through estimator: the value is rounded, and the gradient of the sigmoid is used.
            gate = (gate >= self.threshold).to(gate.dtype) + (gate - gate.detach())
        return gate


class FlatLayout:
    """Current tokens of rows as padded sequences, with the mask of attention between them.

    `causal`: a token attends to its own row up to itself and to the rows before it; otherwise, it attends to
    its whole group. `extra`: order of additional tokens that are keys. `in_order`: the mask is simply causal.
    """

    def __init__(
        self, current_BT: Tensor, rows: RowOrder, causal: bool, extra: RowOrder | None = None
    ) -> None:
        """`rows` is the order of each row, [B]."""
        self.tokens = Packing(current_BT)
        if self.empty:
            return
        row_N = self.tokens.index_N // self.tokens.tokens
        order = seen_order = rows.take(row_N)
        if extra is not None:
            seen_order = order.join(extra)
        group, groups = dense(seen_order.group)
        self.own = self.seen = Sequences(group, seen_order.begin, groups)
        if extra is not None:
            self.own = Sequences(group[: len(row_N)], order.begin, groups)
        # Without shared sentences, rows follow each other, so all tokens before a query are allowed.
        self.in_order = causal and extra is None and rows.apart
        self.mask: Tensor | None = None
        if causal and not self.in_order:
            self.mask = _follows(self.own, self.seen, row_N, order.begin, seen_order.end)
        elif not causal:
            self.mask = self.seen.mask

    @property
    def empty(self) -> bool:
        """Whether no token is current."""
        return self.tokens.index_N.numel() == 0


class FlatBatchAttention(nn.Module):
    """Multi-head attention between the current tokens of rows."""

    def __init__(self, size: AttentionSize) -> None:
        super().__init__()
        self.heads = size.heads
        self.dropout = size.dropout
        self.qkv = projection(size.dimension, 3)
        self.out = projection(size.dimension)

    def forward(self, h_ND: Tensor, laid: FlatLayout, extra: ExtraKeys | None) -> Tensor:
        """Attend between current tokens and, if given, to extra tokens: [N, D] -> [N, D].

        In recorded weights, extra tokens have the index -1.
        """
        qkv = self.qkv(h_ND)
        q, kv = qkv.split((h_ND.size(1), 2 * h_ND.size(1)), dim=1)
        if extra is not None:
            kv = torch.cat((kv, outputs(self.qkv, extra.hidden, h_ND.size(1))))
        own, seen = laid.own, laid.seen
        k, v = (split_heads(part, self.heads) for part in seen.slots.unpack(kv).chunk(2, dim=-1))
        q = split_heads(own.slots.unpack(q), self.heads)
        indices = partial(_token_indices, own, seen, laid.tokens.index_N)
        dropout = self.dropout if self.training else 0.0
        mixed = merge_heads(attend(q, k, v, laid.mask, laid.in_order, dropout, indices))
        out_ND: Tensor = self.out(own.slots.pack(mixed))
        return out_ND

    def keys_values(self, h_MD: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values of the tokens that other rows attend to, both [M, H, K]."""
        size = h_MD.size(1) // self.heads
        key_value = outputs(self.qkv, h_MD, h_MD.size(1)).view(len(h_MD), 2, self.heads, size)
        return key_value[:, 0], key_value[:, 1]

    def project(self, h_BTD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of rows: three [B, H, T, K]."""
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(h_BTD).chunk(3, dim=-1))
        return q, k, v


def _follows(own: Sequences, seen: Sequences, row_N: Tensor, begin_N: Tensor, end_M: Tensor) -> Tensor:
    """Return the causal mask between tokens of rows: [G, 1, L, L'].

    A token attends to the tokens of rows that end before its own row begins, and to its own row up to itself.
    The tokens of a row are consecutive and precede the additional keys.
    """
    never = torch.iinfo(end_M.dtype).max
    each_M = torch.arange(len(end_M), device=end_M.device)
    each_N = each_M[: len(row_N)]
    begin_GL1, self_GL1, first_GL1 = (
        own.numbers(x, never)[:, :, None] for x in (begin_N, each_N, torch.searchsorted(row_N, row_N))
    )
    end_G1L, key_G1L = (seen.numbers(x, never)[:, None] for x in (end_M, each_M))
    # Queries of padding attend to everything: a softmax over no keys would be NaN.
    return ((end_G1L <= begin_GL1) | ((first_GL1 <= key_G1L) & (key_G1L <= self_GL1)))[:, None]


def _token_indices(own: Sequences, seen: Sequences, index_N: Tensor) -> TokenIndices:
    extra = index_N.new_full((len(seen.slots.index_N) - len(index_N),), -1)
    return TokenIndices(own.numbers(index_N, -1), seen.numbers(torch.cat((index_N, extra)), -1))


def dense(group: Tensor) -> tuple[Tensor, int]:
    """Renumber groups 0, 1 ..., in ascending order; also return their number."""
    distinct, dense = torch.unique(group, return_inverse=True)
    return dense, len(distinct)


class FlatContext(nn.Module):
    """Flat-batch attention, its gate, and the residual connection into the rows: equation 7.

    H' = norm((1 - g) H + g FBA(H)) for current tokens, and H for other tokens. Without a gate (`identity`),
    H' = norm(H + FBA(H)). With `neutral_start`, H' passes a gate that starts at zero. This is needed to start
    from a model without a layer norm on its embeddings.
    """

    def __init__(self, size: AttentionSize, gate: GateKind, threshold: float) -> None:
        super().__init__()
        self.attention = FlatBatchAttention(size)
        discrete = gate == "discrete"
        self.gate = None if gate == "identity" else NeuralContextGate(size.dimension, discrete, threshold)
        self.norm = nn.LayerNorm(size.dimension)
        self.start = ZeroGate(size.dimension) if size.neutral_start else None

    def forward(self, x_BTD: Tensor, laid: FlatLayout, extra: ExtraKeys | None = None) -> Tensor:
        """Apply to complete rows, [B, T, D] -> [B, T, D], with the layout that was made for them."""
        if laid.empty:
            return x_BTD
        tokens = laid.tokens
        h_ND = tokens.pack(x_BTD)
        out_ND = self.combine(h_ND, self.attention(h_ND, laid, extra))
        # Context tokens do not change.
        flat = x_BTD.flatten(0, 1).index_copy(0, tokens.index_N, out_ND.to(x_BTD.dtype))
        return flat.view_as(x_BTD)

    def combine(self, h: Tensor, seen: Tensor) -> Tensor:
        """Add the attention output `seen` to the embeddings `h`: [..., D] each -> [..., D]."""
        out: Tensor = self.norm(h + seen if self.gate is None else h + self.gate(seen) * (seen - h))
        return out if self.start is None else self.start(h, out)


# --- Flat-batch attention in search: to finished rows, and between rows that are decoded at the same time.
#
# Shapes: B entries, W beams, T tokens, P slots so far, M tokens of finished rows, F those of a group,
# G groups, m entries of a group, L slots that are needed, D model, H heads, K per head.


class ActiveGroups:
    """Entries that are decoded together, by document, and the keys and values of finished rows.

    A token attends to its own past, to the first beam of the entries before its own entry, and to all
    finished rows before it.
    """

    def __init__(self, rows: RowOrder, ended: tuple[Tensor, Tensor], ended_order: RowOrder) -> None:
        """`rows` [B]; keys and values of finished rows, [M, H, K] each, and the order of these tokens."""
        group, groups = dense(torch.cat((rows.group, ended_order.group)))
        count = len(rows.group)
        members = Sequences(group[:count], rows.begin, groups)
        self.slot_B = members.slots.index_N
        self.shape = members.real_GL.shape  # G, m
        entries = torch.arange(count, device=group.device)
        self.entry = members.numbers(entries, 0).flatten()
        self.in_order = torch.equal(self.entry, entries)
        # Empty places get the smallest begin and the largest end, so that no mask is True for them.
        never = torch.iinfo(group.dtype).max
        begin_Gm1 = members.numbers(rows.begin, -1)[:, :, None]
        self.before_Gmm = members.numbers(rows.end, never)[:, None] <= begin_Gm1
        self.ended_mask: Tensor | None = None
        if len(ended[0]):
            laid = Sequences(group[count:], ended_order.begin, groups)
            self.keys, self.values = (
                split_heads(laid.slots.unpack(x.flatten(1)), x.size(1)) for x in ended
            )  # [G, H, F, K]
            self.ended_mask = laid.numbers(ended_order.end, never)[:, None] <= begin_Gm1  # [G, m, F]

    def attend(self, attention: FlatBatchAttention, q: Tensor, k: Tensor, v: Tensor, own: Tensor) -> Tensor:
        """Attend from queries [B, H, W * T, K] to all slots so far [B, H, P, K]: -> [B, W * T, D].

        `own` [B, W, T, P]: the current tokens of its own past that each query attends to.
        """
        (_, beams, tokens, _), (groups, members) = own.shape, self.shape
        mask_BQP = own.flatten(1, 2)
        if members == 1:
            mask = self._gathered(mask_BQP)
        else:
            # Most slots hold context, or beams that were dropped: gather only the others.
            relevant = mask_BQP.any(dim=1)
            most = max(1, int(relevant.sum(dim=1).max()))
            # A stable sort moves the needed slots to the front, in their order.
            origin = (~relevant).byte().argsort(dim=1, stable=True)[:, :most]
            index = origin[:, None, :, None].expand(-1, k.size(1), -1, k.size(3))
            k, v = k.gather(2, index), v.gather(2, index)
            own_BQL = mask_BQP.take_along_dim(origin[:, None], dim=2)
            # Of an earlier entry, the tokens that the last token of its first beam attends to are visible.
            first = self._gathered(own_BQL[:, tokens - 1])
            mask = self.before_Gmm[:, :, None, :, None] & first[:, None, None]
            mask = mask.repeat(1, 1, beams * tokens, 1, 1)
            # An entry attends to its own past by its own mask, beam by beam.
            each = torch.arange(members, device=mask.device)
            mask[:, each, :, each] = self._gathered(own_BQL).transpose(0, 1)
            mask = mask.view(groups, members, beams * tokens, -1)
        keys, values = (self._gathered(x).transpose(1, 2).flatten(2, 3) for x in (k, v))  # [G, H, m * L, K]
        if self.ended_mask is not None:
            keys = torch.cat((self.keys.to(keys.dtype), keys), dim=2)
            values = torch.cat((self.values.to(values.dtype), values), dim=2)
            ended = self.ended_mask[:, :, None].expand(-1, -1, beams * tokens, -1)
            mask = torch.cat((ended, mask), dim=3)
        queries = self._gathered(q).transpose(1, 2).flatten(2, 3)
        seen = attend(queries, keys, values, mask.flatten(1, 2)[:, None], False, 0.0)
        mixed: Tensor = attention.out(merge_heads(seen))
        by_member = mixed.view(groups * members, beams * tokens, -1)
        return by_member if self.in_order else by_member.index_select(0, self.slot_B)

    def _gathered(self, x: Tensor) -> Tensor:
        """Entries by group: [B, ...] -> [G, m, ...]."""
        gathered = x if self.in_order else x.index_select(0, self.entry)
        return gathered.view(*self.shape, *x.shape[1:])
