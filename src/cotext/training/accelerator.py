"""Device, precision and processes of a training run."""

import os

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs

from cotext.config.training import TrainConfig
from cotext.runtime.devices import choose_device
from cotext.runtime.errors import CotextError


def make_accelerator(
    config: TrainConfig, spares_parameters: bool = False, device: str | None = None
) -> Accelerator:
    """The device and the processes to train on; see `System.spares_parameters`.

    On a GPU, products of single precision are allowed 10 bits of fraction from here on (TF32).

    `device`: cpu, cuda or, for a single process, one of several, as in cuda:1; if None, what there is.

    Raises:
        CotextError: no such device, or it cannot compute in `precision`.
    """
    asked = None if device is None else choose_device(device)
    if asked is not None and asked.index is not None:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise CotextError(
                f"--device {device}: several processes take a device each; say {asked.type} alone, and "
                "choose which by CUDA_VISIBLE_DEVICES"
            )
        torch.get_device_module(asked).set_device(asked)
    # Buffers are tables that every process computes for itself, as long as its rows need them: they differ
    # in size, and the processes do not make equally many forward passes in validation.
    # Looking for unused parameters takes time, and is warned of where there are none.
    wrapping = DistributedDataParallelKwargs(
        broadcast_buffers=False, find_unused_parameters=spares_parameters
    )
    try:
        mixed = "no" if config.precision == "fp32" else config.precision
        on_cpu = asked is not None and asked.type == "cpu"
        accelerator = Accelerator(mixed_precision=mixed, cpu=on_cpu, kwargs_handlers=[wrapping])
    except ValueError as error:
        raise CotextError(f"train.precision = {config.precision}: {error}") from None
    if asked is not None and accelerator.device.type != asked.type:
        raise CotextError(
            f"--device {device}: training takes the {accelerator.device.type} here (ACCELERATE_USE_CPU, or "
            "another kind of device than --device asks for); leave it out"
        )
    # Accelerate would compute in single precision without a word.
    if config.precision == "fp16" and accelerator.device.type == "cpu":
        raise CotextError("train.precision = fp16 needs a GPU; on the CPU use bf16, or fp32")
    if accelerator.device.type == "cuda":
        torch.backends.cuda.matmul.fp32_precision = "tf32"
    return accelerator
