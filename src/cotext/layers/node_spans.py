"""Attention over a token's own sentence and the nodes of other sentences (`layers/context_nodes.py`).

Shapes: B rows, N real tokens of all rows, G sentences of a bucket, L tokens of its longest, M nodes added to
it, D model.
"""

from collections.abc import Callable, Sequence
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

    This span supports only complete rows. Nodes are keys of the whole row, and are not copied. With `dropout`
    of attention weights, in training, they are copied to every sentence, because the weights of all keys of a
    query must be in one tensor.
    """

    by_sentence = True

    def __init__(self, dropout: float = 0.0) -> None:
        where = "buckets" if dropout else "rows"
        self.answers, self.source_answers = (f"nodes.{where}",), (f"source_nodes.{where}",)

    def attend(self, attention: SelfAttention, x: Tensor, layout: Layout) -> Tensor:
        score, heads = attention.score, attention.heads
        qkv_ND = score.project(attention.qkv, x, layout, 2 * x.size(-1))
        query_ND, *keys_values = qkv_ND.chunk(3, dim=-1)
        own = [qkv.chunk(3, dim=-1) for _, qkv in layout.sentences.split(qkv_ND)]
        # The fast path never has all weights of a query at once, which recording and dropout need.
        if not (watched() or score.dropout):
            groups = [
                _own_group(bucket, split_heads(query, heads), (k, v), bucket.mask, heads)
                for bucket, (query, k, v) in zip(layout.sentences.buckets, own, strict=True)
            ]
            return _attend_joined(groups, _row_group(query_ND, keys_values, layout.nodes, layout, heads))
        mixed = []
        for bucket, parts, nodes in zip(layout.sentences.buckets, own, layout.nodes.buckets, strict=True):
            query, *here = parts
            k, v = (
                split_heads(torch.cat((side, nodes.fetch(there)), dim=1), heads)
                for side, there in zip(here, keys_values, strict=True)
            )
            mask = _joined_mask(bucket.mask, nodes, query.size(1))
            keys = Keys(mask, tokens=partial(_token_indices, bucket, None, nodes))
            mixed.append(
                bucket.pack(merge_heads(score.attend(split_heads(query, heads), (k, v), keys, layout)))
            )
        return torch.cat(mixed)

    def attend_source(self, attention: CrossAttention, x: Tensor, layout: Layout) -> Tensor:
        score, heads = attention.score, attention.heads
        source_PD = source_tokens(layout, attention.index)
        query_ND = score.project(attention.query, x, layout, x.size(-1))
        # The fast path never has all weights of a query at once, which recording and dropout need.
        if not (watched() or score.dropout):
            groups = []
            for bucket, query in layout.sentences.split(query_ND):
                own = bucket.source
                assert own is not None
                fetched = [own.fetch(side) for side in source_PD]
                groups.append(_own_group(bucket, attention.split(query), fetched, own.mask, heads))
            return _attend_joined(groups, _row_group(query_ND, source_PD, layout.source_nodes, layout, heads))
        mixed = []
        buckets_of = layout.sentences.split(query_ND)
        for (bucket, query), nodes in zip(buckets_of, layout.source_nodes.buckets, strict=True):
            own = bucket.source
            assert own is not None
            k, v = (split_heads(torch.cat((own.fetch(s), nodes.fetch(s)), dim=1), heads) for s in source_PD)
            mask = _joined_mask(own.mask, nodes, own.tokens)
            keys = Keys(mask, tokens=partial(_token_indices, bucket, own.token_indices, nodes))
            mixed.append(bucket.pack(merge_heads(score.attend_source(attention.split(query), (k, v), keys))))
        return torch.cat(mixed)


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
        """Return the values mixed over only these keys, by token."""
        out, total = self.apart
        packed = self.pack(out.flatten(2))
        return packed.view(len(packed), self.heads, -1), self.pack(total)

    def added(self, whole: Mixed) -> Tensor:
        """Return the contribution of these keys to the values mixed over all keys, with gradients: [n, D]."""
        out, total = (self.unpack(x.flatten(1)) for x in whole)
        whole = out.view(*total.shape, -1), total
        mixed = with_gradients(*self.inputs, self.apart, whole)
        return self.pack(mixed.flatten(2))


def _own_group(
    bucket: Bucket, q_GHLK: Tensor, keys_values: Sequence[Tensor], mask: Tensor | None, heads: int
) -> _Group:
    """Return the sentences of a bucket with the tokens between their nodes as keys, [G, L', D] each."""
    k, v = (split_heads(side, heads) for side in keys_values)
    return _Group(q_GHLK, (k, v), between_nodes(k, mask), bucket.pack, bucket.unpack)


def _row_group(
    query_ND: Tensor, keys_values: Sequence[Tensor], nodes: Nodes, layout: Layout, heads: int
) -> _Group:
    """Return whole rows with all their nodes as keys."""
    q, k, v = (
        split_heads(x, heads)
        for x in (layout.unpack(query_ND), *(nodes.rows.fetch(side) for side in keys_values))
    )
    return _Group(q, (k, v), nodes.rows.mask, layout.pack, layout.unpack)


def _attend_joined(own: Sequence[_Group], shared: _Group) -> Tensor:
    """Combine attention to keys in buckets (`own`, one group each) and to keys of rows: [N, D]."""
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
    """[G, 1, 1, L + M]."""
    real = nodes.mask
    if real is None:
        real = torch.ones(nodes.sentences, 1, 1, nodes.tokens, dtype=torch.bool, device=nodes.index.device)
    if own is None:
        own = real.new_ones(nodes.sentences, 1, 1, tokens)
    return torch.cat((own, real), dim=-1)


def _token_indices(bucket: Bucket, own: Tensor | None, nodes: ExtraTokens) -> TokenIndices:
    indices = bucket.token_indices(own)
    return bucket.token_indices(torch.cat((indices.key, nodes.token_indices), dim=1))


class NodeQuerySpan(RowSpan):
    """Attention of first and last tokens of sentences to the row, and of other tokens to their sentence.

    This span supports only complete rows.
    """

    def attend(self, attention: SelfAttention, x: Tensor, layout: Layout) -> Tensor:
        score = attention.score
        q, k, v = attention.split(layout.unpack(score.project(attention.qkv, x, layout, 2 * x.size(-1))))
        return layout.pack(merge_heads(score.attend(q, (k, v), Keys(layout.node_query_mask), layout)))

    def attend_source(self, attention: CrossAttention, x: Tensor, layout: Layout) -> Tensor:
        query = layout.unpack(attention.score.project(attention.query, x, layout, x.size(-1)))
        kv, keys = layout.source.keys_values[attention.index], Keys(layout.source_node_query_mask)
        return layout.pack(merge_heads(attention.score.attend_source(attention.split(query), kv, keys)))
