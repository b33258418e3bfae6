"""Embedding of tokens, with positions and segments; inputs of non-autoregressive decoders.

Shapes: R rows, T tokens, D model, V vocabulary.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from cotext.layers.kernels.common import Dropout, precise_dtype
from cotext.layers.positions import (
    Kind,
    LearnedPositions,
    PositionTable,
    Wavelengths,
    closed_sentence,
    position_of,
    ranks,
    sinusoidal,
)
from cotext.layers.start import Blended

SegmentKind = Literal["none", "learned", "sinusoidal", "current"]
Side = Literal["source", "target"]
CURRENT, CONTEXT = 0, 1  # segments of the kind `current`


@dataclass(frozen=True, slots=True)
class InputKind:
    """Positions and segments of the embeddings of one side."""

    positions: Kind = "absolute"
    segments: SegmentKind = "none"


@dataclass(frozen=True, slots=True)
class EmbeddingKind:
    """Settings of the embeddings of both sides.

    `max_segments`: number of learned segments; later sentences share the last. `bracketed`: every sentence
    begins with its own symbol. If not, a separator has the position and segment of the sentence that it
    closes, on both sides (Lupo et al. 2022, section 3.2). `from_first`: the shift and sinusoidal segments
    also apply to the first sentence of a row, as published. If not, rows of one sentence do not change.
    `learned`: number of learned positions, instead of sinusoids of the given `wavelengths`. `first_position`:
    the number of position 0. `offset`: training moves the positions of a row by up to this number. `norm`: a
    layer norm on the sum. `source_vocabulary`: size of a separate source embedding. `from_current`: learned
    and sinusoidal segments count back from the current sentence.
    """

    max_segments: int = 1
    bracketed: bool = False
    from_first: bool = True
    wavelengths: Wavelengths = "half_minus_one"
    first_position: int = 0
    learned: int | None = None
    offset: int = 0
    norm: bool = False
    source_vocabulary: int | None = None
    from_current: bool = False


class SentenceEmbedding(nn.Module, Blended):
    """The sum of token, position and segment; the last two depend on the sentence index of the token.

    Segments are `learned` (Devlin et al. 2019), `sinusoidal` (Lupo et al. 2022, section 4.6.2) or `current`,
    which distinguishes only current sentences from context (Ma et al. 2020). Sentence indices past the last
    learned segment share it. `weight` [V, D] is also the output layer.

    Counted from the first sentence of a row, segments are 0, 1, 2 .... Counted back from the current
    sentence, they are 1, 2, 3 ..., as in the authors' code (lorelupo/focused-concat,
    fairseq/data/sent2doc_dataset.py and fairseq/modules/segment_embedding.py). There, the symbol that opens a
    decoder row has the segment of the current sentence, because it closed that sentence in the row before.
    """

    what = "positions"

    def __init__(
        self,
        vocabulary: int,
        dimension: int,
        dropout: float,
        source: InputKind,
        target: InputKind,
        made: EmbeddingKind = EmbeddingKind(),
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocabulary, dimension) * dimension**-0.5)
        self.scale = math.sqrt(dimension)
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
        self.source, self.target, self.made = source, target, made
        # Zeros: before the first update, a model with learned segments equals the baseline.
        kinds = {source.segments, target.segments}
        self.max_segments = 2 if "current" in kinds else made.max_segments
        trained = not kinds.isdisjoint({"learned", "current"})
        self.segment = nn.Parameter(torch.zeros(self.max_segments, dimension)) if trained else None
        self.dropout = Dropout(dropout)

    def segments(self, side: Side, sentence: Tensor, current: Tensor) -> Tensor | None:
        """Return segments [R, T], counted back from the sentences `current` [R]; None for other kinds."""
        kind = self.source if side == "source" else self.target
        if not self.made.from_current or kind.segments not in ("learned", "sinusoidal"):
            return None
        return (current[:, None] - sentence).clamp(min=0)

    def input_sentence(self, sentence: Tensor, before: Tensor | None) -> Tensor:
        """Return the sentence on which position and segment of decoder inputs depend: `closed_sentence`."""
        return sentence if self.made.bracketed else closed_sentence(sentence, before)

    def weight_of(self, side: Side) -> Tensor:
        """Return the embedding matrix of a side: [V, D]."""
        return self.weight if side == "target" or self.source_weight is None else self.source_weight

    def encoding(self, side: Side) -> PositionTable | LearnedPositions:
        """Return the position encodings of a side."""
        learned = self.source_positions if side == "source" else self.target_positions
        return self.table if learned is None else learned

    def reads_ranks(self, side: Side) -> bool:
        """Return whether `placed` needs the positions of tokens in their sentences."""
        kind = self.source if side == "source" else self.target
        return kind.positions == "reset" or self.in_force < 1

    def bare(self, tokens: Tensor, side: Side) -> Tensor:
        """Return scaled token embeddings without positions: [...] -> [..., D]."""
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
        """Add positions and segments to vectors [R, T, D]; other tensors are [R, T], and `shift` may be [R].

        `rank`: needed if `reads_ranks`. `segment`: the segments, if they are not the sentence indices.
        `below`: an upper bound of all positions, if known.
        """
        kind = self.source if side == "source" else self.target
        # Positions that restart in every sentence equal the positions of the sentence model: no blending.
        share = 1.0 if kind.positions == "reset" else self.in_force
        if kind.positions != "none":
            at = position_of(kind.positions, position, rank, sentence, shift, self.made.from_first)
            if self.training and self.made.offset:
                # Each row is shifted by a random offset (SHAPE; Kiyono et al. 2021).
                at = at + torch.randint(self.made.offset + 1, (len(at), 1), device=at.device)
                below = None if below is None else below + self.made.offset
            encoded = self.encoding(side)(at, below)
            x = x + (encoded if share == 1 else share * encoded)
        if share < 1:
            # Blend: the positions of the sentence model that training started from fade out.
            before = position_of("reset", position, rank, sentence)
            x = x + (1 - share) * self.encoding(side)(before, below)
        if kind.segments == "none":
            return self.finished(x, side)
        # Non-autoregressive models pass no segments: all their sentences are current.
        k = sentence.clamp(min=0) * (kind.segments != "current") if segment is None else segment
        if kind.segments in ("learned", "current"):
            assert self.segment is not None
            x = x + self.segment[k.clamp(max=self.max_segments - 1)]
        else:  # sinusoidal
            # Segment 0 is not a zero vector, so it has to be left out where it must have no effect.
            encoded = sinusoidal(k + 1 if self.made.from_current else k, x.size(-1)).to(x.dtype)
            if not self.made.from_first:
                encoded = encoded * (k > 0)[:, :, None]
            x = x + (encoded if self.in_force == 1 else self.in_force * encoded)
        return self.finished(x, side)

    def finished(self, x: Tensor, side: Side) -> Tensor:
        """Apply norm and dropout to sums of vectors, positions and segments: [..., D] -> [..., D]."""
        norm = self.source_norm if side == "source" else self.target_norm
        dropped: Tensor = self.dropout(x if norm is None else norm(x))
        return dropped


# --- Soft copy of source states to the positions of a non-autoregressive decoder.
#
# A decoder sequence of t positions is aligned with a source text of s tokens: position i with token i * s /
# t. Its state is the weighted mean of the source states, with the weights
#
#     w[j] = exp(-(j - i * s / t) ** 2)        j = 0 ... s - 1
#
# normalised to the sum 1 (Yu et al. 2024, equations 16 and 17, with the indices corrected; Wei et al. 2019).
# The source text is the whole sequence, or the sentence if sentences are aligned. In the second case, nothing
# is copied between sentences.
#
# Shapes: B: batch size, S: source length, T: decoder length, D: model dimension.


WINDOW = 5  # tokens on either side that are averaged; all others together have a weight below 1e-10


def stretched(sentence: Tensor, length: Tensor) -> Tensor:
    """Return the sentence index of each decoder position [B, T], -1 on padding.

    `sentence` [B, S] contains the sentence indices of the source tokens, which are stretched to `length` [B]
    positions.
    """
    tokens = (sentence >= 0).sum(dim=1)
    i = torch.arange(int(length.max()), device=sentence.device)
    token = i * tokens[:, None] // length[:, None]
    within = sentence.gather(1, token.clamp(max=sentence.size(1) - 1))
    return within.masked_fill(i >= length[:, None], -1)


def soft_copy(x_BSD: Tensor, source: Tensor, positions: Tensor, texts: int) -> Tensor:
    """Copy source states to decoder positions: [B, T, D], zero on padding.

    `source` [B, S] and `positions` [B, T] contain the index of the text in the sequence for each token, -1 on
    padding. No sequence has more than `texts` texts.
    """
    first, s = _texts(source, texts)
    _, t = _texts(positions, texts)
    text = positions.clamp(min=0)
    s_BT, t_BT = s.gather(1, text), t.gather(1, text).clamp(min=1)
    # Half precision cannot represent every position of a long text.
    precise = precise_dtype(x_BSD)
    centre = ranks(positions).to(precise) * s_BT / t_BT
    j = centre.long()[:, :, None] + torch.arange(-WINDOW, WINDOW + 2, device=positions.device)
    weight = torch.exp(-((j - centre[:, :, None]) ** 2))
    weight = weight.masked_fill((j < 0) | (j >= s_BT[:, :, None]) | (positions < 0)[:, :, None], 0)
    weight = weight / weight.sum(dim=2, keepdim=True).clamp(min=torch.finfo(weight.dtype).tiny)
    # Outside a text, weights are 0; indices are clamped to avoid out-of-range access.
    row = torch.arange(source.size(0), device=positions.device)[:, None, None] * source.size(1)
    at = first.gather(1, text)[:, :, None] + j.clamp(min=0).minimum(s_BT[:, :, None] - 1).clamp(min=0)
    copied = embedding_bag(
        (row + at).flatten(0, 1),
        x_BSD.flatten(0, 1),
        per_sample_weights=weight.flatten(0, 1).to(x_BSD.dtype),
        mode="sum",
    )
    return copied.view(*positions.shape, -1)


def _texts(index: Tensor, texts: int) -> tuple[Tensor, Tensor]:
    """Return the start positions and the lengths of the texts of every sequence, both [B, texts]."""
    length = index.new_zeros(index.size(0), texts)
    length.scatter_add_(1, index.clamp(min=0), (index >= 0).long())
    return length.cumsum(dim=1) - length, length


# --- Glancing: random target tokens are revealed to a non-autoregressive model in training.
#
# The more positions a model gets wrong, the more tokens are revealed (Qian et al. 2021).


def glanced(wrong: Tensor, eligible: Tensor, ratio: float) -> Tensor:
    """Return a mask of randomly chosen eligible positions.

    Their number per sequence is `ratio` times the number of wrong positions, rounded. All masks are [B, T].
    Random numbers are drawn from torch's global generator.
    """
    # Select the `count` eligible positions with the smallest random numbers.
    count = (wrong.sum(dim=1, keepdim=True) * ratio).round()
    order = torch.rand(eligible.shape, device=eligible.device).masked_fill(~eligible, 2.0)
    return (order.argsort(dim=1).argsort(dim=1) < count) & eligible
