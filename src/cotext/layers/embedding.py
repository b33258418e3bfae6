"""Embedding of tokens: their vectors, positions and segments.

Shapes: R rows, T tokens, D model, V vocabulary.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from cotext.layers.kernels.dropout import Dropout
from cotext.layers.positions import (
    Kind,
    LearnedPositions,
    PositionTable,
    Wavelengths,
    closed_sentence,
    moved,
    position_of,
    sinusoidal,
)
from cotext.layers.start import Blended

SegmentKind = Literal["none", "learned", "sinusoidal", "current"]
Side = Literal["source", "target"]
CURRENT, CONTEXT = 0, 1  # segments of the kind `current`


@dataclass(frozen=True, slots=True)
class InputKind:
    """Positions and segments that the embeddings of one side have."""

    positions: Kind = "absolute"
    segments: SegmentKind = "none"


@dataclass(frozen=True, slots=True)
class EmbeddingKind:
    """What the embeddings of both sides are made of.

    `learned`: rows of a trained table of positions, in place of sinusoids of the given wavelengths;
    `first_position`: the one that position 0 counts as. `offset`: the most that training moves the positions
    of a row by. `norm`: a layer norm on the sum. `source_vocabulary`: rows of an embedding that the source
    has for itself. `from_current`: learned and sinusoidal segments count back from the current sentence.
    """

    wavelengths: Wavelengths = "half_minus_one"
    first_position: int = 0
    learned: int | None = None
    offset: int = 0
    norm: bool = False
    source_vocabulary: int | None = None
    from_current: bool = False


class SentenceEmbedding(nn.Module, Blended):
    """Token + position + segment, the last two from the sentence index of the token.

    Segments are `learned` (Devlin et al. 2019), `sinusoidal` (Lupo et al. 2022, section 4.6.2) or tell only
    current sentences from context (`current`; Ma et al. 2020). Sentence indices past the last learned segment
    share it. `weight` [V, D] also serves as the output layer.

    Counted from the first sentence of a row, segments are 0, 1, 2 ...; counted back from the current one they
    are 1, 2, 3 ..., as in the authors' code (lorelupo/focused-concat, fairseq/data/sent2doc_dataset.py and
    fairseq/modules/segment_embedding.py), where the symbol that opens the decoder's row has the segment of
    the current sentence, which it closed at the end of the row before.

    `bracketed`: every sentence begins with a symbol of its own; if not, a separator has the position and the
    segment of the sentence that it closes, on the source and on the target side (Lupo et al. 2022, section
    3.2). `from_first`: the shift and sinusoidal segments reach the first sentence of a row too, as published;
    if not, a row of one sentence is what it is without them.
    """

    what = "positions"

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
        made: EmbeddingKind = EmbeddingKind(),
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocabulary, dimension) * dimension**-0.5)
        self.scale = math.sqrt(dimension)
        self.offset = made.offset
        self.table = PositionTable(dimension, wavelengths=made.wavelengths, first=made.first_position)
        self.source_positions = self.target_positions = None
        if made.learned is not None:
            learned = (LearnedPositions(made.learned, dimension, made.first_position) for _ in range(2))
            self.source_positions, self.target_positions = learned
        self.source_norm = nn.LayerNorm(dimension) if made.norm else None
        self.target_norm = nn.LayerNorm(dimension) if made.norm else None
        self.source_weight = None
        if made.source_vocabulary is not None:
            self.source_weight = nn.Parameter(
                torch.randn(made.source_vocabulary, dimension) * dimension**-0.5
            )
        self.source, self.target = source, target
        self.bracketed, self.from_first, self.from_current = bracketed, from_first, made.from_current
        # Zeros: a model with learned segments starts as the baseline and departs from it by learning alone.
        kinds = {source.segments, target.segments}
        self.max_segments = 2 if "current" in kinds else max_segments
        trained = not kinds.isdisjoint({"learned", "current"})
        self.segment = nn.Parameter(torch.zeros(self.max_segments, dimension)) if trained else None
        self.dropout = Dropout(dropout)

    def segments(self, side: Side, sentence: Tensor, last: Tensor | None) -> Tensor | None:
        """Segments that count back from the sentences `last` [R]: [R, T], or None where none do."""
        kind = self.source if side == "source" else self.target
        if not self.from_current or kind.segments not in ("learned", "sinusoidal"):
            return None
        assert last is not None
        return (last[:, None] - sentence).clamp(min=0)

    def input_sentence(self, sentence: Tensor, before: Tensor | None) -> Tensor:
        """Sentence whose position and segment decoder inputs have: see `closed_sentence`."""
        return sentence if self.bracketed else closed_sentence(sentence, before)

    def weight_of(self, side: Side) -> Tensor:
        """Vectors of the tokens of a side: [V, D]."""
        return self.weight if side == "target" or self.source_weight is None else self.source_weight

    def encoding(self, side: Side) -> PositionTable | LearnedPositions:
        """What tells the positions of a side."""
        learned = self.source_positions if side == "source" else self.target_positions
        return self.table if learned is None else learned

    def reads_ranks(self, side: Side) -> bool:
        """Whether `placed` asks where in its sentence a token of a side stands."""
        kind = self.source if side == "source" else self.target
        return kind.positions == "reset" or self.in_force < 1

    def bare(self, tokens: Tensor, side: Side) -> Tensor:
        """Vectors of tokens alone: [...] -> [..., D]."""
        return nn.functional.embedding(tokens, self.weight_of(side)) * self.scale

    def placed(
        self,
        x: Tensor,
        side: Side,
        sentence: Tensor,
        position: Tensor,
        rank: Tensor | None,
        shift: Tensor | int = 0,
        segment: Tensor | None = None,
        below: int | None = None,
    ) -> Tensor:
        """Add positions and segments to vectors [R, T, D]; all others [R, T], `shift` a number or [R].

        `rank`: needed where `reads_ranks`. `segment`: where it is not the sentence. `below`: a number that no
        position reaches, if one is known.
        """
        kind = self.source if side == "source" else self.target
        share = 1.0 if kind.positions == "reset" else self.in_force
        if kind.positions != "none":
            at = position_of(kind.positions, position, rank, sentence, shift, self.from_first)
            if self.training and self.offset:
                at, below = moved(at, self.offset), None if below is None else below + self.offset
            encoded = self.encoding(side)(at, below)
            x = x + (encoded if share == 1 else share * encoded)
        if share < 1:
            # Positions of the sentence model that training started from, which are on their way out.
            before = position_of("reset", position, rank, sentence)
            x = x + (1 - share) * self.encoding(side)(before, below)
        k = sentence.clamp(min=0) if segment is None else segment
        if kind.segments in ("learned", "current"):
            assert self.segment is not None
            x = x + self.segment[k.clamp(max=self.max_segments - 1)]
        elif kind.segments == "sinusoidal":
            encoded = sinusoidal(k + 1 if self.from_current else k, x.size(-1)).to(x.dtype)
            if not self.from_first:
                encoded = encoded * (k > 0)[:, :, None]
            x = x + (encoded if self.in_force == 1 else self.in_force * encoded)
        return self.finished(x, side)

    def finished(self, x: Tensor, side: Side) -> Tensor:
        """Sums of vectors, positions and segments as a stack reads them: [..., D] -> [..., D]."""
        norm = self.source_norm if side == "source" else self.target_norm
        dropped: Tensor = self.dropout(x if norm is None else norm(x))
        return dropped
