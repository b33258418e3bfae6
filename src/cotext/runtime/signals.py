"""Signal handling: the first signal requests that training stops; the second signal interrupts it."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

INTERRUPTED: Final = 130  # exit code of a command that was ended by Ctrl-C or SIGTERM, as in shells


class StopRequest:
    """A flag that is set when a signal requests that this process stops."""

    def __init__(self) -> None:
        self.requested = False


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Within the block, set the flag on SIGINT and SIGTERM; a second signal has its usual effect.

    The handler only sets the flag, because it may run in the middle of a write to the terminal.
    """
    request = StopRequest()
    before: dict[int, Any] = {}

    def note(number: int, frame: FrameType | None) -> None:
        request.requested = True
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)

    try:
        for one in (signal.SIGINT, signal.SIGTERM):
            before[one] = signal.signal(one, note)
    except ValueError:  # not in the main thread: the caller handles signals
        pass
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def termination_interrupts() -> Iterator[None]:
    """Within the block, raise KeyboardInterrupt on SIGTERM, so that files and locks are released.

    A second signal, also a second Ctrl-C, ends the process at once.
    """
    before: dict[int, Any] = {}

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_DFL)
        raise KeyboardInterrupt

    try:
        for one in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(one) != signal.SIG_IGN:  # ignored in a background job
                before[one] = signal.signal(one, interrupt)
    except ValueError:  # not in the main thread: the caller handles signals
        pass
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
