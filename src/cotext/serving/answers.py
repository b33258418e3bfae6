"""Deduplication of requests and cache of responses: equal requests of a client are computed once.

Clients repeat requests: the official DeepL client does so after ten seconds, up to five times. So a request
without a waiting client continues for a moment, with low priority. If a client sends the same request again,
it joins the running request and receives the missed events. Complete responses are cached for some minutes.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cotext.files.blocks import Block
from cotext.files.translate_blocks import PairedSentence
from cotext.serving.sharing import Work

LINGER_SECONDS: Final = 5.0
KEPT_SECONDS: Final = 180.0
KEPT_BYTES: Final = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TextAnswer:
    """The translated documents of a request, and the sentences with their translations.

    `alternatives`: the documents with the second best translation of every sentence, the third best, and so
    on. `bytes`: approximate size in memory, with the events of the request.
    """

    documents: list[list[Block]]
    pairs: list[PairedSentence]
    alternatives: list[list[list[Block]]] = field(default_factory=list)
    bytes: int = field(init=False)

    def __post_init__(self) -> None:
        """Count the bytes in the thread that computed the answer, because this takes time."""
        versions = (self.documents, *self.alternatives)
        blocks = [block for documents in versions for document in documents for block in document]
        characters = sum(len(block.text) for block in blocks)
        characters += sum(len(pair.source) + 2 * len(pair.target) for pair in self.pairs)
        object.__setattr__(self, "bytes", 4 * characters + 500 * (len(blocks) + 2 * len(self.pairs) + 1))


@dataclass(frozen=True, slots=True)
class SourceSentence:
    """A source sentence of a request; numbers count from 0, `number` within the document.

    `before`: text between the sentence and the previous one of its block.
    """

    document: int
    block: int
    number: int
    text: str
    before: str = ""


# All source sentences, or a translated sentence: number of the document, number in it, translation.
Event = list[SourceSentence] | tuple[int, int, str]
Listener = Callable[[Event], object]


@dataclass(slots=True, eq=False)
class Events:
    """The events of a request so far, and who listens; `publish` works in any thread.

    Listeners are called in the loop, before the task of the request ends. Without a listener, the loop is not
    woken.
    """

    loop: asyncio.AbstractEventLoop
    past: list[Event] = field(default_factory=list)
    listeners: list[Listener] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def publish(self, event: Event) -> None:
        with self._lock:
            self.past.append(event)
            for listener in self.listeners:
                self.loop.call_soon_threadsafe(listener, event)

    def listen(self, listener: Listener) -> None:
        """Send all events so far to a listener, and further ones until it is removed; called in the loop."""
        with self._lock:
            self.replay(listener)
            self.listeners.append(listener)

    def replay(self, listener: Listener) -> None:
        """Send all events so far."""
        for event in self.past:
            listener(event)


@dataclass(slots=True, eq=False)
class PendingRequest:
    """A request that is being computed; `waiting`: its number of clients."""

    work: Work
    events: Events
    task: "asyncio.Task[TextAnswer] | None" = None
    waiting: int = 0

    def stop_unless_waiting(self) -> None:
        """Cancel the work if no client waits for it."""
        if not self.waiting:
            self.work.cancel()


Compute = Callable[[PendingRequest], Coroutine[Any, Any, TextAnswer]]


class RequestCache:
    """Pending requests of all clients, and cached answers.

    `most` and `most_of_client`: numbers of requests above which one that no client waits for is cancelled at
    once.
    """

    def __init__(self, most: int, most_of_client: int) -> None:
        self._most, self._most_of_client = most, most_of_client
        self._pending: dict[str, PendingRequest] = {}
        # Without the request and its work, which are larger than the answer; the oldest first.
        self._cached: dict[str, tuple[float, Events, TextAnswer]] = {}
        self._bytes = 0

    @property
    def pending(self) -> Sequence[PendingRequest]:
        return list(self._pending.values())

    async def answer(self, key: str, client: str, compute: Compute, listener: Listener | None) -> TextAnswer:
        """Return the answer to a request; compute it only if no equal request is pending or cached."""
        self._drop_old()
        if key in self._cached:
            _, events, answer = self._cached[key]
            if listener is not None:
                events.replay(listener)
            return answer
        loop, pending = asyncio.get_running_loop(), self._pending.get(key)
        # A request of another event loop, or a cancelled request, cannot be joined.
        if pending is None or pending.work.cancelled or pending.events.loop is not loop:
            pending = self._begin(key, client, compute)
        assert pending.task is not None
        pending.waiting += 1
        pending.work.background = False
        if listener is not None:
            pending.events.listen(listener)
        try:
            return await asyncio.shield(pending.task)  # other clients may wait for it, too
        finally:
            pending.waiting -= 1
            if listener is not None:
                # The old list may be in use in another thread.
                others = [other for other in pending.events.listeners if other is not listener]
                pending.events.listeners = others
            if not pending.waiting and not pending.task.done():
                pending.work.background = True
                loop.call_later(0.0 if self._is_full(client) else LINGER_SECONDS, pending.stop_unless_waiting)

    def _is_full(self, client: str) -> bool:
        clients = [pending.work.client for pending in self._pending.values() if not pending.work.cancelled]
        return len(clients) > self._most or clients.count(client) > self._most_of_client

    def _begin(self, key: str, client: str, compute: Compute) -> PendingRequest:
        pending = PendingRequest(Work(client), Events(asyncio.get_running_loop()))
        pending.task = asyncio.create_task(compute(pending))
        self._pending[key] = pending

        def finished(task: "asyncio.Task[TextAnswer]") -> None:
            if self._pending.get(key) is pending:
                del self._pending[key]
            if not task.cancelled() and task.exception() is None:
                self._cache(key, pending.events, task.result())

        pending.task.add_done_callback(finished)
        return pending

    def _cache(self, key: str, events: Events, answer: TextAnswer) -> None:
        if answer.bytes <= KEPT_BYTES and key not in self._cached:
            self._bytes += answer.bytes
            self._cached[key] = time.monotonic(), events, answer
            self._drop_old()

    def _drop_old(self) -> None:
        """Drop expired answers, and the oldest ones above the limit of bytes."""
        while self._cached:
            key, (since, _, answer) = next(iter(self._cached.items()))
            if time.monotonic() - since < KEPT_SECONDS and self._bytes <= KEPT_BYTES:
                return
            del self._cached[key]
            self._bytes -= answer.bytes
