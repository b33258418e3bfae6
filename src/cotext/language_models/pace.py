"""When requests may be sent: so many a minute, and not before a server that asked for rest had it."""

import threading
import time
from email.utils import parsedate_to_datetime
from typing import Final

MAX_WAIT_SECONDS: Final = 60.0  # between two attempts, where the server names no time


class StoppedError(Exception):
    """The job is being given up, and nothing more is sent."""


class Pace:
    """The times of requests, shared by the threads that send them."""

    def __init__(self, requests_per_minute: float | None) -> None:
        self._seconds = 60 / requests_per_minute if requests_per_minute else 0.0
        self._next = 0.0
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def wait(self) -> None:
        """Wait for the turn of a request; raises StoppedError once `stop` was called."""
        while True:
            with self._lock:
                now = time.monotonic()
                seconds = self._next - now
                if seconds <= 0:
                    self._next = now + self._seconds
                    break
            self._sleep(seconds)
        self._sleep(0)

    def rest(self, seconds: float) -> float:
        """Send nothing for so long, in any thread; returns the seconds until something may be sent."""
        with self._lock:
            now = time.monotonic()
            self._next = max(self._next, now + seconds)
            return self._next - now

    def stop(self) -> None:
        """Wake who waits, and let nobody send."""
        self._stopped.set()

    def _sleep(self, seconds: float) -> None:
        if self._stopped.wait(max(seconds, 0)):
            raise StoppedError


def backoff(attempt: int) -> float:
    """Seconds before attempt `attempt` + 1, doubling from one."""
    return min(2.0**attempt, MAX_WAIT_SECONDS)


def retry_after(value: str, now: float) -> float | None:
    """The seconds that a header Retry-After asks for, as a number or a date; None where it is neither.

    `now`: seconds since 1970.
    """
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - now
        except ValueError:
            return None
    return max(seconds, 0.0) if seconds < float("inf") else None
