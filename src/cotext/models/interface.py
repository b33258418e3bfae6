"""The contract that search, losses and translation are typed on, and what every system derives from.

Shapes: B entries, R rows (R = B * beam while searching), T target tokens, of a draft its places, S source
tokens, D model, V vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

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


class System(nn.Module, ABC):
    """What is trained, saved and loaded.

    `sees_other_rows`: whether a row's result depends on other rows of its document, which then must be given
    together and in order, in one batch or as extra rows.

    `spares_parameters`: whether there are batches, or configurations, that leave some parameters unused.
    """

    sees_other_rows: bool = False
    spares_parameters: bool = False

    @property
    @abstractmethod
    def output_weight(self) -> Tensor:
        """The output layer: [V, D]."""

    def adopted_names(self) -> Mapping[str, str]:
        """Parameters that start as copies where training starts from another system: own name -> name there.

        Where the other system has a parameter of the own name, that is taken instead.
        """
        return {}

    def neutral_start(self) -> Mapping[str, float]:
        """Parameters that start as a constant where training starts from another system that lacks them.

        At these values what they belong to changes next to nothing yet: name -> value.
        """
        return {}


class TranslationModel(System):
    """A system that writes from left to right: `AutoregressiveModel` says what its parts do."""

    @abstractmethod
    def encode(self, source: Source) -> Any:
        """Read the source; returns the system's own kind of `State`."""

    @abstractmethod
    def decode(self, tokens: Tensor, sentence: Tensor, state: Any) -> Tensor:
        """Decoder inputs and the sentence of each, both [R, T] -> hidden states [R, T, D]."""


@dataclass(slots=True)
class Draft:
    """Rows about to be written all at once: their places, and what the model has made of the source.

    Every place belongs to a sentence. With paths (`path` of the model) there are more places than tokens,
    and a place may stay blank; else there is a place for every token.
    """

    sentence: Tensor  # [B, T], -1 on padding
    copied: Tensor  # [B, T, D], what the decoder reads where nothing is revealed
    memory: Any  # the model's own: what its cross-attention reads


@dataclass(frozen=True, slots=True)
class AuxiliaryLoss:
    """What a parallel model had to predict beside tokens: the loss of every row, per label, [B].

    `parts` are figures to report, as those of `LossParts`.
    """

    loss: Tensor
    parts: Mapping[str, tuple[Tensor, Tensor]]


PathKind = Literal["sentences", "row", "length"]


class NonAutoregressiveModel(System):
    """A system that writes all tokens of a row at once, none of them seeing what the others become.

    A row holds `bos y1 eos bos y2 eos ...`, brackets included. `path` says how its tokens come to stand on
    places: `sentences`, a path for every sentence, which begins with `bos` and ends with `eos`; `row`, one
    path for all; `length`, one place per token, as many as the model predicts. `blank` is the symbol of a
    path that stands for no token.
    """

    path: PathKind
    blank: int

    @abstractmethod
    def encode(self, source: Source, lengths: Tensor | None = None) -> Draft:
        """Read the source; `lengths` [B]: of the rows, where the path is `length` and they are known."""

    @abstractmethod
    def decode(self, draft: Draft, revealed: Tensor | None = None) -> Tensor:
        """Hidden states of all places, [B, T, D]; `revealed` [B, T] holds tokens given away, -1 elsewhere."""

    @abstractmethod
    def length_nll(self, draft: Draft) -> Tensor:
        """Where the path is `length`: -log P of the lengths that the rows of a draft have, [B]."""

    def auxiliary_loss(self, draft: Draft, tokens: Tensor, ratio: float) -> AuxiliaryLoss | None:
        """What the model must predict beside tokens in training, or None: nothing.

        `tokens` [B, T] are those of the best path, -1 where there is none; `ratio` is that of glancing. A
        following `decode` may be given some of what was to be predicted.
        """
        return None


Model = TranslationModel | NonAutoregressiveModel
