"""Connections to an API, shared by threads, with limits of time and size on each whole response.

HTTP libraries limit only single reads, so a server that sends single bytes never exceeds the limit. Here, a
request is one task of an event loop, from the name lookup to the last byte, which the loop cancels.
"""

import ssl
import threading
import time
from collections.abc import Mapping
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any, Final

from cotext.runtime import CotextError

MAX_WAIT_SECONDS: Final = 60.0  # maximum pause between two attempts, if the server gives no time


class StoppedError(Exception):
    """The job is cancelled, and no more requests are sent."""


class Pace:
    """Rate limit of requests, shared by threads."""

    def __init__(self, requests_per_minute: float | None) -> None:
        self._seconds = 60 / requests_per_minute if requests_per_minute else 0.0
        self._next = 0.0
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def wait(self) -> None:
        """Wait until a request may be sent; raise StoppedError after `stop`."""
        while True:
            with self._lock:
                now = time.monotonic()
                seconds = self._next - now
                if seconds <= 0:
                    self._next = now + self._seconds
                    break
            self._sleep(seconds)
        self._sleep(0)

    def pause(self, seconds: float) -> float:
        """Block requests of all threads for some seconds; return the seconds until one may be sent."""
        with self._lock:
            now = time.monotonic()
            self._next = max(self._next, now + seconds)
            return self._next - now

    def stop(self) -> None:
        """Wake waiting threads with an error, and allow no more requests."""
        self._stopped.set()

    def _sleep(self, seconds: float) -> None:
        if self._stopped.wait(max(seconds, 0)):
            raise StoppedError


def backoff(attempt: int) -> float:
    """Return the seconds before attempt `attempt` + 1, which double from 1."""
    return min(2.0**attempt, MAX_WAIT_SECONDS)


def retry_after(value: str, now: float) -> float | None:
    """Return the seconds in a header Retry-After, a number or a date; None if it is invalid.

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


class TransientError(Exception):
    """A temporary error; `pause`: requested by the server, in seconds.

    `unusable`: whether there is a response that is no answer; another attempt will hardly help.
    """

    def __init__(self, what: str, pause: float | None = None, unusable: bool = False) -> None:
        super().__init__(what)
        self.pause, self.unusable = pause, unusable


@dataclass(frozen=True, slots=True)
class Received:
    """A response; `retry_after`: the header."""

    status: int
    text: str
    retry_after: str


class Connections:
    """Up to `at_once` connections to one address; a response has at most `most_bytes`.

    Raises:
        CotextError: httpx2 is not installed, or the address or a proxy setting is invalid.
    """

    def __init__(self, address: str, headers: Mapping[str, str], most_bytes: int, at_once: int) -> None:
        try:
            import httpx2 as httpx
            from anyio.from_thread import start_blocking_portal
        except ImportError:
            raise CotextError(
                "language models need httpx2: pip install '.[endpoints]' in Cotext's repository"
            ) from None
        self._most_bytes = most_bytes
        try:
            httpx.Request("POST", address)  # raises for invalid host names
            self._http = httpx.AsyncClient(
                # A few bytes could unpack to any number: a packed response is not valid JSON.
                headers={**headers, "Accept-Encoding": "identity"},
                timeout=None,  # see `post`
                limits=httpx.Limits(max_keepalive_connections=at_once),
                verify=certificates(),
            )
        except (httpx.InvalidURL, ImportError, OSError, ValueError) as error:
            raise CotextError(
                f"{address}: no connection can be made: {error}; check the address, and the "
                "variables HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE, if they are set"
            ) from None
        self._errors = httpx.HTTPError
        self._waiting: set[Future[Received]] = set()
        self._closed = False
        self._loop = ExitStack()
        self._portal = self._loop.enter_context(start_blocking_portal())
        self._loop.callback(self._portal.call, self._http.aclose)

    def close(self) -> None:
        """Close all connections; waiting requests get no response."""
        self._closed = True
        for answer in list(self._waiting):
            answer.cancel()
        self._loop.close()

    def post(self, address: str, payload: Mapping[str, Any], seconds: float) -> Received:
        """Send a request once; `seconds`: limit for the whole response.

        Raises:
            TransientError: no response, or one that is too large.
            StoppedError: another thread has closed the connections.
        """
        answer: Future[Received]
        try:
            answer = self._portal.start_task_soon(self._receive, address, dict(payload), seconds)
        except RuntimeError:  # the loop has ended
            raise StoppedError from None
        self._waiting.add(answer)
        try:
            if self._closed:
                raise StoppedError
            return answer.result()
        except self._errors as error:
            raise TransientError(f"{type(error).__name__}: {error}".rstrip(": ")) from None
        except TimeoutError:
            raise TransientError(f"no complete answer in {seconds:.3g} seconds") from None
        except (CancelledError, RuntimeError):  # ended in the middle
            raise StoppedError from None
        finally:
            self._waiting.discard(answer)
            answer.cancel()  # on an interrupt

    async def _receive(self, address: str, payload: dict[str, Any], seconds: float) -> Received:
        from anyio import fail_after

        body = bytearray()
        with fail_after(seconds):
            async with self._http.stream("POST", address, json=payload) as response:
                async for part in response.aiter_raw():
                    body += part
                    if len(body) > self._most_bytes:
                        raise TransientError(
                            f"an answer of more than {self._most_bytes:,} bytes", unusable=True
                        )
        retry = response.headers.get("Retry-After", "")
        return Received(response.status_code, body.decode(errors="replace"), retry)


@cache
def certificates() -> ssl.SSLContext:
    """Return the trusted certificates, which are loaded once, because this takes long."""
    import httpx2 as httpx

    return httpx.create_ssl_context()
