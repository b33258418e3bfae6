"""The interfaces between models, search, losses and translation, and the base classes of parts.

Shapes: B entries, R rows (R = B * beam in search), T target tokens (of a draft, positions), S source tokens,
D model, V vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Final, Literal

from torch import Tensor, nn

from cotext.config.model import DocumentConfig
from cotext.config.recipe import Precision
from cotext.data.batch import Source
from cotext.layers.blocks import Size
from cotext.layers.embedding import SentenceEmbedding
from cotext.layers.layout import AnyLayout, Layouts
from cotext.layers.linear import Int8Linear
from cotext.layers.spans import GatedOthersSpan
from cotext.layers.start import Blended, NewSymbols, StartsFromOthers
from cotext.runtime import CotextError


class System(nn.Module, ABC):
    """A model that is trained, saved and loaded.

    `sees_other_rows`: whether a row's result depends on other rows of its document. All rows of a document
    must then be given in order, in one batch or as extra rows. `output_bias` [V]: bias of the output layer;
    None: zeros. `new_symbols`: output symbols that are blended in. `int8_output`: the output layer in int8.
    `recomputes`: whether blocks keep only their inputs for the backward pass.
    """

    sees_other_rows: bool = False
    extra_tokens: tuple[int, int] = (0, 0)  # added in front of each source row, each target row
    recomputes: bool = False
    precision: Precision = "float32"
    embedding: SentenceEmbedding

    def __init__(self) -> None:
        super().__init__()
        self.output_bias: Tensor | None = None
        self.int8_output: Int8Linear | None = None
        self.new_symbols = nn.ModuleList()

    @property
    def output_weight(self) -> Tensor:
        """The output layer, [V, D], is the embedding: logits are hidden @ output_weight.T + output_bias."""
        return self.embedding.weight

    @property
    def spares_parameters(self) -> bool:
        """Whether some batches leave parameters unused: parts declare this by an attribute of this name."""
        parts = (module for module in self.modules() if module is not self)
        return any(getattr(module, "spares_parameters", False) for module in parts)

    @property
    def loss_bias(self) -> Tensor | None:
        """`output_bias` in the loss, in which new symbols are held back at first."""
        bias = self.output_bias
        for symbols in self.new_symbols:
            assert isinstance(symbols, NewSymbols)
            bias = symbols.held_back(bias, self.output_weight)
        return bias

    def adopted_names(self) -> Mapping[str, str]:
        """Parameter name -> name of the parameter to copy if training starts from another system.

        If the other system has a parameter with the same name, that parameter is copied instead.
        """
        return {prefix + own: prefix + other for prefix, own, other in self._of_modules("adopted_names")}

    def neutral_start(self) -> Mapping[str, float]:
        """Parameter name -> initial value if training starts from a system that lacks the parameter.

        With these values, the part of the model that the parameter belongs to has almost no effect.
        """
        return {prefix + own: value for prefix, own, value in self._of_modules("neutral_start")}

    def rates(self) -> Mapping[str, float]:
        """Parameter name -> its learning rate, as a multiple of the learning rate of other parameters."""
        return {prefix + own: rate for prefix, own, rate in self._of_modules("rates")}

    def _of_modules(self, method: str) -> Iterator[tuple[str, str, Any]]:
        """Yield the items that a method of `StartsFromOthers` returns, and the prefix of their names."""
        for name, module in self.named_modules():
            if isinstance(module, StartsFromOthers):
                for own, value in getattr(module, method)().items():
                    yield f"{name}." if name else "", own, value

    def open_gates(self) -> dict[str, Tensor]:
        """Return the factors of gates to other sentences, from -1 to 1: name of an attention -> [H]."""
        return {
            name.removesuffix(".span"): module.open
            for name, module in self.named_modules()
            if isinstance(module, GatedOthersSpan)
        }

    def blend(self, share: float, what: Collection[str], everywhere: bool = False) -> None:
        """Set how strongly (0 ... 1) the parts in `what` (`Blended.what`) are used in training.

        `everywhere`: also outside training, until the next call.
        """
        for module in self.modules():
            if isinstance(module, Blended) and module.what in what:
                module.blended, module.everywhere = share, everywhere


class TranslationModel(System):
    """An autoregressive system.

    `decode` is the same code in training and in search. On a state that was never opened, it computes all T
    positions of complete rows. On an open state, it computes the T tokens after those decoded before. Padding
    (sentence -1) is on the right, and only in the first call after `open` or in the last.
    """

    @abstractmethod
    def layouts(
        self, source: Source, input_sentence: Tensor | None = None, training: bool = False
    ) -> Layouts:
        """Make the layouts of rows for a forward pass; `input_sentence` [B, T]: see `Layouts`.

        `training`: as in `nn.Module`, whose mode may differ while a batch is prepared in advance. `encode`
        and `decode` use the layouts of their batch (`Source.layouts`), or call this method.
        """

    @abstractmethod
    def encode(self, source: Source) -> Any:
        """Encode the source; return the state of the decoder, as search uses it: see `DecoderState`."""

    @abstractmethod
    def decode(self, tokens: Tensor, sentence: Tensor, state: Any) -> Tensor:
        """Decoder inputs and the sentence of each, both [R, T] -> hidden states [R, T, D]."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The numbers of sentences before and after a sentence that affect it; `inf`: to the document's ends."""

    before: float = 0
    after: float = 0

    def __add__(self, other: "Reach") -> "Reach":
        """The range of two consecutive steps."""
        return Reach(self.before + other.before, self.after + other.after)

    def __or__(self, other: "Reach") -> "Reach":
        """The union of two ranges."""
        return Reach(max(self.before, other.before), max(self.after, other.after))

    def __and__(self, other: "Reach") -> "Reach":
        """The intersection of two ranges."""
        return Reach(min(self.before, other.before), min(self.after, other.after))


OWN: Final = Reach()
BEFORE: Final = Reach(inf)
ALL: Final = Reach(inf, inf)


DocumentSettings = DocumentConfig  # the name that parts and users' files use


class DocumentLayer(nn.Module, ABC):
    """A layer on top of a stack, in which sentences attend to other sentences of their row.

    `by_sentence` and `answers`: see `Packed`. `caches`: its number of caches in a decoder, the first of which
    is `index`. `on_target`: whether it can be used in a decoder, with a kernel for decoding steps.
    `settings`: the keys of the section `model.document` that it uses.
    """

    by_sentence: bool = False
    spares_parameters = True  # rows of one sentence do not use this layer
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
        """Return the range of sentences of the row that a sentence attends to in this layer.

        `row`: the range of attention over whole rows (`model.source_sentences`).
        """

    @abstractmethod
    def forward(self, x: Tensor, layout: AnyLayout) -> Tensor:
        """Return states shaped as x: [N, D], [B, T, D] or, while decoding, [R, T, D]."""


@dataclass(slots=True)
class Draft:
    """Rows before non-autoregressive decoding: their positions, and the encoded source.

    Every position belongs to a sentence. With CTC paths (`NonAutoregressiveModel.path`), there are more
    positions than tokens, and positions may be blank. Otherwise, there is one position per token.
    """

    sentence: Tensor  # [B, T], -1 on padding
    copied: Tensor  # [B, T, D], decoder inputs of positions without a revealed token
    memory: Any  # data of the model for its cross-attention


@dataclass(frozen=True, slots=True)
class AuxiliaryLoss:
    """The loss of predictions other than tokens: [B], to be multiplied by each row's number of labels.

    `parts` are values to report, as in `LossParts`.
    """

    loss: Tensor
    parts: Mapping[str, tuple[Tensor, Tensor]]


PathKind = Literal["sentences", "row", "length"]


class NonAutoregressiveModel(System):
    """A system that predicts all tokens of a row at once, independently of each other.

    A row is `bos y1 eos bos y2 eos ...`, brackets included. `path` defines how tokens are aligned with
    positions. `sentences`: one CTC path per sentence, from `bos` to `eos`. `row`: one path for all. `length`:
    one position per token; the model predicts the number of positions. `blank` is the symbol of a path for
    "no token".
    """

    path: PathKind
    blank: int

    @abstractmethod
    def layouts(self, source: Source, lengths: Tensor | None = None) -> Layouts:
        """Make the layouts of rows for a forward pass; positions need known lengths if the path is `length`.

        `encode` uses the layouts of its batch (`Source.layouts`), or calls this method.
        """

    @abstractmethod
    def encode(self, source: Source, lengths: Tensor | None = None) -> Draft:
        """Encode the source; `lengths` [B]: of the rows, if the path is `length` and they are known."""

    @abstractmethod
    def decode(self, draft: Draft, revealed: Tensor | None = None) -> Tensor:
        """Return hidden states of all positions, [B, T, D]; `revealed` [B, T]: tokens, -1 elsewhere."""

    @abstractmethod
    def length_nll(self, draft: Draft) -> Tensor:
        """If the path is `length`: return -log P of the lengths of the rows of a draft, [B]."""

    def auxiliary_loss(self, draft: Draft, tokens: Tensor, ratio: float) -> AuxiliaryLoss | None:
        """Return the loss of predicted lengths or codes in training; None if there are none.

        `tokens` [B, T] are those of the best path, -1 if there is none; `ratio` is that of glancing. A later
        `decode` may use some of the correct values.
        """
        return None


Model = TranslationModel | NonAutoregressiveModel


@dataclass(frozen=True, slots=True)
class EngineHypothesis:
    """Tokens that an engine wrote after a prefix, without the end symbol.

    `log_probability`: of the tokens and, if the hypothesis has `ended`, of the end symbol.
    """

    tokens: tuple[int, ...]
    log_probability: float
    ended: bool


class Engine(ABC):
    """A plain autoregressive Transformer that runs in another program, which does not expose its states.

    Rows are token ids with all their symbols; prefixes and labels do not contain the `bos` of the decoder.
    `positions`: the longest row that it can read or write. `name`: its name in signatures. `parameters`: the
    number of parameters of the model.
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
        """Return at most `beam` hypotheses per row; log-probabilities are valid if `rules` forbid nothing."""

    @abstractmethod
    def score(self, sources: Sequence[Sequence[int]], labels: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return log-probabilities of the labels of every row and of the `eos` after them."""


def with_states(model: Model | Engine, purpose: str) -> Model:
    """Return a model for `purpose`, which needs its states; raise CotextError for an engine."""
    if isinstance(model, Engine):
        raise CotextError(
            f"{purpose} needs states of the model, which engines do not expose; give the run that it was "
            "exported from"
        )
    return model


@dataclass(frozen=True, slots=True)
class EngineRules:
    """The tokens that an engine may generate in a search: up to `end`, without the tokens of `never`.

    `most` and `least` count tokens, including the prefix but not the end symbol.
    """

    end: int
    most: int
    least: int = 0
    never: tuple[int, ...] = ()
