"""Losses by name, from the section `loss` of a configuration."""

from typing import Any, Protocol

from cotext.config.recipe import LossConfig
from cotext.data.batch import Batch
from cotext.losses.cross_entropy import CrossEntropy, LossParts
from cotext.losses.glancing import Glancing


class Loss(Protocol):
    """A training loss: (model, batch, share of the training done) -> sum, count, named parts.

    The combination of model and loss is checked when the model is built.
    """

    def laid_out(self, model: Any, batch: Batch, training: bool) -> Batch:
        """Return the batch with all index tensors that model and loss need, such as layouts.

        All tensors are made on the device of the batch, and `Batch.to` moves them with it.
        """

    def __call__(self, model: Any, batch: Batch, done: float = 0.0) -> LossParts:
        """Return the summed loss of a batch; the trainer divides it by the total count."""


def build_loss(config: LossConfig) -> Loss:
    """Return the loss that a configuration names."""
    if config.name == "glancing":
        return Glancing(config.glancing, config.label_smoothing)
    return CrossEntropy(config.label_smoothing, config.context_discount, config.foreign_weight)
