"""Numbers of parameters: counts and upper bounds."""

import torch
from torch import nn

from cotext.config.recipe import Config
from cotext.data.build import build_mixture, further_symbols
from cotext.layers.int8_linear import Int8Linear
from cotext.models.build import build_model


def count_parameters(model: nn.Module) -> int:
    """Return the number of parameters, including the parameters of matrices in int8."""
    int8_sizes = (
        layer.in_features * layer.out_features
        for name, layer in model.named_modules()
        if isinstance(layer, Int8Linear) and name != "int8_output"  # counted with the embedding
    )
    return sum(p.numel() for p in model.parameters()) + sum(int8_sizes)


def parameters_at_most(config: Config, vocabulary: int) -> int:
    """Return an upper bound of the parameters of any system, from its sizes; most have less than a quarter.

    Some sizes are counted slightly too large, to include biases, norms and vectors of positions.
    """
    model, view = config.model, config.view
    width, inner = model.dimension + 8, model.feed_forward + 8
    blocks = model.encoder_layers + 2 * model.decoder_layers + 1  # a latent system has two decoders
    rows = vocabulary + further_symbols(view)
    if model.separate_embeddings:
        rows *= 2
    if model.position_encoding == "learned":
        rows += 2 * model.learned_positions
    if model.segments == "learned":
        rows += max(view.sentences for view, _ in build_mixture(config.view).parts)
    if model.writes == "non_autoregressive":
        rows += 3 * model.nat.codes + 2 * model.nat.length_offsets + 1
    distances = 0
    if {model.stack("encoder").score, model.stack("decoder").score} & {"relative", "positions"}:
        distances = (2 * model.relative_span + 1) * (width // model.heads + 1)
    return blocks * (16 * width * width + 3 * width * inner) + rows * width + distances


def parameters_asked(config: Config, vocabulary: int, source_vocabulary: int | None = None) -> int:
    """Return the number of parameters of the model of a configuration, without allocating them.

    This imports torch, which takes seconds. Raises the same errors as `build_model`.
    """
    with torch.device("meta"):
        return count_parameters(build_model(config, vocabulary, source_vocabulary))
