"""Positions and segments of tokens, computed from their sentence indices.

Shapes: B rows, T tokens, D model. k is the sentence index of a token, t its index in the row.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

Kind = Literal["absolute", "reset", "shifted", "none"]
Wavelengths = Literal["half_minus_one", "half"]
MAX_ROWS = 1 << 16


def sinusoidal(positions: Tensor, dimension: int, wavelengths: Wavelengths = "half_minus_one") -> Tensor:
    """Return the sinusoidal encoding of `positions` [...] -> [..., D] (Vaswani et al. 2017, section 3.5).

    The first half contains sines, the second half cosines. Wavelengths grow geometrically from
    2 pi. With `half_minus_one`, the longest one is 10,000 * 2 pi. With `half`, it is one step shorter.
    """
    half = dimension // 2
    steps = half if wavelengths == "half" else max(half - 1, 1)
    # 10,000^(-i / steps) for i = 0 ... half - 1.
    rate = torch.exp(
        torch.arange(half, dtype=torch.float32, device=positions.device) * (-math.log(10_000.0) / steps)
    )
    angle = positions[..., None].float() * rate
    encoded = torch.cat((angle.sin(), angle.cos()), dim=-1)
    return encoded if dimension % 2 == 0 else nn.functional.pad(encoded, (0, 1))


def ranks(sentence: Tensor) -> Tensor:
    """Return the index of every token within its sentence: [B, T] sentence indices -> [B, T].

    sentence   0 0 0 1 1 2
    rank       0 1 2 0 1 0
    """
    t = torch.arange(sentence.size(1), device=sentence.device).expand_as(sentence)
    opens = torch.ones_like(sentence, dtype=torch.bool)
    opens[:, 1:] = sentence[:, 1:] != sentence[:, :-1]
    # The largest index of an opening token so far is where the sentence begins.
    return t - torch.where(opens, t, 0).cummax(dim=1).values


def mean_sentence_length(sentence: Tensor) -> Tensor:
    """Return the mean number of tokens per sentence of each row, rounded up: [B, T] -> [B].

    This is the `sequence` shift of Lupo et al. 2022, section 4.6.3. As in their code
    (lorelupo/focused-concat, eef3280, fairseq/models/concat_transformer.py), symbols that close sentences
    count as tokens.
    """
    tokens = (sentence >= 0).sum(dim=1)
    first = sentence[:, 0]
    sentences = sentence.max(dim=1).values - first + 1
    return (tokens + sentences - 1) // sentences


def position_of(
    kind: Kind,
    t: Tensor,
    rank: Tensor | None,
    sentence: Tensor,
    shift: Tensor | int = 0,
    from_first: bool = True,
) -> Tensor:
    """Return the position to encode for token `t` of a row, token `rank` of sentence `sentence`: all [B, T].

    absolute: t. reset: the rank (MCN). shifted: t + k * shift with k = 1 for the first sentence (Lupo et al.
    2022, section 3.2), or k = 0 unless `from_first`; `shift` is a number or one per row [B]. Only `reset`
    uses the rank.
    """
    if kind == "absolute":
        return t
    if kind == "reset":
        assert rank is not None
        return rank
    step = shift[:, None] if isinstance(shift, Tensor) else shift
    return t + (sentence.clamp(min=0) + from_first) * step


def moved(positions: Tensor, most: int) -> Tensor:
    """Shift the positions [B, T] of every row by a random offset up to `most` (SHAPE; Kiyono et al. 2021)."""
    return positions + torch.randint(most + 1, (len(positions), 1), device=positions.device)


def closed_sentence(sentence: Tensor, before: Tensor | None) -> Tensor:
    """Return the sentence of decoder inputs, where a separator belongs to the sentence that it closes: [R,
    T].

    `sentence` [R, T] is the sentence of the label predicted from each input. `before` [R, 1] is the sentence
    of the previous input, or None at the start of a row:

        input              bos  a  sep  b  sep  c
        sentence            0   0   1   1   2   2
        closed_sentence     0   0   0   1   1   2
    """
    first = sentence[:, :1] if before is None else before
    if sentence.size(1) == 1:
        return first
    return torch.cat((first, sentence[:, :-1]), dim=1)


class PositionTable(nn.Module):
    """Precomputed sinusoidal encodings. The table grows for longer rows, up to MAX_ROWS.

    Row t encodes position `first` + t.
    """

    table: Tensor

    def __init__(
        self,
        dimension: int,
        length: int = 1024,
        wavelengths: Wavelengths = "half_minus_one",
        first: int = 0,
    ) -> None:
        super().__init__()
        self.wavelengths, self.first = wavelengths, first
        self.register_buffer("table", self._encoded(torch.arange(length), dimension), persistent=False)

    def forward(self, positions: Tensor, below: int | None = None) -> Tensor:
        """[B, T] -> [B, T, D]; `below`: an upper bound of all positions, if known."""
        need = int(positions.max()) + 1 if below is None else below
        if need > MAX_ROWS:  # for example, with a large shift per sentence
            return self._encoded(positions, self.table.size(1)).to(self.table.dtype)
        # Grow to at least twice the size, so that this happens rarely.
        if need > self.table.size(0):
            grown = torch.arange(min(max(need, 2 * self.table.size(0)), MAX_ROWS), device=self.table.device)
            self.table = self._encoded(grown, self.table.size(1)).to(self.table.dtype)
        return self.table[positions]

    def _encoded(self, positions: Tensor, dimension: int) -> Tensor:
        return sinusoidal(positions + self.first, dimension, self.wavelengths)


class LearnedPositions(nn.Module):
    """Learned vectors of the positions from `first` on; positions past the last row share it."""

    def __init__(self, rows: int, dimension: int, first: int = 0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, dimension) * dimension**-0.5)
        self.first = first

    def forward(self, positions: Tensor, below: int | None = None) -> Tensor:
        """[B, T] -> [B, T, D]; `below` is as in `PositionTable`, and not used."""
        return nn.functional.embedding((positions + self.first).clamp(max=len(self.weight) - 1), self.weight)


# --- Distances between sentences, for attention that depends on how many sentences apart two tokens are.
#
# Distances are clipped: all sentences at least `CLIP` before a query have the same distance, and so have
# those at least `CLIP` after it. The queries of a few neighbouring sentences therefore need one column for
# each sentence near them, and one column on each side for all the others:
#
#     row of 100 sentences, queries of 40 ... 43     0 ... 20  21  22  ...  40 ... 43  ...  61  62  63 ... 99
#     columns                                        0         1   2                       41  42  43
#
# Shapes: B rows, S tokens, T queries of a chunk, C columns.


CLIP = 20  # larger distances share a vector
# Rows of up to this number of sentences are one chunk: recomputing chunks would cost more than it saves.
FEW = 5 * CLIP
CHUNK_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Chunk:
    """The tokens `first` ... `stop` of all rows as queries, and the columns for the sentences of their keys.

    Column c of a row is sentence `base` + c. The first and last columns also stand for all sentences beyond
    them.
    """

    first: int
    stop: int
    base: Tensor  # [B, 1]
    columns: int

    def column(self, sentence: Tensor) -> Tensor:
        """The column of every token: [B, S]."""
        return (sentence - self.base).clamp(0, self.columns - 1)

    def distance(self, sentence: Tensor) -> Tensor:
        """Return the clipped distance in sentences from columns to queries, counted from 0: [B, T, C]."""
        column = self.base + torch.arange(self.columns, device=sentence.device)
        apart = sentence[:, self.first : self.stop, None] - column[:, None]
        return apart.clamp(-CLIP, CLIP) + CLIP


class Segments:
    """Sentence indices [B, S], -1 on padding, prepared for `segment_distance.py`."""

    def __init__(self, sentence: Tensor) -> None:
        self.sentence = sentence.clamp(min=0)
        tokens, count = sentence.size(1), int(self.sentence.max()) + 1
        self.whole = Chunk(0, tokens, torch.zeros_like(self.sentence[:, :1]), count)
        self.chunks = [self.whole]
        if count > FEW:
            firsts = range(0, tokens, CHUNK_TOKENS)
            self.chunks = [self._chunk(first, min(tokens, first + CHUNK_TOKENS)) for first in firsts]

    def _chunk(self, first: int, stop: int) -> Chunk:
        sentence = self.sentence[:, first:stop]
        last = sentence.amax(dim=1, keepdim=True)
        # Columns start CLIP sentences before the first query; everything before shares the first column.
        base = (sentence[:, :1] - CLIP).clamp(min=0)
        return Chunk(first, stop, base, int((last + CLIP - base).max()) + 1)
