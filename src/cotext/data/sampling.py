"""From a token store to batches: a token budget, length bucketing, shuffling, sharding, exact resumption.

Documents are read in pools of about `pool_tokens`, so that memory does not grow with the corpus (but for
8 bytes a document, the order of an epoch). Within a pool, instances of like length are packed into batches
and the batches are shuffled. A pool is a function of (seed, epoch, shard, its first document) alone: a
`Cursor` of three numbers is enough to go on exactly where training stopped.
"""

import functools
import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from cotext.data.batch import Batch, Instance, SpecialSymbols, make_batch
from cotext.data.store import TokenDocument, TokenStore
from cotext.data.views import Mixture, View, Window
from cotext.errors import CotextError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cursor:
    """The batch to come next: its epoch, its pool (by its first document in the epoch's order), its number.

    `skipped` counts the instances left out as too long in the pools that were read to their end.
    """

    epoch: int = 0
    document: int = 0
    batch: int = 0
    skipped: int = 0


def instances_of(document: TokenDocument, view: View) -> Iterator[Instance]:
    """The windows of one document, as rows to be; pairs without a token are no part of it."""
    document = document.without_empty_pairs()
    return _instances(document, view.split(*_lengths(document)))


def _lengths(document: TokenDocument) -> tuple[list[int], list[int]]:
    return [len(s) for s in document.source], [len(s) for s in document.target]


def _instances(document: TokenDocument, windows: Iterable[Window]) -> Iterator[Instance]:
    for window in windows:
        yield Instance(
            document=document.index,
            window=window,
            source=[document.source[j] for j in window.source],
            target=[document.target[j] for j in window.target],
        )


def pack(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Group items, given in order of length, so that count times longest stays within `max_tokens`.

    An item longer than the budget stands alone. Returns groups of indices.
    """
    groups: list[list[int]] = []
    longest = 0
    for i, length in enumerate(lengths):
        longest = max(longest, length)
        if groups and (len(groups[-1]) + 1) * longest <= max_tokens:
            groups[-1].append(i)
        else:
            groups.append([i])
            longest = length
    return groups


class Sampler:
    """An endless stream of shuffled batches over one shard of a store.

    Shard r of n sees every n-th document of the epoch's order, whole. Instances with a side of more than
    `max_row_tokens` are left out; the cursor counts them.
    """

    def __init__(
        self,
        store: TokenStore,
        mixture: Mixture,
        symbols: SpecialSymbols,
        max_tokens: int,
        max_row_tokens: int,
        pool_tokens: int,
        seed: int,
        shard: int = 0,
        shards: int = 1,
    ) -> None:
        self.store = store
        self.mixture = mixture
        self.symbols = symbols
        self.max_tokens = max_tokens
        self.max_row_tokens = max_row_tokens
        self.pool_tokens = pool_tokens
        self.seed = seed
        self.shard = shard
        self.shards = shards

    def batches(self, start: Cursor) -> Iterator[tuple[Batch, Cursor]]:
        """Batches from `start` on, each with the cursor of the batch after it; never ends.

        Raises:
            CotextError: this shard has no documents, or no instance of the store fits.
        """
        cursor = start
        if len(self.store) <= self.shard:
            raise CotextError(
                f"{self.store.path}: {len(self.store)} documents are too few for {self.shards} processes"
            )
        while True:
            order = np.random.default_rng([self.seed, cursor.epoch]).permutation(len(self.store))
            order = order[self.shard :: self.shards]
            in_vain = cursor.document == 0
            while cursor.document < len(order):
                groups, following = self._pool(order, cursor)
                for number in range(cursor.batch, len(groups)):
                    last = number + 1 == len(groups)
                    after = following if last else replace(cursor, batch=number + 1)
                    yield make_batch(groups[number], self.symbols), after
                in_vain = in_vain and not groups
                cursor = following
            if in_vain and not self._anything_fits():
                raise CotextError(
                    f"{self.store.path}: no sentence fits into {self.max_row_tokens} tokens; "
                    "raise view.max_tokens"
                )
            cursor = Cursor(cursor.epoch + 1, skipped=cursor.skipped)

    def _anything_fits(self) -> bool:
        instances = (
            instance
            for d in range(len(self.store))
            for view, _ in self.mixture.parts
            for instance in instances_of(self.store[d], view)
        )
        return any(i.row_tokens(self.symbols) <= self.max_row_tokens for i in instances)

    def _pool(self, order: np.ndarray, cursor: Cursor) -> tuple[list[list[Instance]], Cursor]:
        """The batches of the pool that begins at `cursor.document`, and the cursor of the next pool."""
        random = np.random.default_rng([self.seed, cursor.epoch, self.shard, cursor.document])
        instances: list[Instance] = []
        tokens, at = 0, cursor.document
        while at < len(order) and tokens < self.pool_tokens:
            document = self.store[int(order[at])].without_empty_pairs()
            tokens += sum(map(len, document.source)) + sum(map(len, document.target))
            windows = self.mixture.draw(*_lengths(document), random)
            instances.extend(_instances(document, windows))
            at += 1
        length = functools.partial(Instance.row_tokens, symbols=self.symbols)
        fitting = [i for i in instances if length(i) <= self.max_row_tokens]
        skipped = cursor.skipped + len(instances) - len(fitting)
        # Shuffled before the stable sort, so that rows of one length meet others in every epoch.
        fitting = [fitting[i] for i in random.permutation(len(fitting))]
        fitting.sort(key=lambda i: (length(i), i.target_tokens))
        groups = pack([length(i) for i in fitting], self.max_tokens)
        batches = [[fitting[i] for i in groups[g]] for g in random.permutation(len(groups))]
        return batches, Cursor(cursor.epoch, at, skipped=skipped)


def ordered_batches(
    store: TokenStore, view: View, symbols: SpecialSymbols, max_tokens: int, max_row_tokens: int
) -> Iterator[Batch]:
    """Every instance of a store once, in batches of like length: for validation."""
    length = functools.partial(Instance.row_tokens, symbols=symbols)
    instances = (i for d in range(len(store)) for i in instances_of(store[d], view))
    fitting = sorted((i for i in instances if length(i) <= max_row_tokens), key=length)
    for group in pack([length(i) for i in fitting], max_tokens):
        yield make_batch([fitting[i] for i in group], symbols)


def read_ahead(items: Iterable[T], depth: int, clock: Callable[[], float]) -> Generator[tuple[T, float]]:
    """Draw `items` in a thread, at most `depth` ahead; each comes with the seconds waited for it."""
    ready: queue.Queue[T | BaseException | None] = queue.Queue(depth)
    stopped = threading.Event()

    def offer(item: T | BaseException | None) -> None:
        while not stopped.is_set():
            try:
                ready.put(item, timeout=0.05)
                return
            except queue.Full:
                continue

    def fill() -> None:
        try:
            for item in items:
                if stopped.is_set():
                    return
                offer(item)
            offer(None)
        except BaseException as error:  # handed to the reader, who raises it
            offer(error)

    thread = threading.Thread(target=fill, daemon=True)
    thread.start()
    try:
        while True:
            before = clock()
            item = ready.get()
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item, clock() - before
    finally:
        stopped.set()
        # A thread that the interpreter finds inside a tensor operation when it ends aborts the process.
        thread.join()
