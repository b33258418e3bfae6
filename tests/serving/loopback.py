"""An application served on a free port of the loopback, as clients see it."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn


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
