"""Base class of autograd functions that return one tensor."""

from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.autograd import Function


class TensorFunction(Function):
    """`Function` with a typed `apply`, which torch leaves untyped; both run the same code."""

    if TYPE_CHECKING:

        @classmethod
        def apply(cls, *inputs: Any) -> Tensor: ...
