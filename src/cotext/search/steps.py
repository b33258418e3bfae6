"""Steps of a search, told to whoever waits for a batch to end: a batch of long rows takes many of them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice

Listener = Callable[[Sequence[int]], None]
_listener: ContextVar[Listener | None] = ContextVar("steps", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Tell the steps of searches in this context to `listener`: the requests that ended with each, if any."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


class Steps:
    """The steps of one search."""

    def __init__(self) -> None:
        self._listener, self._told = _listener.get(), 0

    def tell(self, ended: Iterable[int]) -> None:
        """One is done; `ended` are the requests that have ended so far, in that order."""
        if self._listener is not None:
            fresh = list(islice(ended, self._told, None))
            self._told += len(fresh)
            self._listener(fresh)
