"""Objects that hold tensors, copied to where a function puts each of them.

The layouts of a batch are made on the CPU before the batch is needed, and then move to the device as a whole:
so that no step has to wait for the device to tell it a number.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

T = TypeVar("T")
PACKAGE = __name__.partition(".")[0]


def moved(thing: T, place: Callable[[Tensor], Tensor]) -> T:
    """A copy of tensors, of containers and of the package's own objects; parts that share a tensor still do.

    Modules, parameters and objects of others are not copied.
    """
    copied: T = _moved(thing, place, {})
    return copied


def to_device(thing: T, device: torch.device) -> T:
    """A copy on `device`, not waited for if the tensors are pinned; on the CPU the thing itself."""
    if device.type == "cpu":
        return thing
    return moved(thing, lambda x: x.to(device, non_blocking=True))


def pinned(thing: T) -> T:
    """A copy in memory that a GPU reads while the CPU goes on."""
    return moved(thing, Tensor.pin_memory)


def _moved(thing: Any, place: Callable[[Tensor], Tensor], known: dict[int, list[Any]]) -> Any:
    if isinstance(thing, nn.Module | nn.Parameter):
        return thing
    if id(thing) in known:
        return known[id(thing)][1]
    copied = thing
    if isinstance(thing, Tensor):
        copied = place(thing)
    elif isinstance(thing, list | tuple):
        copied = type(thing)(_moved(each, place, known) for each in thing)
    elif isinstance(thing, dict):
        copied = {key: _moved(value, place, known) for key, value in thing.items()}
    elif type(thing).__module__.partition(".")[0] == PACKAGE:
        copied = object.__new__(type(thing))
        known[id(thing)] = [thing, copied]  # beforehand: a layout may be an answer of its own
        for name, value in _attributes(thing):
            object.__setattr__(copied, name, _moved(value, place, known))  # also of what is frozen
    # With the original, which must not make room for another of its id.
    known[id(thing)] = [thing, copied]
    return copied


def _attributes(thing: object) -> list[tuple[str, Any]]:
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    found = [(name, getattr(thing, name)) for name in slots if hasattr(thing, name)]
    return found + list(getattr(thing, "__dict__", {}).items())
