"""Two softmaxes over disjoint keys in one product: a token's own sentence, and other sentences behind a gate.

    weights = softmax over own keys + gate * softmax over keys of others        out = weights @ values

Scores of keys in other sentences have a bias, which depends on the distance in sentences. All queries of a
sentence share their biases, which are therefore looked up once for each sentence.

On a CPU, scores are computed for a few queries at a time, to fit into the cache, and again in the backward
pass. Torch's kernel would have to run twice and, with a mask, cannot skip the keys after a query. On other
devices, torch's kernel is run twice.

Shapes: B rows, H heads, T queries, S keys, K per head. Of a chunk: b rows, t queries, s keys, n sentences of
its queries.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding, scaled_dot_product_attention

from cotext.layers.kernels.common import TensorFunction
from cotext.layers.kernels.sdpa import biased, in_float32, on_cpu

CHUNK_NUMBERS = 1 << 18  # scores per chunk (1 MB), chosen by measurement
FEW = 16  # up to this number of queries, as in a step of search, are one chunk
FAR = 4  # sentences at this distance or more share a bias


def bias_column(query: Tensor, key: Tensor) -> Tensor:
    """Return the column of the bias for each pair of sentences: from FAR ahead to FAR back, without 0.

    Own sentences have the bias of the sentence before: a bias that all keys of a softmax share has no effect.
    """
    back = (query - key).clamp(-FAR, FAR)
    return back + FAR - (back > 0).long()


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows, queries and keys, and the tables of their biases.

    `of_query` [b, t, n] is 1 for the sentence of each query, else 0. `column` [b, s, n]: see `bias_column`.
    """

    rows: slice
    queries: slice
    keys: slice
    of_query: Tensor
    column: Tensor


