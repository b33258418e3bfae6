"""A stream of items worked on in processes side by side; results come in order, whatever their number.

A process begins with an interpreter of its own, so that threads of this one do no harm; whoever calls from a
script has to have the usual `if __name__ == "__main__"`. Workers leave interruptions to this process, and end
when it does, however it ends.
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

from cotext.runtime.errors import CotextError

# --- Processor cores, of which a batch system may have given this process fewer than there are.


def usable_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


T = TypeVar("T")
R = TypeVar("R")

AHEAD: Final = 3  # items for each worker that are under way: bounds memory
_work: list[Callable[[Any], Any]] = []  # that of a worker process, which has one


def in_order(
    make: Callable[[], Callable[[T], R]], items: Iterable[T], workers: int, alone: int
) -> Iterator[R]:
    """What the work makes of each item, in order of the items.

    `make` makes the work, once in every process; both and the items must be able to travel to another.
    The first `alone` items are worked on here, and processes started only if there are more.

    Raises:
        CotextError: a worker was killed. What the work raises is raised here.
    """
    work, rest = make(), iter(items)
    if workers < 2:
        yield from map(work, rest)
        return
    yield from map(work, islice(rest, alone))
    for item in rest:  # so there are more
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
            "a worker process was ended from outside; memory may have run out: ask for fewer (--workers)"
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
