"""Projection of two states side by side: what gates between them are made of.

Shapes: D model.
"""

import torch
from torch import Tensor, nn

from cotext.layers.half_linear import product
from cotext.layers.int8_linear import Int8Linear


def joint(projection: nn.Module, a: Tensor, b: Tensor) -> Tensor:
    """W [a; b] + bias of two [..., D], without putting them together: [..., outputs]."""
    if isinstance(projection, Int8Linear):
        whole: Tensor = projection(torch.cat((a, b), dim=-1))
        return whole
    assert isinstance(projection, nn.Linear)
    of_a, of_b = projection.weight.chunk(2, dim=1)
    return product(a, of_a, projection.bias) + product(b, of_b)
