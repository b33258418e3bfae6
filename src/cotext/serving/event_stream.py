"""Server-sent events (`text/event-stream`)."""

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from cotext.serving.errors import RequestError, stopping
from cotext.serving.record import CURRENT, log_error
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
        self._events, self._first, self._keep_alive = events, first, keep_alive
        self._framed = self._frames()
        super().__init__(self._framed, headers=headers, media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until they end or the client disconnects."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._framed.aclose()
            await self._events.aclose()

    async def _frames(self) -> AsyncGenerator[bytes, None]:
        if self._first is not None:
            yield self._first.encoded()
        while True:
            awaited = asyncio.ensure_future(anext(self._events, None))
            try:
                while not (await asyncio.wait({awaited}, timeout=self._keep_alive))[0]:
                    yield b": still at it\n\n"
                event = awaited.result()
            except Exception as error:
                event = _error(error)
            finally:
                awaited.cancel()
                await asyncio.gather(awaited, return_exceptions=True)
            if event is None:
                return
            yield event.encoded()


def _error(error: Exception) -> Event:
    if isinstance(error, CancelledError):
        error = stopping()
    message = error.message if isinstance(error, RequestError) else log_error(CURRENT.get(), error)
    return Event("error", {"message": message})
