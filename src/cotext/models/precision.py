"""Models whose large matrices are converted once, before they translate or score: int8, bfloat16, float16.

In bfloat16 and float16, linear layers multiply so (`layers/half_linear.py`). Attention, norms, embeddings and
the output layer, hence log-probabilities and the order of hypotheses, stay in float32.

In int8, linear layers and the output layer multiply so (`layers/int8_linear.py`). Tables of embeddings are
looked up as float32, of numbers that int8 has: the output layer is such a table, too, and a model that is
written in int8 (`int8_weights`) then computes what the same model computes that was quantised when it was
opened.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from cotext.config.decoding import Precision
from cotext.layers.half_linear import HalfLinear
from cotext.layers.int8_linear import Int8Linear
from cotext.layers.kernels.int8 import dequantised, quantised_weight
from cotext.models.checkpoint import LoadedModel
from cotext.models.interface import Engine, Model
from cotext.models.run_folder import INT8_SCALE
from cotext.runtime.errors import CotextError

TABLES = ("embedding.weight", "embedding.source_weight")
OUTPUT = "embedding.weight"
LEAST = 2**17  # numbers of a matrix: of smaller ones, quantising states takes longer than it saves

Half = Literal["bfloat16", "float16"]
TYPES: dict[Half, torch.dtype] = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def halved(model: Model, precision: Half, least: int) -> Model:
    """A copy of a model that translates and scores in half precision; what stays as it is, both share.

    `least`: numbers of the smallest matrix that is converted.
    """
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    made = copy.deepcopy(model, shared)
    for path, layer in model.named_modules():
        if type(layer) is nn.Linear and layer.weight.numel() >= least:
            parent, _, name = path.rpartition(".")
            setattr(made.get_submodule(parent), name, HalfLinear(layer, TYPES[precision]))
    made.precision = precision
    return made.eval()


def output_logits(model: Model, hidden_ND: Tensor) -> Tensor:
    """Logits of all symbols, without gradients in int8: [N, D] -> [N, V]."""
    if model.int8_output is None:
        return linear(hidden_ND, model.output_weight, model.output_bias)
    logits_NV: Tensor = model.int8_output(hidden_ND)
    return logits_NV


def output_of(model: Model, symbols_U: Tensor) -> Callable[[Tensor], Tensor]:
    """The output layer of some symbols alone, without gradients: [N, D] -> [N, U]."""
    if model.int8_output is not None:
        return model.int8_output.of(symbols_U)
    bias_U = None if model.output_bias is None else model.output_bias.detach()[symbols_U]
    return partial(linear, weight=model.output_weight.detach()[symbols_U], bias=bias_U)


def in_precision(loaded: LoadedModel, precision: Precision, device: torch.device) -> LoadedModel:
    """A loaded model as `decode.precision` asks for it.

    Raises:
        CotextError: int8 on another device than a CPU, float16 on one, or either of an engine; another than
            that which it was opened in, but for float32.
    """
    if precision == loaded.precision:
        return loaded
    if isinstance(loaded.model, Engine):
        raise CotextError(
            f"decode.precision = {precision}: an engine computes as it was exported (--quantization int8); "
            "leave it out"
        )
    if loaded.precision != "float32":
        raise CotextError(
            f"decode.precision = {precision}: this run was opened in {loaded.precision}; open it anew in "
            f"{precision}"
        )
    if precision == "float16" and device.type == "cpu":
        raise CotextError(
            "decode.precision = float16 is for GPUs, and this is a CPU; choose bfloat16 or int8, or leave it "
            "out"
        )
    if precision in TYPES:
        return replace(loaded, model=halved(loaded.model, precision, LEAST))
    if device.type != "cpu":
        raise CotextError(
            f"decode.precision = int8 is for the CPU, and this is {device}; leave it out, or choose --device "
            "cpu"
        )
    return replace(loaded, model=quantised(loaded.model, LEAST))


def quantised(model: Model, least: int) -> Model:
    """A copy of a model that translates and scores in int8; what stays as it is, both share.

    `least`: numbers of the smallest matrix that is.
    """
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    made = copy.deepcopy(model, shared)
    for name in large_matrices(model, least):
        path, _, own = name.rpartition(".")
        weight, scale = quantised_weight(model.get_parameter(name).detach())
        layer = model.get_submodule(path)
        if isinstance(layer, nn.Linear):
            parent, _, attribute = path.rpartition(".")
            setattr(made.get_submodule(parent), attribute, Int8Linear(weight, scale, layer.bias))
            continue
        setattr(made.get_submodule(path), own, nn.Parameter(dequantised(weight, scale), requires_grad=False))
        if name == OUTPUT:
            made.int8_output = Int8Linear(weight, scale, model.output_bias)
    made.precision = "int8"
    return made.eval()


def large_matrices(model: Model, least: int) -> list[str]:
    """Names of the matrices that are in int8: weights of linear layers, and tables of embeddings."""
    linear = [f"{path}.weight" for path, layer in model.named_modules() if type(layer) is nn.Linear]
    there = [name for name in (*linear, *TABLES) if name in model.state_dict()]
    return [name for name in there if model.get_parameter(name).numel() >= least]


def int8_weights(model: Model) -> dict[str, Tensor]:
    """The weights of a model for its file, large matrices as whole numbers and scales of their rows."""
    weights = dict(model.state_dict())
    for name in large_matrices(model, LEAST):
        weights[name], weights[f"{name}{INT8_SCALE}"] = quantised_weight(weights[name])
    return weights
