"""Nodes that all sentences of a row share equal nodes beside every sentence, and take less memory."""

import pytest
import torch
from torch import Tensor

from cotext.layers.kernels import gated_others
from cotext.layers.kernels.sdpa import watch_weights
from cotext.layers.layout import Layout, Packed
from cotext.layers.multi_head import AttentionSize, CrossAttention, Score, SelfAttention
from cotext.layers.spans import NodeSpan
from tests.layers.layouts import doubles, layout, sentences, source_side

D, HEADS = 8, 2
# Sentences of one, two and three tokens have nothing between their nodes, or one token.
ROWS = ([5, 1, 3, 8, 2], [4], [2, 2], [1, 1, 7])
SOURCE = ([3, 1, 6, 2, 4], [2], [5, 1], [3, 3, 1])


def states(seed: int, *shape: int) -> Tensor:
    return doubles(*shape, seed=seed).requires_grad_()


def attentions() -> tuple[SelfAttention, CrossAttention]:
    torch.manual_seed(0)
    size = AttentionSize(D, HEADS, 0.0)
    own, cross = SelfAttention(size, NodeSpan(), Score(size)), CrossAttention(size, NodeSpan(), Score(size))
    return own.double(), cross.double()


def rows_of(sentence: Tensor, cross: CrossAttention, memory: Tensor, source: Tensor) -> Layout:
    side = source_side(cross, memory, source)
    return layout(sentence, D, packed=Packed(by_sentence=True, aligned=True), source=side)


def both(target: tuple[list[int], ...], source: tuple[list[int], ...]) -> list[list[Tensor]]:
    """Outputs of both attentions and all gradients: with shared nodes, and with nodes beside sentences."""
    own, cross = attentions()
    sentence, told = sentences(target), sentences(source)
    x, memory = states(1, *sentence.shape, D), states(2, *told.shape, D)
    found = []
    for shared in (True, False):
        rows = rows_of(sentence, cross, memory, told)
        packed = rows.pack(x)

        def outputs(rows: Layout = rows, packed: Tensor = packed) -> list[Tensor]:
            return [own(packed, rows), cross(packed, rows)]

        if shared:
            out = outputs()
        else:
            with watch_weights(lambda *seen: None):
                out = outputs()
        loss = torch.stack([(y * states(3, *y.shape)).sum() for y in out]).sum()
        parameters = [*own.parameters(), *cross.parameters()]
        found.append([*out, *torch.autograd.grad(loss, [x, memory, *parameters])])
    return found


@pytest.mark.parametrize("on_cpu", [True, False])
@pytest.mark.parametrize("rows", [ROWS, ([6, 6, 6],)], ids=["uneven", "equal"])
def test_shared_nodes_are_nodes_beside_every_sentence(
    rows: tuple[list[int], ...], on_cpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs and gradients, of the library's attention for CPUs and of that for other devices."""
    monkeypatch.setattr(gated_others, "on_cpu", lambda x: on_cpu)
    monkeypatch.setattr(gated_others, "CHUNK_QUERIES", 4)
    shared, apart = both(rows, SOURCE if len(rows) > 1 else rows)
    for one, other in zip(shared, apart, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("on_cpu", [True, False])
def test_mixed_precision_leaves_sums_of_weights_precise(
    on_cpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of two places are compared, and gradients are made of them outside the region of autocast."""
    monkeypatch.setattr(gated_others, "on_cpu", lambda x: on_cpu)
    q, k, v = (states(seed, 2, HEADS, 5, D).detach().mul(4).bfloat16() for seed in range(3))
    plain = gated_others.mix_apart(q, k, v, None)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = gated_others.mix_apart(q, k, v, None)
    torch.testing.assert_close(mixed, plain, rtol=0, atol=0)


def test_nodes_of_rows_by_hand() -> None:
    sentence = sentences(([2, 1, 3], [4]))
    nodes = layout(sentence, D, packed=Packed(by_sentence=True)).nodes.rows
    real = nodes.token_indices >= 0
    found = [set(row[there].tolist()) for row, there in zip(nodes.token_indices, real, strict=True)]
    assert found == [{0, 1, 2, 3, 5}, {6, 9}]


def test_what_is_kept_for_the_gradients_grows_as_the_row_does() -> None:
    """Numbers kept a token: of rows four times as long, no more than a tenth more."""
    own, _ = attentions()

    def kept(count: int) -> float:
        sentence = sentences(([6] * count,))
        rows = layout(sentence, D, packed=Packed(by_sentence=True))
        x, numbers = rows.pack(states(1, *sentence.shape, D)), []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: numbers.append(t.numel()) or t, lambda t: t):
            own(x, rows)
        return sum(numbers) / sentence.numel()

    assert kept(80) < 1.1 * kept(20)
