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
    """Return the `Accelerator` with the device and the processes to train on.

    `spares_parameters`: see `System.spares_parameters`. `device`: cpu, cuda or, for a single process, one of
    several GPUs, such as cuda:1. If it is None, the GPU is used, if there is one. On a GPU, this enables
    TF32.

    Raises:
        CotextError: the device does not exist or does not support `precision`.
    """
    requested = None if device is None else choose_device(device)
    if requested is not None and requested.index is not None:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise CotextError(
                f"--device {device}: several processes use one device each; write --device {requested.type}, "
                "and select devices by CUDA_VISIBLE_DEVICES"
            )
        torch.get_device_module(requested).set_device(requested)
    # Buffers are not synchronised: they are tables whose size depends on the batches of each process, and
    # the processes make different numbers of forward passes in validation.
    # The search for unused parameters takes time, and DDP warns if there are none.
    wrapping = DistributedDataParallelKwargs(
        broadcast_buffers=False, find_unused_parameters=spares_parameters
    )
    try:
        mixed = "no" if config.precision == "fp32" else config.precision
        on_cpu = requested is not None and requested.type == "cpu"
        accelerator = Accelerator(mixed_precision=mixed, cpu=on_cpu, kwargs_handlers=[wrapping])
    except ValueError as error:
        raise CotextError(f"train.precision = {config.precision}: {error}") from None
    if requested is not None and accelerator.device.type != requested.type:
        raise CotextError(
            f"--device {device}: training uses {accelerator.device.type} here (ACCELERATE_USE_CPU, or "
            "--device is another kind of device); remove --device"
        )
    # Accelerate would use single precision without a warning.
    if config.precision == "fp16" and accelerator.device.type == "cpu":
        raise CotextError("train.precision = fp16 needs a GPU; on the CPU use bf16, or fp32")
    if accelerator.device.type == "cuda":
        torch.backends.cuda.matmul.fp32_precision = "tf32"
    return accelerator
