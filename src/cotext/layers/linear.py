"""Linear layers in any precision, and gates.

Layers in int8 (`kernels/int8.py`), bfloat16 and float16 are for translating and scoring. `outputs`, `joint`
and `gated` take linear layers of any kind.

Shapes: D inputs or model, V outputs.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from cotext.layers.kernels.int8 import OFFSET, ProductKind, fastest, quantised_rows


class Int8Linear(nn.Module):
    """W x + bias with int8 weights W [V, D] and one scale per row [V]; it has no gradients.

    `product` is the kind of product. If it is None, the fastest exact kind on this machine is used.
    """

    def __init__(
        self, weight: Tensor, scale: Tensor, bias: Tensor | None, product: ProductKind | None = None
    ) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.kind = product or fastest()
        self.product = self.kind(weight, scale)
        self.scale, self.bias = scale, bias
        self._parts: dict[tuple[int, int], Int8Linear] = {}
        self._weight: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., V], in the type of x."""
        # A scale per row, so a row does not depend on the others in its batch.
        rows, scale = quantised_rows(x.reshape(-1, self.in_features).float())
        product = self.product(rows).mul_(scale)
        if self.bias is not None:
            product.add_(self.bias)
        return product.view(*x.shape[:-1], self.out_features).to(x.dtype)

    def part(self, start: int, stop: int) -> "Int8Linear":
        """Return the layer of the outputs start .. stop, made on first use."""
        if (start, stop) not in self._parts:
            bias = None if self.bias is None else self.bias[start:stop]
            scale = self.scale[start:stop]
            self._parts[start, stop] = Int8Linear(self._numbers()[start:stop], scale, bias, self.kind)
        return self._parts[start, stop]

    def of(self, chosen: Tensor) -> "Int8Linear":
        """Return the layer of the chosen outputs, which must be ascending."""
        if self._weight is None:  # kept from now on, in addition to the packed one
            self._weight = self._numbers()
        bias = None if self.bias is None else self.bias[chosen]
        return Int8Linear(self._weight[chosen], self.scale[chosen], bias, self.kind)

    def _numbers(self) -> Tensor:
        """Return the integers of the weights: [V, D]."""
        # The packed format is opaque: multiply it with unit vectors to read it.
        units = torch.eye(self.in_features, dtype=torch.uint8).add_(OFFSET)
        return (self.product(units).t() / self.scale[:, None]).round_().to(torch.int8)


class HalfLinear(nn.Linear):
    """W x + bias with W in half precision, rounded once; it has no gradients.

    Only the product is in half precision, with sums in single precision. States and biases keep their type.
    """

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


def outputs(layer: nn.Module, x: Tensor, start: int, stop: int | None = None) -> Tensor:
    """Compute the outputs start .. stop (None: end) of a linear layer: [..., D] -> [..., stop - start]."""
    if isinstance(layer, Int8Linear):
        out: Tensor = layer.part(start, layer.out_features if stop is None else stop)(x)
        return out
    assert isinstance(layer, nn.Linear)
    return product(x, layer.weight[start:stop], layer.bias[start:stop])


def joint(projection: nn.Module, a: Tensor, b: Tensor) -> Tensor:
    """Compute W [a; b] + bias of two [..., D] without concatenating them: [..., V]."""
    if isinstance(projection, Int8Linear):
        # A matrix in int8 can be divided by outputs, which have separate scales, but not by inputs.
        whole: Tensor = projection(torch.cat((a, b), dim=-1))
        return whole
    assert isinstance(projection, nn.Linear)
    weight_a, weight_b = projection.weight.chunk(2, dim=1)
    return product(a, weight_a, projection.bias) + product(b, weight_b)


def gated(gate: nn.Module, a: Tensor, b: Tensor, start: nn.Module | None = None) -> Tensor:
    """Return g * a + (1 - g) * b with g = sigmoid(W [a; b] + bias), for W, bias of `gate`: [..., D] each.

    `start`: a `ZeroGate` through which the change of a passes, too.
    """
    b = b.to(a.dtype)
    mixed = torch.lerp(b, a, joint(gate, a, b).sigmoid().to(a.dtype))
    return mixed if start is None else start(a, mixed)
