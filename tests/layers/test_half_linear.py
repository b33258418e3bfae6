"""Linear layers in half precision: the product is rounded, states and biases are not."""

import pytest
import torch
from torch import nn

from cotext.layers.half_linear import HalfLinear
from cotext.layers.int8_linear import joint, outputs


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


def test_parts_and_two_inputs() -> None:
    torch.manual_seed(4)
    layer, x = HalfLinear(nn.Linear(48, 40), torch.bfloat16), torch.randn(9, 48)
    for start, stop in ((0, 16), (16, 40)):
        torch.testing.assert_close(outputs(layer, x, start, stop), layer(x)[:, start:stop])
    torch.testing.assert_close(joint(layer, x[:, :24], x[:, 24:]), layer(x), rtol=0.02, atol=0.02)
