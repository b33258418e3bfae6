"""Linear layers with weights in bfloat16 or float16, for translating and scoring.

Only the product is in half precision, with sums in single precision. States and biases keep their type.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear


class HalfLinear(nn.Linear):
    """W x + bias with W in half precision, rounded once; it has no gradients."""

    def __init__(self, layer: nn.Linear, dtype: torch.dtype) -> None:
        # On the meta device: no random weights are drawn, as they are replaced.
        super().__init__(layer.in_features, layer.out_features, layer.bias is not None, device="meta")
        self.weight = nn.Parameter(layer.weight.detach().to(dtype), requires_grad=False)
        self.bias = layer.bias

    def forward(self, input: Tensor) -> Tensor:
        """[..., D] -> [..., V], in the type of the input."""
        return product(input, self.weight, self.bias)


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return W x + bias in the type of x, for W in any precision."""
    if weight.dtype not in (torch.bfloat16, torch.float16):
        return linear(x, weight, bias)
    # The bias is added afterwards, so that it is not rounded.
    out = linear(x.to(weight.dtype), weight).to(x.dtype)
    return out if bias is None else out + bias
