"""Server-sent events (`text/event-stream`)."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from cotext.serving.errors import RequestError
from cotext.serving.record import log_error, record_of
from cotext.serving.sharing.turns import CancelledError

KEEP_ALIVE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Event:
    """An event: its kind, and content for JSON."""

    kind: str
    content: Any

    def encoded(self) -> bytes:
        """Return the bytes of the event. JSON in ASCII has no line break, so one `data` line is enough."""
        return f"event: {self.kind}\ndata: {json.dumps(self.content)}\n\n".encode()


Events = AsyncGenerator[Event, None]


class EventStream(StreamingResponse):
    """Response that sends events; if the client disconnects, the generator is closed.

    `first`: an event that was already taken from the generator to check the request. An event is requested
    when the previous event has been sent. After `keep_alive` seconds without an event, a comment keeps the
    connection open. An exception of the generator is sent as the event `error`.
    """

    def __init__(
        self, events: Events, first: Event | None = None, keep_alive: float = KEEP_ALIVE_SECONDS
    ) -> None:
        # Proxies such as nginx must not buffer the response.
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__((), headers=headers, media_type="text/event-stream")
        self._events, self._first, self._keep_alive = events, first, keep_alive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until they end or the client disconnects."""
        gone = asyncio.ensure_future(disconnected(receive))
        sending = asyncio.ensure_future(self._send(scope, send))
        try:
            await asyncio.wait({gone, sending}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (gone, sending):
                task.cancel()
            await asyncio.gather(gone, sending, return_exceptions=True)
            await self._events.aclose()

    async def _send(self, scope: Scope, send: Send) -> None:
        async def write(content: bytes, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": content, "more_body": more})

        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await send(start)
        if self._first is not None:
            await write(self._first.encoded())
        while (event := await self._next(scope, write)) is not None:
            await write(event.encoded())
        await write(b"", more=False)

    async def _next(self, scope: Scope, write: Callable[[bytes], Awaitable[None]]) -> Event | None:
        """Return the next event, None after the last; send comments meanwhile."""
        awaited = asyncio.ensure_future(anext(self._events, None))
        try:
            while not (await asyncio.wait({awaited}, timeout=self._keep_alive))[0]:
                await write(b": still at it\n\n")
            return awaited.result()
        except RequestError as error:
            return Event("error", {"message": error.message})
        except CancelledError:
            return Event("error", {"message": "the server is being stopped; try again soon"})
        except Exception as error:
            if not awaited.done():
                raise  # an error of the connection
            record = record_of(scope)
            log_error(record, error)
            return Event(
                "error",
                {"message": f"an internal server error occurred; it is in the log as {record.id}"},
            )
        finally:
            awaited.cancel()
            await asyncio.gather(awaited, return_exceptions=True)


async def disconnected(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass
