"""Training batches from a token store: token budget, length bucketing, shuffling, sharding, exact resumption.

Documents are read in pools of about `pool_tokens`. Memory therefore does not grow with the corpus, except for
the order of an epoch (8 bytes per document). Within a pool, instances of similar length are packed into
batches, and the batches are shuffled. A pool depends only on (seed, epoch, shard, its first document).
Therefore a `Cursor` of three numbers is enough to resume exactly.

With `train.order: documents`, batches contain runs of consecutive windows: a full document or, if it exceeds
the budget, as many windows as fit. Runs of several documents may share a batch. Two runs of the same document
may not, because their rows would attend to each other as if they were adjacent.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, islice
from typing import Literal, TypeVar

import numpy as np

from cotext.data.batch import Batch, Instance, SpecialSymbols, in_both_contexts, make_batch, pack, pack_apart
from cotext.data.store import TokenDocument, TokenStore
from cotext.data.views import Limit, Mixture, View, Window, WindowView
from cotext.runtime import CotextError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position of the next batch: epoch, pool (its first document in the epoch), and number in the pool.

    `skipped` is the number of instances of finished pools that were too long. `shed` is the number of
    instances from which context was removed.
    """

    epoch: int = 0
    document: int = 0
    batch: int = 0
    skipped: int = 0
    shed: int = 0


