"""Adam over the parameters of a model, those that are new to it in a group of their own."""

import math
from collections.abc import Collection

from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from cotext.config.training import TrainConfig
from cotext.models.interface import System


class Adam(AdamW):
    """Adam that leaves an update out where `found_inf` is 1, which the device looks at by itself.

    A scaler of gradients sets it, too (fp16), and takes it away again.
    """

    found_inf: Tensor | None = None


def learning_rate(config: TrainConfig, update: int) -> float:
    """Linear warm-up, then inverse square root (Vaswani et al. 2017, equation 3, scaled to its peak)."""
    warmup = max(config.warmup_updates, 1)
    return config.learning_rate * min(update / warmup, math.sqrt(warmup / update))


def make_optimizer(
    model: nn.Module, config: TrainConfig, fresh: Collection[str] = ()
) -> tuple[Adam, list[str]]:
    """Adam with decoupled weight decay over what is trained, and the names of its parameters in its order.

    `fresh` names the parameters that learn at `config.fresh_rate` times the rate of the others: those that
    have nothing to start from, where training starts from another run. Parts can have a rate of their own.
    """
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    rates = model.rates() if isinstance(model, System) else {}
    groups: dict[float, list[str]] = {}
    for name in named:
        factor = rates.get(name, config.fresh_rate if name in fresh else 1.0)
        groups.setdefault(factor, []).append(name)
    optimizer = Adam(
        [{"params": [named[name] for name in names], "factor": factor} for factor, names in groups.items()],
        lr=config.learning_rate,
        betas=config.adam_betas,
        eps=config.adam_epsilon,
        weight_decay=config.weight_decay,
        fused=True,
    )
    return optimizer, [name for names in groups.values() for name in names]


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Give every group the rate times its factor."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["factor"]
