"""An application served on a free port of the loopback, as clients see it."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import uvicorn

from cotext.serving.application import address_of, listening_socket, serve_until_stopped
from cotext.serving.service import Service
from cotext.serving.systems import Systems


@contextmanager
def served(application: Any) -> Iterator[httpx.Client]:
    """A client of the application, which runs in a thread."""
    server = uvicorn.Server(
        uvicorn.Config(application, port=0, log_level="error", timeout_graceful_shutdown=2)
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.005)
        [socket] = server.servers[0].sockets
        host, port = socket.getsockname()
        with httpx.Client(base_url=f"http://{host}:{port}", timeout=30) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(20)


@contextmanager
def listening(systems: Systems, state: Path, **settings: Any) -> Iterator[tuple[Service, tuple[str, int]]]:
    """The server as the command runs it, in a thread: its service, and its host and port."""
    from tests.serving.tiny_server import tiny_application

    made = tiny_application(systems, state, **{"stop_seconds": 0.2} | settings)
    bound = listening_socket("127.0.0.1", 0, "keys" in settings)
    begun = threading.Event()
    thread = threading.Thread(target=serve_until_stopped, args=(made, bound, begun.set))
    thread.start()
    try:
        assert begun.wait(20)
        assert address_of(bound).startswith("http://127.0.0.1:")
        yield made.state.service, bound.getsockname()
    finally:
        made.state.admission.stopping = True
        thread.join(20)
        assert not thread.is_alive()


def sent_for(application: Any, path: str, *messages: Any, **headers: str) -> list[Any]:
    """What an application sends for a request that consists of these messages, after which nothing comes."""
    about = {"http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 1), "query_string": b""}
    named = {"host": "localhost", **{name.replace("_", "-"): value for name, value in headers.items()}}
    raw = [(name.encode(), value.encode()) for name, value in named.items()]
    received, sent = iter(messages), list[Any]()

    async def receive() -> Any:
        if (message := next(received, None)) is None:
            await asyncio.sleep(20)
        return message

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": raw, **about}
    asyncio.run(application(scope, receive, send))
    return sent


def events(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    """The events of a stream, read as the specification of server-sent events says; comments are skipped."""
    kind, data = "message", []
    for line in lines:
        field, _, value = line.partition(":")
        if not line:
            if data:
                yield kind, json.loads("\n".join(data))
            kind, data = "message", []
        elif field == "event":
            kind = value.removeprefix(" ")
        elif field == "data":
            data.append(value.removeprefix(" "))
