"""Devices and threads to compute on."""

import os
from typing import Final

import torch

from cotext.runtime.errors import CotextError, shown
from cotext.runtime.workers import usable_cores

KERNELS: Final = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
KEPT_KERNELS: Final = 64  # more than a layer's pass there and back takes, of source and target


def choose_device(name: str | None) -> torch.device:
    """The named device, or the GPU where there is one.

    Raises:
        CotextError: no such device, or none that computes.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        # Read back, which a device that holds no numbers (meta) refuses.
        torch.zeros(1, device=name).tolist()
        return torch.device(name)
    except (RuntimeError, AssertionError, ImportError) as error:
        raise CotextError(
            f"device {shown(name)} cannot be used: {str(error).splitlines()[0][:200]}; choose "
            "another, as in --device cpu"
        ) from None


def choose_threads(dimension: int, requested: int) -> int:
    """Threads for this process: more than one only pays where the matrix products are large enough.

    Never more than this process has cores: a model may come from a machine that has more of them. Where none
    are `requested`, OMP_NUM_THREADS is the most, as of processes that share a machine.
    """
    cores = usable_cores()
    if requested:
        return min(requested, cores)
    allowed = os.environ.get("OMP_NUM_THREADS", "")
    most = int(allowed) if allowed.isdecimal() and int(allowed) else cores
    return 1 if dimension < 256 else min(most, cores)


def keep_few_kernels() -> None:
    """Have oneDNN, which multiplies bfloat16 on a CPU, keep few kernels; a user's own number stays.

    It makes one for every shape, and by itself keeps 1,024: as shapes of batches hardly ever come again,
    memory that is never used grows with every update. Only before its first product in this process.
    """
    os.environ.setdefault(KERNELS, str(KEPT_KERNELS))


def multiplies_bfloat16() -> bool:
    """Whether this CPU has instructions for products in bfloat16 (AMX, AVX512-BF16, or those of ARM)."""
    try:
        features = torch.cpu.get_capabilities()
    except AttributeError:  # not in this torch
        return True
    return any(features.get(name, False) for name in ("amx_bf16", "avx512_bf16", "bf16", "sve_bf16"))


def slow_precision(key: str, device: torch.device) -> str:
    """What to tell of bfloat16, asked for by a key of the configuration; empty where it is fast."""
    if device.type != "cpu" or multiplies_bfloat16():
        return ""
    return f"{key}: this CPU has no instructions for bfloat16, which is slower on it than float32"
