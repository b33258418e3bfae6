"""Attention that knows how far apart two tokens stand: S_rel = Q R^T, computed by skewing.

One row of Q R^T holds a query's product with every distance; shifting each row by one more place than the row
above turns "by distance" into "by key", so that no [T, S, K] tensor ever exists (Huang et al. 2019, section
3.4). For two queries and three keys, d = key - query:

    by distance   -1  0  1  2        read with a row stride one shorter,        by key    0  1  2
    query 0        .  a  b  c   ->   starting at the second number:     ->      query 0   a  b  c
    query 1        d  e  f  .                                                   query 1   d  e  f

Shapes: B rows, H heads, T queries, S keys, K per head, C queries of a chunk, n distances within a chunk.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention

from cotext.layers.attend import show_weights, watched
from cotext.layers.dropout import keep_mask, noise
from cotext.layers.masks import causal as causal_mask

CHUNK_QUERIES = 64  # weights of a chunk fit into the cache, and a causal chunk skips the keys behind it


def attend_relative(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    table: Tensor,
    mask: Tensor | None,
    causal: bool,
    dropout: float,
) -> Tensor:
    """Softmax((Q K^T + Q R^T) / sqrt(K)) V over complete rows; distance is key - query: [B, H, T, K].

    `table` [2 * span + 1, K] holds R for the distances -span .. span; longer ones share its ends. `mask`
    broadcasts to [B, H, T, S], True = may attend. Li et al. 2022, equations 8 to 11.
    """
    if watched():
        vectors = table[_places(table, 0, q_BHTK.size(2), k_BHSK.size(2))]
        bias = _skewed(q_BHTK @ vectors.T, k_BHSK.size(2)) * q_BHTK.size(-1) ** -0.5
        show_weights(q_BHTK, k_BHSK, mask, causal, bias)
    # With mixed precision, projections come in less of it than parameters have.
    inputs = q_BHTK, k_BHSK, v_BHSK, table.to(q_BHTK.dtype), mask, causal, dropout
    if q_BHTK.device.type != "cpu":
        return attend_with_bias(*inputs)
    mixed: Tensor = _RelativeAttention.apply(*inputs)  # type: ignore[no-untyped-call]
    return mixed


def attend_with_bias(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    table: Tensor,
    mask: Tensor | None,
    causal: bool,
    dropout: float,
) -> Tensor:
    """The same by one call of the library, with Q R^T as a bias of the scores: fast on a GPU."""
    queries, keys = q_BHTK.size(2), k_BHSK.size(2)
    vectors = table[_places(table, 0, queries, keys)]
    bias = _skewed(q_BHTK @ vectors.T, keys) * q_BHTK.size(-1) ** -0.5
    if causal:
        order = causal_mask(queries, keys, bias.device)
        mask = order if mask is None else mask & order
    if mask is not None:
        bias = bias.masked_fill(~mask, -math.inf)
    return scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, attn_mask=bias, dropout_p=dropout)


def attend_at_distances(
    q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, table: Tensor, mask: Tensor | None, distance_BTS: Tensor
) -> Tensor:
    """The same where keys stand in any order, none of them behind its query: [B, H, T, K].

    A positive distance must be masked.
    """
    span = table.size(0) // 2
    reach = min(span, -int(distance_BTS.min()))
    by_distance = q_BHTK @ table[span - reach : span + 1].T
    index = (distance_BTS.clamp(-reach, 0) + reach)[:, None].expand(-1, q_BHTK.size(1), -1, -1)
    bias = by_distance.gather(3, index) * q_BHTK.size(-1) ** -0.5
    if mask is not None:
        bias = bias.masked_fill(~mask, -math.inf)
    return scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, attn_mask=bias)


def _places(table: Tensor, first: int, stop: int, keys: int) -> Tensor:
    """Rows of the table for the distances of queries first .. stop from keys 0 .. keys, ascending: [n]."""
    span = table.size(0) // 2
    return torch.arange(1 - stop, keys - first, device=table.device).clamp(-span, span) + span


def _skewed(by_distance: Tensor, keys: int) -> Tensor:
    """From products by distance [B, H, C, n] to products by key, a view [B, H, C, keys]."""
    rows, heads, queries, distances = by_distance.shape
    *outer, _, _ = by_distance.stride()
    return by_distance.as_strided((rows, heads, queries, keys), (*outer, distances - 1, 1), queries - 1)


class _RelativeAttention(Function):
    """Chunk by chunk of queries; the weights are kept, everything by distance is made anew when needed."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        table: Tensor,
        mask: Tensor | None,
        causal: bool,
        rate: float,
    ) -> Tensor:
        ctx.scale, ctx.rate, ctx.causal = q.size(-1) ** -0.5, rate, causal
        # Contiguous heads: every chunk would copy them again.
        q, k, v = (q * ctx.scale).contiguous(), k.contiguous(), v.contiguous()
        out = torch.empty(q.size(0), q.size(2), q.size(1), q.size(3), dtype=q.dtype).transpose(1, 2)
        kept: list[Tensor] = []
        for first, stop, keys in _chunks(q.size(2), k.size(2), causal):
            query = q[:, :, first:stop]
            weight = query @ k[:, :, :keys].transpose(-2, -1)
            weight += _skewed(query @ table[_places(table, first, stop, keys)].T, keys)
            if causal:
                weight[..., first:].masked_fill_(
                    ~causal_mask(stop - first, keys - first, q.device), -math.inf
                )
            if mask is not None:
                part = mask if mask.size(-2) == 1 else mask[..., first:stop, :]
                weight.masked_fill_(~part[..., :keys], -math.inf)
            weight = weight.softmax(dim=-1)
            kept.append(weight)
            if rate > 0:
                kept.append(keep := keep_mask(weight, rate))
                weight = noise(keep, rate, weight).mul_(weight)
            out[:, :, first:stop] = weight @ v[:, :, :keys]
        ctx.save_for_backward(q, k, v, table, *kept)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, table, *kept = ctx.saved_tensors
        left = iter(kept)
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        grad_table = torch.zeros_like(table)
        for first, stop, keys in _chunks(q.size(2), k.size(2), ctx.causal):
            weight, query, grad_out = next(left), q[:, :, first:stop], grads[0][:, :, first:stop]
            grad_weight = grad_out @ v[:, :, :keys].transpose(-2, -1)
            if ctx.rate > 0:
                factor = noise(next(left), ctx.rate, weight)
                grad_v[:, :, :keys] += (factor * weight).transpose(-2, -1) @ grad_out
                grad_weight *= factor
            else:
                grad_v[:, :, :keys] += weight.transpose(-2, -1) @ grad_out
            grad_scores = torch.ops.aten._softmax_backward_data(grad_weight, weight, -1, weight.dtype)
            grad_k[:, :, :keys] += grad_scores.transpose(-2, -1) @ query
            places = _places(table, first, stop, keys)
            by_distance = grad_scores.new_zeros(*grad_scores.shape[:-1], places.numel())
            _skewed(by_distance, keys).copy_(grad_scores)
            grad_q[:, :, first:stop] = grad_scores @ k[:, :, :keys] + by_distance @ table[places]
            by_place = by_distance.flatten(0, 2).T @ query.reshape(-1, query.size(-1))
            grad_table.index_add_(0, places, by_place)
        return grad_q.mul_(ctx.scale), grad_k, grad_v, grad_table, None, None, None


def _chunks(queries: int, keys: int, causal: bool) -> list[tuple[int, int, int]]:
    """Ranges of queries, each with the number of keys that it may see at most."""
    starts = range(0, queries, CHUNK_QUERIES)
    stops = [min(queries, first + CHUNK_QUERIES) for first in starts]
    return [(first, stop, stop if causal else keys) for first, stop in zip(starts, stops, strict=True)]
