"""From a configuration to parts that work: the one place that knows every view, model and loss by name.

A new system is one model file, one recipe and one line in a table here.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import torch
from torch import nn

from cotext.config import (
    Config,
    CutConfig,
    LossConfig,
    ModelConfig,
    ViewConfig,
)
from cotext.constraints import check_align
from cotext.data.batch import Batch, SpecialSymbols
from cotext.data.tokenizer import SPECIAL_SYMBOLS, Tokenizer
from cotext.data.views import CumulativeView, DocumentView, Limit, Mixture, SentenceView, View, WindowView
from cotext.errors import CotextError
from cotext.layers.blocks import SentenceEmbedding, Size
from cotext.layers.initialisation import initialise
from cotext.losses.cross_entropy import CrossEntropy, LossParts
from cotext.losses.glancing import Glancing
from cotext.models.base import Model
from cotext.models.batch_embedding import BatchEmbedding
from cotext.models.casa import Casa, Switches
from cotext.models.datapoints import Datapoints
from cotext.models.docflat import DocFlat
from cotext.models.flat_transformer import FlatTransformer
from cotext.models.g_transformer import GTransformer
from cotext.models.mcn import MCN
from cotext.models.p_transformer import PTransformer
from cotext.models.transformer import Transformer


class Loss(Protocol):
    """(model, batch, share of the training done) -> sum, count, named parts."""

    def __call__(self, model: Model, batch: Batch, done: float = 0.0) -> LossParts:
        """Loss of a batch, summed; whoever trains divides by the count over all batches and processes."""


def _size(config: ModelConfig) -> Size:
    return Size(
        dimension=config.dimension,
        feed_forward=config.feed_forward,
        heads=config.heads,
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        activation_dropout=config.activation_dropout,
        pre_norm=config.pre_norm,
    )


def _embedding(config: ModelConfig, vocabulary: int, sentences: int, bracketed: bool) -> SentenceEmbedding:
    return SentenceEmbedding(
        vocabulary,
        config.dimension,
        config.dropout,
        positions=config.positions,
        segments=config.segments,
        # Segments of Flat-Transformer are the current and the context, not sentences.
        max_segments=2 if config.name == "flat_transformer" else sentences,
        bracketed=bracketed,
        from_first=config.from_first is not False,
    )


def build_transformer(config: ModelConfig, embedding: SentenceEmbedding) -> Transformer:
    """The Transformer of `models/transformer.py`."""
    shift = config.shift if config.positions == "shifted" else 0
    if shift == "corpus":
        raise CotextError("model.shift = corpus must be resolved to a number before a model is built")
    return Transformer(_size(config), embedding, shift)


def build_p_transformer(config: ModelConfig, embedding: SentenceEmbedding) -> PTransformer:
    """The P-Transformer of `models/p_transformer.py`."""
    return PTransformer(_size(config), embedding, **config.p_transformer.model_dump())


def build_g_transformer(config: ModelConfig, embedding: SentenceEmbedding) -> GTransformer:
    """The G-Transformer of `models/g_transformer.py`.

    Raises:
        CotextError: more global layers than layers.
    """
    layers = config.g_transformer.global_layers
    if layers > min(config.encoder_layers, config.decoder_layers):
        raise CotextError(
            f"model.g_transformer.global_layers = {layers}, but the encoder has {config.encoder_layers} "
            f"layers and the decoder {config.decoder_layers}; ask for fewer"
        )
    return GTransformer(_size(config), embedding, layers)


def build_flat_transformer(config: ModelConfig, embedding: SentenceEmbedding) -> FlatTransformer:
    """The Flat-Transformer of `models/flat_transformer.py`.

    Raises:
        CotextError: more layers of the current sentence than the encoder has.
    """
    layers = config.flat_transformer.current_layers
    if layers > config.encoder_layers:
        raise CotextError(
            f"model.flat_transformer.current_layers = {layers}, but the encoder has {config.encoder_layers} "
            "layers; ask for fewer"
        )
    return FlatTransformer(_size(config), embedding, layers)


def build_docflat(config: ModelConfig, embedding: SentenceEmbedding) -> DocFlat:
    """The DocFlat of `models/docflat.py`."""
    return DocFlat(_size(config), embedding, **config.docflat.model_dump())


def build_batch_embedding(config: ModelConfig, embedding: SentenceEmbedding) -> BatchEmbedding:
    """The mini-batch embedding of `models/batch_embedding.py`."""
    return BatchEmbedding(_size(config), embedding, **config.batch_embedding.model_dump())


def build_datapoints(config: ModelConfig, embedding: SentenceEmbedding) -> Datapoints:
    """The attention between datapoints of `models/datapoints.py`."""
    return Datapoints(_size(config), embedding, **config.datapoints.model_dump())


def build_mcn(config: ModelConfig, embedding: SentenceEmbedding) -> MCN:
    """The MCN of `models/mcn.py`."""
    return MCN(_size(config), embedding, **config.mcn.model_dump())


def build_casa(config: ModelConfig, embedding: SentenceEmbedding) -> Casa:
    """The CASA of `models/casa.py`, GLAT and GLAT+CTC.

    Raises:
        CotextError: switches that need to know the sentence of a place, where nothing tells it.
    """
    switches = Switches(**config.casa.model_dump())
    if switches.path == "length" and (
        switches.local or switches.context_layers or switches.soft_copy == "sentences"
    ):
        raise CotextError(
            "model.casa.path = length: which place belongs to which sentence is not known; it takes "
            "model.casa.local = false, context_layers = 0 and soft_copy = row"
        )
    # Brackets append no symbols, so that those of every tokenizer are the last; padding is the first of them.
    blank = embedding.weight.size(0) - SPECIAL_SYMBOLS
    return Casa(_size(config), embedding, blank, switches)


MODELS: dict[str, Callable[[ModelConfig, SentenceEmbedding], Model]] = {
    "transformer": build_transformer,
    "p_transformer": build_p_transformer,
    "g_transformer": build_g_transformer,
    "flat_transformer": build_flat_transformer,
    "docflat": build_docflat,
    "batch_embedding": build_batch_embedding,
    "datapoints": build_datapoints,
    "mcn": build_mcn,
    "casa": build_casa,
}


def build_model(config: Config, vocabulary: int) -> Model:
    """The model of a configuration, with fresh weights from torch's global generator.

    `vocabulary` counts the subwords and the special symbols of every recipe (`Tokenizer.vocabulary_size`);
    those of this recipe's separators come on top.

    Raises:
        CotextError: the dimension is not divisible by the number of heads.
    """
    model = config.model
    if model.dimension % model.heads:
        raise CotextError(
            f"model.dimension = {model.dimension} is not divisible by model.heads = {model.heads}"
        )
    # What search would refuse too, but only at the first validation.
    check_align(config.decode.align, _is_bracketed(config.view))
    _check_training(config)
    _check_parallel(config)
    if model.positions == "shifted" and model.name != "transformer":
        raise CotextError(f"model.positions = shifted is for model.name = transformer, not {model.name}")
    if model.positions == "reset" and model.name == "p_transformer":
        raise CotextError(
            "model.positions = reset: the positions that p_transformer tells again are absolute"
        )
    symbols = vocabulary + further_symbols(config.view)
    sentences = max(view.sentences for view, _ in build_mixture(config.view).parts)
    embedding = _embedding(model, symbols, sentences, _is_bracketed(config.view))
    built = MODELS[model.name](model, embedding)
    initialise(built, model.initialisation)
    return built


def _check_training(config: Config) -> None:
    """Refuse orders and contexts of training that its view cannot have.

    Which models they go with is free: whether other rows are seen, and whether those are of the same
    document, is what the paper's table 5 varies (Wu et al. 2023).
    """
    view, train = config.view, config.train
    if train.order == "documents" and view.mixed_with:
        raise CotextError(
            "train.order = documents: the windows of several views have no common order; leave out "
            "view.mixed_with, or choose train.order = shuffled"
        )
    # Elsewhere context would be what the row translates too, or nothing.
    if train.context == "foreign" and (view.kind != "window" or view.mixed_with):
        raise CotextError(
            "train.context = foreign replaces the sentences around the current one: it takes view.kind = "
            "window, without view.mixed_with"
        )


def _check_parallel(config: Config) -> None:
    """Refuse losses and views that do not go with how the model writes: left to right, or all at once."""
    view, parallel = config.view, config.model.name == "casa"
    if parallel != (config.loss.name == "glancing"):
        needed = "glancing" if parallel else "cross_entropy"
        raise CotextError(
            f"loss.name = {config.loss.name}: model.name = {config.model.name} takes loss.name = {needed}"
        )
    if not parallel:
        return
    if view.separators != "bracket":
        raise CotextError(
            f"view.separators = {view.separators}: casa knows sentences by their first and last tokens; "
            "choose bracket"
        )
    if unfit := {cut.kind for cut in (view, *view.mixed_with)} - {"sentence", "document"}:
        raise CotextError(
            f"view.kind = {unfit.pop()}: casa writes every sentence of its row at once; choose document or "
            "sentence"
        )


def _is_bracketed(view: ViewConfig) -> bool:
    return view.separators in ("bracket", "numbered")


def further_symbols(view: ViewConfig) -> int:
    """How many symbols a recipe appends to the vocabulary: the first indexed separator is the plain one.

    Raises:
        CotextError: as many as the corpus asks for, and nobody has counted them.
    """
    if view.separators == "indexed":
        return view.indexed_separators - 1
    if view.separators != "numbered":
        return 0
    if view.numbers == "corpus":
        raise CotextError("view.numbers = corpus must be resolved to a number before a model is built")
    return view.numbers


def special_symbols(tokenizer: Tokenizer, view: ViewConfig) -> SpecialSymbols:
    """The ids that batches need: those of the tokenizer, and behind them those of the recipe's separators."""
    first = tokenizer.vocabulary_size
    further = tuple(range(first, first + further_symbols(view)))
    bracket = _is_bracketed(view)
    return SpecialSymbols(
        pad=tokenizer.pad,
        bos=tokenizer.bos,
        eos=tokenizer.eos,
        separators=(tokenizer.eos,) if bracket else (tokenizer.sep, *further),
        bracket=bracket,
        numbers=further if bracket else (),
    )


