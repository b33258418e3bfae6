"""Sentences of whole rows as seen by attention that asks how many sentences apart two tokens are.

All sentences of a row that are at least `CLIP` before a query are as far from it, and so are those behind it.
So queries of a few neighbouring sentences tell those around them apart, and those beyond by their side alone:

    row of 100 sentences, queries of 40 ... 43     0 ... 20  21  22  ...  40 ... 43  ...  61  62  63 ... 99
    columns                                        0         1   2                       41  42  43

Shapes: B rows, S tokens, T queries of a chunk, C columns.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

CLIP = 20  # sentences farther apart share a vector
FEW = 5 * CLIP  # rows of so many sentences are one chunk: making it anew would take longer than it saves
CHUNK_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some tokens of all rows as queries, `first` ... `stop`, and the columns that they see sentences in.

    Column c of a row stands for sentence `base` + c, the first and the last one for those beyond, too.
    """

    first: int
    stop: int
    base: Tensor  # [B, 1]
    columns: int

    def column(self, sentence: Tensor) -> Tensor:
        """The column of every token: [B, S]."""
        return (sentence - self.base).clamp(0, self.columns - 1)

    def distance(self, sentence: Tensor) -> Tensor:
        """Sentences from each column to each query, clipped and counted from 0: [B, T, C]."""
        column = self.base + torch.arange(self.columns, device=sentence.device)
        apart = sentence[:, self.first : self.stop, None] - column[:, None]
        return apart.clamp(-CLIP, CLIP) + CLIP


class Segments:
    """Sentence indices [B, S], -1 on padding, as `segment_distance.py` needs them."""

    def __init__(self, sentence: Tensor) -> None:
        self.sentence = sentence.clamp(min=0)
        tokens, count = sentence.size(1), int(self.sentence.max()) + 1
        self.whole = Chunk(0, tokens, torch.zeros_like(self.sentence[:, :1]), count)
        self.chunks = [self.whole]
        if count > FEW:
            firsts = range(0, tokens, CHUNK_TOKENS)
            self.chunks = [self._chunk(first, min(tokens, first + CHUNK_TOKENS)) for first in firsts]

    def _chunk(self, first: int, stop: int) -> Chunk:
        own = self.sentence[:, first:stop]
        last = own.amax(dim=1, keepdim=True)
        base = (own[:, :1] - CLIP).clamp(min=0)
        return Chunk(first, stop, base, int((last + CLIP - base).max()) + 1)
