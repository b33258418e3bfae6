"""Corrections of low rank: what a layer computes with them, and what a file holds of them."""

import pytest
import torch
from torch import nn
from torch.nn.functional import linear

from cotext.layers.low_rank import (
    LowRank,
    NewRows,
    correct,
    corrections,
    fill_merged,
    low_rank_matrices,
    merged,
)


@pytest.fixture
def corrected() -> nn.Sequential:
    """A layer with a correction that is not zero, and one with trained rows."""
    model = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 5))
    correct(model, "0.weight", LowRank(model.get_parameter("0.weight"), 2, scale=0.5))
    correct(model, "1.bias", NewRows(model.get_parameter("1.bias"), range(1, 3)))
    with torch.no_grad():
        for tensor in corrections(model).values():
            tensor.normal_()
    return model


def test_it_is_the_published_sum(corrected: nn.Sequential) -> None:
    """Hu et al. 2022, equation 3, also for those that read the weight and not the layer."""
    state, x = corrected.state_dict(), torch.randn(3, 6)
    found = (f"0.parametrizations.weight.{name}" for name in ("original", "0.up", "0.down"))
    w, b, a = (state[name] for name in found)
    expected = linear(x, w, state["0.bias"]) + 0.5 * x @ a.T @ b.T
    layer = corrected[0]
    torch.testing.assert_close(layer(x), expected)
    torch.testing.assert_close(linear(x, layer.weight, layer.bias), expected)


def test_it_begins_without_effect() -> None:
    model = nn.Sequential(nn.Linear(6, 4))
    before = model.get_parameter("0.weight").detach().clone()
    correct(model, "0.weight", LowRank(model.get_parameter("0.weight"), 2, scale=8.0))
    assert torch.equal(merged(model)["0.weight"], before)
    assert bool(corrections(model)["0.parametrizations.weight.0.down"].all())


def test_nothing_but_corrections_is_trained(corrected: nn.Sequential) -> None:
    corrected(torch.randn(3, 6)).square().sum().backward()
    moved = {name for name, p in corrected.named_parameters() if p.grad is not None}
    assert moved == {*corrections(corrected), "0.bias", "1.weight"}


def test_rows_that_are_trained(corrected: nn.Sequential) -> None:
    state = corrected.state_dict()
    original, rows = (state[f"1.parametrizations.bias.{name}"] for name in ("original", "0.rows"))
    assert merged(corrected)["1.bias"].tolist() == [original[0], *rows.tolist(), *original[3:].tolist()]


def test_merged_weights_are_those_of_a_plain_model(corrected: nn.Sequential) -> None:
    plain, x = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 5)), torch.randn(3, 6)
    plain.load_state_dict(merged(corrected))
    assert torch.equal(plain(x), corrected(x))
    other = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 5))
    assert merged(other).keys() == other.state_dict().keys()
    fill_merged(corrected, merged(other))
    assert torch.equal(corrected(x), other(x))
    assert not bool(corrections(corrected)["0.parametrizations.weight.0.up"].any())
    assert list(low_rank_matrices(corrected)) == ["0.weight"]


def test_half_precision_adds_up_in_single(corrected: nn.Sequential) -> None:
    """Or a file would hold other weights than those that were trained with."""
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(corrected.get_submodule("0").weight, merged(corrected)["0.weight"])