def build_view(config: ViewConfig) -> View:
    """The view of a configuration: what is validated and translated.

    Raises:
        CotextError: keys that this kind of view does not take.
    """
    return _build_cut(config, config)


def build_mixture(config: ViewConfig) -> Mixture:
    """What a configuration trains on: its view, once, and what it is mixed with.

    Raises:
        CotextError: keys that one of these kinds of view does not take.
    """
    further = ((_build_cut(cut, config), cut.weight) for cut in config.mixed_with)
    return Mixture(((build_view(config), 1.0), *further))


def _build_cut(cut: CutConfig, config: ViewConfig) -> View:
    takes = {"sentence": (), "window": ("before", "after", "target_before")}.get(cut.kind, ("parts",))
    for key in ("before", "after", "target_before", "parts"):
        if key not in takes and getattr(cut, key) != CutConfig.model_fields[key].default:
            raise CotextError(f"view.kind = {cut.kind} takes no view.{key}")
    kinds = {each.kind for each in (config, *config.mixed_with)}
    if config.max_sentences and kinds.isdisjoint({"document", "cumulative"}):
        raise CotextError(f"view.kind = {cut.kind} takes no view.max_sentences")
    limit = Limit(config.max_tokens, 2 if _is_bracketed(config) else 1)
    if cut.kind == "sentence":
        return SentenceView()
    if cut.kind == "window":
        return WindowView(cut.before, cut.after, limit, cut.target_before)
    limit = replace(limit, max_sentences=config.max_sentences or None)
    if cut.kind == "document":
        return DocumentView(limit, cut.parts)
    return CumulativeView(limit, cut.parts)