@dataclass(frozen=True)
class Apart:
    """Masks of the keys in the sentence of a query, and of the keys in other sentences.

    `own` and `others` [B, 1, T, S], True = may attend. `seen` [B, 1, T, 1] is False for queries without keys
    in other sentences. Their first key is True in `others`, so the softmax is defined. The same holds for
    padding in `own`. `query` [B, T] and `key` [B, S] are their sentences. `causal`: the numbers of queries
    and keys are equal, and query t attends to no key after t.
    """

    own: Tensor
    others: Tensor
    seen: Tensor
    query: Tensor
    key: Tensor
    causal: bool = False
    _chunks: dict[int, list[Chunk]] = field(default_factory=dict)

    @classmethod
    def of(cls, own: Tensor, others: Tensor, query: Tensor, key: Tensor, causal: bool = False) -> "Apart":
        seen = others.any(dim=3, keepdim=True)
        own, others = (
            torch.cat((mask[..., :1] | ~mask.any(dim=3, keepdim=True), mask[..., 1:]), dim=3)
            for mask in (own, others)
        )
        return cls(own, others, seen, query, key, causal)

    @cached_property
    def masks(self) -> tuple[Tensor, Tensor]:
        """Numbers that are added to the scores before each softmax: 0, or minus infinity where masked."""
        own, others = (
            torch.zeros(mask.shape, device=mask.device).masked_fill_(~mask, -math.inf)
            for mask in (self.own, self.others)
        )
        return own, others

    def bias(self, bias_HC: Tensor) -> Tensor:
        """Look up the bias of every query and key: [B, H, T, S]."""
        return embedding(self.columns, bias_HC.T).permute(0, 3, 1, 2)

    @cached_property
    def columns(self) -> Tensor:
        """Columns of the biases of every query and key: [B, T, S]."""
        return bias_column(self.query[:, :, None], self.key[:, None])

    def chunks(self, heads: int) -> list[Chunk]:
        """Return parts of the scores that fit into the cache; stored, because all layers use the same."""
        if heads not in self._chunks:
            self._chunks[heads] = self._cut(heads)
        return self._chunks[heads]

    def _cut(self, heads: int) -> list[Chunk]:
        (entries, _, tokens, keys), chunks = self.own.shape, list[Chunk]()
        # A chunk has as many rows as fit or, if a row is too large, some of its queries.
        rows = max(CHUNK_NUMBERS // (heads * tokens * keys), 1)
        queries = min(max(CHUNK_NUMBERS // (heads * keys), 1), tokens)
        for row in range(0, entries, rows):
            for query in range(0, tokens, queries):
                stop = min(query + queries, tokens)
                of = slice(row, row + rows), slice(query, stop), slice(0, stop if self.causal else keys)
                chunks.append(self._chunk(*of))
        return chunks

    def _chunk(self, rows: slice, queries: slice, keys: slice) -> Chunk:
        query, key = self.query[rows, queries], self.key[rows, keys]
        sentences = torch.arange(int(query.min()), int(query.max()) + 1)
        of_query = (query[:, :, None] == sentences).float()
        return Chunk(rows, queries, keys, of_query, bias_column(sentences, key[:, :, None]))


@in_float32
def attend_apart(
    q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, gate_H: Tensor, bias_HC: Tensor, apart: Apart
) -> Tensor:
    """Mix the values of own keys, and of other keys behind the gate: [B, H, T, K].

    `bias_HC` has a number for each column of `bias_column`.
    """
    gate, bias = gate_H.to(q_BHTK.dtype)[:, None, None], bias_HC.to(q_BHTK.dtype)
    if on_cpu(q_BHTK) and q_BHTK.size(2) <= FEW and not torch.is_grad_enabled():
        scores = (q_BHTK * q_BHTK.size(-1) ** -0.5) @ k_BHSK.transpose(-2, -1)
        scores += _looked_up(bias, apart.columns)
        own, others = ((scores + mask).softmax(dim=-1) for mask in apart.masks)
        return torch.addcmul(own, others, gate * apart.seen) @ v_BHSK
    if on_cpu(q_BHTK):
        return _AttendApart.apply(q_BHTK, k_BHSK, v_BHSK, gate, bias, apart)
    own = scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, attn_mask=apart.own)
    others = biased(q_BHTK, k_BHSK, v_BHSK, apart.bias(bias).contiguous(), apart.others)
    return own + gate * apart.seen * others


class _AttendApart(TensorFunction):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, gate: Tensor, bias: Tensor, apart: Apart
    ) -> Tensor:
        ctx.save_for_backward(q, k, v, gate, bias)
        ctx.apart = apart
        out = torch.empty_like(q)
        for chunk in apart.chunks(q.size(1)):
            rows, queries, keys = chunk.rows, chunk.queries, chunk.keys
            own, others = _softmaxes(*_biased(q, k, bias, chunk), apart, chunk)
            share = gate * apart.seen[rows, :, queries]
            # The weights are added first, so that one product with the values is enough.
            out[rows, :, queries] = torch.addcmul(own, others, share) @ v[rows, :, keys]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        # With weights w = own + gate * others and their gradient dw, the gradient of scores is
        #   w * dw - own * sum(own * dw) - gate * others * sum(others * dw)
        q, k, v, gate, bias = ctx.saved_tensors
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        grad_gate, grad_bias, size = torch.zeros_like(gate), torch.zeros_like(bias), q.size(-1)
        for chunk in ctx.apart.chunks(q.size(1)):
            rows, queries, keys = chunk.rows, chunk.queries, chunk.keys
            query, key = _biased(q, k, bias, chunk)
            own, others = _softmaxes(query, key, ctx.apart, chunk)
            seen = ctx.apart.seen[rows, :, queries]
            weight, grad_out = torch.addcmul(own, others, gate * seen), grads[0][rows, :, queries]
            grad_weight = grad_out @ v[rows, :, keys].transpose(-2, -1)
            grad_v[rows, :, keys] += weight.transpose(-2, -1) @ grad_out
            of_own, of_others = ((grad_weight * x).sum(dim=-1, keepdim=True) for x in (own, others))
            of_others *= seen
            grad_gate += of_others.sum(dim=(0, 2), keepdim=True)[0]
            grad_scores = weight.mul_(grad_weight).addcmul_(own, of_own, value=-1)
            grad_scores.addcmul_(others, gate * of_others, value=-1)
            grad_q[rows, :, queries] = (grad_scores @ key[..., :size]).mul_(size**-0.5)
            grad_key = grad_scores.transpose(-2, -1) @ query
            grad_k[rows, :, keys] += grad_key[..., :size]
            column = chunk.column.flatten().expand(q.size(1), -1)
            grad_bias.scatter_add_(1, column, grad_key[..., size:].transpose(0, 1).flatten(1))
        return grad_q, grad_k, grad_v, grad_gate, grad_bias, None


def _biased(q: Tensor, k: Tensor, bias: Tensor, chunk: Chunk) -> tuple[Tensor, Tensor]:
    """Return scaled queries and keys of a chunk whose products have the bias: [b, H, t or s, K + n].

    In the last columns, a query has a 1 for its sentence, and a key has its biases for all sentences.
    """
    of_query = chunk.of_query.to(q.dtype)[:, None].expand(-1, q.size(1), -1, -1)
    query = torch.cat((q[chunk.rows, :, chunk.queries] * q.size(-1) ** -0.5, of_query), dim=3)
    of_key = _looked_up(bias, chunk.column)
    return query, torch.cat((k[chunk.rows, :, chunk.keys], of_key), dim=3)


def _looked_up(bias: Tensor, columns: Tensor) -> Tensor:
    """Look up columns [b, ...] for all heads, without a gradient: [b, H, ...]."""
    found = bias.index_select(1, columns.flatten())  # faster than indexing and `embedding`
    return found.view(-1, *columns.shape).transpose(0, 1)


def _softmaxes(query: Tensor, key: Tensor, apart: Apart, chunk: Chunk) -> tuple[Tensor, Tensor]:
    """Return the weights of own and of other keys, regardless of `seen`: [b, H, t, s] each."""
    scores = query @ key.transpose(-2, -1)
    # Both softmaxes are over the same scores, with the keys of the other set masked.
    own, others = (
        (scores + mask[chunk.rows, :, chunk.queries, chunk.keys]).softmax(dim=-1) for mask in apart.masks
    )
    return own, others
