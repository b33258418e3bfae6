"""Deduplication of requests and cache of responses: equal requests of a client are computed once.

Clients repeat requests: the official DeepL client does so after ten seconds, up to five times. So a request
without a waiting client continues for a moment, with low priority. If a client sends the same request again,
it joins the running request and receives the missed events. Complete responses are cached for some minutes.
"""

import asyncio
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cotext.files.blocks import Block
from cotext.files.translate_blocks import PairedSentence
from cotext.serving.sharing.turns import Work

LINGER_SECONDS: Final = 5.0
KEPT_SECONDS: Final = 180.0
KEPT_BYTES: Final = 32 * 1024 * 1024
KEPT_BYTES_OF_CLIENT: Final = KEPT_BYTES // 8


@dataclass(frozen=True, slots=True)
class TextAnswer:
    """The translated documents of a request, and the sentences with their translations.

    `alternatives`: the documents with the second best translation of every sentence, the third best, and so
    on. `bytes`: approximate size in memory.
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
        characters += sum(len(pair.source) + len(pair.target) for pair in self.pairs)
        object.__setattr__(self, "bytes", 4 * characters + 500 * (len(blocks) + len(self.pairs) + 1))


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


@dataclass(frozen=True, slots=True)
class Listener:
    """Callbacks of a waiting client, called in the server's loop: all sources, then each translation."""

    on_start: Callable[[list[SourceSentence]], None] = lambda sentences: None
    on_sentence: Callable[[int, int, str], None] = lambda document, number, target: None


@dataclass(slots=True, eq=False)
class Events:
    """The events of a request so far, and who listens; `start` and `on_sentence` work in any thread.

    Listeners hear events in the loop, before the task of the request ends. Without a listener, the loop is
    not woken.
    """

    loop: asyncio.AbstractEventLoop
    sources: list[SourceSentence] | None = None
    sentences: list[tuple[int, int, str]] = field(default_factory=list)
    listeners: list[Listener] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, sources: list[SourceSentence]) -> None:
        """Publish all source sentences."""
        with self._lock:
            self.sources = sources
            for listener in self.listeners:
                self.loop.call_soon_threadsafe(listener.on_start, sources)

    def on_sentence(self, document: int, number: int, target: str) -> None:
        """Publish a translated sentence."""
        with self._lock:
            self.sentences.append((document, number, target))
            for listener in self.listeners:
                self.loop.call_soon_threadsafe(listener.on_sentence, document, number, target)

    def listen(self, listener: Listener) -> None:
        """Send all events so far to a listener, and further ones until it is removed; called in the loop."""
        with self._lock:
            self.replay(listener)
            self.listeners.append(listener)

    def replay(self, listener: Listener) -> None:
        """Send all events so far."""
        if self.sources is not None:
            listener.on_start(self.sources)
        for sentence in self.sentences:
            listener.on_sentence(*sentence)


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


@dataclass(frozen=True, slots=True)
class _Cached:
    """A complete answer; without the request and its work, which are larger than the answer."""

    client: str
    since: float
    bytes: int
    events: Events
    answer: TextAnswer


class RequestCache:
    """Pending requests of all clients, up to limits, and cached answers."""

    def __init__(self, most: int, most_of_client: int) -> None:
        self._most, self._most_of_client = most, most_of_client
        self._pending: dict[str, PendingRequest] = {}
        self._cached: OrderedDict[str, _Cached] = OrderedDict()
        self._bytes: Counter[str] = Counter()  # of clients

    @property
    def pending(self) -> Sequence[PendingRequest]:
        return list(self._pending.values())

    async def answer(self, key: str, client: str, compute: Compute, listener: Listener | None) -> TextAnswer:
        """Return the answer to a request; compute it only if no equal request is pending or cached."""
        self._drop_old()
        if (cached := self._cached.get(key)) is not None:
            if listener is not None:
                cached.events.replay(listener)
            return cached.answer
        loop, pending = asyncio.get_running_loop(), self._pending.get(key)
        # A request of another event loop, or a cancelled request, cannot be joined.
        if pending is None or pending.work.cancelled or pending.events.loop is not loop:
            self._make_room(client)
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
                others = [other for other in pending.events.listeners if other is not listener]
                pending.events.listeners = others
            if not pending.waiting and not pending.task.done():
                pending.work.background = True
                loop.call_later(LINGER_SECONDS, pending.stop_unless_waiting)

    def _make_room(self, client: str) -> None:
        """At a limit, cancel a request without a waiting client; `Admission` limits the waiting ones."""
        every = [request for request in self._pending.values() if not request.work.cancelled]
        of_client = [request for request in every if request.work.client == client]
        for requests, most in ((every, self._most), (of_client, self._most_of_client)):
            abandoned = [request for request in requests if not request.waiting]
            if len(requests) >= most and abandoned:
                min(abandoned, key=lambda request: request.work.client != client).work.cancel()

    def _begin(self, key: str, client: str, compute: Compute) -> PendingRequest:
        pending = PendingRequest(Work(client), Events(asyncio.get_running_loop()))
        pending.task = asyncio.create_task(compute(pending))
        self._pending[key] = pending

        def finished(task: "asyncio.Task[TextAnswer]") -> None:
            if self._pending.get(key) is pending:
                del self._pending[key]
            if not task.cancelled() and task.exception() is None:
                self._cache(key, client, pending.events, task.result())

        pending.task.add_done_callback(finished)
        return pending

    def _cache(self, key: str, client: str, events: Events, answer: TextAnswer) -> None:
        size = answer.bytes + sum(4 * len(text) + 500 for _, _, text in events.sentences)
        if size <= KEPT_BYTES_OF_CLIENT and key not in self._cached:
            self._bytes[client] += size
            self._cached[key] = _Cached(client, time.monotonic(), size, events, answer)
            self._drop_old()

    def _drop_old(self) -> None:
        """Drop expired answers; above the limit of bytes, also the oldest answers of the largest client."""
        now = time.monotonic()
        while self._cached:
            key, dropped = next(iter(self._cached.items()))
            if now - dropped.since < KEPT_SECONDS:
                [(client, most)] = self._bytes.most_common(1)
                if most <= KEPT_BYTES_OF_CLIENT and self._bytes.total() <= KEPT_BYTES:
                    return
                key, dropped = next((k, old) for k, old in self._cached.items() if old.client == client)
            del self._cached[key]
            self._bytes[dropped.client] -= dropped.bytes
            if not self._bytes[dropped.client]:
                del self._bytes[dropped.client]