def instances_of(document: TokenDocument, view: View) -> Iterator[Instance]:
    """Yield the instances of one document without empty sentence pairs."""
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


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The size of batches, the order of instances in them, and the context in windows.

    `max_tokens`: limit per batch. `max_row_tokens`: limit per side of an instance. `pool_tokens`: number of
    tokens that are read ahead and sorted by length. `seed`: determines the order. `order`: shuffled instances
    of similar length, or runs of consecutive windows. `context`: the true context of a window or, for a
    control experiment, context from another document of the pool. `adds_foreign`: whether each batch also
    holds `Batch.foreign`: one sentence of each row, in context of another document.
    """

    max_tokens: int
    max_row_tokens: int
    pool_tokens: int
    seed: int
    order: Literal["shuffled", "documents"] = "shuffled"
    context: Literal["own", "foreign"] = "own"
    adds_foreign: bool = False


@dataclass(frozen=True, slots=True)
class Sampler:
    """An endless stream of shuffled batches over one shard of a store.

    Shard r of n contains every n-th document in the order of the epoch. Instances with a side of more than
    `max_row_tokens` are skipped; the cursor counts them.
    """

    store: TokenStore
    mixture: Mixture
    symbols: SpecialSymbols
    arrangement: Arrangement
    shard: int = 0
    shards: int = 1

    def batches(self, start: Cursor) -> Iterator[tuple[Batch, Cursor]]:
        """Yield batches from `start`, each with the cursor of the next batch; never ends.

        Call `require_instances` first: without instances, there is no first batch. Raises CotextError if
        there is no batch at `start`.
        """
        cursor = start
        while True:
            order = np.random.default_rng([self.arrangement.seed, cursor.epoch]).permutation(len(self.store))
            order = order[self.shard :: self.shards]
            if cursor.document > len(order):
                raise self._no_batch_at(cursor)
            while cursor.document < len(order):
                groups, foreign, following = self._pool(order, cursor)
                if cursor.batch >= max(len(groups), 1):
                    raise self._no_batch_at(cursor)
                for number in range(cursor.batch, len(groups)):
                    last = number + 1 == len(groups)
                    after = following if last else replace(cursor, batch=number + 1)
                    if foreign:
                        yield in_both_contexts(groups[number], foreign[number], self.symbols), after
                    else:
                        yield make_batch(groups[number], self.symbols), after
                cursor = following
            cursor = replace(cursor, epoch=cursor.epoch + 1, document=0, batch=0)

    def _no_batch_at(self, cursor: Cursor) -> CotextError:
        return CotextError(
            f"{self.store.path}: lacks batch {cursor.batch} from document {cursor.document} of epoch "
            f"{cursor.epoch}; the checkpoint that refers to it is damaged or from another corpus"
        )

    def epochs(self, cursor: Cursor) -> int:
        """Return the number of completed epochs of this shard, if `cursor` is the next batch."""
        return cursor.epoch + (cursor.document >= len(range(self.shard, len(self.store), self.shards)))

    def require_instances(self) -> None:
        """Check, without reading a pool, that there are instances to draw.

        Raises CotextError if this shard has no documents, no instance of the store fits, or there is no
        second document for foreign context.
        """
        if len(self.store) <= self.shard:
            raise CotextError(
                f"{self.store.path}: {len(self.store)} documents are too few for {self.shards} processes"
            )
        instances = (
            instance
            for d in range(len(self.store))
            for view, _ in self.mixture.parts
            for instance in instances_of(self.store[d], view)
        )
        if not any(i.row_tokens(self.symbols) <= self.arrangement.max_row_tokens for i in instances):
            raise CotextError(
                f"{self.store.path}: no sentence fits into {self.arrangement.max_row_tokens} tokens; "
                "raise view.max_tokens"
            )
        adds = self.arrangement.adds_foreign
        if adds or self.arrangement.context == "foreign":
            setting = "loss.foreign_weight" if adds else "train.context = foreign"
            documents = (self.store[index].without_empty_pairs() for index in range(len(self.store)))
            if len(list(islice((d for d in documents if d.source), 2))) < 2:
                raise CotextError(f"{self.store.path}: {setting} needs a second document with a sentence")

    def _pool(
        self, order: np.ndarray, cursor: Cursor
    ) -> tuple[list[list[Instance]], list[list[Instance]], Cursor]:
        """Return the batches of the pool at `cursor.document`, their foreign rows, and the next cursor."""
        random = np.random.default_rng([self.arrangement.seed, cursor.epoch, self.shard, cursor.document])
        documents: list[TokenDocument] = []
        tokens, at = 0, cursor.document
        while at < len(order) and tokens < self.arrangement.pool_tokens:
            documents.append(self.store[int(order[at])].without_empty_pairs())
            tokens += sum(map(len, documents[-1].source)) + sum(map(len, documents[-1].target))
            at += 1
        drawn = [
            instance
            for document in documents
            for instance in _instances(document, self.mixture.draw(*_lengths(document), random))
        ]
        if self.arrangement.context == "foreign":
            (view, _), *_ = self.mixture.parts
            pairs = self._with_others(drawn, documents, random)
            drawn = [in_context_of(other, instance, view, random) for instance, other in pairs]
        fitting = [i for i in drawn if i.row_tokens(self.symbols) <= self.arrangement.max_row_tokens]
        skipped = cursor.skipped + len(drawn) - len(fitting)
        shed = cursor.shed + sum(instance.window.shed > 0 for instance in fitting)
        arranged = self._shuffled if self.arrangement.order == "shuffled" else self._in_order
        groups = arranged(fitting, random)
        batches = [groups[g] for g in random.permutation(len(groups))]
        foreign: list[list[Instance]] = []
        if self.arrangement.adds_foreign:
            for batch in batches:
                longest = max(i.row_tokens(self.symbols) for i in batch)
                limit = Limit(longest, self.symbols.per_source_sentence)
                pairs = self._with_others(batch, documents, random)
                foreign.append([one_in_context_of(other, i, limit, random) for i, other in pairs])
        return batches, foreign, Cursor(cursor.epoch, at, skipped=skipped, shed=shed)

    def _shuffled(self, instances: list[Instance], random: np.random.Generator) -> list[list[Instance]]:
        """Group instances of similar length from any documents."""
        length = partial(Instance.row_tokens, symbols=self.symbols)
        # Rows are shuffled before the stable sort, to group rows of equal length differently in each epoch.
        shuffled = [instances[i] for i in random.permutation(len(instances))]
        shuffled.sort(key=lambda i: (length(i), i.target_tokens))
        groups = pack([[length(i)] for i in shuffled], self.arrangement.max_tokens)
        return [[shuffled[i] for i in group] for group in groups]

    def _in_order(self, instances: list[Instance], random: np.random.Generator) -> list[list[Instance]]:
        """Group runs of consecutive instances, each as long as the budget allows."""
        runs: list[list[Instance]] = []
        for _, windows in groupby(instances, lambda instance: instance.document):
            document = list(windows)
            groups = pack([[i.row_tokens(self.symbols)] for i in document], self.arrangement.max_tokens)
            runs += [[document[i] for i in group] for group in groups]
        shuffled = [runs[r] for r in random.permutation(len(runs))]
        return _apart(shuffled, self.symbols, self.arrangement.max_tokens)

    def _with_others(
        self, instances: Iterable[Instance], documents: Sequence[TokenDocument], random: np.random.Generator
    ) -> Iterator[tuple[Instance, TokenDocument]]:
        """Yield the instances, each with another document that is drawn for it."""
        pool = [document for document in documents if document.source]
        index_in_pool = {document.index: i for i, document in enumerate(pool)}
        if len(pool) == 1:
            others = (self.store[int(i)].without_empty_pairs() for i in random.permutation(len(self.store)))
            pool.append(next(each for each in others if each.source and each.index != pool[0].index))
        for instance in instances:
            other = int(random.integers(len(pool) - 1))
            other += other >= index_in_pool[instance.document]
            yield instance, pool[other]


def in_context_of(
    other: TokenDocument, instance: Instance, view: View, random: np.random.Generator
) -> Instance:
    """Replace the context of an instance by consecutive sentences of `other`, drawn at random.

    If `other` is too short, the instance has less context. A sentence cannot be repeated, because it would
    reveal its labels. Context over the length limit of the view is dropped, as in other windows of the view.
    """
    window, offset = instance.window, instance.target_offset
    start, stop = instance.current
    before = min(start, len(other.source))
    after = min(len(window.source) - stop, len(other.source) - before)
    if before + after == 0:
        return instance
    begin = int(random.integers(len(other.source) - before - after + 1))
    middle, end = begin + before, begin + before + after
    source = [*other.source[begin:middle], *instance.source[start:stop], *other.source[middle:end]]
    current = instance.target[start - offset : stop - offset]
    target = [*other.target[begin:middle], *current, *other.target[middle:end]]
    cut = view.split([len(s) for s in source], [len(t) for t in target])[before]
    first = window.current.start - before
    parts = [range(first + r.start, first + r.stop) for r in (cut.source, cut.target, cut.current)]
    return replace(
        instance,
        window=Window(parts[0], parts[1], parts[2], window.shed + cut.shed),
        source=source[cut.source.start : cut.source.stop],
        target=target[cut.target.start : cut.target.stop],
    )


def one_in_context_of(
    other: TokenDocument, instance: Instance, limit: Limit, random: np.random.Generator
) -> Instance:
    """Draw a current sentence, and replace all other sentences as `in_context_of` does, within `limit`.

    It is the only current sentence of the result; no target sentences follow it.
    """
    current = instance.window.current
    j = int(random.integers(current.start, current.stop))
    one = replace(instance, window=replace(instance.window, current=range(j, j + 1)))
    start, stop = one.current
    view = WindowView(start, len(one.source) - stop, limit, start - one.target_offset)
    return in_context_of(other, one, view, random)


def ordered_batches(
    store: TokenStore | Sequence[TokenDocument],
    view: View,
    symbols: SpecialSymbols,
    max_tokens: int,
    max_row_tokens: int,
    group_windows: int | None = None,
) -> Iterator[Batch]:
    """Yield validation batches: every instance of a store once, in batches of similar length.

    `group_windows` is for models that attend to other sequences. This number of consecutive windows of a
    document is kept in one batch, even over the budget. A batch has at most one such group per document.
    Instances that are too long are skipped.
    """
    length = partial(Instance.row_tokens, symbols=symbols)
    if group_windows is None:
        instances = (i for d in range(len(store)) for i in instances_of(store[d], view))
        fitting = sorted((i for i in instances if length(i) <= max_row_tokens), key=length)
        packed = pack([[length(i)] for i in fitting], max_tokens)
        groups = [[fitting[i] for i in group] for group in packed]
    else:
        runs: list[list[Instance]] = []
        for d in range(len(store)):
            windows = list(instances_of(store[d], view))
            for first in range(0, len(windows), group_windows):
                group = [i for i in windows[first : first + group_windows] if length(i) <= max_row_tokens]
                if group:
                    runs.append(group)
        groups = _apart(runs, symbols, max_tokens)
    for group in groups:
        yield make_batch(group, symbols)


def _apart(runs: Sequence[list[Instance]], symbols: SpecialSymbols, max_tokens: int) -> list[list[Instance]]:
    """Pack runs into batches with at most one run per document."""
    lengths = [[i.row_tokens(symbols) for i in run] for run in runs]
    packed = pack_apart(lengths, [run[0].document for run in runs], max_tokens)
    return [[instance for r in batch for instance in runs[r]] for batch in packed]


def read_ahead(items: Iterable[T], depth: int, clock: Callable[[], float]) -> Generator[tuple[T, float]]:
    """Read items in a thread, at most `depth` ahead; yield each with the seconds waited for it."""
    source = iter(items)
    # The block ends after the thread: the process aborts if a thread is inside a tensor operation when the
    # interpreter exits.
    with ThreadPoolExecutor(1) as pool:
        ahead = deque(pool.submit(next, source, None) for _ in range(depth))
        try:
            while True:
                before = clock()
                item = ahead.popleft().result()
                if item is None:
                    return
                ahead.append(pool.submit(next, source, None))
                yield item, clock() - before
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
