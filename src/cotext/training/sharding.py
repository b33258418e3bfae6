"""Fully sharded training (`train.shard_model`): every process holds a part of weights, gradients, moments.

As stage 3 of Rajbhandari et al. 2020 (section 5.3), by torch's `fully_shard`: the weights of a block are put
together on every process when the block is computed, and given up behind it; gradients are summed and divided
up as they come. Blocks, and cross-attentions, which are asked for keys and values before their block, are
groups of their own; embeddings and all else are one. Files hold whole tensors, as in other training.

What of torch divides tensors takes a second to import, which training without it need not wait for.
"""

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from cotext.config.training import TrainConfig
from cotext.layers.blocks import DecoderBlock, EncoderBlock
from cotext.layers.multi_head import CrossAttention
from cotext.runtime.errors import CotextError


def require_shardable(config: TrainConfig, processes: int) -> None:
    """Refuse what fully sharded training does not do.

    Raises:
        CotextError: a single process; translation for BLEU, which one process does.
    """
    if not config.shard_model:
        return
    if processes == 1:
        raise CotextError(
            "train.shard_model = true: divides the model among processes, and there is one; start several, "
            "as in `torchrun --nproc-per-node=8 -m cotext train ...`"
        )
    if config.validate_bleu:
        raise CotextError(
            "train.shard_model = true: no process has the whole model to translate the development set with; "
            "choose train.validate_bleu = false, and translate with the checkpoints"
        )


def shard(objective: nn.Module, device: torch.device, processes: int) -> None:
    """Divide the parameters of a model with its loss among all processes, in place."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(device.type, (processes,))
    # Keys and values are views of one projection, and nobody writes into them.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view", UserWarning)
    # Inner modules first: a group is what no group inside it holds.
    for module in reversed(list(objective.modules())):
        if isinstance(module, EncoderBlock | DecoderBlock | CrossAttention):
            fully_shard(module, mesh=mesh)
        if isinstance(module, CrossAttention):
            register_fsdp_forward_method(module, "project")
    fully_shard(objective, mesh=mesh)


def whole(tensor: Tensor) -> Tensor:
    """A tensor with the parts of all processes, every one of which must call this."""
    divided_tensor: Any = tensor
    found: Tensor = divided_tensor.full_tensor() if _is_divided(tensor) else tensor
    return found


def gathered(tensors: Mapping[str, Tensor], keep: bool) -> dict[str, Tensor]:
    """Tensors put together, one after the other and, where they were divided, on the CPU.

    Every process must call this; those that do not `keep` them get none.
    """
    found = {}
    for name, tensor in tensors.items():
        together = whole(tensor.detach())
        if keep:
            found[name] = together.cpu() if _is_divided(tensor) else together
    return found


def divided(tensor: Tensor, like: Tensor) -> Tensor:
    """A tensor that every process has, divided as another one is."""
    if not _is_divided(like):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    layout: Any = like
    return distribute_tensor(
        tensor.to(like.device), layout.device_mesh, layout.placements, src_data_rank=None
    )


def _is_divided(tensor: Tensor) -> bool:
    return hasattr(tensor, "full_tensor")  # which no tensor but one of torch's divided ones has
