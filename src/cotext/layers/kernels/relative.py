"""Attention with relative position embeddings: S_rel = Q R^T, computed by skewing.

A row of Q R^T contains the products of a query with every distance. If each row is shifted by one column more
than the row above, columns for distances become columns for keys. No [T, S, K] tensor is needed (Huang et al.
2019, section 3.4). For two queries and three keys, d = key - query:

    by distance   -1  0  1  2        read with a row stride one shorter,        by key    0  1  2
    query 0        .  a  b  c   ->   starting at the second number:     ->      query 0   a  b  c
    query 1        d  e  f  .                                                   query 1   d  e  f

The variant of Dai et al. 2019 (section 3.3) has separate biases for the two products and one R per head. Its
keys may start with a memory, before the keys of the queries.

The kernel for CPUs has no dropout of weights, for which torch's attention is used.

Shapes: B rows, H heads, T queries, S keys, K per head, D = H * K, C queries of a chunk, n distances.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cotext.layers.kernels.common import TensorFunction
from cotext.layers.kernels.sdpa import TokenIndices, biased, in_float32, on_cpu, show_weights, watched
from cotext.layers.positions import causal as causal_mask

CHUNK_QUERIES = 64  # weights of a chunk fit into the cache; a causal chunk skips later keys


@in_float32
def attend_relative(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    table: Tensor,
    mask: Tensor | None,
    causal: bool,
    dropout: float,
    tokens: Callable[[], TokenIndices] | None = None,
) -> Tensor:
    """Softmax((Q K^T + Q R^T) / sqrt(K)) V over complete rows; distance is key - query: [B, H, T, K].

    `table` [2 * span + 1, K] contains R for the distances -span .. span; larger distances share its ends.
    `mask` broadcasts to [B, H, T, S], True = may attend. Li et al. 2022, equations 8 to 11.
    """
    if watched():
        bias = relative_bias(q_BHTK, table, k_BHSK.size(2))
        show_weights(q_BHTK, k_BHSK, mask, causal, bias, tokens)
    # Under autocast, projected queries have a lower precision than the parameters.
    table = table.to(q_BHTK.dtype)
    if on_cpu(q_BHTK) and not dropout:
        return _RelativeAttention.apply(q_BHTK, k_BHSK, v_BHSK, table, mask, causal)
    # One call of torch, with Q R^T as a bias, is fast on a GPU.
    bias = relative_bias(q_BHTK, table, k_BHSK.size(2))
    return biased(q_BHTK, k_BHSK, v_BHSK, bias, mask, causal, dropout)


def relative_bias(q_BHTK: Tensor, table: Tensor, keys: int) -> Tensor:
    """Return Q R^T / sqrt(K) by key, with `table` as in `attend_relative`: [B, H, T, keys]."""
    vectors = table[_rows_of_table(table, 0, q_BHTK.size(2), keys)]
    bias: Tensor = _skewed(q_BHTK @ vectors.T, keys) * q_BHTK.size(-1) ** -0.5
    return bias


@in_float32
def attend_at_distances(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    table: Tensor,
    mask: Tensor | None,
    distance_BTS: Tensor,
    further: Tensor | None = None,
) -> Tensor:
    """Like `attend_relative`, for keys in any order: [B, H, T, K].

    Keys after their query (positive distances) must be masked. `further`: another bias of the scaled scores.
    """
    span = table.size(0) // 2
    # Products only with the distances that occur: search reads few keys at a time.
    longest = min(span, -int(distance_BTS.min()))
    by_distance = q_BHTK @ table[span - longest : span + 1].T
    index = (distance_BTS.clamp(-longest, 0) + longest)[:, None].expand(-1, q_BHTK.size(1), -1, -1)
    bias = by_distance.gather(3, index) * q_BHTK.size(-1) ** -0.5
    return biased(q_BHTK, k_BHSK, v_BHSK, bias if further is None else bias + further, mask)


@in_float32
def attend_from_memory(
    q_BTD: Tensor,
    k_BSD: Tensor,
    v_BSD: Tensor,
    biases_2D: Tensor,
    r_nD: Tensor,
    mask: Tensor,
    heads: int,
    dropout: float,
) -> Tensor:
    """Softmax(((Q + u) K^T + (Q + w) R^T) / sqrt(K)) V: [B, T, D].

    The last T of the S keys belong to the queries. `r_nD` contains R for the distances key - query from 1 - S
    to T - 1, and `biases_2D` contains u and w. `mask` [B or 1, 1, T, S]: True = may attend.
    """
    biases, r_nD = biases_2D.to(q_BTD.dtype), r_nD.to(q_BTD.dtype)
    bias = memory_bias(q_BTD + biases[1], r_nD, k_BSD.size(1), heads)
    q, k, v = (_split(x, heads) for x in (q_BTD + biases[0], k_BSD, v_BSD))
    return biased(q, k, v, bias, mask, dropout=dropout).transpose(1, 2).flatten(2)


def memory_bias(by_place_BTD: Tensor, r_nD: Tensor, keys: int, heads: int) -> Tensor:
    """Return (Q + w) R^T / sqrt(K) by key: [B, H, T, keys]."""
    by_place_BHTK, r_nHK = _split(by_place_BTD, heads), r_nD.view(r_nD.size(0), heads, -1)
    by_distance = torch.einsum("bhtk,nhk->bhtn", by_place_BHTK, r_nHK).contiguous()
    bias: Tensor = _skewed(by_distance, keys) * by_place_BHTK.size(-1) ** -0.5
    return bias


def _split(x_BTD: Tensor, heads: int) -> Tensor:
    """[B, T, D] -> [B, H, T, K]."""
    return x_BTD.reshape(x_BTD.size(0), x_BTD.size(1), heads, -1).transpose(1, 2)


def _rows_of_table(table: Tensor, first: int, stop: int, keys: int) -> Tensor:
    """Return the table rows for the distances of queries first .. stop to keys 0 .. keys, ascending: [n]."""
    span = table.size(0) // 2
    return torch.arange(1 - stop, keys - first, device=table.device).clamp(-span, span) + span


def _skewed(by_distance: Tensor, keys: int) -> Tensor:
    """Return products by distance [B, H, C, n] as products by key, a view [B, H, C, keys]."""
    # A row stride one shorter than a row moves each row by one column; no number is copied.
    rows, heads, queries, distances = by_distance.shape
    *outer, _, _ = by_distance.stride()
    return by_distance.as_strided((rows, heads, queries, keys), (*outer, distances - 1, 1), queries - 1)


class _RelativeAttention(TensorFunction):
    """Processes queries in chunks. Weights are saved; tensors by distance are recomputed in backward."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, table: Tensor, mask: Tensor | None, causal: bool
    ) -> Tensor:
        ctx.scale, ctx.causal = q.size(-1) ** -0.5, causal
        # Contiguous once, or every chunk would copy them again.
        q, k, v = (q * ctx.scale).contiguous(), k.contiguous(), v.contiguous()
        out = torch.empty(q.size(0), q.size(2), q.size(1), q.size(3), dtype=q.dtype).transpose(1, 2)
        saved: list[Tensor] = []
        for first, stop, keys in _chunks(q.size(2), k.size(2), causal):
            query = q[:, :, first:stop]
            weight = query @ k[:, :, :keys].transpose(-2, -1)
            weight += _skewed(query @ table[_rows_of_table(table, first, stop, keys)].T, keys)
            if causal:
                weight[..., first:].masked_fill_(
                    ~causal_mask(stop - first, keys - first, q.device), -math.inf
                )
            if mask is not None:
                part = mask if mask.size(-2) == 1 else mask[..., first:stop, :]
                weight.masked_fill_(~part[..., :keys], -math.inf)
            weight = weight.softmax(dim=-1)
            saved.append(weight)
            out[:, :, first:stop] = weight @ v[:, :, :keys]
        ctx.save_for_backward(q, k, v, table, *saved)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, table, *weights = ctx.saved_tensors
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        grad_table = torch.zeros_like(table)
        chunks = _chunks(q.size(2), k.size(2), ctx.causal)
        for (first, stop, keys), weight in zip(chunks, weights, strict=True):
            query, grad_out = q[:, :, first:stop], grads[0][:, :, first:stop]
            grad_weight = grad_out @ v[:, :, :keys].transpose(-2, -1)
            grad_v[:, :, :keys] += weight.transpose(-2, -1) @ grad_out
            grad_scores = torch.ops.aten._softmax_backward_data(grad_weight, weight, -1, weight.dtype)
            grad_k[:, :, :keys] += grad_scores.transpose(-2, -1) @ query
            rows = _rows_of_table(table, first, stop, keys)
            by_distance = grad_scores.new_zeros(*grad_scores.shape[:-1], rows.numel())
            _skewed(by_distance, keys).copy_(grad_scores)  # a view: writes "by key" into "by distance"
            grad_q[:, :, first:stop] = grad_scores @ k[:, :, :keys] + by_distance @ table[rows]
            by_place = by_distance.flatten(0, 2).T @ query.reshape(-1, query.size(-1))
            grad_table.index_add_(0, rows, by_place)
        return grad_q.mul_(ctx.scale), grad_k, grad_v, grad_table, None, None


def _chunks(queries: int, keys: int, causal: bool) -> list[tuple[int, int, int]]:
    """Return the ranges of queries, each with the number of keys that it may attend to."""
    starts = range(0, queries, CHUNK_QUERIES)
    stops = [min(queries, first + CHUNK_QUERIES) for first in starts]
    return [(first, stop, stop if causal else keys) for first, stop in zip(starts, stops, strict=True)]
