"""Parallel processing of a stream of items by worker processes; results are in the order of the items.

Workers are spawned, not forked, because this process may have threads. A script that calls this needs the
usual `if __name__ == "__main__"`. Workers ignore Ctrl-C. They exit when this process ends or is killed.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from typing import Any, Final, TypeVar

from cotext.runtime import CotextError


def usable_cores() -> int:
    """Return the number of cores that this process may use; a batch system may assign fewer than exist."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


T = TypeVar("T")
R = TypeVar("R")

AHEAD: Final = 3  # submitted items per worker; bounds memory
_work: list[Callable[[Any], Any]] = []  # in a worker process: its function


def in_order(
    make: Callable[[], Callable[[T], R]], items: Iterable[T], workers: int, alone: int
) -> Iterator[R]:
    """Yield the result of each item, in order.

    `make` is called once per process and returns the function to apply. `make`, items and results must be
    picklable. The first `alone` items are processed here; workers are started only if there are more.
    Exceptions of the function are re-raised; if a worker was killed, raises CotextError.
    """
    work, rest = make(), iter(items)
    if workers < 2:
        yield from map(work, rest)
        return
    yield from map(work, islice(rest, alone))
    for item in rest:  # workers are needed
        yield from _side_by_side(make, chain([item], rest), workers)


def _side_by_side(make: Callable[[], Callable[[T], R]], items: Iterable[T], workers: int) -> Iterator[R]:
    spawning = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, spawning, initializer=_begin, initargs=(make,))
    under_way: deque[Future[R]] = deque()
    try:
        for item in items:
            under_way.append(pool.submit(_do, item))
            if len(under_way) >= AHEAD * workers:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    except BrokenProcessPool:
        raise CotextError(
            "a worker process was ended from outside; memory may have run out: use fewer workers (--workers)"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(make: Callable[[], Callable[[Any], Any]]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _work.append(make())


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _do(item: Any) -> Any:
    return _work[0](item)
