"""State of a decoder: the encoded source and, in search, key-value caches of the tokens decoded so far.

An entry is a sentence or document that is being decoded. Its hypotheses (*beams*) share one pool of cache
slots. A token is written once and never copied when hypotheses are re-ordered. Each beam has a mask of the
slots that belong to its past, and re-ordering changes only this mask. Slots that no beam needs any more are
freed from time to time.

    slot       0  1  2  3  4  5  6        two beams after `bos` and three steps; at the second step, both
    beam 0     x  x     x     x           continued beam 0 (slot 1), so no beam needs slot 2
    beam 1     x  x        x     x

Shapes: B entries (sentences or documents being decoded), W beams, R rows (R = B * W), T tokens, M slots of a
cache, S source tokens, H heads, K per head.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

from cotext.layers.buckets import sentence_spans
from cotext.layers.positions import causal, ranks, visible

STEPS_BETWEEN_COLLECTIONS = 16

KeysValues = tuple[Tensor, Tensor]  # two [B, H, S, K]


@dataclass(frozen=True, slots=True)
class SlotMask:
    """Cache slots that the queries of one call attend to; the same in all layers with the same span."""

    mask: Tensor | None  # broadcasts to [B, H, W * T, slots]
    causal: bool = False
    start: int = 0  # slot at which new keys and values are written
    stop: int = 0  # end of the slots that are attended to
    first: int = 0  # start of the slots that are attended to


class KeyValueCache:
    """Alternating keys and values of several attentions: `slots` [2 * attentions, B, H, M, K]."""

    def __init__(self, attentions: int, entries: int, slots: int, like: Tensor) -> None:
        _, heads, _, size = like.shape
        self.slots = like.new_empty(2 * attentions, entries, heads, slots, size)
        self._stop, self._views = 0, dict[int, tuple[Tensor, ...]]()

    def _between(self, first: int, stop: int) -> tuple[Tensor, ...]:
        """Return the slots first .. stop of all attentions; cached, as all layers of a step read them."""
        if stop != self._stop:
            self._stop, self._views = stop, {}
        if first not in self._views:
            self._views[first] = self.slots[:, :, :, first:stop].unbind()
        return self._views[first]

    def write(self, attention: int, keys: Tensor, values: Tensor, start: int) -> None:
        """Write [B, H, W * T, K] to the slots start .. start + W * T."""
        views = self._between(start, start + keys.size(2))
        views[2 * attention].copy_(keys)
        views[2 * attention + 1].copy_(values)

    def read(self, attention: int, stop: int, first: int = 0) -> KeysValues:
        """Return keys and values of the slots first .. stop: two [B, H, stop - first, K]."""
        views = self._between(first, stop)
        return views[2 * attention], views[2 * attention + 1]

    def move(self, origin: Tensor, start: int) -> None:
        """Fill the slots from `start` on with the contents of the slots `origin` [B, n] of the same entry."""
        _, _, heads, _, size = self.slots.shape
        index = origin[:, None, :, None].expand(-1, heads, -1, size)
        for part in self.slots.unbind():  # one after another, to need less memory
            part[:, :, start : start + origin.size(1)] = part.gather(2, index)

    def grown(self, slots: int, used: int) -> "KeyValueCache":
        """Return a copy with `slots` slots and the contents of the first `used`."""
        grown = KeyValueCache(len(self.slots) // 2, self.slots.size(1), slots, self.slots[0])
        grown.slots[:, :, :, :used] = self.slots[:, :, :, :used]
        return grown

    def select(self, entries: Tensor, used: int) -> None:
        for part in self.slots.unbind():
            _keep(part, entries, used)
        self.slots, self._stop = self.slots[:, : entries.numel()], 0


def _keep(x: Tensor, entries: Tensor, used: int) -> Tensor:
    """Keep entries of [B, H, M, K] with `used` slots: in place, copying only those that move."""
    # Most entries keep their place when other entries finish.
    moved = (entries != torch.arange(entries.numel(), device=entries.device)).nonzero().flatten()
    if moved.numel() > 0:
        x[moved, :, :used] = x[entries[moved], :, :used]
    return x[: entries.numel()]


class SourceSide:
    """The encoded source, in the form that cross-attention reads.

    `keys_values` contains one pair per cross-attention, by its `index`. `sentence` [B, S] is -1 on padding.
    """

    def __init__(self, keys_values: list[KeysValues], sentence: Tensor) -> None:
        self.keys_values = keys_values
        self.sentence = sentence
        self.mask = visible(sentence)  # [B, 1, 1, S]

    def filled(self, keys_values: list[KeysValues]) -> Self:
        filled = copy(self)
        filled.keys_values = keys_values
        return filled

    @property
    def entries(self) -> int:
        """B."""
        return self.sentence.size(0)

    @property
    def tokens(self) -> int:
        """S."""
        return self.sentence.size(1)

    @cached_property
    def spans(self) -> Tensor:
        """Start and end of every sentence, [B, sentences, 2]: see `sentence_spans`."""
        return sentence_spans(self.sentence)

    def span_of(self, sentence: Tensor) -> tuple[Tensor, Tensor]:
        """Return start and end of the sentences with the given indices, [B, T] each.

        An index beyond the last sentence denotes the last sentence.
        """
        k = sentence.clamp(0, self.spans.size(1) - 1)
        start, stop = self.spans.take_along_dim(k[:, :, None], dim=1).unbind(dim=2)
        return start, stop

    def within(self, sentence: Tensor) -> tuple[slice, Tensor]:
        """Return the range of source tokens that covers the given sentences, and the mask of each query.

        [B, T] sentence indices -> a range of source tokens, and a mask [B, 1, T, tokens].
        """
        # One range for all entries, because keys and values are read as a slice, without a copy.
        start, stop = self.span_of(sentence)
        first, end = int(start.min()), int(stop.max())
        at = torch.arange(first, end, device=sentence.device)
        return slice(first, end), ((at >= start[:, :, None]) & (at < stop[:, :, None]))[:, None]

    def open(self) -> None:
        """Prepare for search: store keys and values contiguously, which `select` can change in place."""
        self.keys_values = [(k.detach().contiguous(), v.detach().contiguous()) for k, v in self.keys_values]

    def select(self, entries: Tensor) -> None:
        """Keep the given entries [B'], truncated to the longest of them."""
        # Computed spans are kept: computing them again would read tensor values.
        spans = self.spans.index_select(0, entries) if "spans" in self.__dict__ else None
        self.sentence = self.sentence.index_select(0, entries)
        longest = self.tokens
        if self.mask is not None:
            mask = self.mask.index_select(0, entries)
            longest = int(mask.any(dim=0).flatten().nonzero().max()) + 1
            self.mask, self.sentence = mask[..., :longest], self.sentence[:, :longest]
        self.keys_values = [
            (_keep(k[:, :, :longest], entries, longest), _keep(v[:, :, :longest], entries, longest))
            for k, v in self.keys_values
        ]
        if spans is not None:
            self.__dict__["spans"] = spans


class ContextSide(SourceSide):
    """Encoded context sentences, in the form that context attention reads.

    `exists` [B]: rows that have context. `index` [B, S]: index of every token in the encoded batch, or -1.
    """

    def __init__(self, sentence: Tensor, exists: Tensor, index: Tensor) -> None:
        super().__init__([], sentence)
        self.exists, self.index = exists, index

    def select(self, entries: Tensor) -> None:
        super().select(entries)
        self.exists = self.exists.index_select(0, entries)


class TargetContext(ABC):
    """Tokens of other rows that a decoder attends to, in addition to the keys and values of its attention.

    `extra_slots` is the number of tokens that are added before every row.
    """

    extra_slots: int = 0

    def open(self, state: "DecoderState") -> None:  # noqa: B027
        """Prepare for decoding; it may append its own caches to `state.caches`."""

    def finish(self, entries: Tensor, tokens: Tensor, sentence: Tensor) -> None:  # noqa: B027
        """Receive finished hypotheses: see `DecoderState.finish`."""

    @abstractmethod
    def select(self, entries: Tensor) -> None:
        """Keep the given entries [B']."""

    def select_rows(self, rows: Tensor) -> None:  # noqa: B027
        """Let row i continue the hypothesis of the former row rows[i]."""

    def extend(self, sentence: Tensor, state: "DecoderState") -> Tensor:
        """Return sentence indices of decoder inputs, with extra tokens in front: [R, T] -> [R, T']."""
        return sentence

    @abstractmethod
    def mix(self, x_RTD: Tensor, sentence: Tensor, state: "DecoderState") -> Tensor:
        """Add information of other rows to embedded decoder inputs: [R, T, D] -> [R, T', D]."""


@dataclass(frozen=True, slots=True)
class ReadInputs:
    """The first decoder inputs of a row, with the cache slots that its later inputs attend to.

    `tokens`: all n inputs. `slots` [2, n']: sentences and positions of the slots. `keys_values` [2 *
    attentions, H, n', K]. `last` [2]: sentence of the last input, and its position in the sentence.
    """

    tokens: tuple[int, ...]
    slots: Tensor
    keys_values: Tensor
    last: Tensor

    def begins(self, tokens: Sequence[int]) -> bool:
        """Whether the inputs of a row begin with these inputs, and more follow."""
        return len(tokens) > len(self.tokens) and tuple(tokens[: len(self.tokens)]) == self.tokens


@dataclass(slots=True)
class DecoderState:
    """The encoded source and, after `open`, the caches and the position of each row.

    Search code widens, re-orders and selects the state, and never reads its content. `attentions`: number of
    self-attentions with a cache. `sees`: slots of each beam's past, or None as long as every row uses all
    slots (one beam, no padding). `sentence` and `rank` describe the last token of each row, from which
    positions continue. `slot_sentence` and `slot_position` describe the tokens in the slots. `new` describes
    the latest tokens, which are added to `slots` only when `slots` is read. `kept`: tensors that layers
    compute once for all steps, by names that the layers choose.
    """

    source: SourceSide
    attentions: int
    rows: Any = None  # the `Source` that the model encoded
    layouts: Any = None  # `Layouts` of complete rows
    context: TargetContext | None = None  # if rows attend to each other
    context_side: ContextSide | None = None  # context sentences that were encoded apart
    shift: Tensor | None = None  # [R], if the shift of positions differs between rows
    first: Tensor | None = None  # [R], index of the first sentence to translate
    caches: list[KeyValueCache] = field(default_factory=list)  # the first is for the decoder's attentions
    beam: int = 1  # W
    capacity: int = 0  # M
    used: int = 0
    collect_at: int = 0
    sees: Tensor | None = None  # [B, W, M]
    slots: Tensor | None = None  # [2, B, M], sentences and positions
    new: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # sentences and positions, [R, T] each
    near: int = 0  # first slot that may belong to the last sentence of a row, or to its memory
    length: Tensor | None = None  # [R, 1]
    sentence: Tensor | None = None  # [R, 1]
    rank: Tensor | None = None  # [R, 1]
    kept: dict[str, Tensor] = field(default_factory=dict)

    @property
    def entries(self) -> int:
        """B."""
        return self.source.entries

    @property
    def slot_sentence(self) -> Tensor:
        """Sentence of the token in every slot, -1 on padding: [B, M]."""
        return self._recorded()[0]

    @property
    def slot_position(self) -> Tensor:
        """Position of the token in every slot: [B, M]."""
        return self._recorded()[1]

    def _recorded(self) -> Tensor:
        assert self.slots is not None
        if self.new:
            new = torch.cat([torch.stack(each).view(2, self.entries, -1) for each in self.new], dim=2)
            self.slots[:, :, self.used - new.size(2) : self.used] = new
            self.new.clear()
        return self.slots

    def open(self, slots: int) -> None:
        """Allocate caches for `slots` tokens per row, padding included, with one row per entry."""
        self.source.open()
        if self.context_side is not None:
            self.context_side.open()
        # The caches take device, type and shape from the keys of cross-attention.
        like = self.source.keys_values[0][0]
        slots += 0 if self.context is None else self.context.extra_slots
        self.capacity = slots
        self.caches = [KeyValueCache(self.attentions, like.size(0), slots, like)]
        self.slots = torch.zeros(2, like.size(0), slots, dtype=torch.long, device=like.device)
        if self.context is not None:
            self.context.open(self)

    def positions(self, sentence: Tensor) -> tuple[Tensor, Tensor]:
        """Return the positions of the given tokens in their rows and in their sentences: [R, T] each."""
        if self.length is None or self.sentence is None or self.rank is None:
            t = torch.arange(sentence.size(1), device=sentence.device)
            return t.expand_as(sentence), ranks(sentence)
        # The next tokens may continue the sentence of the last token.
        if sentence is self.sentence:  # as in the step before
            return self.length, self.rank + 1
        after = (sentence == self.sentence) * (self.rank + 1)
        if sentence.size(1) == 1:  # every step of search except the first
            return self.length, after
        return self.length + torch.arange(sentence.size(1), device=sentence.device), ranks(sentence) + after

    def slot_mask(self, tokens: int, device: torch.device) -> SlotMask:
        """Return the slots that the next `tokens` decoder inputs may attend to."""
        stop = self.used + self.beam * tokens
        if self.sees is not None:
            # A beam attends to its own past and to its own block of the new tokens.
            if "own" not in self.kept:
                self.kept["own"] = torch.eye(self.beam, dtype=torch.bool, device=device)
            new = self.kept["own"]
            if tokens == 1:
                self.sees[:, :, self.used : stop].copy_(new)
                return SlotMask(mask=self.sees[:, None, :, :stop], start=self.used, stop=stop)
            new = torch.kron(new, causal(tokens, tokens, device))
            past = self.sees[:, :, : self.used].repeat_interleave(tokens, dim=1)
            mask = torch.cat((past, new.expand(past.size(0), -1, -1)), dim=2)
            return SlotMask(mask=mask[:, None], causal=False, start=self.used, stop=stop)
        if self.used == 0:
            # Padding is to the right of all real tokens, so the causal mask already hides it.
            return SlotMask(mask=None, causal=tokens > 1, stop=stop)
        own_past = None if tokens == 1 else causal(tokens, stop, device)
        return SlotMask(mask=own_past, causal=False, start=self.used, stop=stop)

    def sentences_of_slots(self, sentence: Tensor) -> Tensor:
        """Return the sentence indices of all slots, with the next inputs [R, T] at the end: [B, slots]."""
        new = sentence.reshape(self.entries, -1)
        return torch.cat((self.slot_sentence[:, : self.used], new), dim=1)

    def within_sentence(self, sentence: Tensor, row: SlotMask, memory_sentences: int = 0) -> SlotMask:
        """Return the slots of `row` in the sentences [R, T] of the next inputs and in their memories.

        The memory of a sentence: the `memory_sentences` sentences before it. Sentence indices never decrease
        within a row, so slots before `near` need not be compared again.
        """
        own = sentence.reshape(self.entries, -1)
        keys = torch.cat((self.slot_sentence[:, self.near : self.used], own), dim=1)
        # The query and key belong to the same sentence.
        mask = (own[:, :, None] == keys[:, None])[:, None]
        if memory_sentences:
            earliest = (own - memory_sentences).clamp(min=0)[:, :, None]
            mask |= ((keys[:, None] >= earliest) & (keys[:, None] < own[:, :, None]))[:, None]
        if row.mask is not None:
            mask &= row.mask[..., self.near :]
        elif row.causal:
            mask &= causal(mask.size(2), mask.size(3), mask.device)
        # No query needs the slots before the first visible one: they are never compared again.
        first = int(mask.flatten(0, 2).any(dim=0).nonzero()[0])
        self.near += first
        return SlotMask(mask=mask[..., first:], start=row.start, stop=row.stop, first=self.near)

    def step(self, sentence: Tensor, rank: Tensor) -> None:
        """Record the tokens just decoded, [R, T] each. Padding (sentence -1) must be on the right."""
        rows, tokens = sentence.shape
        entries, new = rows // self.beam, slice(self.used, self.used + self.beam * tokens)
        past = torch.zeros_like(sentence[:, :1]) if self.length is None else self.length
        if tokens == 1:
            # One real token per row: every step of search except the first.
            self.new.append((sentence, past))
            self.length, self.sentence, self.rank, self.used = past + 1, sentence, rank, new.stop
            return
        self.new.append((sentence, past + torch.arange(tokens, device=sentence.device)))
        real = sentence >= 0
        last = real.sum(dim=1, keepdim=True) - 1
        # From the first padding on, a mask is needed: padding has slots, which must stay invisible.
        if self.sees is None and not bool(real.all()):
            self.sees = real.new_zeros(entries, 1, self.capacity)
            self.sees[:, :, : self.used] = True
        if self.sees is not None:
            own = torch.eye(self.beam, dtype=torch.bool, device=sentence.device)
            self.sees[:, :, new] = own.repeat_interleave(tokens, dim=1) & real.view(entries, 1, -1)
        self.length = past + last + 1
        self.sentence, self.rank = sentence.gather(1, last), rank.gather(1, last)
        self.used = new.stop

    def resume(self, rows: Sequence[ReadInputs | None], slots: int) -> None:
        """Open the state with the decoder inputs read before, if any, and `slots` for further tokens."""
        device = self.source.sentence.device
        filled = torch.tensor([0 if row is None else row.slots.size(1) for row in rows], device=device)
        self.used = int(filled.max())
        self.open(self.used + slots)
        assert self.slots is not None
        [cache] = self.caches
        self.slots[0, :, : self.used] = -1
        cache.slots[:, :, :, : self.used] = 0  # a masked slot counts 0 times, but 0 * NaN would be NaN
        self.length = torch.tensor([[0 if row is None else len(row.tokens)] for row in rows], device=device)
        last = torch.tensor([[-1], [0]], device=device)
        lasts = torch.stack([last[:, 0] if row is None else row.last for row in rows], dim=1)
        self.sentence, self.rank = lasts[:, :, None].unbind()
        if bool((filled < self.used).any()):
            self.sees = (torch.arange(self.capacity, device=device) < filled[:, None])[:, None]
        for entry, row in enumerate(rows):
            if row is not None:
                cache.slots[:, entry, :, : row.slots.size(1)] = row.keys_values
                self.slots[:, entry, : row.slots.size(1)] = row.slots

    def read_inputs(self, rows: Sequence[Sequence[int]], sentences: float) -> list[ReadInputs]:
        """Return the inputs that every entry has read, before its beams are widened; `rows`: their tokens.

        `sentences`: only the slots of the last sentence and of this many before it are returned.
        """
        assert self.sentence is not None
        assert self.rank is not None
        [cache] = self.caches
        slots, keys_values = self._recorded()[:, :, : self.used], cache.slots[:, :, :, : self.used]
        last = torch.cat((self.sentence, self.rank), dim=1)
        is_needed = (slots[0] >= 0) & (slots[0] >= self.sentence - sentences)
        return [
            ReadInputs(tuple(tokens), slots[:, b, needed], keys_values[:, b, :, needed], last[b])
            for b, (tokens, needed) in enumerate(zip(rows, is_needed, strict=True))
        ]

    def widen(self, beam: int) -> None:
        """Repeat every row `beam` times; the source and all past tokens are shared."""
        if beam == 1:
            return
        entries = self.entries
        self.beam, self.capacity = beam, self.used + (self.capacity - self.used) * beam
        self.collect_at = self.used + STEPS_BETWEEN_COLLECTIONS * beam
        # A step now needs one slot per beam; the slots in use stay shared.
        self.caches = [narrow.grown(self.capacity, self.used) for narrow in self.caches]
        device = self.source.sentence.device
        sees = torch.zeros(entries, beam, self.capacity, dtype=torch.bool, device=device)
        sees[:, :, : self.used] = True if self.sees is None else self.sees[:, :, : self.used]
        self.sees = sees
        self.kept.pop("own", None)
        narrow_slots = self._recorded()[:, :, : self.used]
        self.slots = narrow_slots.new_zeros(2, entries, self.capacity)
        self.slots[:, :, : self.used] = narrow_slots
        # Repeat values that are stored by row, for each beam.
        self._select_rows(torch.arange(entries, device=device).repeat_interleave(beam))

    def reorder(self, origin: Tensor) -> None:
        """Let row i continue row origin[i] of the same entry; `origin` [R]. No keys or values are copied."""
        if self.sees is None or self.beam == 1:
            return
        within = (origin % self.beam).view(-1, self.beam, 1)
        past = self.sees[:, :, : self.used]
        # Beams exchange their masks, not their keys and values.
        past.copy_(past.take_along_dim(within, dim=1))
        # Everything else is equal in all beams of an entry.
        self._select_rows(origin, ("sentence", "rank"))
        if self.used >= self.collect_at:
            self._collect(past)

    def _collect(self, past: Tensor) -> None:
        """Free the slots that no beam of an entry uses; later slots fill the gaps. `past` [B, W, used]."""
        self.collect_at = self.used + STEPS_BETWEEN_COLLECTIONS * self.beam
        seen = past.any(dim=1)
        unseen = (~seen).any(dim=0).nonzero()
        if unseen.numel() == 0:
            return
        # Beams share most of their past, so only the most recent slots move.
        first = int(unseen[0])
        self.near = min(self.near, first)
        # Entries keep different numbers of slots; all get the largest of these numbers.
        count = int(seen[:, first:].sum(dim=1).max())
        # A stable sort moves the slots in use to the front, in their order.
        origin = (~seen[:, first:]).byte().argsort(dim=1, stable=True)[:, :count] + first
        for cache in self.caches:
            cache.move(origin, first)
        slots = self._recorded()
        self.used = first + count
        self.collect_at = self.used + STEPS_BETWEEN_COLLECTIONS * self.beam
        slots[:, :, first : self.used] = slots.gather(2, origin.expand(2, -1, -1))
        past[:, :, first : self.used] = past.take_along_dim(origin[:, None], dim=2)

    def finish(self, entries: Tensor, tokens: Tensor, sentence: Tensor) -> None:
        """Pass hypotheses of finished entries to other rows that attend to them, before `select` drops them.

        `entries` [E] are indices among the entries still in the state. `tokens` and `sentence` [E, T] are the
        decoder inputs of their best hypotheses, from the first on, -1 on padding.
        """
        if self.context is not None:
            self.context.finish(entries, tokens, sentence)

    def select(self, entries: Tensor, beam: int) -> None:
        """Keep the given entries [B'] with all `beam` rows of each; the other entries are finished."""
        for cache in self.caches:
            cache.select(entries, self.used)
        self.slots = self._recorded().index_select(1, entries)
        self.sees = None if self.sees is None else self.sees.index_select(0, entries)
        self._select_rows((entries[:, None] * beam + torch.arange(beam, device=entries.device)).flatten())
        self.source.select(entries)
        if self.context_side is not None:
            self.context_side.select(entries)
        if self.context is not None:
            self.context.select(entries)

    def _select_rows(
        self, rows: Tensor, names: Sequence[str] = ("shift", "first", "length", "sentence", "rank")
    ) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None:
                setattr(self, name, value.index_select(0, rows))
        if self.context is not None:
            self.context.select_rows(rows)
