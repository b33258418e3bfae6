"""Connections to an API, shared by threads: a limit of time and of bytes on every answer as a whole.

The limits that a library for HTTP has are of single reads: a server that sends a byte at a time never reaches
them. Here a request, from its name's look-up to the last byte, is one task of an event loop, which ends it.
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
from http import HTTPStatus
from typing import Any, Final

from cotext.runtime.errors import CotextError, shown

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


ENCODING: Final = "gzip"


class PassingError(Exception):
    """A request that may be answered later; `rest`: the seconds that the server asks for.

    `lasts`: an answer came that has no use, and that of another attempt is hardly better.
    """

    def __init__(self, what: str, rest: float | None = None, lasts: bool = False) -> None:
        super().__init__(what)
        self.rest, self.lasts = rest, lasts


@dataclass(frozen=True, slots=True)
class Received:
    """An answer; `asked`: the header Retry-After."""

    status: int
    text: str
    asked: str


class Connections:
    """Up to `at_once` connections to one address; every answer has `most_bytes` as a whole.

    Raises, when it is made, CotextError: httpx is not installed, or what leads to the address is wrong.
    """

    def __init__(self, address: str, headers: Mapping[str, str], most_bytes: int, at_once: int) -> None:
        try:
            import httpx
            from anyio.from_thread import start_blocking_portal
        except ImportError:
            raise CotextError(
                "language models behind an API need httpx; pip install 'cotext[endpoints]'"
            ) from None
        self._most_bytes = most_bytes
        try:
            httpx.Request("POST", address)  # names that no machine can have
            self._http = httpx.AsyncClient(
                # No other encoding, nor several: few bytes could stand for any number.
                headers={**headers, "Accept-Encoding": ENCODING},
                timeout=None,  # that of `post` is of all that a request does
                limits=httpx.Limits(max_keepalive_connections=at_once),
                verify=certificates(),
            )
        except (httpx.InvalidURL, ImportError, OSError, ValueError) as error:
            raise CotextError(
                f"{address}: no connection can be made: {error}; is the address right, and are the "
                "variables HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE, where they are set?"
            ) from None
        self._errors, self._unreadable = httpx.HTTPError, httpx.DecodingError
        self._waiting: set[Future[Received]] = set()
        self._closed = False
        self._loop = ExitStack()
        self._portal = self._loop.enter_context(start_blocking_portal())
        self._loop.callback(self._portal.call, self._http.aclose)

    def close(self) -> None:
        """End all connections; requests that are under way get no answer."""
        self._closed = True
        for answer in list(self._waiting):
            answer.cancel()
        self._loop.close()

    def post(self, address: str, payload: Mapping[str, Any], seconds: float) -> Received:
        """Send a request once; the whole answer has so many seconds.

        Raises:
            PassingError: no answer, or none that may be read.
            StoppedError: another thread has closed the connections.
        """
        answer: Future[Received]
        try:
            answer = self._portal.start_task_soon(self._received, address, dict(payload), seconds)
        except RuntimeError:  # the loop has ended
            raise StoppedError from None
        self._waiting.add(answer)
        try:
            if self._closed:
                raise StoppedError
            return answer.result()
        except self._errors as error:
            if _are_headers_too_large(error):
                raise PassingError("the headers of the answer are too large", lasts=True) from None
            said = f"{type(error).__name__}: {error}".rstrip(": ")
            raise PassingError(said, lasts=isinstance(error, self._unreadable)) from None
        except TimeoutError:
            raise PassingError(f"no whole answer in {seconds:.3g} seconds") from None
        except (CancelledError, RuntimeError):  # ended in the middle
            raise StoppedError from None
        finally:
            self._waiting.discard(answer)
            answer.cancel()  # on an interrupt, nobody waits for it any more

    async def _received(self, address: str, payload: dict[str, Any], seconds: float) -> Received:
        from anyio import fail_after

        body = bytearray()
        with fail_after(seconds):
            async with self._http.stream("POST", address, json=payload) as response:
                encoding = response.headers.get("Content-Encoding", ENCODING)
                if encoding.strip().lower() not in (ENCODING, "identity", ""):
                    told = f"an answer in the encoding {shown(encoding)}, not asked for"
                    raise PassingError(told, lasts=True)
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > self._most_bytes:
                        raise PassingError(f"an answer of more than {self._most_bytes:,} bytes", lasts=True)
        asked = response.headers.get("Retry-After", "")
        return Received(response.status_code, body.decode(errors="replace"), asked)


def _are_headers_too_large(error: BaseException) -> bool:
    """Whether the reader of HTTP/1.1 below the client has given up for the length of headers."""
    from h11 import RemoteProtocolError

    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, RemoteProtocolError):
        cause = cause.__context__  # that `httpcore` hands on is no cause
    return cause is not None and cause.error_status_hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE


@cache
def certificates() -> ssl.SSLContext:
    """Whom to trust, read once: it takes longer than many a request."""
    import httpx

    return httpx.create_ssl_context()
