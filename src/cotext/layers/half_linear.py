"""Linear layers whose weights are kept in bfloat16 or float16, for translating and scoring.

States come and go as they are, as do biases: the product alone, its sums excepted, is of half precision.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear


class HalfLinear(nn.Linear):
    """W x + bias with W of half precision, rounded once; it has no gradients."""

    def __init__(self, layer: nn.Linear, dtype: torch.dtype) -> None:
        # No weights are drawn, whose place others take.
        super().__init__(layer.in_features, layer.out_features, layer.bias is not None, device="meta")
        self.weight = nn.Parameter(layer.weight.detach().to(dtype), requires_grad=False)
        self.bias = layer.bias

    def forward(self, input: Tensor) -> Tensor:
        """[..., D] -> [..., V], in the type of the input."""
        return product(input, self.weight, self.bias)


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """W x + bias in the type of x, whether W is of half precision or not."""
    if weight.dtype not in (torch.bfloat16, torch.float16):
        return linear(x, weight, bias)
    out = linear(x.to(weight.dtype), weight).to(x.dtype)
    return out if bias is None else out + bias
