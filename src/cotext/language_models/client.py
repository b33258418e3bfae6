"""Requests to an OpenAI-compatible API: cached responses, rate limit and retries.

    FOLDER/3f/3f9c...e1.json   the request (address, path, payload, repeat), the response and its date

Equal requests get the cached response. So an interrupted job resumes without paying twice, and the same
command gives the same output. Several processes may share a folder.

Time limits of HTTP libraries apply to single reads: a server that sends single bytes never exceeds them.
Here, a request is a task of an event loop, from name lookup to last byte. It is cancelled at the limit.
"""

import hashlib
import json
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from pathlib import Path
from typing import Any, Final, Self

from cotext.language_models.config import one_line, read_endpoint
from cotext.runtime import CotextError, __version__, optional_module, parse_json, read_bytes, shown
from cotext.runtime.files import sealed, unsealed, write_text
from cotext.runtime.progress import say

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
    """Return the seconds after attempt `attempt` (counted from 0), which double from 1."""
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
        except (ValueError, OverflowError):
            return None
    return max(seconds, 0.0) if seconds < float("inf") else None


class TransientError(Exception):
    """A temporary error; `pause`: requested by the server, in seconds.

    `unusable`: the server responded, but without an answer; another attempt will hardly help.
    """

    def __init__(self, what: str, pause: float | None = None, unusable: bool = False) -> None:
        super().__init__(what)
        self.pause, self.unusable = pause, unusable


Received = tuple[int, str, str]  # a response: its status, text, and header Retry-After


class Connections:
    """Connections to one address, up to `at_once` of them kept open; a response has at most `most_bytes`.

    Raises CotextError if httpx2 is not installed, or the address or a proxy setting is invalid.
    """

    def __init__(self, address: str, headers: Mapping[str, str], most_bytes: int, at_once: int) -> None:
        httpx = optional_module("httpx2", "endpoints", "a language model behind an API")
        from anyio.from_thread import start_blocking_portal

        self._most_bytes = most_bytes
        try:
            httpx.Request("POST", address)  # raises for invalid host names
            self._http = httpx.AsyncClient(
                # A few compressed bytes could expand to any size. As JSON, a compressed response is invalid.
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

        Raises TransientError without a response, or if it is too large; StoppedError if another thread has
        closed the connections.
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
        except (CancelledError, RuntimeError):  # closed during the request
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
        return response.status_code, body.decode(errors="replace"), retry


@cache
def certificates() -> ssl.SSLContext:
    """Return the trusted certificates, which are loaded once, because this takes long."""
    import httpx2 as httpx

    return httpx.create_ssl_context()


# --- Requests, and their cached responses.


@dataclass(slots=True)
class Usage:
    """Counts of responses and of the tokens that the API reports."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def add(self, answer: Mapping[str, Any]) -> None:
        self.requests += 1
        usage = answer.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        self.input_tokens += _whole(usage.get("prompt_tokens"))
        self.output_tokens += _whole(usage.get("completion_tokens"))


def _whole(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 2**63 else 0


@dataclass(slots=True)
class Counts:
    """Usage of all responses of a job and of the new ones (not cached), and the dates of responses."""

    all: Usage = field(default_factory=Usage)
    now: Usage = field(default_factory=Usage)
    sent_again: int = 0  # attempts that failed temporarily, after which the request was sent again
    days: set[str] = field(default_factory=set)
    models: set[str] = field(default_factory=set)  # names in the responses
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, answer: Mapping[str, Any], day: str, kept: bool) -> None:
        """Count a response; `kept`: whether it was cached."""
        with self._lock:
            self.all.add(answer)
            if not kept:
                self.now.add(answer)
            self.days.add(day)
            model = answer.get("model")
            if isinstance(model, str) and model:
                self.models.add(model[:200])

    def count_sent_again(self) -> None:
        with self._lock:
            self.sent_again += 1

    def __str__(self) -> str:
        """Return a summary of requests and tokens."""
        every, now = self.all, self.now
        words = (
            f"{every.requests:,} requests ({every.requests - now.requests:,} answers were cached), "
            f"{every.input_tokens:,} tokens in, {every.output_tokens:,} out"
        )
        if self.sent_again:
            words += f"; attempts without an answer, sent again: {self.sent_again:,}"
        return words

    @property
    def period(self) -> str:
        """The dates of the responses, such as 2026-11-23 or 2026-11-23..2026-11-25."""
        return "..".join(dict.fromkeys((min(self.days), max(self.days)))) if self.days else ""


PATH: Final = "chat/completions"
MAX_ANSWER_BYTES: Final = 64 << 20  # log-probabilities of long prompts are large
_TIMES_LARGER: Final = 4  # cache file / response: it also has the request, and escapes (6 bytes for 2)


@dataclass(frozen=True, slots=True)
class Request:
    """Everything that determines a response; `repeat` counts requests that are otherwise equal."""

    address: str
    payload: Mapping[str, Any]
    repeat: int = 0

    @property
    def digest(self) -> str:
        """SHA-256, independent of the order of keys."""
        content = [self.address, PATH, self.payload, self.repeat]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


Answer = tuple[dict[str, Any], str]  # a response and its date, such as 2026-11-23


class Answers:
    """A folder of cached responses, created with the first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, request: Request) -> Answer | None:
        """Return the cached response to a request; None if it is missing or damaged.

        Raises CotextError if the file cannot be read.
        """
        path = self._path(request)
        if not path.exists():
            return None
        try:
            entry = unsealed(read_bytes(path, _TIMES_LARGER * MAX_ANSWER_BYTES).decode(errors="replace"))
            content, day = entry["answer"], entry["day"]
        except (ValueError, KeyError):
            return None  # damaged: requested again, and replaced
        return (content, day) if isinstance(content, dict) and isinstance(day, str) else None

    def keep(self, request: Request, content: dict[str, Any]) -> Answer:
        """Save a response of today; if another process has saved one first, return that one.

        Raises CotextError if the file cannot be written.
        """
        if (first := self.find(request)) is not None:
            return first
        path = self._path(request)
        day = datetime.now(UTC).date().isoformat()
        entry = {**asdict(request), "path": PATH, "day": day, "answer": content}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CotextError(
                f"{self.folder}: answers cannot be stored there: {error.strerror or error}; move the "
                "endpoint file to a writable folder"
            ) from None
        write_text(path, sealed(entry))
        return content, day

    def _path(self, request: Request) -> Path:
        digest = request.digest
        return self.folder / digest[:2] / f"{digest}.json"


