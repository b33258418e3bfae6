"""The losses by name, from the section `loss` of a configuration."""

from typing import Any, Protocol

from cotext.config.training import LossConfig
from cotext.data.batch import Batch
from cotext.losses.cross_entropy import CrossEntropy, LossParts
from cotext.losses.glancing import Glancing


class Loss(Protocol):
    """(model, batch, share of the training done) -> sum, count, named parts.

    The model is of the kind that the loss is for; which go together is checked when a model is built.
    """

    def laid_out(self, model: Any, batch: Batch, training: bool) -> Batch:
        """A batch with its layouts, and with all else that the loss needs of its indices.

        They are made on the device of the batch, and `Batch.to` moves them with it.
        """

    def __call__(self, model: Any, batch: Batch, done: float = 0.0) -> LossParts:
        """Loss of a batch, summed; the trainer divides by the count over all batches and processes."""


def build_loss(config: LossConfig) -> Loss:
    """The loss of a configuration."""
    if config.name == "glancing":
        return Glancing(config.glancing, config.label_smoothing)
    return CrossEntropy(config.label_smoothing, config.context_discount)
