"""Fully sharded training (`train.shard_model`): each process stores a part of weights, gradients and moments.

This is stage 3 of Rajbhandari et al. 2020 (section 5.3), implemented with torch's `fully_shard`. The weights
of a group of modules are gathered on every process when the group is computed, and freed afterwards.
Gradients are summed and scattered. Each block is a group. Each cross-attention is a separate group, because
its keys and values are computed before its block. All other modules form one group. Checkpoints
contain full tensors, as without sharding.

`torch.distributed` is imported when it is needed, because this takes a second.
"""

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from cotext.config.recipe import TrainConfig
from cotext.layers.blocks import TransformerBlock
from cotext.layers.multi_head import CrossAttention
from cotext.runtime import CotextError


def require_shardable(config: TrainConfig, processes: int) -> None:
    """Raise CotextError for one process, or for BLEU, which needs the full model on one process."""
    if not config.shard_model:
        return
    if processes == 1:
        raise CotextError(
            "train.shard_model = true: the model is divided among processes, but there is only one; start "
            "several, for example `torchrun --nproc-per-node=8 -m cotext train ...`"
        )
    if config.validate_bleu:
        raise CotextError(
            "train.shard_model = true: no process has the complete model, so the development set cannot be "
            "translated; set train.validate_bleu = false, and translate with the checkpoints"
        )


def shard(objective: nn.Module, device: torch.device, processes: int) -> None:
    """Shard the parameters of a model with its loss among all processes, in place."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(device.type, (processes,))
    # Keys and values are views of one projection. No code modifies them in place.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view", UserWarning)
    # Inner modules first: an outer group contains only modules that are not yet in a group.
    for module in reversed(list(objective.modules())):
        if isinstance(module, TransformerBlock | CrossAttention):
            fully_shard(module, mesh=mesh)
        if isinstance(module, CrossAttention):
            register_fsdp_forward_method(module, "project")
    fully_shard(objective, mesh=mesh)


def whole(tensor: Tensor) -> Tensor:
    """Return the full tensor of a sharded tensor; every process must call this."""
    sharded: Any = tensor
    full: Tensor = sharded.full_tensor() if _is_divided(tensor) else tensor
    return full


def gathered(tensors: Mapping[str, Tensor], keep: bool) -> dict[str, Tensor]:
    """Return full tensors, one after the other; sharded tensors are moved to the CPU.

    Every process must call this. Without `keep`, the result is empty.
    """
    full_tensors = {}
    for name, tensor in tensors.items():
        full = whole(tensor.detach())
        if keep:
            full_tensors[name] = full.cpu() if _is_divided(tensor) else full
    return full_tensors


def divided(tensor: Tensor, like: Tensor) -> Tensor:
    """Shard a tensor in the same way as another tensor; every process has the full tensor."""
    if not _is_divided(like):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    layout: Any = like
    return distribute_tensor(
        tensor.to(like.device), layout.device_mesh, layout.placements, src_data_rank=None
    )


def _is_divided(tensor: Tensor) -> bool:
    return hasattr(tensor, "full_tensor")  # only `DTensor` has this method
