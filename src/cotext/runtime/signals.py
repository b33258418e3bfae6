"""Stopping on request: training is asked by a first signal, a second insists; other work is interrupted."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

INTERRUPTED: Final = 130  # what shells say of a command that Ctrl-C ended; of one that was asked to end, too


class StopRequest:
    """Whether somebody has asked this process to stop."""

    def __init__(self) -> None:
        self.requested = False


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """While inside, SIGINT and SIGTERM ask to stop; sent again, they end the process as they always would.

    The handler does nothing but note the request: it may run in the middle of a write to the terminal.
    """
    request = StopRequest()
    before: dict[int, Any] = {}

    def note(number: int, frame: FrameType | None) -> None:
        request.requested = True
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)

    try:
        for one in (signal.SIGINT, signal.SIGTERM):
            before[one] = signal.signal(one, note)
    except ValueError:  # not in the main thread: whoever runs us there handles signals
        pass
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def termination_interrupts() -> Iterator[None]:
    """While inside, SIGTERM interrupts as Ctrl-C does: files are closed, locks released, children stopped.

    A second signal ends the process at once, also while files are closed.
    """
    before: dict[int, Any] = {}

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_DFL)
        raise KeyboardInterrupt

    try:
        for one in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(one) != signal.SIG_IGN:  # as of a command in the background
                before[one] = signal.signal(one, interrupt)
    except ValueError:  # not in the main thread: whoever runs us there handles signals
        pass
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
