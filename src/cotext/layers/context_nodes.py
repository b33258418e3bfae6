"""Context attention: a token sees its own sentence, and first and last tokens of the others in its row.

These nodes stand for their sentences (Yu et al. 2024, section 3.2.2 and equation 15). A row of 20 sentences
has 40 nodes, however long the sentences are. They are fetched beside each sentence in turn, which is what
buckets of `layers/local.py` are for:

    row     B a b E  B c E  B d e E        keys of sentence 1      B c E    B E . .  B E
                                                                   its own  nodes of 0 and 2

Between source and target, sentence k of the target sees sentence k of the source, and its other nodes.

In equation 14 as it is printed, a node is a query: it sees every token of its row, and other tokens their own
sentence alone (`node_query_mask`), by a mask of all tokens against all.

Shapes: B rows, T queries, S tokens of a row, P = B * S, N real tokens of all rows, n most sentences of a row,
G sentences of a bucket, L tokens of its longest, M nodes beside it, D model.
"""

from functools import partial

import torch
from torch import Tensor

from cotext.layers.buckets import Bucket, Counterparts, Sentences, sentence_spans
from cotext.layers.kernels.sdpa import Places, attend
from cotext.layers.multi_head import CrossAttention, SelfAttention, merge_heads, split_heads


class Nodes:
    """For every bucket, the nodes of the other sentences in its rows.

    Looked for among tokens in the order of the buckets of `among`, or if that is None, of the rows. Rows
    of `sentence` [B, S], which the nodes are of, have the sentences of the buckets, counted from 0.
    """

    def __init__(
        self, buckets: list[Bucket], queries: Tensor, sentence: Tensor, among: Sentences | None
    ) -> None:
        spans = sentence_spans(sentence)
        first_Bn, last_Bn = spans[:, :, 0], spans[:, :, 1] - 1
        n = torch.arange(spans.size(1), device=sentence.device)
        real_Bn = n <= sentence.max(dim=1, keepdim=True).values
        # A sentence of a single token has one node.
        self.real = torch.cat((real_Bn, real_Bn & (last_Bn > first_Bn)), dim=1)
        rows = torch.arange(sentence.size(0), device=sentence.device)[:, None]
        self.place = torch.cat((first_Bn, last_Bn), dim=1) + rows * sentence.size(1)
        self.of = torch.cat((n, n))
        at = None
        if among is not None:
            at = sentence.new_zeros(sentence.numel())
            at[among.rows.place_N] = torch.arange(among.rows.place_N.numel(), device=at.device)
        self.buckets = [self._beside(bucket, queries, at) for bucket in buckets]

    def _beside(self, bucket: Bucket, queries: Tensor, at: Tensor | None) -> Counterparts:
        opening_G = bucket.places().query[:, 0]
        row_G, k_G = opening_G // queries.size(1), queries.flatten()[opening_G]
        place_GM = torch.where(self.real[row_G] & (self.of != k_G[:, None]), self.place[row_G], -1)
        if at is None:
            return Counterparts(place_GM, place_GM, distinct=False)
        return Counterparts(torch.where(place_GM < 0, -1, at[place_GM]), place_GM, distinct=False)


def _joined_mask(own: Tensor | None, beside: Counterparts, tokens: int) -> Tensor:
    """[G, 1, 1, L + M]."""
    nodes = beside.mask
    if nodes is None:
        nodes = torch.ones(
            beside.sentences, 1, 1, beside.tokens, dtype=torch.bool, device=beside.index.device
        )
    if own is None:
        own = nodes.new_ones(beside.sentences, 1, 1, tokens)
    return torch.cat((own, nodes), dim=-1)


class ContextSelfAttention(SelfAttention):
    """Self-attention of complete rows, to the own sentence and the nodes of others."""

    def forward(self, x_ND: Tensor, sentences: Sentences, nodes: Nodes) -> Tensor:  # type: ignore[override]
        """[N, D] -> [N, D], tokens in the order of `sentences`."""
        dropout = self.dropout if self.training else 0.0
        qkv_ND = self.qkv(x_ND)
        _, *keys_values = qkv_ND.chunk(3, dim=-1)
        mixed = []
        for (bucket, qkv), beside in zip(sentences.split(qkv_ND), nodes.buckets, strict=True):
            query, *own = qkv.chunk(3, dim=-1)
            k, v = (
                split_heads(torch.cat((here, beside.fetch(there)), dim=1), self.heads)
                for here, there in zip(own, keys_values, strict=True)
            )
            mask = _joined_mask(bucket.mask, beside, query.size(1))
            places = partial(_places, bucket, None, beside)
            out = attend(split_heads(query, self.heads), k, v, mask, False, dropout, places)
            mixed.append(bucket.pack(merge_heads(out)))
        out_ND: Tensor = self.out(torch.cat(mixed))
        return out_ND


class ContextCrossAttention(CrossAttention):
    """Attention of target sentences to their counterparts and the nodes of other source sentences."""

    def forward(  # type: ignore[override]
        self, x_ND: Tensor, keys_values: tuple[Tensor, Tensor], sentences: Sentences, nodes: Nodes
    ) -> Tensor:
        """[N, D] -> [N, D]; keys and values are those of complete source rows."""
        dropout = self.dropout if self.training else 0.0
        source_PD = [merge_heads(x).flatten(0, 1) for x in keys_values]
        mixed = []
        for (bucket, query), beside in zip(sentences.split(self.query(x_ND)), nodes.buckets, strict=True):
            own = bucket.source
            assert own is not None
            k, v = (
                split_heads(torch.cat((own.fetch(x), beside.fetch(x)), dim=1), self.heads) for x in source_PD
            )
            mask = _joined_mask(own.mask, beside, own.tokens)
            places = partial(_places, bucket, own.places, beside)
            out = attend(split_heads(query, self.heads), k, v, mask, False, dropout, places)
            mixed.append(bucket.pack(merge_heads(out)))
        out_ND: Tensor = self.out(torch.cat(mixed))
        return out_ND


def _places(bucket: Bucket, own: Tensor | None, beside: Counterparts) -> Places:
    told = bucket.places(own)
    return bucket.places(torch.cat((told.key, beside.places), dim=1))


class NodeQuerySelfAttention(SelfAttention):
    """Self-attention of whole rows by `node_query_mask`."""


class NodeQueryCrossAttention(CrossAttention):
    """Attention of target rows to whole source rows by `node_query_mask`."""


def node_query_mask(queries: Tensor, keys: Tensor) -> Tensor:
    """The own sentence, and from the first and the last token of a sentence the whole row: [B, 1, T, S].

    Sentence indices [B, T] and [B, S], -1 on padding, which no token sees; a query of padding sees what is
    real, so that nothing is divided by zero.
    """
    edge = torch.ones_like(queries[:, :1], dtype=torch.bool)
    changes = queries[:, 1:] != queries[:, :-1]
    node = torch.cat((edge, changes), dim=1) | torch.cat((changes, edge), dim=1)
    everything = (node | (queries < 0))[:, :, None]
    same = queries[:, :, None] == keys[:, None, :]
    return ((same | everything) & (keys >= 0)[:, None, :])[:, None]
