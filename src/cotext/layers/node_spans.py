"""Attention over a token's own sentence and the nodes of other sentences (`layers/context_nodes.py`).

Shapes: B rows, N real tokens of all rows, n tokens of a group, G sentences of a bucket, L tokens of its
longest sentence, L' keys of the longest (source tokens in cross-attention), M nodes added to each sentence,
T queries, S keys, H heads, K per head, D model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from cotext.layers.buckets import Bucket, ExtraTokens
from cotext.layers.context_nodes import Nodes, between_nodes
from cotext.layers.kernels.joined import Mixed, joined, mix_apart, with_gradients
from cotext.layers.kernels.sdpa import TokenIndices, watched
from cotext.layers.layout import Keys, Layout
from cotext.layers.multi_head import CrossAttention, RowSpan, SelfAttention, merge_heads, split_heads
from cotext.layers.sentence_spans import source_tokens
from cotext.layers.state import KeysValues


class NodeSpan(RowSpan):
    """Attention to a token's sentence (in cross-attention, its source) and the nodes of all other sentences.

    This span supports only complete rows. Normally, the sentences of a row share its nodes as keys. Nodes
    are copied to every sentence only for `dropout` of attention weights and for recording, which need the
    weights of all keys of a query in one tensor.
    """

    by_sentence = True

    def __init__(self, dropout: float = 0.0) -> None:
        where = "buckets" if dropout else "rows"
        self.answers, self.source_answers = (f"nodes.{where}",), (f"source_nodes.{where}",)

    def attend(self, attention: SelfAttention, x: Tensor, layout: Layout) -> Tensor:
        score = attention.score
        qkv_ND = score.project(attention.qkv, x, layout, 2 * x.size(-1))
        query_ND, *keys_values = qkv_ND.chunk(3, dim=-1)
        own = []
        for bucket, qkv in layout.sentences.split(qkv_ND):
            query, *sides = qkv.chunk(3, dim=-1)
            own.append(_Own(bucket, split_heads(query, attention.heads), sides, bucket.mask))
        if watched() or score.dropout:
            return _attend_copied(own, keys_values, layout.nodes, partial(score.attend, layout=layout))
        return _attend_shared(own, query_ND, keys_values, layout.nodes, layout)

    def attend_source(self, attention: CrossAttention, x: Tensor, layout: Layout) -> Tensor:
        score = attention.score
        source_PD = source_tokens(layout, attention.index)
        query_ND = score.project(attention.query, x, layout, x.size(-1))
        own = []
        for bucket, query in layout.sentences.split(query_ND):
            source = bucket.source
            assert source is not None
            sides = [source.fetch(side) for side in source_PD]
            own.append(_Own(bucket, attention.split(query), sides, source.mask, source.token_indices))
        if watched() or score.dropout:
            return _attend_copied(own, source_PD, layout.source_nodes, score.attend_source)
        return _attend_shared(own, query_ND, source_PD, layout.source_nodes, layout)


@dataclass(frozen=True, slots=True)
class _Own:
    """The sentences of a bucket as queries, with the tokens of their own sentences as keys and values."""

    bucket: Bucket
    query: Tensor  # [G, H, L, K]
    sides: Sequence[Tensor]  # the keys and the values, [G, L', D] each
    mask: Tensor | None  # [G, 1, 1, L']
    token_indices: Tensor | None = None  # [G, L'], if the keys are source tokens


def _attend_copied(
    own: Sequence[_Own], all_sides: Sequence[Tensor], nodes: Nodes, attend: Callable[..., Tensor]
) -> Tensor:
    """Attend with nodes copied to every sentence: [N, D]. `all_sides`: keys and values of all tokens."""
    mixed = []
    for part, extra in zip(own, nodes.buckets, strict=True):
        heads = part.query.size(1)
        k, v = (
            split_heads(torch.cat((side, extra.fetch(whole)), dim=1), heads)
            for side, whole in zip(part.sides, all_sides, strict=True)
        )
        mask = _joined_mask(part.mask, extra, part.sides[0].size(1))
        keys = Keys(mask, tokens=partial(_token_indices, part.bucket, part.token_indices, extra))
        mixed.append(part.bucket.pack(merge_heads(attend(part.query, (k, v), keys))))
    return torch.cat(mixed)


def _attend_shared(
    own: Sequence[_Own], query_ND: Tensor, all_sides: Sequence[Tensor], nodes: Nodes, layout: Layout
) -> Tensor:
    """Attend to nodes that all sentences of a row share: [N, D]."""
    heads = own[0].query.size(1)
    groups = []
    for part in own:
        k, v = (split_heads(side, heads) for side in part.sides)
        # Here the keys of a sentence are only its tokens between its two nodes: nodes are keys of the row.
        mask, bucket = between_nodes(k, part.mask), part.bucket
        groups.append(_Group(part.query, (k, v), mask, bucket.pack, bucket.unpack))
    q, k, v = (
        split_heads(x, heads)
        for x in (layout.unpack(query_ND), *(nodes.rows.fetch(side) for side in all_sides))
    )
    return _attend_joined(groups, _Group(q, (k, v), nodes.rows.mask, layout.pack, layout.unpack))


class _Group:
    """Queries [B, H, T, K] and some of their keys [B, H, S, K]; `mask` as in `mix_apart`.

    `pack` and `unpack` convert between the order of these queries, [B, T, D], and that of tokens, [n, D].
    """

    def __init__(
        self,
        q: Tensor,
        keys_values: KeysValues,
        mask: Tensor | None,
        pack: Callable[[Tensor], Tensor],
        unpack: Callable[[Tensor], Tensor],
    ) -> None:
        self.inputs = (q, *keys_values, mask)
        self.pack, self.unpack = pack, unpack
        self.heads = q.size(1)
        self.apart = mix_apart(*self.inputs)

    def packed(self) -> Mixed:
        """Return the values mixed over only these keys, and the log sum of their weights, by token."""
        out, total = self.apart
        packed = self.pack(out.flatten(2))
        return packed.view(len(packed), self.heads, -1), self.pack(total)

    def added(self, whole: Mixed) -> Tensor:
        """Return the contribution of these keys to the values mixed over all keys, with gradients: [n, D]."""
        out, total = (self.unpack(x.flatten(1)) for x in whole)
        whole = out.view(*total.shape, -1), total
        mixed = with_gradients(*self.inputs, self.apart, whole)
        return self.pack(mixed.flatten(2))


def _attend_joined(own: Sequence[_Group], shared: _Group) -> Tensor:
    """Combine attention to a sentence (`own`: one group per bucket) and to the nodes (`shared`): [N, D]."""
    parts = [group.packed() for group in own]
    inside = torch.cat([out for out, _ in parts]), torch.cat([total for _, total in parts])
    # The softmax over all keys, from the two softmaxes over own keys and nodes.
    whole = joined(inside, shared.packed())
    if not torch.is_grad_enabled():
        return whole[0].flatten(1).to(shared.inputs[0].dtype)
    sizes = [len(out) for out, _ in parts]
    wholes = zip(*(torch.split(x, sizes) for x in whole), strict=True)
    outputs = [group.added(part) for group, part in zip(own, wholes, strict=True)]
    return torch.cat(outputs) + shared.added(whole)


def _joined_mask(own: Tensor | None, nodes: ExtraTokens, tokens: int) -> Tensor:
    """Return the mask of the keys of a sentence and the nodes added to them: [G, 1, 1, L' + M]."""
    real = nodes.mask
    if real is None:
        real = torch.ones(nodes.sentences, 1, 1, nodes.tokens, dtype=torch.bool, device=nodes.index.device)
    if own is None:
        own = real.new_ones(nodes.sentences, 1, 1, tokens)
    return torch.cat((own, real), dim=-1)


def _token_indices(bucket: Bucket, own: Tensor | None, nodes: ExtraTokens) -> TokenIndices:
    indices = bucket.token_indices(own)
    return bucket.token_indices(torch.cat((indices.key, nodes.token_indices), dim=1))
