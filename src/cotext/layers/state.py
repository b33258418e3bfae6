"""What a decoder knows: the encoded source and, while searching, its own past in caches.

Shapes: B entries (sentences or documents being decoded), R rows (R = B * beam), M places in a cache,
S source tokens, H heads, K per head.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from cotext.layers.masks import causal
from cotext.layers.positions import ranks


@dataclass(frozen=True, slots=True)
class SelfReach:
    """What the queries of one decoder call see of their own side: the same for all layers."""

    mask: Tensor | None  # broadcasts to [R, H, T, places]
    causal: bool
    lengths: Tensor | int = 0  # where new keys and values are written
    places: int = 0  # how many places are attended to


class KeyValueCache:
    """Self-attention keys and values of the tokens so far, for one layer: pre-allocated [R, H, M, K]."""

    def __init__(self, rows: int, places: int, like: Tensor) -> None:
        _, heads, _, size = like.shape
        self.keys = like.new_zeros(rows, heads, places, size)
        self.values = like.new_zeros(rows, heads, places, size)

    def write(self, keys: Tensor, values: Tensor, lengths: Tensor | int) -> None:
        """Put [R, H, T, K] at places lengths .. lengths + T of every row.

        `lengths` is one number where all rows are equally long, else [R] (then T = 1).
        """
        if isinstance(lengths, int):
            self.keys[:, :, lengths : lengths + keys.size(2)] = keys
            self.values[:, :, lengths : lengths + keys.size(2)] = values
        else:
            rows = torch.arange(keys.size(0), device=keys.device)
            self.keys[rows, :, lengths] = keys[:, :, 0]
            self.values[rows, :, lengths] = values[:, :, 0]

    def read(self, length: int) -> tuple[Tensor, Tensor]:
        """The first `length` places of keys and values: two [R, H, length, K]."""
        return self.keys[:, :, :length], self.values[:, :, :length]

    def copy_rows(self, target: Tensor, origin: Tensor, length: int) -> None:
        """Overwrite rows `target` with what rows `origin` held, up to `length` places."""
        self.keys[target, :, :length] = self.keys[origin, :, :length]
        self.values[target, :, :length] = self.values[origin, :, :length]

    def select(self, rows: Tensor) -> None:
        """Keep the given rows, possibly repeated."""
        self.keys, self.values = self.keys.index_select(0, rows), self.values.index_select(0, rows)


@dataclass(slots=True)
class DecoderState:
    """The source's keys and values for every layer; after `open`, caches and where each row stands.

    `lengths` stays None while all rows are equally long (`length`), the common and fast case. `sentence` and
    `rank` describe the last token of each row, so that positions go on where they stopped.
    """

    cross: list[tuple[Tensor, Tensor]]  # per layer: [B, H, S, K]
    cross_mask: Tensor | None  # [B, 1, 1, S]
    shift: Tensor | None = None  # [R], where positions shift by a length of the row's own
    caches: list[KeyValueCache] = field(default_factory=list)
    length: int = 0
    lengths: Tensor | None = None  # [R]
    sentence: Tensor | None = None  # [R]
    rank: Tensor | None = None  # [R]

    def open(self, places: int) -> None:
        """Allocate caches for `places` tokens a row, one row per entry."""
        like = self.cross[0][0]
        self.caches = [KeyValueCache(like.size(0), places, like) for _ in self.cross]

    def places(self, sentence: Tensor) -> tuple[Tensor, Tensor]:
        """Where the given tokens stand, [R, T] each: place in the row, and rank within their sentence."""
        t = torch.arange(sentence.size(1), device=sentence.device).expand_as(sentence)
        rank = ranks(sentence)
        if self.sentence is None or self.rank is None:
            return t, rank
        goes_on = sentence == self.sentence[:, None]
        past = self.length if self.lengths is None else self.lengths[:, None]
        return t + past, rank + goes_on * (self.rank + 1)[:, None]

    def reach(self, tokens: int, device: torch.device) -> SelfReach:
        """What the next `tokens` decoder inputs may attend to of their own side."""
        stop = self.length + tokens
        if self.length == 0:
            # Padding stands to the right of everything that is real, so that causality already hides it.
            return SelfReach(mask=None, causal=tokens > 1, places=stop)
        if self.lengths is None:
            mask = None if tokens == 1 else causal(tokens, stop, device)
            return SelfReach(mask=mask, causal=False, lengths=self.length, places=stop)
        own = torch.arange(stop, device=device) <= self.lengths[:, None]
        return SelfReach(mask=own[:, None, None, :], causal=False, lengths=self.lengths, places=stop)

    def step(self, sentence: Tensor, rank: Tensor) -> None:
        """Note what was just decoded: [R, T] each. Padding (sentence -1), if any, must be on the right.

        Its cache places are overwritten by the tokens that follow and are never attended to.
        """
        tokens = sentence.size(1)
        if tokens == 1:
            self.length += 1
            self.lengths = None if self.lengths is None else self.lengths + 1
            self.sentence, self.rank = sentence[:, 0], rank[:, 0]
            return
        real = (sentence >= 0).sum(dim=1)
        last = (real - 1)[:, None]
        self.sentence, self.rank = sentence.gather(1, last)[:, 0], rank.gather(1, last)[:, 0]
        longest = int(real.max())
        self.lengths = None if int(real.min()) == longest else real + self.length
        self.length += longest

    def reorder(self, origin: Tensor) -> None:
        """Row i continues what row origin[i] was: [R]. Only rows that change are copied."""
        changed = (origin != torch.arange(origin.numel(), device=origin.device)).nonzero().flatten()
        if changed.numel() == 0:
            return
        came_from = origin[changed]
        for cache in self.caches:
            cache.copy_rows(changed, came_from, self.length)
        self._select_rows(origin)

    def select(self, entries: Tensor, beam: int) -> None:
        """Keep the given entries [B'] with all `beam` rows of each; the others have finished."""
        rows = (entries[:, None] * beam + torch.arange(beam, device=entries.device)).flatten()
        for cache in self.caches:
            cache.select(rows)
        self._select_rows(rows)
        self.cross = [(k.index_select(0, entries), v.index_select(0, entries)) for k, v in self.cross]
        if self.cross_mask is not None:
            self.cross_mask = self.cross_mask.index_select(0, entries)
        if self.lengths is not None:
            # The longest rows may have left: nobody needs their places any more.
            self.length = int(self.lengths.max())

    def widen(self, beam: int) -> None:
        """Repeat every row `beam` times; the source side is shared, not copied."""
        if beam == 1:
            return
        entries = torch.arange(self.cross[0][0].size(0), device=self.cross[0][0].device)
        rows = entries.repeat_interleave(beam)
        for cache in self.caches:
            cache.select(rows)
        self._select_rows(rows)

    def _select_rows(self, rows: Tensor) -> None:
        for name in ("shift", "lengths", "sentence", "rank"):
            value = getattr(self, name)
            if value is not None:
                setattr(self, name, value.index_select(0, rows))
