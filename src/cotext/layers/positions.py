"""Positions, segments and attention masks of tokens, computed from their sentence indices.

Masks are boolean, True = may attend. They broadcast to [B, H, T, S] (queries before keys) and compose with
`&`.

Shapes: B rows, T tokens, D model. k is the sentence index of a token, t its index in the row.
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn


def visible(sentence: Tensor) -> Tensor | None:
    """Hide padding keys: [B, S] sentence indices -> [B, 1, 1, S], or None if nothing is padded.

    With None, attention uses its fastest kernel; the result is the same.
    """
    mask = sentence >= 0
    return None if bool(mask.all()) else mask[:, None, None, :]


def causal(queries: int, keys: int, device: torch.device) -> Tensor:
    """Return the mask with which query t attends to the keys 0 .. t + keys - queries: [queries, keys].

    keys       0 1 2 3
    query 0    T T F F        two queries at the end of four keys
    query 1    T T T F   ->   would be rows 2 and 3
    """
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def is_current(sentence: Tensor, current: Tensor) -> Tensor:
    """True for tokens of the current sentences of their row: [R, T] indices, [R, 2] ranges -> [R, T]."""
    return (sentence >= current[:, :1]) & (sentence < current[:, 1:])


Kind = Literal["absolute", "reset", "shifted", "none"]
Wavelengths = Literal["half_minus_one", "half"]
MAX_ROWS = 1 << 16


def sinusoidal(positions: Tensor, dimension: int, wavelengths: Wavelengths = "half_minus_one") -> Tensor:
    """Return the sinusoidal encoding of `positions` [...] -> [..., D] (Vaswani et al. 2017, section 3.5).

    The first half contains sines, the second half cosines. Wavelengths grow geometrically from 2 pi. With
    `half_minus_one`, the longest one is 10,000 * 2 pi. With `half`, it is one step shorter.
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

    absolute: t. reset: the rank (MCN). shifted: t + k * shift (Lupo et al. 2022, section 3.2). k counts
    sentences from 1 or, without `from_first`, from 0. `shift` is a number or one per row [B]. Only `reset`
    uses the rank.
    """
    if kind == "absolute":
        return t
    if kind == "reset":
        assert rank is not None
        return rank
    step = shift[:, None] if isinstance(shift, Tensor) else shift
    return t + (sentence.clamp(min=0) + from_first) * step


def closed_sentence(sentence: Tensor, before: Tensor | None) -> Tensor:
    """Return the sentences of decoder inputs [R, T], if separators belong to the sentence that they close.

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
        self, dimension: int, length: int = 1024, wavelengths: Wavelengths = "half_minus_one", first: int = 0
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
    """Learned vectors: position t has row `first` + t; positions past the last row share it."""

    def __init__(self, rows: int, dimension: int, first: int = 0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, dimension) * dimension**-0.5)
        self.first = first

    def forward(self, positions: Tensor, below: int | None = None) -> Tensor:
        """[B, T] -> [B, T, D]; `below` is as in `PositionTable`, and not used."""
        return nn.functional.embedding((positions + self.first).clamp(max=len(self.weight) - 1), self.weight)


CLIP = 20  # larger distances between sentences share a vector


class Segments:
    """Sentence indices [B, S], 0 on padding, and the largest number of sentences of a row."""

    def __init__(self, sentence: Tensor) -> None:
        self.sentence = sentence.clamp(min=0)
        self.count = int(self.sentence.max()) + 1
