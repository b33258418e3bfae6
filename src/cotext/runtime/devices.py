"""Choice of the device and the number of threads, and copies of objects on a device.

The layouts of a batch are created on the CPU before the batch is needed, then moved to the device as a whole.
So no step waits for a number from the device.
"""

import os
from collections.abc import Callable
from typing import Any, Final, TypeVar

import torch
from torch import Tensor, nn

from cotext.runtime import CotextError, shown
from cotext.runtime.processes import usable_cores

KERNELS: Final = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
KEPT_KERNELS: Final = 64  # more than the forward and backward passes of an encoder and a decoder layer need


def choose_device(name: str | None) -> torch.device:
    """Return the named device, or without a name the GPU if there is one, else the CPU.

    Raises CotextError if the device cannot be used.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        # Reading values fails on a device without data (meta).
        torch.zeros(1, device=name).tolist()
        return torch.device(name)
    except (RuntimeError, AssertionError, ImportError) as error:
        raise CotextError(
            f"device {shown(name)} cannot be used: {str(error).splitlines()[0][:200]}; choose "
            "another, such as --device cpu"
        ) from None


def choose_threads(dimension: int, requested: int) -> int:
    """Return the number of threads for this process, at most the number of its cores.

    If `requested` is 0, the number depends on the model `dimension`. Below 256 it is 1, because small matrix
    products are slower with several threads. Otherwise it is the number of cores, at most OMP_NUM_THREADS.
    """
    cores = usable_cores()
    if requested:
        return min(requested, cores)
    allowed = os.environ.get("OMP_NUM_THREADS", "")
    most = int(allowed) if allowed.isdecimal() and int(allowed) else cores
    return 1 if dimension < 256 else min(most, cores)


def keep_few_kernels() -> None:
    """Limit the kernel cache of oneDNN, which computes bfloat16 products on a CPU; a user's value is kept.

    oneDNN compiles a kernel for every shape and caches 1,024 of them by default. Batches rarely have the same
    shape twice, so the cache would grow with every update. Has no effect after the first product.
    """
    os.environ.setdefault(KERNELS, str(KEPT_KERNELS))


def multiplies_bfloat16() -> bool:
    """Return whether this CPU has instructions for products in bfloat16 (AMX, AVX512-BF16 or ARM)."""
    features = torch.cpu.get_capabilities()
    return any(features.get(name, False) for name in ("amx_bf16", "avx512_bf16", "bf16", "sve_bf16"))


def slow_precision(key: str, device: torch.device) -> str:
    """Return a warning if bfloat16, requested by the setting `key`, is slow on this device, or ""."""
    if device.type != "cpu" or multiplies_bfloat16():
        return ""
    return f"{key}: this CPU has no instructions for bfloat16, which is slower on it than float32"


T = TypeVar("T")
PACKAGE = __name__.partition(".")[0]


def moved(thing: T, place: Callable[[Tensor], Tensor]) -> T:
    """Copy containers and objects of this package, with `place` applied to each tensor in them.

    Shared tensors stay shared. Modules, parameters and objects of other packages are not copied.
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
