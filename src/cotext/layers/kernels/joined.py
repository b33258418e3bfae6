"""Attention to two disjoint sets of keys: to each set separately, then a weighted sum.

With o_p the values mixed over only the keys of set p, and l_p the log sum exp of their scores:

    l = log(exp l_1 + exp l_2)                 o = exp(l_1 - l) o_1 + exp(l_2 - l) o_2

This equals the softmax over all keys (Milakov and Gimelshein 2018, section 3). Given o and l, the gradients
of the keys and values of one set do not depend on the other set (Dao et al. 2022, appendix B.2). So keys that
many queries share need not be copied next to the keys of each query.

Shapes: B rows, H heads, T queries, S keys, K per head.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cotext.layers.kernels.common import TensorFunction, precise
from cotext.layers.kernels.sdpa import on_cpu

CHUNK_QUERIES = 256  # number of queries whose weights are in memory at a time, if the device is not a CPU

Mixed = tuple[Tensor, Tensor]  # mixed values [..., H, K] and the log of the sum of weights [..., H]


def mix_apart(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, mask: Tensor | None) -> Mixed:
    """Mix values over some of the keys, without gradients: [B, T, H, K], and l, [B, T, H].

    `mask` [B, 1, 1, S], True = may attend. For queries without any of these keys, l is minus infinity.
    """
    # Autocast would round the products again.
    with torch.no_grad(), torch.autocast(q_BHTK.device.type, enabled=False):
        q, k, v = (precise(x) for x in (q_BHTK, k_BHSK, v_BHSK))
        if on_cpu(q):
            # Torch's attention kernel: its public function does not return l.
            out, total = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                q, k, v, attn_mask=_added(mask, q, k)
            )
        else:
            chunks = [_chunk(part, k, v, mask) for part in torch.split(q, CHUNK_QUERIES, dim=2)]
            out, total = (torch.cat(x, dim=2) for x in zip(*chunks, strict=True))
        if mask is not None:
            # The kernel's l is arbitrary for queries without keys; minus infinity gives them no weight.
            total = total.masked_fill(~mask.any(dim=-1), -math.inf)
        mixed: Tensor = out.transpose(1, 2)
        return mixed, total.transpose(1, 2)


def joined(first: Mixed, second: Mixed) -> Mixed:
    """Join the values mixed over two sets of keys; every query attends to at least one set."""
    total = torch.logaddexp(first[1], second[1])
    # The total is at least as large as each part, so that no exponential overflows.
    shares = ((out, (part - total).exp()) for out, part in (first, second))
    (out_1, share_1), (out_2, share_2) = shares
    return out_1 * share_1[..., None] + out_2 * share_2[..., None], total


def with_gradients(
    q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, mask: Tensor | None, apart: Mixed, whole: Mixed
) -> Tensor:
    """Return the contribution of one set of keys to the whole, [B, T, H, K], with gradients.

    `apart` are the values mixed over only this set, and `whole` the values mixed over both sets: [B, T, H, K]
    and [B, T, H] each, in the order of these queries.
    """
    return _Place.apply(q_BHTK, k_BHSK, v_BHSK, mask, *apart, *whole)


class _Place(TensorFunction):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        out: Tensor,
        part: Tensor,
        whole: Tensor,
        total: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(q, k, v, mask, whole, total)
        return (out * (part - total).exp()[..., None]).to(q.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, mask, whole, total = ctx.saved_tensors
        q, k, v, whole, grad = (precise(x) for x in (*inputs, whole, grads[0]))
        whole, total, grad = whole.transpose(1, 2), total.transpose(1, 2), grad.transpose(1, 2)
        if on_cpu(q):
            gradients = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                grad, q, k, v, whole, total, 0.0, False, attn_mask=_added(mask, q, k)
            )
        else:
            gradients = _gradients(grad, q, k, v, whole, total, mask)
        return *(g.to(x.dtype) for g, x in zip(gradients, inputs, strict=True)), None, None, None, None, None


def _added(mask: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """Return the mask as a bias of scores, minus infinity where masked: [B, 1, T, S]."""
    if mask is None:
        return None
    added = torch.zeros_like(mask, dtype=q.dtype).masked_fill_(~mask, -math.inf)
    return added.expand(q.size(0), 1, q.size(2), k.size(2))


def _scores(q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    scores: Tensor = (q * q.size(-1) ** -0.5) @ k.transpose(-2, -1)
    return scores if mask is None else scores.masked_fill_(~mask, -math.inf)


def _chunk(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Mixed:
    scores = _scores(q, k, mask)
    total = scores.logsumexp(dim=-1)
    # Without any key, the softmax is NaN; l of minus infinity gives these values no weight.
    return scores.softmax(dim=-1).nan_to_num_(0.0) @ v, total


def _gradients(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, whole: Tensor, total: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of queries, keys and values, computed in chunks of queries."""
    grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
    scale = q.size(-1) ** -0.5
    for first in range(0, q.size(2), CHUNK_QUERIES):
        chunk = slice(first, first + CHUNK_QUERIES)
        part, grad_chunk = q[:, :, chunk], grad[:, :, chunk]
        weight = (_scores(part, k, mask) - total[:, :, chunk, None]).exp_()
        through = (grad_chunk * whole[:, :, chunk]).sum(dim=-1, keepdim=True)
        grad_scores = weight * (grad_chunk @ v.transpose(-2, -1) - through) * scale
        grad_q[:, :, chunk] = grad_scores @ k
        grad_k += grad_scores.transpose(-2, -1) @ part
        grad_v += weight.transpose(-2, -1) @ grad_chunk
    return grad_q, grad_k, grad_v
