"""The server process: socket, time limits of connections, and graceful stop."""

import asyncio
import gc
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from cotext.runtime import CotextError
from cotext.runtime.processes import StopRequest, stop_on_signals
from cotext.serving.gate import is_loopback
from cotext.serving.keys import Admission
from cotext.serving.service import Service

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

    Raises:
        CotextError: the address is unknown, in use, not allowed, or reachable from other machines without
            keys.
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
        service: Service = made.state.service
        self._seconds = service.settings.stop_seconds
        self._on_start = on_start
        self._on_stop = on_stop
        self._stop = StopRequest()
        self._deadline = 0.0

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

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._overdue: asyncio.TimerHandle | None = None
        self._allowed: float | None = None
        self._stuck: asyncio.TimerHandle | None = None

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
