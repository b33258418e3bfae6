"""Matrix products in int8, with one scale per row of states and per row of weights.

    y[n, v] = s[n] * t[v] * sum over d of q[n, d] * w[v, d]
    s[n] = max |x[n]| / 127,  q[n] = round(x[n] / s[n]);  t and w are made from the weights in the same way

With one scale per tensor, as in torch's dynamic operator, a row would depend on the other rows of its batch.
Here sums are over integers, so a row has the same bits in any batch.

The scale of a row of weights has 16 bits of fraction, so a weight w * t is an exact float32. Quantising a
dequantised matrix therefore gives the same integers and scales.

Rows are stored as uint8, with OFFSET added.

Shapes: N rows of states, V rows of weights, D numbers of each.
"""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import linear

LEVELS = 127
OFFSET = 128  # added to rows: processors without AMX have no fast product of signed rows
SCALE_BITS = 16
MOST_OF_ONE = 2**22  # largest matrix that is kept in a second format, for products with one row
SMALLEST = 1e-30  # lower bound of the maximum of a row, so that rows of zeros have a scale
# Constants are tensors, because torch converts a number in every call, which takes longer than the operation
# on a row.
_LEVELS, _MIDDLE = torch.tensor(float(LEVELS)), torch.tensor(OFFSET + 0.5)


def quantised_rows(x_ND: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows of float32 as integers plus OFFSET, uint8 [N, D], and their scales [N, 1]."""
    largest = x_ND.abs().amax(dim=1, keepdim=True).clamp_(min=SMALLEST)
    # Adding 0.5 and truncating rounds. The steps are separate, because a fused one rounds differently.
    numbers_ND = (x_ND * largest.reciprocal().mul_(_LEVELS)).add_(_MIDDLE).to(torch.uint8)
    return numbers_ND, largest.div_(_LEVELS)


def quantised_weight(weight_VD: Tensor) -> tuple[Tensor, Tensor]:
    """Return a float32 matrix as integers, int8 [V, D], and the scales of its rows, [V]."""
    fraction, exponent = (weight_VD.abs().amax(dim=1).clamp_(min=SMALLEST) / LEVELS).frexp()
    scale = torch.ldexp(torch.ceil(fraction * 2**SCALE_BITS) / 2**SCALE_BITS, exponent)
    return (weight_VD / scale[:, None]).round_().to(torch.int8), scale


def dequantised(weight_VD: Tensor, scale_V: Tensor) -> Tensor:
    """Return the float32 matrix of integers and their scales."""
    return weight_VD.float() * scale_V[:, None]


def _signed(rows_ND: Tensor) -> Tensor:
    """Convert uint8 with OFFSET added to int8."""
    return rows_ND.bitwise_xor(OFFSET).view(torch.int8)


# The product of a matrix with rows, times its scales: uint8 [N, D] with OFFSET added -> float32 [N, V].
Product = Callable[[Tensor], Tensor]
ProductKind = Callable[[Tensor, Tensor], Product]  # from int8 weights [V, D] and the scale of every row [V]


def onednn(weight_VD: Tensor, scale_V: Tensor) -> Product:
    """Use the operator of compiled quantised models in torch; only on x86.

    For one row, `int_mm` gives the same bits in about half the time, except with very large matrices. So
    smaller matrices are also kept in its format.
    """
    packed = torch.ops.onednn.qlinear_prepack(weight_VD.contiguous(), None)
    weight = packed, scale_V, torch.zeros_like(scale_V, dtype=torch.long)
    # Arguments of the output: bias, scale, zero point and type, then the operation that follows.
    output = None, 1.0, 0, torch.float32
    nothing: tuple[str, list[float], str] = ("none", [], "")
    of_one = int_mm(weight_VD, scale_V) if weight_VD.numel() <= MOST_OF_ONE else None

    def product(rows_ND: Tensor) -> Tensor:
        if of_one is not None and len(rows_ND) == 1:
            return of_one(rows_ND)
        out_NV: Tensor = torch.ops.onednn.qlinear_pointwise(rows_ND, 1.0, OFFSET, *weight, *output, *nothing)
        return out_NV

    return product


def int_mm(weight_VD: Tensor, scale_V: Tensor) -> Product:
    """Use torch's matrix product from int8 to int32."""
    weight_DV = weight_VD.contiguous().t()
    return lambda rows_ND: torch._int_mm(_signed(rows_ND), weight_DV).float().mul_(scale_V)


def as_float(weight_VD: Tensor, scale_V: Tensor) -> Product:
    """Use the integers as float32, if no int8 product is exact; sums above 2^24 are rounded."""
    weight = weight_VD.float()
    return lambda rows_ND: linear(_signed(rows_ND).float(), weight).mul_(scale_V)


@cache
def fastest() -> ProductKind:
    """Return the first kind of product that is exact on this machine."""
    return next((kind for kind in (onednn, int_mm) if is_exact(kind)), as_float)


def is_exact(kind: ProductKind) -> bool:
    """Return whether a kind of product is available and exact, also for the largest sums.

    On processors without int8 instructions, sums of two neighbouring products saturate at 16 bits.
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
        shifted = (rows.short() + OFFSET).to(torch.uint8)
        results = torch.cat((product(shifted), product(shifted[:1])))
    except (RuntimeError, AttributeError, NotImplementedError):  # not in this torch or on this processor
        return False
    return torch.equal(results.double(), torch.cat((expected, expected[:1])))
