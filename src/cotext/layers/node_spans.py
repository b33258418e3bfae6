"""Spans of attention over the own sentence and the nodes of others (`layers/context_nodes.py`).

Shapes: B rows, N real tokens of all rows, G sentences of a bucket, L tokens of its longest, M nodes beside
it, D model.
"""

from functools import partial

import torch
from torch import Tensor

from cotext.layers.buckets import Bucket, ExtraTokens
from cotext.layers.kernels.sdpa import TokenIndices
from cotext.layers.layout import Keys, Layout
from cotext.layers.multi_head import CrossAttention, RowSpan, SelfAttention, merge_heads, split_heads
from cotext.layers.sentence_spans import source_tokens


class NodeSpan(RowSpan):
    """The own sentence, of the source its counterpart, and the nodes of all others: complete rows only."""

    by_sentence = True
    asks = ("packing", "sentences", "nodes")
    asks_source = ("packing", "sentences", "source_nodes")

    def attend(self, attention: SelfAttention, x: Tensor, layout: Layout) -> Tensor:
        """Self-attention of complete rows, [N, D] -> [N, D]."""
        score, heads = attention.score, attention.heads
        qkv_ND = score.project(attention.qkv, x, layout, 2 * x.size(-1))
        _, *keys_values = qkv_ND.chunk(3, dim=-1)
        mixed = []
        buckets = layout.sentences.split(qkv_ND)
        for (bucket, qkv), nodes in zip(buckets, layout.nodes.buckets, strict=True):
            query, *own = qkv.chunk(3, dim=-1)
            k, v = (
                split_heads(torch.cat((here, nodes.fetch(there)), dim=1), heads)
                for here, there in zip(own, keys_values, strict=True)
            )
            mask = _joined_mask(bucket.mask, nodes, query.size(1))
            keys = Keys(mask, tokens=partial(_token_indices, bucket, None, nodes))
            mixed.append(
                bucket.pack(merge_heads(score.attend(split_heads(query, heads), (k, v), keys, layout)))
            )
        return torch.cat(mixed)

    def attend_source(self, attention: CrossAttention, x: Tensor, layout: Layout) -> Tensor:
        """Cross-attention of complete rows, [N, D] -> [N, D]."""
        score, heads = attention.score, attention.heads
        source_PD = source_tokens(layout, attention.index)
        mixed = []
        buckets = layout.sentences.split(score.project(attention.query, x, layout, x.size(-1)))
        for (bucket, query), nodes in zip(buckets, layout.source_nodes.buckets, strict=True):
            own = bucket.source
            assert own is not None
            k, v = (split_heads(torch.cat((own.fetch(s), nodes.fetch(s)), dim=1), heads) for s in source_PD)
            mask = _joined_mask(own.mask, nodes, own.tokens)
            keys = Keys(mask, tokens=partial(_token_indices, bucket, own.token_indices, nodes))
            mixed.append(bucket.pack(merge_heads(score.attend_source(attention.split(query), (k, v), keys))))
        return torch.cat(mixed)


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
    """Whole rows seen by first and last tokens, and by others their own sentence: complete rows only."""

    def attend(self, attention: SelfAttention, x: Tensor, layout: Layout) -> Tensor:
        """Self-attention of complete rows: mixed values, packed as x is."""
        score = attention.score
        q, k, v = attention.split(layout.unpack(score.project(attention.qkv, x, layout, 2 * x.size(-1))))
        return layout.pack(merge_heads(score.attend(q, (k, v), Keys(layout.node_query_mask), layout)))

    def attend_source(self, attention: CrossAttention, x: Tensor, layout: Layout) -> Tensor:
        """Cross-attention of complete rows: mixed values, packed as x is."""
        query = layout.unpack(attention.score.project(attention.query, x, layout, x.size(-1)))
        kv, keys = layout.source.keys_values[attention.index], Keys(layout.source_node_query_mask)
        return layout.pack(merge_heads(attention.score.attend_source(attention.split(query), kv, keys)))
