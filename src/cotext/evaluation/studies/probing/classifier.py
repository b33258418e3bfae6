"""A linear softmax over frozen vectors, trained until it has converged: the instrument of the probing tasks.

Shapes: N examples, D vector, K classes.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

BATCH = 512
EPOCHS = 20
LEAST_UPDATES = 1000  # of few examples there are more epochs
# Falls to nothing over the epochs. On states of a trained encoder this came within 1.5 points of what L-BFGS
# reaches in several times as long; a smaller step, or one that falls with the gain, stayed further below.
FIRST_STEP = 0.3
CHUNK = 8192


@dataclass(frozen=True, slots=True)
class Softmax:
    """P(k | x) = softmax(W (x - mean) / deviation + b): standardised, x is easier to train on."""

    mean: Tensor  # [D]
    deviation: Tensor  # [D]
    weight: Tensor  # [K, D]
    bias: Tensor  # [K]

    def predict(self, x_ND: Tensor) -> Tensor:
        """The most probable class of each: [N, D] -> [N]."""
        return _predict((x_ND - self.mean) / self.deviation, self.weight, self.bias)


def fit(
    train: tuple[Tensor, Tensor], held_out: tuple[Tensor, Tensor], classes: int, generator: torch.Generator
) -> Softmax:
    """Train on vectors [N, D] and their classes [N] by Adam; the epoch best on the held-out pair is kept.

    `generator`, on the CPU, draws the order of the examples.
    """
    x_ND, y_N = train
    # In double precision: of a large constant, the mean must be that constant.
    mean = x_ND.mean(dim=0, dtype=torch.float64).to(x_ND)
    deviation = (x_ND - mean).square().mean(dim=0).sqrt()
    # What is the same everywhere says nothing, and must not be divided by zero.
    deviation = torch.where(deviation > 1e-6 * mean.abs().clamp(min=1e-6), deviation, 1.0)
    x_ND, held_x = (x_ND - mean) / deviation, (held_out[0] - mean) / deviation
    weight = x_ND.new_zeros(classes, x_ND.size(1)).requires_grad_()
    bias = x_ND.new_zeros(classes).requires_grad_()
    optimizer = torch.optim.Adam([weight, bias], lr=FIRST_STEP, betas=(0.9, 0.99))
    per_epoch = math.ceil(len(y_N) / BATCH)
    epochs = max(EPOCHS, math.ceil(LEAST_UPDATES / per_epoch))
    updates = epochs * per_epoch
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: 1 - update / updates)
    best, best_right = (weight, bias), -1
    for _ in range(epochs):
        order = torch.randperm(len(y_N), generator=generator).to(y_N.device)
        for some in torch.split(order, BATCH):
            optimizer.zero_grad()
            loss = cross_entropy(torch.addmm(bias, x_ND[some], weight.T), y_N[some])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
        now = weight.detach().clone(), bias.detach().clone()
        right = int((_predict(held_x, *now) == held_out[1]).sum())
        # Of equals the later: it took smaller steps.
        if right >= best_right:
            best, best_right = now, right
    return Softmax(mean, deviation, *best)


def _predict(x_ND: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.cat([torch.addmm(bias, part, weight.T).argmax(dim=1) for part in torch.split(x_ND, CHUNK)])
