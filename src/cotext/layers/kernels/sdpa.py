"""Scaled dot-product attention, and how its weights are recorded.

With mixed precision, attention on a CPU is computed in single precision (`in_float32`), because torch's
backward pass takes ten times as long in bfloat16.

Shapes: B rows, H heads, T queries, S keys, K per head.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, cast

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from cotext.layers.kernels.common import dropout as dropped_out
from cotext.layers.positions import causal as causal_mask


@dataclass(frozen=True, slots=True)
class TokenIndices:
    """The batch indices of queries and keys that are not in the order of the rows.

    Indices count over all rows, padding included: token t of row b of `length` tokens is b * length + t. On
    padding they are -1.
    """

    query: Tensor  # [B, T]
    key: Tensor  # [B, S]


def on_cpu(x: Tensor) -> bool:
    """Return whether the kernel for CPUs is used; tests replace this function to compare the kernels."""
    return x.device.type == "cpu"


P = ParamSpec("P")


def in_float32(attention: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Make an attention compute in float32 if it runs on a CPU and its queries have half precision.

    The output has the type of the queries, which must come first. Floating-point tensors must be positional.
    """

    @wraps(attention)
    def precisely(*given: P.args, **named: P.kwargs) -> Tensor:
        query = cast(Tensor, given[0])
        if not on_cpu(query) or query.dtype not in (torch.bfloat16, torch.float16):
            return attention(*given, **named)
        single = (x.float() if isinstance(x, Tensor) and x.is_floating_point() else x for x in given)
        with torch.autocast("cpu", enabled=False):
            return attention(*single, **named).to(query.dtype)  # type: ignore[arg-type]

    return precisely


SMALLEST_GATE = 1e-30  # recorded for a closed gate, in double precision
Watcher = Callable[[Tensor, Tensor, TokenIndices | None], None]
_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watch_weights(watcher: Watcher) -> Iterator[None]:
    """Pass the weights of every attention inside this context to `watcher`; results do not change.

    `watcher` is called with three arguments. The first argument is the weights [B, H, T, S], which are
    computed again for it. The second is the mask of real queries, [B, T]; all other queries are padding. The
    third is the indices of queries and keys, or None if they are the tokens of the rows in order.
    """
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def watched() -> bool:
    """Return whether attention weights are being recorded."""
    return _watcher.get() is not None


@contextmanager
def show_together(gate_H: Tensor, seen: Tensor) -> Iterator[None]:
    """Record the two attentions that are computed inside this context as one attention.

    The factor of the second attention is `gate_H`, which may be negative, where `seen` [B, 1, T, 1] is True,
    and 0 elsewhere. Recorded weights are absolute values, scaled to a sum of 1. The weight of a visible key
    is never zero, even behind a closed gate.
    """
    watcher = _watcher.get()
    if watcher is None:
        yield
        return
    shown: list[tuple[Tensor, Tensor, TokenIndices | None]] = []
    with watch_weights(lambda *call: shown.append(call)):
        yield
    (first, real, indices), (second, _, _) = shown
    weights = first + gate_H.double().abs().clamp(min=SMALLEST_GATE)[:, None, None] * seen * second
    watcher(weights / weights.sum(dim=-1, keepdim=True), real, indices)


def show_weights(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    mask: Tensor | None,
    causal: bool,
    bias: Tensor | None = None,
    tokens: Callable[[], TokenIndices] | None = None,
) -> None:
    """Pass the attention weights to the watcher, if there is one; `bias` is added to the scores.

    `tokens` is called only if there is a watcher.
    """
    if not watched():
        return
    scores = _scores(q_BHTK, k_BHSK, mask, causal, bias)
    # Double precision prevents a weight of zero for a key that may be attended to.
    show_these(scores.double().softmax(dim=-1), q_BHTK, tokens)


def _scores(
    q_BHTK: Tensor, k_BHSK: Tensor, mask: Tensor | None, causal: bool, bias: Tensor | None = None
) -> Tensor:
    """Return the scaled scores, plus `bias`, minus infinity where masked: [B, H, T, S]."""
    scores: Tensor = (q_BHTK @ k_BHSK.transpose(-2, -1)) * q_BHTK.size(-1) ** -0.5
    if bias is not None:
        scores = scores + bias
    if causal:
        mask = causal_mask(q_BHTK.size(2), k_BHSK.size(2), q_BHTK.device)
    return scores if mask is None else scores.masked_fill(~mask, -math.inf)


def show_these(
    weights_BHTS: Tensor, q_BHTK: Tensor, tokens: Callable[[], TokenIndices] | None = None
) -> None:
    """Pass weights that the caller has computed to the watcher."""
    watcher = _watcher.get()
    if watcher is not None:
        indices = None if tokens is None else tokens()
        watcher(weights_BHTS.double(), q_BHTK.abs().amax(dim=(1, 3)) > 0, indices)


@in_float32
def attend(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    mask: Tensor | None,
    causal: bool,
    dropout: float,
    tokens: Callable[[], TokenIndices] | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Mix the values of the keys that each query may attend to: -> [B, H, T, K].

    `mask` broadcasts to [B, H, T, S], True = may attend; not together with `causal`. `tokens`: the order of
    queries and keys for `watch_weights`, if it is not the order of the rows. `bias` [B, H, T, S] is added to
    the scaled scores.
    """
    show_weights(q_BHTK, k_BHSK, mask, causal, bias, tokens)
    if bias is not None:
        return biased(q_BHTK, k_BHSK, v_BHSK, bias, mask, causal, dropout)
    if not (on_cpu(q_BHTK) and 0 < dropout < 1):
        return scaled_dot_product_attention(
            q_BHTK, k_BHSK, v_BHSK, attn_mask=mask, is_causal=causal, dropout_p=dropout
        )
    # With dropout, torch does not use its fast kernel and draws the mask slowly.
    weights = _scores(q_BHTK, k_BHSK, mask, causal).softmax(dim=-1)
    return dropped_out(weights, dropout, training=True) @ v_BHSK


def biased(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    bias: Tensor,
    mask: Tensor | None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """Torch's attention with `bias` added to the scaled scores, not recorded."""
    if causal:
        order = causal_mask(q_BHTK.size(2), k_BHSK.size(2), q_BHTK.device)
        mask = order if mask is None else mask & order
    if mask is not None:
        bias = bias.masked_fill(~mask, -math.inf)
    return scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, attn_mask=bias, dropout_p=dropout)
