"""The best columns of the output layer for every row of a search: `max` and `topk`, faster on a CPU.

Shapes: R rows, U columns, N blocks of them, S columns of a block, C blocks of the best.
"""

import torch
from torch import Tensor

BLOCK_TOKENS = 64  # in which columns are searched for the best
FEW_VALUES = 2**16  # of which the largest is found as fast without blocks


def best_column(values_RU: Tensor) -> tuple[Tensor, Tensor]:
    """The largest value of every row, the first of equal ones, and its column: [R, 1] each.

    As `max`, which keeps track of a column for every value that it reads; here only for the maxima of blocks
    and the values of one block.
    """
    size = BLOCK_TOKENS
    blocks = values_RU.size(1) // size
    if values_RU.device.type != "cpu" or values_RU.numel() < FEW_VALUES or blocks == 0:
        return values_RU.max(dim=1, keepdim=True)
    blocks_RNS = values_RU[:, : blocks * size].view(-1, blocks, size)
    block = blocks_RNS.amax(dim=2).argmax(dim=1, keepdim=True)
    in_best = blocks_RNS.gather(1, block[:, :, None].expand(-1, -1, size)).flatten(1)
    found, at = torch.cat([in_best, values_RU[:, blocks * size :]], dim=1).max(dim=1, keepdim=True)
    return found, at + size * torch.where(at < size, block, blocks - 1)


def best_columns(values_RU: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest values of every row, in descending order, and their columns: [R, count] each.

    As `topk`, which is among the slowest steps of a beam on a CPU: the largest values lie in the blocks of
    the largest maxima, so that most blocks are read once. Which of equal values comes first may differ.
    """
    size = BLOCK_TOKENS
    blocks = values_RU.size(1) // size
    if values_RU.device.type != "cpu" or blocks < 4 * count:
        return values_RU.topk(count, dim=1)
    blocks_RNS = values_RU[:, : blocks * size].view(-1, blocks, size)
    best_RC = blocks_RNS.amax(dim=2).topk(count, dim=1, sorted=False).indices
    in_best = blocks_RNS.gather(1, best_RC[:, :, None].expand(-1, -1, size)).flatten(1)
    behind = values_RU[:, blocks * size :]
    found, at = torch.cat([in_best, behind], dim=1).topk(count, dim=1)
    block = best_RC.gather(1, (at // size).clamp(max=count - 1))
    return found, torch.where(at < count * size, block * size + at % size, at - count * size + blocks * size)
