"""Rotary positions (Su et al. 2021, equation 34): queries and keys are rotated by their positions.

Each pair of numbers (x_n, x_{n + K/2}) of a head is rotated by the angle position / 10,000^(2n / K). The
product of a query and a key then depends on their distance, but not on their absolute positions.

Shapes: N tokens, D model, H heads, K per head.
"""

import torch
from torch import Tensor, nn

from cotext.layers.layout import AnyLayout
from cotext.layers.multi_head import Score
from cotext.layers.start import Blended

BASE = 10_000.0


class RotaryScore(Score, Blended):
    """Contents of rotated queries and keys; self-attention only, with an even number K per head."""

    what = "score"

    def project(self, fused: nn.Linear, x: Tensor, layout: AnyLayout, compared: int) -> Tensor:
        """Project, then rotate queries and keys but not values: see `Score`."""
        projected = super().project(fused, x, layout, compared)
        position = layout.packed_position if self.in_force == 1 else layout.packed_position * self.in_force
        turned = rotated(projected[..., :compared], position, self.size.dimension // self.size.heads)
        return torch.cat((turned, projected[..., compared:]), dim=-1)


def rotated(x: Tensor, position: Tensor, size: int) -> Tensor:
    """Rotate heads of `size` K: [..., n * K] at positions [...]."""
    # In float32: half precision would round the angles of far positions.
    half = torch.arange(size // 2, device=x.device, dtype=torch.float32)
    angle = position[..., None].float() * BASE ** (-2 * half / size)
    cos, sin = (values.to(x.dtype)[..., None, :] for values in (angle.cos(), angle.sin()))
    # Pairs of the two halves, where equation 34 has neighbours: only the order of numbers differs.
    first, second = x.view(*x.shape[:-1], -1, size).chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1).flatten(-2)
