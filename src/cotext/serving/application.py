"""The ASGI application (routes, checks, time limits, errors, headers, logging), and the server process."""

import asyncio
import gc
import ipaddress
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from cotext.runtime import CotextError
from cotext.runtime.signals import StopRequest, stop_on_signals
from cotext.serving import deepl, libretranslate, own_api
from cotext.serving.keys import Admission
from cotext.serving.record import (
    CURRENT,
    MONITORING_ROUTES,
    RequestError,
    RequestRecord,
    log_error,
    log_request,
    stopping,
    without_paths,
)
from cotext.serving.requests import content_length
from cotext.serving.service import Service
from cotext.serving.settings import ServerSettings
from cotext.serving.sharing import CancelledError
from cotext.serving.systems import open_systems
from cotext.serving.translation import IN_SESSION

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
CLIENT_GONE: Final = 499  # only for logs
SLOWEST_BYTES: Final = 512 * 1024  # minimum part of a body that must arrive per `ServerSettings.body_seconds`
# Default headers of responses.
SECURITY: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
)
# Routes that receive a file have a larger limit of bytes.
FILE_ROUTES: Final = frozenset({"/api/files", "/v2/document"})
LIBRETRANSLATE_ROUTES: Final = frozenset(route.path for route in libretranslate.routes())
REASONS: Final = {404: "this address does not exist", 405: "this address does not support this method"}

Endpoint = Callable[[Request], Awaitable[Response]]


def find_route(routes: Sequence[Route], scope: Scope) -> tuple[str, Endpoint]:
    """Return the template of the route of a request, and the endpoint.

    The parameters in the path are stored in the scope. The template of an unknown address is "none". The
    endpoint of an unknown address or method raises RequestError 404 or 405.
    """
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    found = [(route, match) for route in routes if (match := route.path_regex.match(path))]
    for route, match in found:
        if scope["method"] in (route.methods or ()):
            scope["path_params"] = match.groupdict()
            return route.path, route.endpoint
    return (found[0][0].path, partial(_refuse, 405)) if found else ("none", partial(_refuse, 404))


def _with_path(scope: Scope) -> Scope:
    """Return the scope with the path and, as Host header, the host of an absolute address."""
    scheme, _, address = scope["path"].partition("://")
    if not address or "/" in scheme:
        return scope
    host, _, path = address.partition("/")
    headers = [(name, value) for name, value in scope["headers"] if name != b"host"]
    return {**scope, "path": f"/{path}", "headers": [*headers, (b"host", host.encode())]}


async def _refuse(status: int, request: Request) -> Response:
    raise RequestError(status, REASONS[status])


class Gate:
    """The ASGI application of requests, which rejects them before they reach an endpoint.

    Without keys, only programs of this machine may use the server. But pages in a browser on this machine can
    send requests to it, and read responses if their domain resolves to 127.0.0.1 (DNS rebinding). So the Host
    header must be a loopback name, and requests that the browser marks as cross-origin (Origin,
    Sec-Fetch-Site) are rejected.
    """

    def __init__(self, app: ASGIApp, service: Service, routes: Sequence[Route], admission: Admission) -> None:
        self._app, self._service, self._settings = app, service, service.settings
        self._routes, self._admission = routes, admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = _with_path(scope)
        route, endpoint = find_route(self._routes, scope)
        method = scope["method"] if scope["method"] in METHODS else "other"
        record = RequestRecord(method, route)
        CURRENT.set(record)
        sender = _Sender(send, record, self._settings.send_seconds)
        takes_file = route.removeprefix(IN_SESSION) in FILE_ROUTES
        reader = _Reader(receive, self._settings, takes_file)
        try:
            await self._answer(Request(scope, reader, sender), endpoint, reader, sender)
        except asyncio.CancelledError:
            record.status = record.status or CLIENT_GONE
            raise
        finally:
            self._admission.leave(record)
            log_request(record)

    async def _answer(
        self, request: Request, endpoint: Endpoint, reader: "_Reader", sender: "_Sender"
    ) -> None:
        scope, record = request.scope, CURRENT.get()
        try:
            self._check(request, record)
            reader.check_length(content_length(request.headers))
            response = await endpoint(request)
            await response(scope, reader, sender)
            return
        except (ClientDisconnect, ConnectionError, _TooSlowError, CancelledError):
            refused = RequestError(CLIENT_GONE, "the client has disconnected")
        except RequestError as error:
            refused = error
        except CotextError as error:
            refused = RequestError(400, without_paths(str(error), self._service.folder_names))
        except Exception as error:
            refused = RequestError(500, log_error(record, error))
        if sender.started:
            # A response that has begun is cut off, so that the client notices that it is incomplete.
            record.status = refused.status
            return
        key = "error" if record.route in LIBRETRANSLATE_ROUTES else "message"
        response = JSONResponse({key: refused.message}, refused.status)
        if refused.status in (429, 503):
            response.headers["retry-after"] = str(max(1, round(refused.retry_after)))
        try:
            await response(scope, reader, sender)
        except (ConnectionError, _TooSlowError):
            return

    def _check(self, request: Request, record: RequestRecord) -> None:
        if self._admission.stopping and record.route not in MONITORING_ROUTES:
            raise stopping()
        if self._admission.key_required:
            return
        here = (request.scope.get("server") or ("", None))[0]
        if not is_loopback(here) and _address(here) is not None:
            raise RequestError(403, "without --keys, only requests from the same machine are accepted")
        host = request.headers.get("host", "")
        if not (is_loopback(name := _host_name(host)) or name == here):
            raise RequestError(403, "without --keys, the server must be called by the name localhost")
        self._check_browser(request, host)

    def _check_browser(self, request: Request, host: str) -> None:
        headers = request.headers
        origin = headers.get("origin")
        if origin in self._settings.origins:
            return
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            raise RequestError(403, "pages of other origins may not call this server; see --cors")
        site = headers.get("sec-fetch-site", "none")
        visit = request.method == "GET" and headers.get("sec-fetch-mode") == "navigate"
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        if site not in ("none", "same-origin") and not (visit and path in ("", "/")):
            raise RequestError(403, "pages of other origins may not call this server")


