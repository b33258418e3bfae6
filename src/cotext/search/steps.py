"""Progress of searches: a listener is called after every step, as batches of long rows take many steps."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice

Listener = Callable[[Sequence[int]], None]
_listener: ContextVar[Listener | None] = ContextVar("steps", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call `listener` after every search step in this context, with the requests that ended with it."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def part_of_search(members: Sequence[int]) -> Iterator[None]:
    """Report the steps of a search of some requests; `members`: their indices among all requests."""
    if (listener := _listener.get()) is None:
        yield
        return
    with listening(lambda ended: listener([members[n] for n in ended])):
        yield


class Steps:
    """The steps of one search."""

    def __init__(self) -> None:
        self._listener, self._reported = _listener.get(), 0

    def tell(self, ended: Iterable[int]) -> None:
        """Report a step; `ended` are all requests that have ended so far, in the order of their ends."""
        if self._listener is not None:
            new = list(islice(ended, self._reported, None))
            self._reported += len(new)
            self._listener(new)