def build_loss(config: LossConfig) -> Loss:
    """The loss of a configuration."""
    if config.name == "glancing":
        return Glancing(config.glancing, config.label_smoothing)
    return CrossEntropy(config.label_smoothing, config.context_discount)


def choose_threads(config: ModelConfig, requested: int) -> int:
    """Threads for this process: more than one only pays where the matrix products are large enough.

    Never more than there are cores: a model may come from a machine that has more of them.
    """
    cores = os.cpu_count() or 1
    return min(requested, cores) if requested else (1 if config.dimension < 256 else cores)


def count_parameters(model: nn.Module) -> int:
    """Number of trained numbers."""
    return sum(p.numel() for p in model.parameters())


def parameters_at_most(config: Config, vocabulary: int) -> int:
    """An upper bound of the numbers in a model of any system, by its sizes alone; few models reach a fourth.

    Small sizes count a little more than they are: for biases, norms and vectors of positions.
    """
    model, view = config.model, config.view
    width, inner = model.dimension + 8, model.feed_forward + 8
    blocks = (
        model.encoder_layers + 2 * model.decoder_layers + 1
    )  # of a latent system too, whose decoders are two
    rows = vocabulary + further_symbols(view)
    if model.segments == "learned":
        rows += max(view.sentences for view, _ in build_mixture(config.view).parts)
    if model.name == "casa":
        rows += 3 * model.casa.codes + 2 * model.casa.length_offsets + 1
    return blocks * (16 * width * width + 3 * width * inner) + rows * width


def parameters_asked(config: Config, vocabulary: int) -> int:
    """Number of trained numbers of the model of a configuration, counted without taking memory for them.

    Takes seconds, while a part of torch is imported that nothing else needs.

    Raises:
        CotextError: as `build_model`.
    """
    with torch.device("meta"):
        return count_parameters(build_model(config, vocabulary))


def parameters_at_base(config: Config) -> int:
    """Number of trained numbers of a recipe at base size with 32,000 subwords."""
    view, model = config.view, config.model
    if model.shift == "corpus":
        model = model.model_copy(update={"shift": 0})
    # Numbers of sentences are not counted: how many there are is a matter of the corpus.
    brackets = {"separators": "bracket"} if view.separators == "numbered" else {}
    counted = {"model": model, "view": view.model_copy(update=brackets)}
    return parameters_asked(config.model_copy(update=counted), 32_000)
