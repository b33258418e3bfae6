"""What a decoder knows: the encoded source and, while searching, its own past in caches.

The beams of an entry share one pool of places for their keys and values. A token is written once and never
moves when hypotheses change places: each beam remembers which places are its own past, and re-ordering
re-orders only that memory. Places that no beam sees any more are freed from time to time.

    place      0  1  2  3  4  5  6        two beams after `bos` and three steps; at the second step
    beam 0     x  x     x     x           both continued what beam 0 had written (place 1), so that
    beam 1     x  x        x     x        nobody sees place 2 any more

Shapes: B entries (sentences or documents being decoded), W beams, R rows (R = B * W), T tokens, M places in
a cache, S source tokens, H heads, K per head.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from cotext.layers.masks import causal
from cotext.layers.positions import ranks

STEPS_BETWEEN_COLLECTIONS = 16


@dataclass(frozen=True, slots=True)
class SelfReach:
    """What the queries of one call see of their own side: the same for all layers."""

    mask: Tensor | None  # broadcasts to [B, H, W * T, places]
    causal: bool = False
    start: int = 0  # where new keys and values are written
    places: int = 0  # where the places that are attended to end
    first: int = 0  # and begin


class KeyValueCache:
    """Self-attention keys and values of the tokens so far, for one layer: pre-allocated [B, H, M, K]."""

    def __init__(self, entries: int, places: int, like: Tensor) -> None:
        _, heads, _, size = like.shape
        self.keys = like.new_empty(entries, heads, places, size)
        self.values = like.new_empty(entries, heads, places, size)

    @property
    def entries(self) -> int:
        """B."""
        return self.keys.size(0)

    def write(self, keys: Tensor, values: Tensor, start: int) -> None:
        """Put [B, H, W * T, K] at places start .. start + W * T."""
        self.keys[:, :, start : start + keys.size(2)] = keys
        self.values[:, :, start : start + keys.size(2)] = values

    def read(self, places: int, first: int = 0) -> tuple[Tensor, Tensor]:
        """Keys and values of the places first .. places: two [B, H, places - first, K]."""
        return self.keys[:, :, first:places], self.values[:, :, first:places]

    def move(self, origin: Tensor, start: int) -> None:
        """Fill the places from `start` on with what stands at places `origin` [B, n] of the same entry."""
        index = origin[:, None, :, None].expand(-1, self.keys.size(1), -1, self.keys.size(3))
        self.write(self.keys.gather(2, index), self.values.gather(2, index), start)

    def grown(self, places: int, used: int) -> "KeyValueCache":
        """A copy with room for `places`, of which `used` are taken."""
        grown = KeyValueCache(self.entries, places, self.keys)
        grown.write(*self.read(used), 0)
        return grown

    def select(self, entries: Tensor, used: int) -> None:
        """Keep the given entries."""
        self.keys, self.values = _keep(self.keys, entries, used), _keep(self.values, entries, used)


def _keep(x: Tensor, entries: Tensor, used: int) -> Tensor:
    """Keep entries of [B, H, M, K] with `used` places: in place, copying only those that stand elsewhere."""
    moved = (entries != torch.arange(entries.numel(), device=entries.device)).nonzero().flatten()
    if moved.numel() > 0:
        x[moved, :, :used] = x[entries[moved], :, :used]
    return x[: entries.numel()]


@dataclass(slots=True)
class DecoderState:
    """The source's keys and values for every layer; after `open`, caches and where each row stands.

    `sees` stays None while every row sees all places: one beam, nothing padded. `sentence` and `rank`
    describe the last token of each row, so that positions go on where they stopped; `place_sentence` and
    `place_t` the tokens of the places in use, for attention that asks for them.
    """

    cross: list[tuple[Tensor, Tensor]]  # per layer: [B, H, S, K]
    cross_mask: Tensor | None  # [B, 1, 1, S]
    shift: Tensor | None = None  # [R], where positions shift by a length of the row's own
    cross_spans: Tensor | None = None  # [B, sentences, 2], where attention stays inside sentences
    caches: list[KeyValueCache] = field(default_factory=list)
    beam: int = 1  # W
    capacity: int = 0  # M
    used: int = 0
    collect_at: int = 0
    sees: Tensor | None = None  # [B, W, M]
    place_sentence: Tensor | None = None  # [B, M]
    place_t: Tensor | None = None  # [B, M]
    near: int = 0  # nothing before this place belongs to the last sentence of any row
    length: Tensor | None = None  # [R]
    sentence: Tensor | None = None  # [R]
    rank: Tensor | None = None  # [R]

    def open(self, places: int) -> None:
        """Allocate caches for `places` tokens a row, padding included, one row per entry."""
        # A copy of our own: contiguous heads are read faster, and `select` overwrites entries in place.
        self.cross = [(k.detach().contiguous(), v.detach().contiguous()) for k, v in self.cross]
        like = self.cross[0][0]
        self.capacity = places
        self.caches = [KeyValueCache(like.size(0), places, like) for _ in self.cross]
        self.place_sentence = torch.full((like.size(0), places), -1, device=like.device)
        self.place_t = torch.zeros_like(self.place_sentence)

    def places(self, sentence: Tensor) -> tuple[Tensor, Tensor]:
        """Where the given tokens stand, [R, T] each: place in the row, and rank within their sentence."""
        t = torch.arange(sentence.size(1), device=sentence.device).expand_as(sentence)
        rank = ranks(sentence) if sentence.size(1) > 1 else torch.zeros_like(sentence)
        if self.length is None or self.sentence is None or self.rank is None:
            return t, rank
        goes_on = sentence == self.sentence[:, None]
        return t + self.length[:, None], rank + goes_on * (self.rank + 1)[:, None]

    def cache(self, i: int) -> KeyValueCache | None:
        """That of attention i; None while the state is not open."""
        return self.caches[i] if self.caches else None

    def distances(self, t: Tensor, first: int = 0) -> Tensor:
        """How far before tokens at places t [R, T] all places from `first` on stand.

        [B, W * T, places], <= 0 for a row's own places.
        """
        assert self.place_t is not None
        own = t.reshape(self.place_t.size(0), -1)
        return torch.cat((self.place_t[:, first : self.used], own), dim=1)[:, None] - own[:, :, None]

    def reach(self, tokens: int, device: torch.device) -> SelfReach:
        """What the next `tokens` decoder inputs may attend to of their own side."""
        stop = self.used + self.beam * tokens
        if self.sees is not None:
            new = torch.eye(self.beam, dtype=torch.bool, device=device)
            past = self.sees[:, :, : self.used]
            if tokens > 1:
                new = torch.kron(new, causal(tokens, tokens, device))
                past = past.repeat_interleave(tokens, dim=1)
            mask = torch.cat((past, new.expand(past.size(0), -1, -1)), dim=2)
            return SelfReach(mask=mask[:, None], causal=False, start=self.used, places=stop)
        if self.used == 0:
            # Padding stands to the right of everything that is real, so that causality already hides it.
            return SelfReach(mask=None, causal=tokens > 1, places=stop)
        own_past = None if tokens == 1 else causal(tokens, stop, device)
        return SelfReach(mask=own_past, causal=False, start=self.used, places=stop)

    def reach_within(self, sentence: Tensor, reach: SelfReach, memory_sentences: int = 0) -> SelfReach:
        """What of `reach` belongs to the own sentence of the next decoder inputs: [R, T] sentence indices.

        Or to one of the `memory_sentences` before it. Sentence indices never fall within a row, so that
        earlier sentences need not be looked at again.
        """
        assert self.place_sentence is not None
        own = sentence.reshape(self.place_sentence.size(0), -1)
        keys = torch.cat((self.place_sentence[:, self.near : self.used], own), dim=1)
        mask = (own[:, :, None] == keys[:, None])[:, None]
        if memory_sentences:
            earliest = (own - memory_sentences).clamp(min=0)[:, :, None]
            mask |= ((keys[:, None] >= earliest) & (keys[:, None] < own[:, :, None]))[:, None]
        if reach.mask is not None:
            mask &= reach.mask[..., self.near :]
        elif reach.causal:
            mask &= causal(mask.size(2), mask.size(3), mask.device)
        first = int(mask.flatten(0, 2).any(dim=0).nonzero()[0])
        self.near += first
        return SelfReach(mask=mask[..., first:], start=reach.start, places=reach.places, first=self.near)

    def source_within(self, sentence: Tensor) -> tuple[slice, Tensor]:
        """Where the source sentences of decoder inputs stand, and who sees which of these places.

        [R, T] sentence indices -> a range of source places, mask [B, 1, W * T, places]. An index past the
        source's last sentence stands for that one.
        """
        assert self.cross_spans is not None
        entries, sentences, _ = self.cross_spans.shape
        k = sentence.reshape(entries, -1, 1).clamp(0, sentences - 1)
        span = self.cross_spans.take_along_dim(k, dim=1)
        start, stop = span[:, :, :1], span[:, :, 1:]
        first, end = int(start.min()), int(stop.max())
        at = torch.arange(first, end, device=sentence.device)
        return slice(first, end), ((at >= start) & (at < stop))[:, None]

    def step(self, sentence: Tensor, rank: Tensor) -> None:
        """Note what was just decoded: [R, T] each. Padding (sentence -1), if any, must be on the right."""
        assert self.place_sentence is not None
        assert self.place_t is not None
        rows, tokens = sentence.shape
        entries, new = rows // self.beam, slice(self.used, self.used + self.beam * tokens)
        past = torch.zeros_like(sentence[:, 0]) if self.length is None else self.length
        t = past[:, None] + torch.arange(tokens, device=sentence.device)
        self.place_sentence[:, new] = sentence.view(entries, -1)
        self.place_t[:, new] = t.view(entries, -1)
        real = sentence >= 0
        last = real.sum(dim=1, keepdim=True) - 1
        if self.sees is None and tokens > 1 and not bool(real.all()):
            self.sees = real.new_zeros(entries, 1, self.capacity)
            self.sees[:, :, : self.used] = True
        if self.sees is not None:
            own = torch.eye(self.beam, dtype=torch.bool, device=sentence.device)
            self.sees[:, :, new] = own.repeat_interleave(tokens, dim=1) & real.view(entries, 1, -1)
        self.length = past + last[:, 0] + 1
        self.sentence, self.rank = sentence.gather(1, last)[:, 0], rank.gather(1, last)[:, 0]
        self.used = new.stop

    def widen(self, beam: int) -> None:
        """Repeat every row `beam` times; the source side and all that was written so far are shared."""
        if beam == 1:
            return
        entries = self.cross[0][0].size(0)
        self.beam, self.capacity = beam, self.used + (self.capacity - self.used) * beam
        self.collect_at = self.used + STEPS_BETWEEN_COLLECTIONS * beam
        self.caches = [narrow.grown(self.capacity, self.used) for narrow in self.caches]
        device = self.cross[0][0].device
        sees = torch.zeros(entries, beam, self.capacity, dtype=torch.bool, device=device)
        sees[:, :, : self.used] = True if self.sees is None else self.sees[:, :, : self.used]
        self.sees = sees
        for name in ("place_sentence", "place_t"):
            wide = torch.zeros(entries, self.capacity, dtype=torch.long, device=device)
            wide[:, : self.used] = getattr(self, name)[:, : self.used]
            setattr(self, name, wide)
        self._select_rows(torch.arange(entries, device=device).repeat_interleave(beam))

    def reorder(self, origin: Tensor) -> None:
        """Row i continues what row origin[i] of the same entry was: [R]. No keys and values are copied."""
        if self.sees is None or self.beam == 1:
            return
        within = (origin % self.beam).view(-1, self.beam, 1)
        past = self.sees[:, :, : self.used]
        past.copy_(past.take_along_dim(within, dim=1))
        self._select_rows(origin)
        if self.used >= self.collect_at:
            self._collect(past)

    def _collect(self, past: Tensor) -> None:
        """Free the places that no beam of an entry sees: what stands behind them moves up. [B, W, used]."""
        self.collect_at = self.used + STEPS_BETWEEN_COLLECTIONS * self.beam
        seen = past.any(dim=1)
        unseen = (~seen).any(dim=0).nonzero()
        if unseen.numel() == 0:
            return
        # Beams agree on most of their past, so that all but the most recent places stay where they are.
        first = int(unseen[0])
        self.near = min(self.near, first)
        count = int(seen[:, first:].sum(dim=1).max())
        origin = (~seen[:, first:]).byte().argsort(dim=1, stable=True)[:, :count] + first
        for cache in self.caches:
            cache.move(origin, first)
        self.used = first + count
        self.collect_at = self.used + STEPS_BETWEEN_COLLECTIONS * self.beam
        for places in (self.place_sentence, self.place_t):
            assert places is not None
            places[:, first : self.used] = places.gather(1, origin)
        past[:, :, first : self.used] = past.take_along_dim(origin[:, None], dim=2)

    def finish(self, entries: Tensor, tokens: Tensor, sentence: Tensor) -> None:
        """Nobody here sees what other rows have written."""

    def select(self, entries: Tensor, beam: int) -> None:
        """Keep the given entries [B'] with all `beam` rows of each; the others have finished."""
        for cache in self.caches:
            cache.select(entries, self.used)
        for name in ("sees", "place_sentence", "place_t", "cross_spans"):
            value = getattr(self, name)
            if value is not None:
                setattr(self, name, value.index_select(0, entries))
        self._select_rows((entries[:, None] * beam + torch.arange(beam, device=entries.device)).flatten())
        longest = self.cross[0][0].size(2)
        if self.cross_mask is not None:
            self.cross_mask = self.cross_mask.index_select(0, entries)
            # The longest sources may have left.
            longest = int(self.cross_mask.any(dim=0).flatten().nonzero().max()) + 1
            self.cross_mask = self.cross_mask[..., :longest]
        self.cross = [
            (_keep(k[:, :, :longest], entries, longest), _keep(v[:, :, :longest], entries, longest))
            for k, v in self.cross
        ]

    def _select_rows(self, rows: Tensor) -> None:
        for name in ("shift", "length", "sentence", "rank"):
            value = getattr(self, name)
            if value is not None:
                setattr(self, name, value.index_select(0, rows))
