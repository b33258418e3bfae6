"""Linear layers in int8, for translating and scoring on a CPU: see `kernels/int8.py`.

Shapes: D inputs, V outputs.
"""

import torch
from torch import Tensor, nn

from cotext.layers.half_linear import product
from cotext.layers.kernels.int8 import OFFSET, Product, fastest, quantised_rows


class Int8Linear(nn.Module):
    """W x + bias with int8 weights W [V, D] and a scale of every row [V]; it has no gradients.

    `product` is the kind of product; not given: the fastest that is right on this machine.
    """

    def __init__(
        self, weight: Tensor, scale: Tensor, bias: Tensor | None, product: type[Product] | None = None
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
        rows, scale = quantised_rows(x.reshape(-1, self.in_features).float())
        product = self.product(rows).mul_(scale)
        if self.bias is not None:
            product.add_(self.bias)
        return product.view(*x.shape[:-1], self.out_features).to(x.dtype)

    def part(self, start: int, stop: int) -> "Int8Linear":
        """The layer of some consecutive outputs, laid out when it is first asked for."""
        if (start, stop) not in self._parts:
            bias = None if self.bias is None else self.bias[start:stop]
            scale = self.scale[start:stop]
            self._parts[start, stop] = Int8Linear(self._numbers()[start:stop], scale, bias, self.kind)
        return self._parts[start, stop]

    def of(self, chosen: Tensor) -> "Int8Linear":
        """The layer of some outputs, ascending."""
        if self._weight is None:  # beside the one laid out for products, from now on
            self._weight = self._numbers()
        bias = None if self.bias is None else self.bias[chosen]
        return Int8Linear(self._weight[chosen], self.scale[chosen], bias, self.kind)

    def _numbers(self) -> Tensor:
        """The whole numbers of the weights: [V, D]."""
        units = torch.eye(self.in_features, dtype=torch.uint8).add_(OFFSET)
        return (self.product(units).t() / self.scale[:, None]).round_().to(torch.int8)


def outputs(layer: nn.Module, x: Tensor, start: int, stop: int | None = None) -> Tensor:
    """Some consecutive outputs of a linear layer: [..., D] -> [..., stop - start]; `stop` None: all after."""
    if isinstance(layer, Int8Linear):
        found: Tensor = layer.part(start, layer.out_features if stop is None else stop)(x)
        return found
    assert isinstance(layer, nn.Linear)
    return product(x, layer.weight[start:stop], layer.bias[start:stop])