UNUSABLE_ATTEMPTS: Final = 2  # for unusable responses: more would hardly help
TRANSIENT: Final = {408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529}
# Error codes with status 429 that are not temporary.
EXHAUSTED: Final = {"insufficient_quota", "billing_hard_limit_reached", "access_terminated"}
# Shorter keys (EMPTY, none) are placeholders. They may be words in a text, so they are not hidden.
SECRET_CHARACTERS: Final = 12
SAID_CHARACTERS: Final = 300  # of an error message of the API


class RefusedRequestError(CotextError):
    """A request that the API rejects permanently; `code` (may be empty) and `said`: its error message."""

    def __init__(self, message: str, code: str, said: str) -> None:
        super().__init__(message)
        self.code, self.said = code, said


class UnansweredError(CotextError):
    """A request without a response after all attempts."""


class Client:
    """Client of the API of an endpoint file, which threads may share; `counts` counts the responses.

    Responses are cached next to the file: `gpt.answers` for `gpt.yaml`. `tell` is called with messages about
    failed attempts. Raises the errors of `read_endpoint`, `Endpoint.secret` and `Connections`.
    """

    def __init__(self, path: Path, overrides: Mapping[str, Any] | None = None) -> None:
        self.endpoint = endpoint = read_endpoint(path, overrides)
        self.answers = Answers(path.with_suffix(".answers"))
        self.counts = Counts()
        self.tell: Callable[[str], None] = say
        self._address = endpoint.endpoint.rstrip("/")
        self._where = f"{self._address}/{PATH}"
        self._secret = endpoint.secret()
        self._pace = Pace(endpoint.requests_per_minute)
        headers = {"User-Agent": f"cotext/{__version__}"}
        if self._secret:
            headers["Authorization"] = f"Bearer {self._secret}"
        self._requests: dict[str, threading.Lock] = {}  # locks of the job's requests, by digest
        self._counted: set[str] = set()
        self._places = threading.BoundedSemaphore(endpoint.at_once)
        self._connections = Connections(self._address, headers, MAX_ANSWER_BYTES, endpoint.at_once)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def stop(self) -> None:
        """Send no more requests; threads that wait to send one get an error."""
        self._pace.stop()

    def close(self) -> None:
        """Stop and close the connections; threads that wait for a response get an error."""
        self.stop()
        self._connections.close()

    def post(self, payload: Mapping[str, Any], repeat: int = 0) -> dict[str, Any]:
        """Return the response to a request for a chat completion, from the cache if possible.

        `repeat`: another number requests another response to the same payload. Raises RefusedRequestError if
        the API rejects this request, and UnansweredError without a response after all attempts; earlier
        responses are cached.
        """
        request = Request(self._address, payload, repeat)
        # Equal requests of several threads share the response to the first.
        with self._requests.setdefault(request.digest, threading.Lock()):
            answer = self.answers.find(request)
            kept = answer is not None
            if answer is None:
                answer = self.answers.keep(request, self._request(request))
            content, day = answer
            # A response is counted once, as it is paid for once.
            if request.digest not in self._counted:
                self._counted.add(request.digest)
                self.counts.count(content, day, kept)
        return content

    def _request(self, request: Request) -> dict[str, Any]:
        most, limit = self.endpoint.retries + 1, self.endpoint.total_timeout
        unusable, deadline = 0, None
        for attempt in range(1, most + 1):
            try:
                with self._places:
                    self._pace.wait()
                    # The time of a request begins after its first wait for the rate limit.
                    deadline = deadline or time.monotonic() + limit
                    seconds = max(deadline - time.monotonic(), 0.0)
                    return self._send(request, min(self.endpoint.timeout, seconds))
            except TransientError as error:
                reason = str(error)
                unusable += error.unusable
                pause = backoff(attempt - 1) if error.pause is None else error.pause
            if attempt == most or unusable == UNUSABLE_ATTEMPTS:
                break
            seconds_left = max(deadline - time.monotonic(), 0.0) if deadline else limit
            following = pause
            if pause >= seconds_left or (following := self._pace.pause(pause)) >= seconds_left:
                reason += (
                    f"; the next one would start in {_seconds(following)}, but only "
                    f"{_seconds(seconds_left)} of total_timeout ({_seconds(limit)}) are left"
                )
                break
            self.counts.count_sent_again()
            of = UNUSABLE_ATTEMPTS if unusable else most
            self.tell(
                f"{self._where}: attempt {attempt} of {max(of, attempt + 1)} failed: {reason}; the next one "
                f"starts in {_seconds(following)}"
            )
        attempts = f"{attempt} attempt{'s' if attempt > 1 else ''}"
        raise UnansweredError(
            f"{self._where}: no answer after {attempts}: {reason}; earlier answers are stored in "
            f"{self.answers.folder}, and the same command continues from there"
        )

    def _send(self, request: Request, seconds: float) -> dict[str, Any]:
        """Send a request once, with a time limit.

        Raises RefusedRequestError if the API rejects this request, and TransientError for a temporary error.
        """
        try:
            status, text, retry = self._connections.post(self._where, request.payload, seconds)
        except TransientError as error:
            raise TransientError(self._without_key(str(error)), unusable=error.unusable) from None
        if status == 200:
            return self._content(text)
        raise self._refusal(status, text, retry)

    def _content(self, text: str) -> dict[str, Any]:
        try:
            content = self._parsed(text)
        except CotextError as error:
            raise TransientError(str(error), unusable=True) from None
        if not isinstance(content, dict):
            raise TransientError("the answer is not a JSON object", unusable=True)
        if content.get("error"):  # some proxies send errors with status 200
            code, said = _error_of(content)
            # The code may be the status of the server behind the proxy.
            if code.isdecimal() and 400 <= int(code) < 600:
                raise self._refusal(int(code), text, "")
            raise TransientError(f"an error: {said}")
        return content

    def _refusal(self, status: int, text: str, retry: str) -> Exception:
        try:
            code, said = _error_of(self._parsed(text))
        except CotextError:
            # Remove the key before the text is cut, or a part of it might remain.
            code, said = "", shown(self._without_key(text)[:SAID_CHARACTERS])
        what = f"status {status}: {said}" if said else f"status {status}"
        if status in TRANSIENT and code not in EXHAUSTED:
            return TransientError(what, retry_after(retry, time.time()) if retry else None)
        return RefusedRequestError(f"{self._address}: {what}{self._advice(status)}", code, said)

    def _advice(self, status: int) -> str:
        if status in (401, 403):
            key = (
                f"is the key in {self.endpoint.key} right?"
                if self._secret
                else "give the name of its variable in `key`"
            )
            return f"; the API requires a key: {key}"
        if status == 404:
            return f"; is the address right, and is there a model {shown(self.endpoint.model)}?"
        if 300 <= status < 400:
            return (
                "; the address has moved; give the new address, because the key is sent only to the given one"
            )
        return ""

    def _without_key(self, text: str) -> str:
        hidden = len(self._secret) >= SECRET_CHARACTERS
        return text.replace(self._secret, "[key]") if hidden else text

    def _parsed(self, text: str) -> Any:
        """Parse a JSON text without the key, which a server may send back.

        Lone surrogates, which files cannot store, become U+FFFD. Raises the errors of `parse_json`.
        """
        with suppress(RecursionError, ValueError):  # `parse_json` will raise
            text = json.dumps(json.loads(text), ensure_ascii=False)
            text = text.encode(errors="surrogatepass").decode(errors="replace")
        if len(self._secret) >= SECRET_CHARACTERS:
            text = text.replace(json.dumps(self._secret)[1:-1], "[key]")
        return parse_json(text, "the answer")


def _seconds(seconds: float) -> str:
    return f"{seconds:,.0f} seconds" if seconds >= 10 else f"{seconds:.2g} seconds"


def _error_of(content: Any) -> tuple[str, str]:
    """Return code and message of an error, in the forms that APIs use."""
    error = content.get("error", content) if isinstance(content, dict) else content
    if not isinstance(error, dict):
        return "", one_line(str(error))[:SAID_CHARACTERS]
    code = error.get("code") or error.get("type") or ""
    said = error.get("message") or error.get("detail") or error
    return str(code)[:SAID_CHARACTERS], one_line(str(said))[:SAID_CHARACTERS]
