"""Nodes: the first and last tokens of sentences, to which the other sentences of their row attend.

Nodes represent their sentences (Yu et al. 2024, section 3.2.2 and equation 15). A row of 20 sentences has 40
nodes, however long the sentences are, and all its sentences attend to them. Nodes are therefore keys of the
row, once. The keys of each sentence, in the buckets of `layers/buckets.py`, are only the tokens between its
own nodes:

    row     B a b E  B c E  B d e E        keys of sentence 1      c         B E B E B E
                                                                   its own   of the row

In cross-attention, all keys are source tokens. For target sentence k, they are the tokens between the nodes
of source sentence k, and all nodes of the source.

If weights are recorded or dropped, all keys of a sentence must be in one tensor (`buckets`):

    keys of sentence 1      B c E    B E . .  B E
                            its own  nodes of 0 and 2

In equation 14 as printed, nodes are the queries that attend to whole rows. The text of the paper says keys.

Shapes: B rows, S tokens of a row, P = B * S, N real tokens of all rows, n most sentences of a row,
G sentences of a bucket, L tokens of its longest, M nodes added to it, D model.
"""

from functools import cached_property

import torch
from torch import Tensor

from cotext.layers.buckets import Bucket, ExtraTokens, Sentences, sentence_spans


class Nodes:
    """The nodes of rows and, for every bucket, the nodes of the other sentences in its rows.

    Tokens are in the order of the buckets of `among` or, if `among` is None, in the order of the rows.
    `sentence` [B, S] are the rows that contain the nodes. `queries` are the rows of the sentences in the
    buckets, counted from 0.
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
        self.index = torch.cat((first_Bn, last_Bn), dim=1) + rows * sentence.size(1)
        self.of = torch.cat((n, n))
        self._buckets, self._queries = buckets, queries
        # The index of each token in the order of the buckets.
        self._at: Tensor | None = None
        if among is not None:
            self._at = sentence.new_zeros(sentence.numel())
            self._at[among.rows.index_N] = torch.arange(among.rows.index_N.numel(), device=sentence.device)

    @cached_property
    def rows(self) -> ExtraTokens:
        """The nodes of every row, each once."""
        return self._fetched(torch.where(self.real, self.index, -1))

    @cached_property
    def buckets(self) -> list[ExtraTokens]:
        """For every bucket, the nodes that its sentences attend to in addition to their own tokens."""
        return [self._nodes_of(bucket) for bucket in self._buckets]

    def _nodes_of(self, bucket: Bucket) -> ExtraTokens:
        # The first token tells the row and the index of its sentence.
        opening_G = bucket.token_indices().query[:, 0]
        row_G, k_G = opening_G // self._queries.size(1), self._queries.flatten()[opening_G]
        others = self.real[row_G] & (self.of != k_G[:, None])
        return self._fetched(torch.where(others, self.index[row_G], -1))

    def _fetched(self, token: Tensor) -> ExtraTokens:
        return ExtraTokens(token if self._at is None else torch.where(token < 0, -1, self._at[token]), token)


def between_nodes(x_GHLK: Tensor, mask: Tensor | None) -> Tensor:
    """True for tokens of sentences that are not nodes: [G, 1, 1, L]; `mask` has that shape, True = real."""
    real = x_GHLK.new_ones(len(x_GHLK), 1, 1, x_GHLK.size(2), dtype=torch.bool) if mask is None else mask
    between = torch.zeros_like(real)
    between[..., 1:-1] = real[..., 2:]
    return between
