"""The layouts of a batch, made before its forward pass: all that depends on sentence indices."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from cotext.layers.layout import Layout
from cotext.layers.state import SourceSide


@dataclass(frozen=True, slots=True)
class ContextLayout:
    """The sentences of rows [B, T], with tokens that a batch context adds before them, and its own data."""

    sentence: Tensor
    found: Any = None


@dataclass(frozen=True, slots=True)
class Layouts:
    """The layouts of a batch, made before its forward pass.

    `source`: layout of the encoder's rows. `side`: source side of cross-attention, without keys and values.
    `target`: layout of the decoder's rows, with inputs of `input_sentence` [B, T], if known. `context` and
    `target_context`: layouts of a batch context. `context_rows`: the two parts of source rows, for a context
    encoder. `shift`: upper bound of all position shifts. `texts`: maximum number of texts of a row, for
    `soft_copy`.
    """

    source: Layout
    side: SourceSide
    target: Layout | None = None
    input_sentence: Tensor | None = None
    context: ContextLayout | None = None
    target_context: ContextLayout | None = None
    context_rows: Any = None
    shift: int = 0
    texts: int = 1
