"""Products in int8: every row of states and every row of weights has a scale of its own.

    y[n, v] = s[n] * t[v] * sum over d of q[n, d] * w[v, d]
    s[n] = max |x[n]| / 127,  q[n] = round(x[n] / s[n]);  t and w are made of the weights in the same way

Scales of whole tensors, as torch's own dynamic operator has them, would make a row depend on the others of
its batch. Here sums are those of whole numbers: a row is the same to the last bit in any batch.

The scale of a row of weights keeps 16 bits of its fraction, so that a weight w * t is a float32 without
rounding: quantised once more, a dequantised matrix is the same numbers and scales.

Rows are kept as uint8, OFFSET too high.

Shapes: N rows of states, V rows of weights, D numbers of each.
"""

from abc import ABC, abstractmethod
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import linear

LEVELS = 127
OFFSET = 128  # of signed rows, processors without AMX have no fast product
SCALE_BITS = 16
SMALLEST = 1e-30  # of the largest number of a row: zeros have a scale, too


def quantised_rows(x_ND: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of float32 as whole numbers, OFFSET too high, uint8 [N, D], and the scale of each, [N, 1]."""
    largest = x_ND.abs().amax(dim=1, keepdim=True).clamp_(min=SMALLEST)
    # What is cut off behind the half is rounded; separate steps, as a fused one rounds otherwise.
    return (x_ND * (LEVELS / largest)).add_(OFFSET + 0.5).to(torch.uint8), largest.div_(LEVELS)


def quantised_weight(weight_VD: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix of float32 as whole numbers, int8 [V, D], and the scale of every row, [V]."""
    fraction, exponent = (weight_VD.abs().amax(dim=1).clamp_(min=SMALLEST) / LEVELS).frexp()
    scale = torch.ldexp(torch.ceil(fraction * 2**SCALE_BITS) / 2**SCALE_BITS, exponent)
    return (weight_VD / scale[:, None]).round_().to(torch.int8), scale


def dequantised(weight_VD: Tensor, scale_V: Tensor) -> Tensor:
    """The float32 matrix that whole numbers and their scales stand for."""
    return weight_VD.float() * scale_V[:, None]


def _signed(rows_ND: Tensor) -> Tensor:
    """uint8, OFFSET too high -> int8."""
    return rows_ND.bitwise_xor(OFFSET).view(torch.int8)


class Product(ABC):
    """A matrix of whole numbers, laid out for products with rows of whole numbers."""

    @abstractmethod
    def __init__(self, weight_VD: Tensor, scale_V: Tensor) -> None:
        """Lay out int8 weights and the scale of every row."""

    @abstractmethod
    def __call__(self, rows_ND: Tensor) -> Tensor:
        """uint8 [N, D], OFFSET too high -> float32 [N, V], scaled by the scales of the weights."""


class OneDNN(Product):
    """The operator of torch that compiled quantised models run on, on x86 alone."""

    def __init__(self, weight_VD: Tensor, scale_V: Tensor) -> None:
        self.packed = torch.ops.onednn.qlinear_prepack(weight_VD.contiguous(), None)
        self.scale, self.zeros = scale_V, torch.zeros_like(scale_V, dtype=torch.long)

    def __call__(self, rows_ND: Tensor) -> Tensor:
        """See `Product`."""
        weight = self.packed, self.scale, self.zeros
        # Of the output: no bias, scale, zero and type; then, nothing is done with it.
        output = None, 1.0, 0, torch.float32
        nothing: tuple[str, list[float], str] = ("none", [], "")
        product: Tensor = torch.ops.onednn.qlinear_pointwise(rows_ND, 1.0, OFFSET, *weight, *output, *nothing)
        return product


class IntMM(Product):
    """The matrix product of torch from int8 to int32."""

    def __init__(self, weight_VD: Tensor, scale_V: Tensor) -> None:
        self.weight_DV, self.scale = weight_VD.contiguous().t(), scale_V

    def __call__(self, rows_ND: Tensor) -> Tensor:
        """See `Product`."""
        return torch._int_mm(_signed(rows_ND), self.weight_DV).float().mul_(self.scale)


class Float(Product):
    """The same whole numbers as float32, whose sums are rounded beyond 2^24; nothing is faster."""

    def __init__(self, weight_VD: Tensor, scale_V: Tensor) -> None:
        self.weight_VD, self.scale = weight_VD.float(), scale_V

    def __call__(self, rows_ND: Tensor) -> Tensor:
        """See `Product`."""
        return linear(_signed(rows_ND).float(), self.weight_VD).mul_(self.scale)


@cache
def fastest() -> type[Product]:
    """The first kind of product that this machine computes correctly."""
    return next(kind for kind in (OneDNN, IntMM, Float) if kind is Float or is_exact(kind))


def is_exact(kind: type[Product]) -> bool:
    """Whether a kind of product is there and right, at the largest sums too.

    On processors without instructions for it, sums of neighbours are cut off at 16 bits.
    """
    generator = torch.Generator().manual_seed(0)
    weight, rows = (
        torch.randint(-LEVELS, LEVELS + 1, (n, 256), dtype=torch.int8, generator=generator) for n in (32, 17)
    )
    weight[:2], rows[:2] = LEVELS, LEVELS
    weight[1], rows[1] = -LEVELS, -LEVELS
    expected = rows.double() @ weight.double().t()
    try:
        product = kind(weight, torch.ones(len(weight)))
        higher = (rows.short() + OFFSET).to(torch.uint8)
        found = torch.cat((product(higher), product(higher[:1])))
    except (RuntimeError, AttributeError, NotImplementedError):  # not in this torch, or not on this processor
        return False
    return torch.equal(found.double(), torch.cat((expected, expected[:1])))
