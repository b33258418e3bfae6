"""The contract that search, losses and translation are typed on, and what every system derives from.

Shapes: B entries, R rows (R = B * beam while searching), T target tokens, D model, V vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor, nn

from cotext.data.batch import Source


class State(Protocol):
    """The encoded source and, once opened, what the decoder has written so far.

    Search widens, re-orders and thins it out without looking inside.
    """

    def open(self, places: int) -> None:
        """Make room for `places` tokens a row, padding included.

        From now on `decode` continues where it stopped.
        """

    def widen(self, beam: int) -> None:
        """Repeat every row `beam` times."""

    def reorder(self, origin: Tensor) -> None:
        """Row i continues what row origin[i] of the same entry was: [R]."""

    def finish(self, entries: Tensor, tokens: Tensor, sentence: Tensor) -> None:
        """Take note of what was written, before `select` drops entries that have ended.

        `entries` [E] are places among those still in the state; `tokens` and `sentence` [E, T] the decoder
        inputs of their best hypotheses from the first on, -1 on padding.
        """

    def select(self, entries: Tensor, beam: int) -> None:
        """Keep the given entries [B'] with all `beam` rows of each."""


class AutoregressiveModel(Protocol):
    """A model that writes its translation from left to right.

    `decode` is one code for training and for search: on a state that was never opened it computes all T
    positions of complete rows; on an open one, the T tokens that follow those decoded before. Padding
    (sentence -1) stands on the right, and only in the first call after `open` or in the last.
    """

    @property
    def output_weight(self) -> Tensor:
        """The output layer, [V, D]: logits are hidden @ output_weight.T."""

    def encode(self, source: Source) -> Any:
        """Read the source; returns the model's own kind of `State`."""

    def decode(self, tokens: Tensor, sentence: Tensor, state: Any) -> Tensor:
        """Decoder inputs and the sentence of each, both [R, T] -> hidden states [R, T, D]."""


class TranslationModel(nn.Module, ABC):
    """A system: what is trained, saved and loaded; `AutoregressiveModel` says what its parts do.

    `sees_other_rows`: whether a row's result depends on other rows of its document, which then must be given
    together and in order, in one batch or as companions.

    `spares_parameters`: whether there are batches, or configurations, that leave some parameters unused.
    """

    sees_other_rows: bool = False
    spares_parameters: bool = False

    @property
    @abstractmethod
    def output_weight(self) -> Tensor:
        """The output layer: [V, D]."""

    @abstractmethod
    def encode(self, source: Source) -> Any:
        """Read the source; returns the system's own kind of `State`."""

    @abstractmethod
    def decode(self, tokens: Tensor, sentence: Tensor, state: Any) -> Tensor:
        """Decoder inputs and the sentence of each, both [R, T] -> hidden states [R, T, D]."""

    def adopted_names(self) -> Mapping[str, str]:
        """Parameters that start as copies where training starts from another system: own name -> name there.

        Where the other system has a parameter of the own name, that is taken instead.
        """
        return {}
