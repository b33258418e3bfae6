"""Projection of two states side by side: what gates between them are made of.

Shapes: D model.
"""

from torch import Tensor, nn
from torch.nn.functional import linear


def joint(projection: nn.Linear, a: Tensor, b: Tensor) -> Tensor:
    """W [a; b] + bias of two [..., D], without putting them together: [..., outputs]."""
    of_a, of_b = projection.weight.chunk(2, dim=1)
    return linear(a, of_a, projection.bias) + linear(b, of_b)
