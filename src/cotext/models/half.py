"""Models with large matrices in bfloat16 or float16, converted once, before they translate or score.

Linear layers multiply so (`layers/half_linear.py`). Attention, norms, embeddings and the output layer, hence
log-probabilities and the order of hypotheses, stay in float32.
"""

import copy
from typing import Literal

import torch
from torch import nn

from cotext.layers.half_linear import HalfLinear
from cotext.models.interface import Model

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
