"""Embedding of tokens: their vectors, positions and segments.

Shapes: R rows, T tokens, D model, V vocabulary.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from cotext.layers.kernels.dropout import Dropout
from cotext.layers.positions import Kind, PositionTable, closed_sentence, position_of, sinusoidal

SegmentKind = Literal["none", "learned", "sinusoidal", "current"]
CURRENT, CONTEXT = 0, 1  # segments of the kind `current`


@dataclass(frozen=True, slots=True)
class InputKind:
    """Positions and segments that the embeddings of one side have."""

    positions: Kind = "absolute"
    segments: SegmentKind = "none"


class SentenceEmbedding(nn.Module):
    """Token + position + segment, the last two from the sentence index of the token.

    Segments are `learned` (Devlin et al. 2019), `sinusoidal` (Lupo et al. 2022, section 4.6.2) or tell only
    current sentences from context (`current`; Ma et al. 2020). Sentence indices past the last learned segment
    share it. `weight` [V, D] also serves as the output layer.

    `bracketed`: every sentence begins with a symbol of its own; if not, a separator has the position and the
    segment of the sentence that it closes, on the source and on the target side (Lupo et al. 2022, section
    3.2). `from_first`: the shift and sinusoidal segments reach the first sentence of a row too, as published;
    if not, a row of one sentence is what it is without them.
    """

    def __init__(
        self,
        vocabulary: int,
        dimension: int,
        dropout: float,
        source: InputKind,
        target: InputKind,
        max_segments: int = 1,
        bracketed: bool = False,
        from_first: bool = True,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocabulary, dimension) * dimension**-0.5)
        self.scale = math.sqrt(dimension)
        self.table = PositionTable(dimension)
        self.source, self.target = source, target
        self.bracketed, self.from_first = bracketed, from_first
        # Zeros: a model with learned segments starts as the baseline and departs from it by learning alone.
        kinds = {source.segments, target.segments}
        self.max_segments = 2 if "current" in kinds else max_segments
        learned = not kinds.isdisjoint({"learned", "current"})
        self.segment = nn.Parameter(torch.zeros(self.max_segments, dimension)) if learned else None
        self.dropout = Dropout(dropout)

    def input_sentence(self, sentence: Tensor, before: Tensor | None) -> Tensor:
        """Sentence whose position and segment decoder inputs have: see `closed_sentence`."""
        return sentence if self.bracketed else closed_sentence(sentence, before)

    def bare(self, tokens: Tensor) -> Tensor:
        """Vectors of tokens alone: [...] -> [..., D]."""
        return nn.functional.embedding(tokens, self.weight) * self.scale

    def placed(
        self,
        x: Tensor,
        kind: InputKind,
        sentence: Tensor,
        position: Tensor,
        rank: Tensor,
        shift: Tensor | int = 0,
        segment: Tensor | None = None,
    ) -> Tensor:
        """Add positions and segments to vectors [R, T, D]; all others [R, T], `shift` a number or [R].

        `segment`: where it is not the sentence.
        """
        if kind.positions != "none":
            x = x + self.table(position_of(kind.positions, position, rank, sentence, shift, self.from_first))
        k = sentence.clamp(min=0) if segment is None else segment
        if kind.segments in ("learned", "current"):
            assert self.segment is not None
            x = x + self.segment[k.clamp(max=self.max_segments - 1)]
        elif kind.segments == "sinusoidal":
            encoded = sinusoidal(k, x.size(-1)).to(x.dtype)
            x = x + (encoded if self.from_first else encoded * (k > 0)[:, :, None])
        dropped: Tensor = self.dropout(x)
        return dropped
