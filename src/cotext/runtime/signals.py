"""Signal handling: the first signal requests that training stops; the second signal interrupts it."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final

INTERRUPTED: Final = 130  # exit code of a command that was ended by Ctrl-C or SIGTERM, as in shells
STOPPING: Final = signal.SIGINT, signal.SIGTERM


class StopRequest:
    """A flag that is set when a signal requests that this process stops."""

    def __init__(self) -> None:
        self.requested = False


@contextmanager
def _handling(numbers: Sequence[int], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Within the block, call `handler` on these signals; without effect outside the main thread."""
    before: dict[int, Any] = {}
    with suppress(ValueError):  # not in the main thread: the caller handles signals
        for number in numbers:
            before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Within the block, set the flag on SIGINT and SIGTERM; a second signal has its usual effect.

    The handler only sets the flag, because it may run in the middle of a write to the terminal. Equal signals
    before the handler runs count as one: launchers pass on a Ctrl-C that the terminal has already sent.
    """
    request = StopRequest()

    def note(number: int, frame: FrameType | None) -> None:
        request.requested = True
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)

    with _handling(STOPPING, note):
        yield request


@contextmanager
def termination_interrupts() -> Iterator[None]:
    """Within the block, raise KeyboardInterrupt on SIGTERM, so that files and locks are released.

    A second signal, also a second Ctrl-C, ends the process at once.
    """
    # Signals that are ignored, as in a background job, stay ignored.
    numbers = [number for number in STOPPING if signal.getsignal(number) != signal.SIG_IGN]

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_DFL)
        raise KeyboardInterrupt

    with _handling(numbers, interrupt):
        yield
