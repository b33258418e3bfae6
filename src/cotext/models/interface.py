"""The contract that search, losses and translation are typed on, and the parts that models are made of.

Shapes: B entries, R rows (R = B * beam while searching), T target tokens, of a draft its positions, S source
tokens, D model, V vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Final, Literal, Protocol

from torch import Tensor, nn

from cotext.config.decoding import Precision
from cotext.data.batch import Source
from cotext.layers.blocks import Size
from cotext.layers.int8_linear import Int8Linear
from cotext.layers.layout import AnyLayout
from cotext.layers.layouts import Layouts
from cotext.layers.others import GatedOthersSpan
from cotext.layers.start import Blended, NewSymbols, StartsFromOthers
from cotext.runtime.errors import CotextError


class State(Protocol):
    """The encoded source and, once opened, the past of the decoder.

    Search widens, re-orders and thins it out without looking inside.
    """

    def open(self, slots: int) -> None:
        """Make room for `slots` tokens a row, padding included.

        From now on `decode` continues where it stopped.
        """

    def widen(self, beam: int) -> None:
        """Repeat every row `beam` times."""

    def reorder(self, origin: Tensor) -> None:
        """Row i continues what row origin[i] of the same entry was: [R]."""

    def finish(self, entries: Tensor, tokens: Tensor, sentence: Tensor) -> None:
        """Take note of finished hypotheses, before `select` drops entries that have ended.

        `entries` [E] are indices among those still in the state; `tokens` and `sentence` [E, T] the decoder
        inputs of their best hypotheses from the first on, -1 on padding.
        """

    def select(self, entries: Tensor, beam: int) -> None:
        """Keep the given entries [B'] with all `beam` rows of each."""


class System(nn.Module, ABC):
    """A model that is trained, saved and loaded.

    `sees_other_rows`: whether a row's result depends on other rows of its document, which then must be given
    together and in order, in one batch or as extra rows. `spares_parameters`: whether there are batches, or
    configurations, that leave some parameters unused. `output_bias` [V]: of the output layer, None: zeros;
    `new_symbols` are those of it that come into force by and by. `int8_output`: the output layer in int8.
    `recomputes`: whether blocks keep their inputs alone for the backward pass.
    """

    sees_other_rows: bool = False
    spares_parameters: bool = False
    recomputes: bool = False
    precision: Precision = "float32"

    def __init__(self) -> None:
        super().__init__()
        self.output_bias: Tensor | None = None
        self.int8_output: Int8Linear | None = None
        self.new_symbols = nn.ModuleList()

    @property
    @abstractmethod
    def output_weight(self) -> Tensor:
        """The output layer, [V, D]: logits are hidden @ output_weight.T + output_bias."""

    @property
    def loss_bias(self) -> Tensor | None:
        """`output_bias` in the loss, where symbols that are new are held back at first."""
        bias = self.output_bias
        for symbols in self.new_symbols:
            assert isinstance(symbols, NewSymbols)
            bias = symbols.held_back(bias, self.output_weight)
        return bias

    def adopted_names(self) -> Mapping[str, str]:
        """Parameters that start as copies where training starts from another system: own name -> name there.

        Where the other system has a parameter of the own name, that is taken instead.
        """
        return {
            f"{name}.{own}": f"{name}.{other}" if name else other
            for name, module in self.named_modules()
            if isinstance(module, StartsFromOthers)
            for own, other in module.adopted_names().items()
        }

    def neutral_start(self) -> Mapping[str, float]:
        """Parameters that start as a constant where training starts from another system that lacks them.

        At these values the part that they belong to changes next to nothing yet: name -> value.
        """
        return {
            f"{name}.{own}": value
            for name, module in self.named_modules()
            if isinstance(module, StartsFromOthers)
            for own, value in module.neutral_start().items()
        }

    def open_gates(self) -> dict[str, Tensor]:
        """How far the gates to other sentences are open, from -1 to 1: name of an attention -> [H]."""
        return {
            name.removesuffix(".span"): module.open
            for name, module in self.named_modules()
            if isinstance(module, GatedOthersSpan)
        }

    def rates(self) -> Mapping[str, float]:
        """Learning rates of parameters, as multiples of that of the others: name -> factor."""
        return {
            f"{name}.{own}": rate
            for name, module in self.named_modules()
            if isinstance(module, StartsFromOthers)
            for own, rate in module.rates().items()
        }

    def blend(self, share: float, what: Collection[str], everywhere: bool = False) -> None:
        """Have some of what is blended in (`Blended.what`) in force to this share (0 ... 1) in training.

        `everywhere`: outside training, too, until the next call.
        """
        for module in self.modules():
            if isinstance(module, Blended) and module.what in what:
                module.blended, module.everywhere = share, everywhere


class TranslationModel(System):
    """A system that translates from left to right.

    `decode` is one code for training and for search: on a state that was never opened it computes all T
    positions of complete rows; on an open one, the T tokens that follow those decoded before. Padding
    (sentence -1) stands on the right, and only in the first call after `open` or in the last.
    """

    @abstractmethod
    def layouts(
        self, source: Source, input_sentence: Tensor | None = None, training: bool = False
    ) -> Layouts:
        """Lay out rows before a forward pass; `input_sentence` [B, T]: of complete target rows, if known.

        `training`: as in `nn.Module`, whose mode may be another while a batch is laid out ahead of its time.
        `encode` and `decode` begin with the layouts of their batch (`Source.layouts`), or with this.
        """

    @abstractmethod
    def encode(self, source: Source) -> Any:
        """Read the source; returns the system's own kind of `State`."""

    @abstractmethod
    def decode(self, tokens: Tensor, sentence: Tensor, state: Any) -> Tensor:
        """Decoder inputs and the sentence of each, both [R, T] -> hidden states [R, T, D]."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Sentences before and after one that it depends on, `inf` where nothing but the document ends it."""

    before: float = 0
    after: float = 0

    def __add__(self, other: "Reach") -> "Reach":
        """What is seen through what is seen."""
        return Reach(self.before + other.before, self.after + other.after)

    def __or__(self, other: "Reach") -> "Reach":
        """What is seen in one way or in the other."""
        return Reach(max(self.before, other.before), max(self.after, other.after))

    def __and__(self, other: "Reach") -> "Reach":
        """What is seen where both allow it."""
        return Reach(min(self.before, other.before), min(self.after, other.after))


OWN: Final = Reach()
BEFORE: Final = Reach(inf)
ALL: Final = Reach(inf, inf)


@dataclass(frozen=True, slots=True)
class DocumentSettings:
    """Settings of document layers: see `DocumentConfig`, whose keys these are."""

    sentences: int = 3
    relative: bool = True
    gate: bool = True
    feed_forward: bool = True


class DocumentLayer(nn.Module, ABC):
    """A layer on top of a stack, in which sentences see other sentences of their row.

    `by_sentence` and `answers`: see `Packed`. `caches`: how many caches it has in a decoder, whose first one
    is `index`. `on_target`: whether a decoder can have it, too, and it has a kernel for its steps.
    `settings`: keys of the section `model.document` that it takes.
    """

    by_sentence: bool = False
    answers: tuple[str, ...] = ()
    caches: int = 0
    index: int = 0
    on_target: ClassVar[bool] = False
    settings: ClassVar[tuple[str, ...]] = ()

    def __init__(self, size: Size, settings: DocumentSettings) -> None:
        super().__init__()

    @classmethod
    @abstractmethod
    def reach(cls, settings: DocumentSettings, row: Reach) -> Reach:
        """The sentences of its row that a sentence sees through it.

        `row`: what attention over whole rows sees (`model.source_sentences`).
        """

    @abstractmethod
    def forward(self, x: Tensor, layout: AnyLayout) -> Tensor:
        """States as they come, [N, D], [B, T, D] or while decoding [R, T, D]."""


@dataclass(slots=True)
class Draft:
    """Rows about to be decoded without autoregression: their positions, and the model's reading of the
    source.

    Every position belongs to a sentence. With paths (`NonAutoregressiveModel.path`) there are more positions
    than tokens, and a position may stay blank; else there is a position for every token.
    """

    sentence: Tensor  # [B, T], -1 on padding
    copied: Tensor  # [B, T, D], decoder inputs where nothing is revealed
    memory: Any  # the model's own: what its cross-attention reads


@dataclass(frozen=True, slots=True)
class AuxiliaryLoss:
    """Loss of what a non-autoregressive model predicts beside tokens, of every row, per label: [B].

    `parts` are figures to report, as those of `LossParts`.
    """

    loss: Tensor
    parts: Mapping[str, tuple[Tensor, Tensor]]


PathKind = Literal["sentences", "row", "length"]


class NonAutoregressiveModel(System):
    """A system that predicts all tokens of a row at once, none of them in sight of the others.

    A row holds `bos y1 eos bos y2 eos ...`, brackets included. `path` says how its tokens are aligned with
    positions: `sentences`, a path for every sentence, which begins with `bos` and ends with `eos`; `row`, one
    path for all; `length`, one position per token, as many as the model predicts. `blank` is the symbol of a
    path that stands for no token.
    """

    path: PathKind
    blank: int

    @abstractmethod
    def layouts(self, source: Source, lengths: Tensor | None = None) -> Layouts:
        """Lay out rows before a forward pass; positions are known if lengths are, or need not be.

        `encode` begins with the layouts of its batch (`Source.layouts`), or with this.
        """

    @abstractmethod
    def encode(self, source: Source, lengths: Tensor | None = None) -> Draft:
        """Read the source; `lengths` [B]: of the rows, where the path is `length` and they are known."""

    @abstractmethod
    def decode(self, draft: Draft, revealed: Tensor | None = None) -> Tensor:
        """Hidden states of all positions, [B, T, D]; `revealed` [B, T] holds tokens shown, -1 elsewhere."""

    @abstractmethod
    def length_nll(self, draft: Draft) -> Tensor:
        """Where the path is `length`: -log P of the lengths that the rows of a draft have, [B]."""

    def auxiliary_loss(self, draft: Draft, tokens: Tensor, ratio: float) -> AuxiliaryLoss | None:
        """Loss of predicted lengths or codes in training, or None: nothing else is predicted.

        `tokens` [B, T] are those of the best path, -1 where there is none; `ratio` is that of glancing. A
        following `decode` may be given some of what was to be predicted.
        """
        return None


Model = TranslationModel | NonAutoregressiveModel


@dataclass(frozen=True, slots=True)
class EngineHypothesis:
    """Tokens that an engine wrote after a prefix, without the symbol that ends them.

    `log_probability` is that of these tokens and, where the hypothesis has `ended`, of the end.
    """

    tokens: tuple[int, ...]
    log_probability: float
    ended: bool


class Engine(ABC):
    """A plain autoregressive Transformer that another program runs: it shows none of its states.

    Rows are token ids with all their symbols; the decoder begins with `bos`, which prefixes and labels leave
    out. `positions`: the longest row that it can read or write. `name` says in signatures which engine it is,
    `parameters` counts those of the model.
    """

    sees_other_rows = False
    positions: int
    name: str
    parameters: int

    @abstractmethod
    def search(
        self,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]],
        rules: "EngineRules",
        beam: int,
        length_penalty: float,
    ) -> list[list[EngineHypothesis]]:
        """The hypotheses of every row, at most `beam`; log-probabilities hold if nothing is suppressed."""

    @abstractmethod
    def score(self, sources: Sequence[Sequence[int]], labels: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probabilities of the labels of every row and of the `eos` after them."""


def with_states(model: Model | Engine, asked: str) -> Model:
    """A model where `asked` needs to look into it.

    Raises:
        CotextError: it is an engine, which shows no states.
    """
    if isinstance(model, Engine):
        raise CotextError(
            f"{asked} reads states of the model, which an engine does not show; give the run that it was "
            "exported from"
        )
    return model


@dataclass(frozen=True, slots=True)
class EngineRules:
    """What a search in an engine may write: tokens up to `end`, none of `never`.

    `most` and `least` count tokens, those of the prefix included and the end not.
    """

    end: int
    most: int
    least: int = 0
    never: tuple[int, ...] = ()
