"""Models with large matrices converted once, for translating or scoring: int8, bfloat16, float16.

In bfloat16 and float16, only the products of linear layers are in half precision (`layers/linear.py`).
Attention, norms, embeddings and the output layer stay in float32, hence also log-probabilities and the order
of hypotheses.

In int8, linear layers and the output layer are in int8 (`layers/linear.py`). Embedding tables are looked
up as float32, with numbers that int8 can represent exactly, because the output layer is such a table. A model
that is saved in int8 (`int8_weights`) therefore gives the same results as one that is quantised when it is
loaded.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from cotext.config.recipe import Precision
from cotext.layers.kernels.int8 import dequantised, quantised_weight
from cotext.layers.linear import HalfLinear, Int8Linear
from cotext.models.checkpoint import LoadedModel
from cotext.models.interface import Engine, Model
from cotext.models.run_folder import INT8_SCALE
from cotext.runtime import CotextError

TABLES = ("embedding.weight", "embedding.source_weight")
OUTPUT = "embedding.weight"
LEAST = 2**17  # smallest matrix to convert: for smaller ones, quantising states takes longer than it saves

Half = Literal["bfloat16", "float16"]
TYPES: dict[Half, torch.dtype] = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def halved(model: Model, precision: Half, least: int) -> Model:
    """Return a copy of a model in half precision; unchanged tensors are shared.

    `least`: size of the smallest matrix to convert.
    """
    converted = _sharing_copy(model)
    for path, layer in model.named_modules():
        if type(layer) is nn.Linear and layer.weight.numel() >= least:
            parent, _, name = path.rpartition(".")
            setattr(converted.get_submodule(parent), name, HalfLinear(layer, TYPES[precision]))
    converted.precision = precision
    return converted.eval()


def _sharing_copy(model: Model) -> Model:
    """Return a copy of a model with the same tensors."""
    return copy.deepcopy(model, {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())})


def output_logits(model: Model, hidden_ND: Tensor) -> Tensor:
    """Return the logits of all symbols, in int8 without gradients: [N, D] -> [N, V]."""
    if model.int8_output is None:
        return linear(hidden_ND, model.output_weight, model.output_bias)
    logits_NV: Tensor = model.int8_output(hidden_ND)
    return logits_NV


def output_of(model: Model, symbols_U: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the output layer of only some symbols, without gradients: [N, D] -> [N, U]."""
    if model.int8_output is not None:
        return model.int8_output.of(symbols_U)
    bias_U = None if model.output_bias is None else model.output_bias.detach()[symbols_U]
    return partial(linear, weight=model.output_weight.detach()[symbols_U], bias=bias_U)


def in_precision(loaded: LoadedModel, precision: Precision, device: torch.device) -> LoadedModel:
    """Convert a loaded model to `decode.precision`.

    Raises CotextError for int8 on another device than a CPU, float16 on a CPU, any precision for an engine,
    or a model that was not loaded in float32.
    """
    if precision == loaded.precision:
        return loaded
    if isinstance(loaded.model, Engine):
        raise CotextError(
            f"decode.precision = {precision}: engines have the precision of the export (--quantization); "
            "remove the setting"
        )
    if loaded.precision != "float32":
        raise CotextError(
            f"decode.precision = {precision}: this run was loaded in {loaded.precision}; load it again in "
            f"{precision}"
        )
    if precision == "float16" and device.type == "cpu":
        raise CotextError(
            "decode.precision = float16 needs a GPU, but this is a CPU; choose bfloat16 or int8, or remove "
            "the setting"
        )
    if precision in TYPES:
        return replace(loaded, model=halved(loaded.model, precision, LEAST))
    if device.type != "cpu":
        raise CotextError(
            f"decode.precision = int8 needs a CPU, but this is {device}; remove it, or choose --device cpu"
        )
    return replace(loaded, model=quantised(loaded.model, LEAST))


def quantised(model: Model, least: int) -> Model:
    """Return a copy of a model in int8; unchanged tensors are shared.

    `least`: size of the smallest matrix to convert.
    """
    converted = _sharing_copy(model)
    for name in large_matrices(model, least):
        path, _, own = name.rpartition(".")
        weight, scale = quantised_weight(model.get_parameter(name).detach())
        layer = model.get_submodule(path)
        if isinstance(layer, nn.Linear):
            parent, _, attribute = path.rpartition(".")
            setattr(converted.get_submodule(parent), attribute, Int8Linear(weight, scale, layer.bias))
            continue
        setattr(
            converted.get_submodule(path), own, nn.Parameter(dequantised(weight, scale), requires_grad=False)
        )
        if name == OUTPUT:
            converted.int8_output = Int8Linear(weight, scale, model.output_bias)
    converted.precision = "int8"
    return converted.eval()


def large_matrices(model: Model, least: int) -> list[str]:
    """Return the names of matrices to convert to int8: weights of linear layers, and embedding tables."""
    linear = [f"{path}.weight" for path, layer in model.named_modules() if type(layer) is nn.Linear]
    names = [name for name in (*linear, *TABLES) if name in model.state_dict()]
    return [name for name in names if model.get_parameter(name).numel() >= least]


def int8_weights(model: Model) -> dict[str, Tensor]:
    """Return the weights for a model file, large matrices as integers with the scales of their rows."""
    weights = dict(model.state_dict())
    for name in large_matrices(model, LEAST):
        weights[name], weights[f"{name}{INT8_SCALE}"] = quantised_weight(weights[name])
    return weights
