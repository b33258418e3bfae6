"""Attention with relative positions against the definition that papers print, [T, S, K] tensor and all."""

import math

import pytest
import torch
from torch import Tensor

from cotext.layers.kernels import relative
from cotext.layers.kernels.relative import attend_at_distances, attend_relative
from cotext.layers.positions import causal as causal_mask
from tests.layers.layouts import doubles

SPAN = 3


def by_definition(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, mask: Tensor | None, distance: Tensor
) -> Tensor:
    """Shaw et al. 2018, equation 4, with one vector per pair: `distance` [T, S] or [B, T, S]."""
    vectors = table[distance.clamp(-SPAN, SPAN) + SPAN]
    pairs = "bhtk,tsk->bhts" if distance.dim() == 2 else "bhtk,btsk->bhts"
    scores = (q @ k.transpose(2, 3) + torch.einsum(pairs, q, vectors)) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(dim=-1) @ v


def distances(queries: int, keys: int) -> Tensor:
    return torch.arange(keys) - torch.arange(queries)[:, None]


@pytest.mark.parametrize("chunk", [3, 128])
@pytest.mark.parametrize(
    ("queries", "keys", "causal", "padded"),
    [
        (7, 7, True, False),
        (8, 8, False, False),
        (8, 8, False, True),
        (8, 8, True, True),
        (5, 9, False, False),
    ],
)
def test_outputs_and_gradients(
    monkeypatch: pytest.MonkeyPatch, chunk: int, queries: int, keys: int, causal: bool, padded: bool
) -> None:
    """Also where distances exceed the table, and rows are cut into chunks of queries."""
    monkeypatch.setattr(relative, "CHUNK_QUERIES", chunk)
    inputs = [doubles(2, 3, n, 4, seed=n + i).requires_grad_() for i, n in enumerate((queries, keys, keys))]
    table = doubles(2 * SPAN + 1, 4).requires_grad_()
    padding = torch.ones(2, 1, 1, keys, dtype=torch.bool)
    padding[1, ..., keys - 2 :] = not padded
    order = (
        causal_mask(queries, keys, table.device) if causal else torch.ones(queries, keys, dtype=torch.bool)
    )
    expected = by_definition(*inputs, table, padding & order, distances(queries, keys))
    grad = doubles(*expected.shape, seed=9)
    gradients = torch.autograd.grad(expected, [*inputs, table], grad)
    for on_cpu in (True, False):
        monkeypatch.setattr(relative, "on_cpu", lambda x, on_cpu=on_cpu: on_cpu)
        found = attend_relative(*inputs, table, padding if padded else None, causal, 0.0)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(torch.autograd.grad(found, [*inputs, table], grad), gradients)


def test_mixed_precision() -> None:
    """Projections in bfloat16, the table in single precision: as `train.precision = bf16` has it."""
    inputs = [doubles(2, 3, 7, 4, seed=seed).bfloat16().requires_grad_() for seed in range(3)]
    table = doubles(2 * SPAN + 1, 4).float().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        found = attend_relative(*inputs, table, None, True, 0.0)
    order = causal_mask(7, 7, table.device)
    expected = by_definition(*(x.double() for x in inputs), table.double(), order, distances(7, 7))
    torch.testing.assert_close(found.double(), expected, rtol=0.05, atol=0.05)
    leaves = [*inputs, table]
    for ours, exact in zip(
        torch.autograd.grad(found.double().square().sum(), leaves),
        torch.autograd.grad(expected.square().sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(ours.double(), exact.double(), rtol=0.1, atol=0.2)


def test_dropout_is_unbiased() -> None:
    q, k, v = (doubles(1, 1, 4, 4, seed=seed) for seed in range(3))
    table = doubles(2 * SPAN + 1, 4)
    many = [x.expand(20_000, 1, -1, -1) for x in (q, k, v)]
    torch.manual_seed(0)
    mean = attend_relative(*many, table, None, True, 0.1).mean(dim=0, keepdim=True)
    torch.testing.assert_close(mean, attend_relative(q, k, v, table, None, True, 0.0), rtol=0.03, atol=0.03)


def test_keys_in_any_order() -> None:
    """As slots of a cache: of other beams, unused, or far before the query."""
    q, k, v = doubles(2, 3, 2, 4), doubles(2, 3, 6, 4, seed=1), doubles(2, 3, 6, 4, seed=2)
    table = doubles(2 * SPAN + 1, 4, seed=3)
    distance = torch.tensor(
        [[[-5, -2, -1, 0, 1, -9], [-6, -3, -2, -1, 0, -9]], [[-1, 0, 4, -3, -2, -7], [-2, -1, 0, -3, -8, -7]]]
    )
    mask = (distance <= 0)[:, None]
    found = attend_at_distances(q, k, v, table, mask, distance)
    torch.testing.assert_close(found, by_definition(q, k, v, table, mask, distance))
    # The same keys in order, in one row: what a decoder sees step by step is what it sees at once.
    whole = attend_relative(k, k, v, table, None, True, 0.0)
    last = attend_at_distances(
        k[:, :, 4:], k, v, table, None, distances(6, 6)[4:].expand(2, -1, -1).clamp(max=0)
    )
    torch.testing.assert_close(last[:, :, 1], whole[:, :, 5])
