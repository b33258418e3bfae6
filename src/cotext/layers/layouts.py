"""The layouts of a batch: all that its forward pass needs to know of sentence indices, made beforehand."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from cotext.layers.layout import Layout
from cotext.layers.state import SourceSide


@dataclass(frozen=True, slots=True)
class ContextLayout:
    """The sentences of rows [B, T], with tokens that a batch context puts in front; `found` is its own."""

    sentence: Tensor
    found: Any = None


@dataclass(frozen=True, slots=True)
class Layouts:
    """The layouts of a batch, made before its forward pass.

    `source` lays out the rows that are read; `side` is what cross-attention sees of them, without keys and
    values; `target` lays out the rows that are written, whose decoder inputs are of `input_sentence` [B, T],
    where they are known; `context` and `target_context` are what a batch context has of either. `shift`:
    positions of no token move by more. `texts`: of a row, for `soft_copy`.
    """

    source: Layout
    side: SourceSide
    target: Layout | None = None
    input_sentence: Tensor | None = None
    context: ContextLayout | None = None
    target_context: ContextLayout | None = None
    shift: int = 0
    texts: int = 1
