"""Initial weights of linear layers and embeddings.

                       xavier               fairseq                        normal
    query, key, value  Xavier, zero bias    Xavier / sqrt(2), default bias N(0, 0.02), zero bias
    attention output   Xavier, zero bias    Xavier, zero bias              N(0, 0.02), zero bias
    feed-forward       Xavier, zero bias    default                        N(0, 0.02), zero bias
    gates and others   Xavier, zero bias    Xavier, zero bias              N(0, 0.02), zero bias
    embedding [V, D]   N(0, 1 / sqrt(D))    N(0, 1 / sqrt(D))              N(0, 0.02)

`N(m, s)` is the normal distribution with standard deviation s. Xavier is the uniform distribution of Glorot
and Bengio 2010, for each square part of a fused projection. `default` is the default of torch: uniform within
1 / sqrt(fan-in), also for biases. `fairseq` is the initialisation of that toolkit since version 0.10, which
the authors of G-Transformer used. `normal` is the initialisation of Marian models in Hugging Face's
transformers. Learned positions are drawn like embeddings. Vectors that must have no effect at first are zero
in all three. These are segment embeddings, relative positions, biases of relative attention and of the output
layer.
"""

import math
from typing import Literal

from torch import nn

Initialisation = Literal["xavier", "fairseq", "normal"]

STANDARD_DEVIATION = 0.02  # of `normal`
# Names of the modules that project to queries, keys, values.
ATTENTION_INPUTS = ("qkv", "query", "key_value", "place")
FEED_FORWARD = ("widen", "narrow")
EMBEDDINGS = (
    "embedding.weight",
    "embedding.source_weight",
    "embedding.source_positions.weight",
    "embedding.target_positions.weight",
)


def initialise(model: nn.Module, kind: Initialisation) -> None:
    """Draw all linear layers from torch's global generator; for `normal`, also the embeddings."""
    if all(parameter.is_meta for parameter in model.parameters()):
        return  # only shapes are needed
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            _initialise_linear(module, name.rpartition(".")[2], kind)
    if kind == "normal":
        for name, parameter in model.named_parameters():
            if name in EMBEDDINGS:
                nn.init.normal_(parameter, std=STANDARD_DEVIATION)


def _initialise_linear(linear: nn.Linear, role: str, kind: Initialisation) -> None:
    if kind == "fairseq" and role in FEED_FORWARD:
        linear.reset_parameters()
        return
    if kind == "normal":
        nn.init.normal_(linear.weight, std=STANDARD_DEVIATION)
    else:
        gain = math.sqrt(0.5) if kind == "fairseq" and role in ATTENTION_INPUTS else 1.0
        # A fused projection is drawn part by part, as separate square matrices.
        parts = linear.weight.size(0) // linear.weight.size(1) if role in ATTENTION_INPUTS else 1
        for part in linear.weight.chunk(parts):
            nn.init.xavier_uniform_(part, gain)
    if linear.bias is None:
        return
    if kind == "fairseq" and role in ATTENTION_INPUTS:
        bound = linear.in_features**-0.5
        nn.init.uniform_(linear.bias, -bound, bound)
    else:
        nn.init.zeros_(linear.bias)
