"""Rows of unequal length without their padding: what works token by token need not touch padding.

Shapes: B rows, T tokens, N real tokens of all rows, D model.

    [B, T, D]   a b .        pack ->    [N, D]   a b c d e
                c d e        <- unpack           (padding comes back as zeros)
"""

from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable


def _take(x_MD: Tensor, place_N: Tensor) -> Tensor:
    return x_MD.index_select(0, place_N)


def _spread(x_ND: Tensor, place_N: Tensor, places: int) -> Tensor:
    return x_ND.new_zeros(places, x_ND.size(1)).index_copy_(0, place_N, x_ND)


class _Pack(Function):
    @staticmethod
    def forward(ctx: Any, x_MD: Tensor, place_N: Tensor) -> Tensor:
        ctx.save_for_backward(place_N)
        ctx.places = x_MD.size(0)
        return _take(x_MD, place_N)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        # The places are distinct, so that nothing has to be added up.
        return _spread(grads[0], ctx.saved_tensors[0], ctx.places), None


class _Unpack(Function):
    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, place_N: Tensor, places: int) -> Tensor:
        ctx.save_for_backward(place_N)
        return _spread(x_ND, place_N, places)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return _take(grads[0], ctx.saved_tensors[0]), None, None


class Ragged:
    """Where the real tokens of padded rows stand."""

    def __init__(self, real_BT: Tensor) -> None:
        self.rows, self.tokens = real_BT.shape
        self.place_N = real_BT.flatten().nonzero()[:, 0]

    @staticmethod
    def of(sentence: Tensor) -> "Ragged | None":
        """From sentence indices [B, T], -1 on padding; None where nothing is padded."""
        real = sentence >= 0
        return None if bool(real.all()) else Ragged(real)

    def pack(self, x_BTD: Tensor) -> Tensor:
        """[B, T, D] -> [N, D]."""
        packed: Tensor = _Pack.apply(x_BTD.flatten(0, 1), self.place_N)  # type: ignore[no-untyped-call]
        return packed

    def unpack(self, x_ND: Tensor) -> Tensor:
        """[N, D] -> [B, T, D], zeros on padding."""
        places = self.rows * self.tokens
        spread: Tensor = _Unpack.apply(x_ND, self.place_N, places)  # type: ignore[no-untyped-call]
        return spread.view(self.rows, self.tokens, -1)
