"""How attention spreads: its entropy, for every attention of a model, by watching it at work.

Bao et al. 2021 and Li et al. 2022 tell a Doc2Doc model that fails to train by the flat weights of its
cross-attention: their entropy stays near that of a uniform distribution.

Shapes: B rows, H heads, T queries, S keys.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cotext.data.batch import Batch
from cotext.layers.kernels.sdpa import TokenIndices, watch_weights
from cotext.models.interface import TranslationModel


@dataclass(slots=True)
class Spread:
    """Sums over heads and real queries of one attention."""

    entropy: float = 0.0
    uniform: float = 0.0
    queries: float = 0.0

    @property
    def nats(self) -> float:
        """Mean entropy of the weights."""
        return self.entropy / self.queries

    @property
    def normalised_entropy(self) -> float:
        """Entropy as a share of what even weights over the same keys would have; 1: nothing is chosen."""
        return self.entropy / self.uniform if self.uniform else 0.0

    def add(self, weights_BHTS: Tensor, real_BT: Tensor) -> None:
        """Count the weights of one call."""
        real = real_BT[:, None].expand(weights_BHTS.shape[:3])
        weights = weights_BHTS.double()[real]
        self.entropy -= float(torch.special.xlogy(weights, weights).sum())
        # Keys that may not be attended to have weights of exactly zero.
        self.uniform += float((weights > 0).sum(dim=1).double().log().sum())
        self.queries += weights.size(0)


def attention_spread(model: TranslationModel, batches: Iterable[Batch]) -> dict[str, Spread]:
    """The spread of every attention of a model over some batches, by the name of its module.

    Names are those of the model, as `encoder.5.attention` and `decoder.0.cross`. The model must be in eval
    mode, and is left as it was.
    """
    found: dict[str, Spread] = {}
    with torch.inference_mode(), calls(model) as calling:

        def watcher(weights_BHTS: Tensor, real_BT: Tensor, places: TokenIndices | None) -> None:
            found.setdefault(calling[-1], Spread()).add(weights_BHTS, real_BT)

        with watch_weights(watcher):
            for batch in batches:
                model.decode(batch.target_input, batch.input_sentence, model.encode(batch.source))
    return found


@contextmanager
def calls(model: nn.Module) -> Iterator[list[str]]:
    """The names of the modules being called, innermost last, while the context is open."""
    calling: list[str] = []

    def enter(name: str, module: nn.Module) -> None:
        handles.callback(module.register_forward_pre_hook(lambda *_: calling.append(name)).remove)
        handles.callback(module.register_forward_hook(lambda *_: _left(calling)).remove)

    with ExitStack() as handles:
        for name, module in model.named_modules():
            enter(name, module)
        yield calling


def _left(calling: list[str]) -> None:
    calling.pop()
