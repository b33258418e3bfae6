"""Server-sent events: what happens while a client waits, as `text/event-stream`."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from cotext.serving.errors import RequestError

KEEP_ALIVE_SECONDS: Final = 10.0
STALLED_SECONDS: Final = 60.0  # that a client may leave what is sent to it unread
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a kind, with content for JSON."""

    kind: str
    content: Any

    def encoded(self) -> bytes:
        """As it is sent. JSON in ASCII has no line break, so that any text fits in one `data` line."""
        return f"event: {self.kind}\ndata: {json.dumps(self.content)}\n\n".encode()


Events = AsyncGenerator[Event, None]


class EventStream(StreamingResponse):
    """Events as they come; when the client hangs up, or reads no more, their generator is closed.

    An event is asked for once the one before it is sent. Where none comes for `keep_alive` seconds, a comment
    keeps the connection open. An exception of the generator is sent as the event `error`.
    """

    def __init__(self, events: Events, keep_alive: float = KEEP_ALIVE_SECONDS) -> None:
        # Proxies that gather a whole answer (nginx, for one) leave this one alone.
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__((), headers=headers, media_type="text/event-stream")
        self._events, self._keep_alive = events, keep_alive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the events end, or the client is gone."""
        gone = asyncio.ensure_future(_gone(receive))
        sending = asyncio.ensure_future(self._send(send))
        try:
            await asyncio.wait({gone, sending}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (gone, sending):
                task.cancel()
            await asyncio.gather(gone, sending, return_exceptions=True)
            await self._events.aclose()

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await send(start)
        awaited: asyncio.Future[Event | None] | None = None
        try:
            while True:
                awaited = awaited or asyncio.ensure_future(self._next())
                await asyncio.wait({awaited}, timeout=self._keep_alive)
                if not awaited.done():
                    await _written(send, b": still at it\n\n")
                    continue
                event, awaited = awaited.result(), None
                if event is None:
                    break
                await _written(send, event.encoded())
        except TimeoutError:
            return  # nobody reads
        finally:
            if awaited is not None:
                awaited.cancel()
                await asyncio.gather(awaited, return_exceptions=True)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _next(self) -> Event | None:
        """The next event; None after the last."""
        try:
            return await anext(self._events, None)
        except RequestError as error:
            return Event("error", {"message": error.message})
        except Exception:
            _log.exception("a stream of events broke off")
            return Event("error", {"message": "the server failed; the text before this is complete"})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _written(send: Send, content: bytes) -> None:
    async with asyncio.timeout(STALLED_SECONDS):
        await send({"type": "http.response.body", "body": content, "more_body": True})
