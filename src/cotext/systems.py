"""From a configuration to parts that work: the one place that knows every view, model and loss by name.

A new system is one model file, one recipe and one line in a table here.
"""

import os
from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch import nn

from cotext.config import Config, LossConfig, ModelConfig, ViewConfig, load_config, recipe_names
from cotext.data.batch import Batch, SpecialSymbols
from cotext.data.tokenizer import Tokenizer
from cotext.data.views import SentenceView, View, WindowView
from cotext.errors import CotextError
from cotext.layers.blocks import SentenceEmbedding, Size
from cotext.losses.cross_entropy import CrossEntropy, LossParts
from cotext.models.base import AutoregressiveModel
from cotext.models.transformer import Transformer


class Loss(Protocol):
    """(model, batch) -> sum, count, named parts."""

    def __call__(self, model: AutoregressiveModel, batch: Batch) -> LossParts:
        """Loss of a batch, summed; whoever trains divides by the count over all batches and processes."""


def build_transformer(config: ModelConfig, vocabulary: int, sentences: int) -> Transformer:
    """The Transformer of `models/transformer.py`."""
    shift = config.shift if config.positions == "shifted" else 0
    if shift == "corpus":
        raise CotextError("model.shift = corpus must be resolved to a number before a model is built")
    size = Size(
        dimension=config.dimension,
        feed_forward=config.feed_forward,
        heads=config.heads,
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        pre_norm=config.pre_norm,
    )
    embedding = SentenceEmbedding(
        vocabulary,
        config.dimension,
        config.dropout,
        positions=config.positions,
        segments=config.segments,
        max_segments=sentences,
    )
    return Transformer(size, embedding, shift)


MODELS: dict[str, Callable[[ModelConfig, int, int], Transformer]] = {"transformer": build_transformer}


def build_model(config: Config, vocabulary: int) -> Transformer:
    """The model of a configuration, with fresh weights from torch's global generator.

    Raises:
        CotextError: the dimension is not divisible by the number of heads.
    """
    model = config.model
    if model.dimension % model.heads:
        raise CotextError(
            f"model.dimension = {model.dimension} is not divisible by model.heads = {model.heads}"
        )
    return MODELS[model.name](model, vocabulary, build_view(config.view).sentences)


def build_view(config: ViewConfig) -> View:
    """The view of a configuration."""
    if config.kind == "sentence":
        if config.before or config.after:
            raise CotextError(
                "view.kind = sentence takes no view.before or view.after; use view.kind = window"
            )
        return SentenceView()
    return WindowView(config.before, config.after, config.max_tokens)


def build_loss(config: LossConfig) -> Loss:
    """The loss of a configuration."""
    return CrossEntropy(config.label_smoothing, config.context_discount)


def special_symbols(tokenizer: Tokenizer) -> SpecialSymbols:
    """The ids that batches need of a tokenizer."""
    return SpecialSymbols(pad=tokenizer.pad, bos=tokenizer.bos, eos=tokenizer.eos, sep=tokenizer.sep)


def choose_threads(config: ModelConfig, requested: int) -> int:
    """Threads for this process: more than one only pays where the matrix products are large enough."""
    return requested or (1 if config.dimension < 256 else os.cpu_count() or 1)


def count_parameters(model: nn.Module) -> int:
    """Number of trained numbers."""
    return sum(p.numel() for p in model.parameters())


def describe() -> Iterator[tuple[str, ...]]:
    """Every recipe: name, view, model, loss, decoding, parameters at base size and 32,000 subwords."""
    for name in recipe_names():
        config = load_config(name)
        view, model, loss, decode = config.view, config.model, config.loss, config.decode
        seen = "sentence" if view.kind == "sentence" else f"window {view.before}+1+{view.after}"
        standing = f"{model.positions} {model.shift}" if model.positions == "shifted" else model.positions
        segments = "" if model.segments == "none" else f", {model.segments} segments"
        context = "" if view.kind == "sentence" else f", {decode.target_context}"
        if model.shift == "corpus":
            model = model.model_copy(update={"shift": 0})
        with torch.device("meta"):
            built = build_model(config.model_copy(update={"model": model}), 32_000)
        yield (
            name,
            seen,
            f"{model.name} ({standing}{segments})",
            f"{loss.name} CD {loss.context_discount:g}",
            f"beam {decode.beam} lp {decode.length_penalty:g}{context}",
            f"{count_parameters(built):,}",
        )