def _host_name(host: str) -> str:
    """Return the name in a Host header, without port and IPv6 brackets."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return None


def is_loopback(name: str) -> bool:
    if (address := _address(name)) is None:
        return name.lower() == "localhost"
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


class _TooSlowError(Exception):
    """The client does not read its response."""


class _Sender:
    """`send` with a time limit, and with the headers of all responses."""

    def __init__(self, send: Send, record: RequestRecord, seconds: float) -> None:
        self._send, self._record, self._seconds = send, record, seconds
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            self._record.status = message["status"]
            headers = message.setdefault("headers", [])
            given = {name for name, _ in headers}
            headers += [pair for pair in SECURITY if pair[0] not in given]
            headers.append((b"x-request-id", self._record.id.encode()))
        try:
            async with asyncio.timeout(self._seconds):
                await self._send(message)
        except TimeoutError:
            raise _TooSlowError from None


class _Reader:
    """`receive` with limits on the length and the speed of a body."""

    def __init__(self, receive: Receive, settings: ServerSettings, takes_file: bool) -> None:
        self._receive, self._settings = receive, settings
        self._most = settings.max_body_bytes + (settings.max_file_bytes if takes_file else 0)
        self._read, self._complete = 0, False
        self._began = asyncio.get_running_loop().time()

    def check_length(self, declared: int) -> None:
        """Raise RequestError if the declared length of the body is too large."""
        if declared > self._most:
            raise self._too_long()

    async def __call__(self) -> Message:
        if self._complete:
            return await self._receive()
        allowed = self._settings.body_seconds * (1 + self._read / SLOWEST_BYTES)
        try:
            async with asyncio.timeout_at(self._began + allowed):
                message = await self._receive()
        except TimeoutError:
            raise RequestError(408, "the body arrived too slowly") from None
        if message["type"] == "http.request":
            self._read += len(message.get("body", b""))
            self._complete = not message.get("more_body", False)
            if self._read > self._most:
                raise self._too_long()
        return message

    def _too_long(self) -> RequestError:
        message = f"the body is longer than {self._most:,} bytes; send less text or fewer terms, or a file"
        return RequestError(413, message)


# --- The application: all APIs, with one service.


def app(
    runs: Sequence[str | Path], settings: ServerSettings | None = None, device: str | None = None
) -> Starlette:
    """Return a server for these runs: an ASGI application, which may be mounted under a prefix.

    Raises:
        CotextError: a run cannot be loaded, or settings contradict each other.
    """
    return application(Service(open_systems(runs, device), settings or ServerSettings()))


def application(service: Service) -> Starlette:
    """Return the ASGI application of a service; raise CotextError if the file of keys cannot be read."""
    settings, admission = service.settings, Admission(service.settings)
    routes = [*own_api.routes(), *deepl.routes(), *libretranslate.routes()]
    cross_origin = Middleware(
        CORSMiddleware,  # allows pages of the configured origins to read responses
        allow_origins=settings.origins,
        allow_methods=("GET", "POST", "PUT", "PATCH", "DELETE"),
        allow_headers=("*",),
        expose_headers=("x-request-id", "retry-after"),
    )
    gate = Middleware(Gate, service=service, routes=routes, admission=admission)
    middleware = [cross_origin, gate] if settings.origins else [gate]
    made = Starlette(middleware=middleware, lifespan=_lifespan)
    made.state.service, made.state.admission = service, admission
    return made


@asynccontextmanager
async def _lifespan(made: Starlette) -> AsyncIterator[None]:
    service: Service = made.state.service
    await service.start()
    try:
        yield
    finally:
        made.state.admission.stopping = True
        await service.stop()


# --- The process: socket, time limits of connections, and graceful stop.

HEAD_SECONDS: Final = 20.0  # for the request line and headers
REST_SECONDS: Final = 5.0  # for the rest of a body after its response is sent
TAKE_SECONDS: Final = 60.0  # for a client to read the rest of a response
MAX_HEAD_BYTES: Final = 64 * 1024  # in some requests, the address contains texts
MAX_CONNECTIONS: Final = 512  # open at once; requests have a separate limit
# Switch interval of threads. The event loop waits for the interpreter several times in a request, each time
# behind other threads. With intervals of 5 ms and six threads, each wait takes 0.03 s.
SWITCH_SECONDS: Final = 0.0005
# A full garbage collection stops all threads (0.3 s while a file of 8 MB is read), so it runs when idle.
COLLECTIONS: Final = (700, 10, 10_000)  # otherwise only after 70 million objects
COLLECT_TICKS: Final = 100
LAST_SECONDS: Final = 5  # for remaining responses after `stop_seconds`


def listening_socket(host: str, port: int, keys: bool) -> socket.socket:
    """Return a socket bound to an address; `keys`: whether clients need a key.

    Raises CotextError if the address is unknown, in use, not allowed, or reachable from other machines
    without keys.
    """
    where = f"--host {host} --port {port}"
    if not 0 <= port < 65536:
        raise CotextError(f"--port {port}: give a number up to 65535, or 0 for any free port")
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        message = "not an address of this machine; give 127.0.0.1, or 0.0.0.0 for all its networks"
        raise CotextError(f"--host {host}: {message}") from None
    family, kind, protocol, _, address = addresses[0]
    if not keys and not is_loopback(str(address[0])):
        message = "other machines can reach this address; make a key for each with `cotext serve-key add`"
        raise CotextError(f"--host {host}: {message}, and give --keys")
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        made.close()
        reason = error.strerror or error
        raise CotextError(f"{where}: cannot listen there: {reason}; choose another --port, or 0") from None
    return made


def address_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve_until_stopped(
    made: Starlette,
    listening: socket.socket,
    on_start: Callable[[], None] = lambda: None,
    on_stop: Callable[[], None] = lambda: None,
) -> None:
    """Answer requests until SIGINT or SIGTERM.

    After the signal, new requests get 503, those in progress have `ServerSettings.stop_seconds` to finish,
    and jobs stay for the next start. A second signal ends the process at once. `on_start` is called when the
    server starts to accept requests, `on_stop` when it stops to accept them.
    """
    # Loaded objects exist as long as the server, so garbage collections skip them.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTIONS)
    sys.setswitchinterval(SWITCH_SECONDS)
    config = uvicorn.Config(
        made,
        http=TimedProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        timeout_graceful_shutdown=LAST_SECONDS,
    )
    StoppingServer(config, made, on_start, on_stop).run([listening])


class StoppingServer(uvicorn.Server):
    """A server that finishes requests in progress before it stops, and rejects new ones meanwhile."""

    def __init__(
        self,
        config: uvicorn.Config,
        made: Starlette,
        on_start: Callable[[], None],
        on_stop: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._admission: Admission = made.state.admission
        self._seconds: float = made.state.service.settings.stop_seconds
        self._on_start, self._on_stop = on_start, on_stop
        self._stop, self._deadline = StopRequest(), 0.0

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Return a context manager in which signals request a stop."""
        with stop_on_signals() as self._stop:
            yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_start()

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop; called ten times a second."""
        now = asyncio.get_running_loop().time()
        if self._stop.requested and not self._admission.stopping:
            self._admission.stopping = True
            self._deadline = now + self._seconds
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            self._on_stop()
        if self._admission.stopping and (not self._admission.in_flight or now > self._deadline):
            self.should_exit = True
        if counter % COLLECT_TICKS == 0 and not self._admission.in_flight:
            gc.collect()
        return await super().on_tick(counter)


class TimedProtocol(H11Protocol):
    """HTTP/1.1 with time limits for clients.

    Headers must arrive in HEAD_SECONDS. The rest of a body after its response must arrive in REST_SECONDS in
    total. The client must read a buffered response in TAKE_SECONDS.
    """

    _overdue: asyncio.TimerHandle | None = None
    _allowed: float | None = None
    _stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the timer, or abort if there are too many connections."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
        else:
            self._wait(HEAD_SECONDS)

    def data_received(self, data: bytes) -> None:
        """Restart the timer if the state has changed."""
        super().data_received(data)
        if (seconds := self._seconds()) != self._allowed:
            self._wait(seconds)

    def on_response_complete(self) -> None:
        """Start the timer for the rest of the request, or for the next one."""
        super().on_response_complete()
        self._wait(self._seconds())

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        self._wait(None)
        if self._stuck is not None:
            self._stuck.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start a timer for a client that does not read; without it, closing would wait forever."""
        super().pause_writing()
        self._stuck = self.loop.call_later(TAKE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the timer of `pause_writing`."""
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()

    def _seconds(self) -> float | None:
        """Return the time limit of the current state, or None."""
        if self.transport.is_closing():
            return TAKE_SECONDS
        if self.conn.their_state is h11.IDLE:
            return HEAD_SECONDS
        rest = self.conn.their_state is h11.SEND_BODY and self.cycle.response_complete
        return REST_SECONDS if rest else None

    def _wait(self, seconds: float | None) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
        self._allowed = seconds
        self._overdue = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)
