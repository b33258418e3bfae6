"""Two softmaxes over disjoint keys in one product: a token's own sentence, and other sentences behind a gate.

    weights = softmax over own keys + gate * softmax over keys of others        out = weights @ values

On a CPU, scores are computed for a few queries at a time, so that they fit into the cache, and again in the
backward pass. Torch's kernel would have to run twice and, with a mask, cannot skip the keys after a query. On
other devices, torch's kernel is run twice.

Shapes: B rows, H heads, T queries, S keys, K per head.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention

from cotext.layers.kernels.function import TensorFunction
from cotext.layers.kernels.sdpa import in_float32, on_cpu

CHUNK_NUMBERS = 1 << 18  # scores per chunk (1 MB), chosen by measurement


@dataclass(frozen=True)
class Apart:
    """Masks of the keys in the sentence of a query, and of the keys in other sentences.

    `own` and `others` [B, 1, T, S], True = may attend. `seen` [B, 1, T, 1] is False for queries without keys
    in other sentences; their first key is True in `others`, so that the softmax is defined. The same holds
    for padding in `own`. `causal`: the numbers of queries and keys are equal, and query t attends to no key
    after t.
    """

    own: Tensor
    others: Tensor
    seen: Tensor
    causal: bool = False

    @classmethod
    def of(cls, own: Tensor, others: Tensor, causal: bool = False) -> "Apart":
        seen = others.any(dim=3, keepdim=True)
        own, others = (
            torch.cat((mask[..., :1] | ~mask.any(dim=3, keepdim=True), mask[..., 1:]), dim=3)
            for mask in (own, others)
        )
        return cls(own, others, seen, causal)

    @cached_property
    def biases(self) -> tuple[Tensor, Tensor]:
        """Biases that are added to the scores before each softmax: 0, or minus infinity where masked."""
        own, others = (
            torch.zeros(mask.shape, device=mask.device).masked_fill_(~mask, -math.inf)
            for mask in (self.own, self.others)
        )
        return own, others


@in_float32
def attend_apart(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    gate_H: Tensor,
    apart: Apart,
) -> Tensor:
    """Mix the values of own keys, and of other keys behind the gate: [B, H, T, K]."""
    gate = gate_H.to(q_BHTK.dtype)[:, None, None]
    if on_cpu(q_BHTK):
        return _AttendApart.apply(q_BHTK, k_BHSK, v_BHSK, gate, apart)
    own, others = (
        scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, attn_mask=mask)
        for mask in (apart.own, apart.others)
    )
    return own + gate * apart.seen * others


class _AttendApart(TensorFunction):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, gate: Tensor, apart: Apart) -> Tensor:
        ctx.save_for_backward(q, k, v, gate)
        ctx.apart = apart
        out = torch.empty_like(q)
        for rows, queries, keys in _chunks(q, k, apart.causal):
            own, others = _softmaxes(q, k, apart, rows, queries, keys)
            share = gate * apart.seen[rows, :, queries]
            # The weights are added first, so that one product with the values is enough.
            out[rows, :, queries] = torch.addcmul(own, others, share) @ v[rows, :, keys]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        # With weights w = own + gate * others and their gradient dw, the gradient of scores is
        #   w * dw - own * sum(own * dw) - gate * others * sum(others * dw)
        q, k, v, gate = ctx.saved_tensors
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        grad_gate, scale = torch.zeros_like(gate), q.size(-1) ** -0.5
        for rows, queries, keys in _chunks(q, k, ctx.apart.causal):
            own, others = _softmaxes(q, k, ctx.apart, rows, queries, keys)
            seen = ctx.apart.seen[rows, :, queries]
            weight, grad_out = torch.addcmul(own, others, gate * seen), grads[0][rows, :, queries]
            grad_weight = grad_out @ v[rows, :, keys].transpose(-2, -1)
            grad_v[rows, :, keys] += weight.transpose(-2, -1) @ grad_out
            of_own, of_others = ((grad_weight * x).sum(dim=-1, keepdim=True) for x in (own, others))
            of_others *= seen
            grad_gate += of_others.sum(dim=(0, 2), keepdim=True)[0]
            grad_scores = weight.mul_(grad_weight).addcmul_(own, of_own, value=-1)
            grad_scores.addcmul_(others, gate * of_others, value=-1).mul_(scale)
            grad_q[rows, :, queries] = grad_scores @ k[rows, :, keys]
            grad_k[rows, :, keys] += grad_scores.transpose(-2, -1) @ q[rows, :, queries]
        return grad_q, grad_k, grad_v, grad_gate, None


def _chunks(q: Tensor, k: Tensor, causal: bool) -> Iterator[tuple[slice, slice, slice]]:
    """Yield the rows, queries and keys of each chunk."""
    (entries, heads, tokens, _), keys = q.shape, k.size(2)
    # As many rows as fit into a chunk or, if a row is too large for a chunk, some of its queries.
    rows = max(CHUNK_NUMBERS // (heads * tokens * keys), 1)
    queries = min(max(CHUNK_NUMBERS // (heads * keys), 1), tokens)
    for row in range(0, entries, rows):
        for query in range(0, tokens, queries):
            stop = min(query + queries, tokens)
            yield slice(row, row + rows), slice(query, stop), slice(0, stop if causal else keys)


def _softmaxes(
    q: Tensor, k: Tensor, apart: Apart, rows: slice, queries: slice, keys: slice
) -> tuple[Tensor, Tensor]:
    """Return the weights of own and of other keys, regardless of `seen`: [rows, H, queries, keys] each."""
    scores = (q[rows, :, queries] * q.size(-1) ** -0.5) @ k[rows, :, keys].transpose(-2, -1)
    # Both softmaxes are over the same scores, with the keys of the other set masked.
    own, others = ((scores + bias[rows, :, queries, keys]).softmax(dim=-1) for bias in apart.biases)
    return own, others
