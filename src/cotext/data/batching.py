"""Packing of rows into batches of a token budget, for training, validation, search and scoring alike.

A batch of R rows is padded to its longest one, so that it takes R times that many tokens.

    pack         items in a given order: a batch is a run of consecutive ones
    pack_apart   items that carry a key, such as their document: no two of one key share a batch
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self, TypeVar

# Batches that stay open for items of shorter rows: bounds the search, and how unlike their lengths get.
OPEN_BATCHES = 32


class Size(Protocol):
    """The size of an item in a batch."""

    def plus(self, other: Self) -> Self:
        """The size of a batch of both."""


S = TypeVar("S", bound=Size)


@dataclass(frozen=True, slots=True)
class _Rows:
    rows: int
    longest: int

    def plus(self, other: "_Rows") -> "_Rows":
        return _Rows(self.rows + other.rows, max(self.longest, other.longest))


def pack_while(sizes: Sequence[S], fits: Callable[[S], bool]) -> list[list[int]]:
    """Batches of consecutive items, as long as they fit together; an item that never does stands alone.

    Returns the indices of the items of every batch.
    """
    batches: list[list[int]] = []
    size: S | None = None
    for i, own in enumerate(sizes):
        grown = None if size is None else size.plus(own)
        if grown is not None and fits(grown):
            batches[-1].append(i)
            size = grown
        else:
            batches.append([i])
            size = own
    return batches


def pack(lengths: Iterable[Sequence[int]], max_tokens: int) -> list[list[int]]:
    """Batches of consecutive items of at most `max_tokens`; one that exceeds it stands alone.

    `lengths` holds, for every item, the lengths of its rows, which stay together.
    """
    sizes = [_Rows(len(rows), max(rows)) for rows in lengths]
    return pack_while(sizes, lambda size: size.rows * size.longest <= max_tokens)


@dataclass(slots=True)
class _OpenBatch:
    rows_left: int
    items: list[int] = field(default_factory=list)
    keys: set[Hashable] = field(default_factory=set)


def pack_apart(
    lengths: Sequence[Sequence[int]], keys: Sequence[Hashable], max_tokens: int
) -> list[list[int]]:
    """Batches of items of different keys, of at most `max_tokens`; one that exceeds it stands alone.

    `lengths` is as in `pack`. Items are taken by falling length of their longest row; those of equal length
    keep their order.
    """
    batches: list[_OpenBatch] = []
    waiting: list[_OpenBatch] = []
    longest = [max(rows) for rows in lengths]
    for i in sorted(range(len(lengths)), key=lambda i: -longest[i]):
        rows, key = len(lengths[i]), keys[i]
        # The newest first: their rows are the shortest.
        found = (b for b in reversed(waiting) if rows <= b.rows_left and key not in b.keys)
        batch = next(found, None)
        if batch is None:
            batch = _OpenBatch(max_tokens // longest[i])
            batches.append(batch)
            waiting.append(batch)
        batch.items.append(i)
        batch.keys.add(key)
        batch.rows_left -= rows
        waiting = [b for b in waiting if b.rows_left > 0][-OPEN_BATCHES:]
    return [batch.items for batch in batches]
