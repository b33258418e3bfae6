"""What training minimises: a model and its loss."""

from torch import nn

from cotext.data.batch import Batch
from cotext.losses.build import Loss
from cotext.losses.cross_entropy import LossParts
from cotext.models.interface import Model


class Objective(nn.Module):
    """Model and loss as one module, so that data-parallel wrappers see a single forward pass."""

    def __init__(self, model: Model, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, batch: Batch, done: float = 0.0) -> LossParts:
        """The summed loss of a batch, when this share of the training is done."""
        return self.loss(self.model, batch, done)
