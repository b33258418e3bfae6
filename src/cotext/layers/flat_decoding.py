"""Flat-batch attention while rows are decoded: rows that have ended, and rows that are decoded side by side.

Shapes: B entries, W beams, T tokens, P slots so far, M tokens of rows that have ended, F those of a group, G
groups, m entries of a group, L slots that anybody sees, D model, H heads, K per head.
"""

import torch
from torch import Tensor

from cotext.layers.flat_batch import FlatBatchAttention, RowOrder, Sequences, dense
from cotext.layers.multi_head import split_heads
from cotext.layers.state import KeyValueCache


class PrefixedCache(KeyValueCache):
    """A cache whose rows begin with keys and values that never change, the same for all beams."""

    def __init__(self, keys: Tensor, values: Tensor, slots: int) -> None:
        """`keys` and `values` [B, H, lead, K], and room for `slots` more."""
        self.lead = keys.size(2)
        super().__init__(keys.size(0), self.lead + slots, keys)
        self.keys[:, :, : self.lead] = keys
        self.values[:, :, : self.lead] = values

    def write(self, keys: Tensor, values: Tensor, start: int) -> None:
        """Put [B, H, W * T, K] at slots start .. start + W * T."""
        super().write(keys, values, start + self.lead)

    def read(self, slots: int, first: int = 0) -> tuple[Tensor, Tensor]:
        """Keys and values of what leads and of the slots up to `slots`; `first` must be 0."""
        assert first == 0
        return super().read(slots + self.lead)

    def move(self, origin: Tensor, start: int) -> None:
        """Fill the slots from `start` on with what stands at slots `origin` [B, n] of the same entry."""
        super().move(origin + self.lead, start)

    def grown(self, slots: int, used: int) -> "PrefixedCache":
        """A copy with room for `slots`, of which `used` are taken."""
        keys, values = self.read(used)
        led = PrefixedCache(keys[:, :, : self.lead], values[:, :, : self.lead], slots)
        led.write(keys[:, :, self.lead :], values[:, :, self.lead :], 0)
        return led

    def select(self, entries: Tensor, used: int) -> None:
        """Keep the given entries."""
        super().select(entries, used + self.lead)


class ActiveGroups:
    """Entries being written that meet, and what rows that have ended left to them.

    A token sees its own past; of entries that its own follows, what is written on their first beam; and of
    ended rows that it follows, everything.
    """

    def __init__(self, rows: RowOrder, ended: tuple[Tensor, Tensor], ended_order: RowOrder) -> None:
        """`rows` [B]; keys and values of what has ended, [M, H, K] each, with the order of each token."""
        group, groups = dense(torch.cat((rows.group, ended_order.group)))
        count = len(rows.group)
        members = Sequences(group[:count], rows.begin, groups)
        self.slot_B = members.slots.index_N
        self.shape = members.real_GL.shape  # G, m
        each = torch.arange(count, device=group.device)
        self.entry = members.numbers(each, 0).flatten()
        self.in_order = torch.equal(self.entry, each)
        never = torch.iinfo(group.dtype).max
        begin_Gm1 = members.numbers(rows.begin, -1)[:, :, None]
        self.before_Gmm = members.numbers(rows.end, never)[:, None] <= begin_Gm1
        self.ended_mask: Tensor | None = None
        if len(ended[0]):
            laid = Sequences(group[count:], ended_order.begin, groups)
            self.keys, self.values = (
                split_heads(laid.slots.unpack(x.flatten(1)), x.size(1)) for x in ended
            )  # [G, H, F, K]
            self.ended_mask = laid.numbers(ended_order.end, never)[:, None] <= begin_Gm1  # [G, m, F]

    def attend(self, attention: FlatBatchAttention, q: Tensor, k: Tensor, v: Tensor, own: Tensor) -> Tensor:
        """Queries [B, H, W * T, K] and all slots so far [B, H, P, K] -> [B, W * T, D].

        `own` [B, W, T, P]: the current tokens of its own past that each query sees.
        """
        _, beams, tokens, _ = own.shape
        own_BQP = own.flatten(1, 2)
        # Most slots belong to context or to beams that are gone.
        relevant = own_BQP.any(dim=1)
        kept = max(1, int(relevant.sum(dim=1).max()))
        origin = (~relevant).byte().argsort(dim=1, stable=True)[:, :kept]
        own_BQL = own_BQP.take_along_dim(origin[:, None], dim=2)
        first_BL = own_BQL[:, tokens - 1]  # what the last token of the first beam sees: all of that beam
        groups, members = self.shape
        mask = self.before_Gmm[:, :, None, :, None] & self._gathered(first_BL)[:, None, None]
        mask = mask.repeat(1, 1, beams * tokens, 1, 1)
        each = torch.arange(members, device=mask.device)
        mask[:, each, :, each] = self._gathered(own_BQL).transpose(0, 1)
        mask = mask.view(groups, members, beams * tokens, -1)
        index = origin[:, None, :, None].expand(-1, k.size(1), -1, k.size(3))
        keys, values = (
            self._gathered(x.gather(2, index)).transpose(1, 2).flatten(2, 3) for x in (k, v)
        )  # [G, H, m * L, K]
        if self.ended_mask is not None:
            keys = torch.cat((self.keys.to(keys.dtype), keys), dim=2)
            values = torch.cat((self.values.to(values.dtype), values), dim=2)
            ended = self.ended_mask[:, :, None].expand(-1, -1, beams * tokens, -1)
            mask = torch.cat((ended, mask), dim=3)
        queries = self._gathered(q).transpose(1, 2).flatten(2, 3)
        mixed = attention.mix(queries, keys, values, mask.flatten(1, 2)[:, None])
        by_member = mixed.view(groups * members, beams * tokens, -1)
        return by_member if self.in_order else by_member.index_select(0, self.slot_B)

    def _gathered(self, x: Tensor) -> Tensor:
        """Entries by group: [B, ...] -> [G, m, ...]."""
        chosen = x if self.in_order else x.index_select(0, self.entry)
        return chosen.view(*self.shape, *x.shape[1:])
