"""Copies of objects that hold tensors, with a function applied to each tensor.

The layouts of a batch are created on the CPU before the batch is needed, then moved to the device as a whole.
So no step waits for a number from the device.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

T = TypeVar("T")
PACKAGE = __name__.partition(".")[0]


def moved(thing: T, place: Callable[[Tensor], Tensor]) -> T:
    """Return a copy of tensors, containers and objects of this package; shared tensors stay shared.

    Modules, parameters and objects of other packages are not copied.
    """
    copied: T = _moved(thing, place, {})
    return copied


def to_device(thing: T, device: torch.device) -> T:
    """Copy an object to `device`, asynchronously if tensors are pinned; on the CPU, return it unchanged."""
    if device.type == "cpu":
        return thing
    return moved(thing, lambda x: x.to(device, non_blocking=True))


def pinned(thing: T) -> T:
    """Copy to pinned memory, from which a GPU can read asynchronously."""
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
        copied = type(thing)(_moved(item, place, known) for item in thing)
    elif isinstance(thing, dict):
        copied = {key: _moved(value, place, known) for key, value in thing.items()}
    elif type(thing).__module__.partition(".")[0] == PACKAGE:
        copied = object.__new__(type(thing))
        known[id(thing)] = [thing, copied]  # registered first, because a layout may refer to itself
        slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
        values = {name: getattr(thing, name) for name in slots if hasattr(thing, name)}
        for name, value in (values | getattr(thing, "__dict__", {})).items():
            object.__setattr__(copied, name, _moved(value, place, known))  # also if frozen
    # Keep the original too: a new object could otherwise get its id.
    known[id(thing)] = [thing, copied]
    return copied
