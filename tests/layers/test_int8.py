"""Products in int8 against arithmetic by hand; other rows may not change them, nor being written."""

import pytest
import torch
from torch import nn

from cotext.layers.kernels.int8 import (
    OFFSET,
    Product,
    ProductKind,
    as_float,
    dequantised,
    fastest,
    int_mm,
    is_exact,
    onednn,
    quantised_rows,
    quantised_weight,
)
from cotext.layers.linear import HalfLinear, Int8Linear, joint, outputs

KINDS = [kind for kind in (onednn, int_mm, as_float) if is_exact(kind)]
kinds = pytest.mark.parametrize("kind", KINDS)


def layer_and_states(kind: ProductKind) -> tuple[nn.Linear, Int8Linear, torch.Tensor]:
    torch.manual_seed(3)
    plain = nn.Linear(48, 40)
    weight, bias = plain.weight.detach(), plain.bias.detach()
    states = torch.randn(37, 48) * torch.logspace(-3, 3, 37)[:, None]
    return plain, Int8Linear(*quantised_weight(weight), bias, kind), states


@kinds
def test_by_hand(kind: ProductKind) -> None:
    # Rows of weights: the largest is 127 and 254, hence scales of 1 and 2. Of states: scales of 1 and 0.5.
    weight = torch.tensor([[127.0, -3.0], [10.0, 254.0]])
    states = torch.tensor([[127.0, 2.4], [-63.5, 10.1]])
    rows, scale = quantised_weight(weight)
    assert rows.tolist() == [[127, -3], [5, 127]]
    assert scale.tolist() == [1, 2]
    rows, scale = quantised_rows(states)
    assert (rows.int() - OFFSET).tolist() == [[127, 2], [-127, 20]]
    assert scale.tolist() == [[1], [0.5]]
    layer = Int8Linear(*quantised_weight(weight), torch.tensor([0.5, 0.0]), kind)
    first = [127 * 127 - 3 * 2 + 0.5, 2 * (127 * 5 + 2 * 127)]
    second = [0.5 * (-127 * 127 - 3 * 20) + 0.5, 0.5 * 2 * (-127 * 5 + 20 * 127)]
    assert layer(states).tolist() == [first, second]


@kinds
def test_within_half_a_step_of_either_factor(kind: ProductKind) -> None:
    plain, layer, x = layer_and_states(kind)
    weight = plain.weight.detach()
    off_x, off_w = (y.abs().amax(dim=1) / 127 * 0.5001 for y in (x, weight))
    most = (
        off_x[:, None] * weight.abs().sum(dim=1) + (x.abs().sum(dim=1)[:, None] + 48 * off_x[:, None]) * off_w
    )
    assert bool(((layer(x) - plain(x)).abs() <= most).all())


@kinds
def test_a_row_is_the_same_to_the_last_bit_in_any_batch(kind: ProductKind) -> None:
    _, layer, x = layer_and_states(kind)
    together = layer(x)
    for rows in (slice(0, 1), slice(5, 9), slice(20, 37)):
        assert torch.equal(layer(x[rows]), together[rows])
    shuffled = torch.randperm(37)
    assert torch.equal(layer(x[shuffled]), together[shuffled])
    assert torch.equal(layer(x[:36].view(3, 12, 48)).flatten(0, 1), together[:36])


@kinds
def test_parts_and_two_inputs(kind: ProductKind) -> None:
    plain, layer, x = layer_and_states(kind)
    assert torch.equal(outputs(layer, x, 16), layer(x)[:, 16:])
    assert torch.equal(outputs(layer, x, 0, 16), layer(x)[:, :16])
    torch.testing.assert_close(outputs(plain, x, 3, 20), plain(x)[:, 3:20])
    assert torch.equal(joint(layer, x[:, :20], x[:, 20:]), layer(x))


def test_quantised_again_is_the_same() -> None:
    torch.manual_seed(5)
    weight = torch.randn(50, 33) * torch.logspace(-6, 2, 50)[:, None]
    weight[7] = 0
    rows, scale = quantised_weight(weight)
    again, same = quantised_weight(dequantised(rows, scale))
    assert torch.equal(again, rows)
    assert torch.equal(same, scale)


def test_what_is_no_number_stays_none() -> None:
    _, layer, x = layer_and_states(fastest())
    x[3, 4] = torch.nan
    assert not bool(layer(x)[3].isfinite().any())
    assert bool(layer(x)[4].isfinite().all())


def saturating(weight: torch.Tensor, scale: torch.Tensor) -> Product:
    """Sums that are cut off, as those of processors without instructions for them are."""
    return lambda rows: as_float(weight, scale)(rows).clamp(max=2**15 * 10)


def missing(weight: torch.Tensor, scale: torch.Tensor) -> Product:
    """An operator that this torch does not have."""
    raise AttributeError("no such operator")


@pytest.mark.parametrize("kind", [saturating, missing])
def test_what_cuts_off_or_is_not_there_is_not_chosen(kind: ProductKind) -> None:
    assert not is_exact(kind)
    assert is_exact(as_float)


@pytest.mark.filterwarnings("error")
def test_no_warning_reaches_users() -> None:
    for kind in KINDS:
        _, layer, x = layer_and_states(kind)
        layer(x)


def test_the_layer_of_some_outputs_is_the_layer_in_these() -> None:
    torch.manual_seed(0)
    layer = Int8Linear(*quantised_weight(torch.randn(40, 24)), torch.randn(40))
    x, chosen = torch.randn(5, 24), torch.tensor([0, 3, 17, 39])
    assert torch.equal(layer.of(chosen)(x), layer(x)[:, chosen])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_states_and_product_are_rounded_and_the_bias_is_not(dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    plain = nn.Linear(48, 40)
    layer, x = HalfLinear(plain, dtype), torch.randn(3, 7, 48)
    exact = x.to(dtype).double() @ plain.weight.detach().to(dtype).double().T
    found = layer(x)
    assert found.dtype == torch.float32
    torch.testing.assert_close(
        found.double(), exact.to(dtype).double() + plain.bias.double(), rtol=torch.finfo(dtype).eps, atol=1e-6
    )
    layer.bias = None
    assert torch.equal(layer(x), layer(x).to(dtype).float())


def test_parts_and_two_inputs_in_half_precision() -> None:
    torch.manual_seed(4)
    layer, x = HalfLinear(nn.Linear(48, 40), torch.bfloat16), torch.randn(9, 48)
    for start, stop in ((0, 16), (16, 40)):
        torch.testing.assert_close(outputs(layer, x, start, stop), layer(x)[:, start:stop])
    torch.testing.assert_close(joint(layer, x[:, :24], x[:, 24:]), layer(x), rtol=0.02, atol=0.02)
