"""Deduplication of requests and cache of responses: equal requests of a client are computed once.

Clients repeat requests: the official DeepL client does so after ten seconds, up to five times. So a request
without a waiting client continues for a moment, with low priority. If a client sends the same request again,
it joins the running request and receives the missed events. Complete responses are cached for some minutes.
"""

import asyncio
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cotext.files.blocks import Block
from cotext.files.translate_blocks import PairedSentence
from cotext.serving.sharing import Work
from cotext.translation.document_state import SentenceHypothesis

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
class PendingRequest:
    """A request that is being computed, its events so far, and its listeners.

    `waiting`: number of calls that wait for it. `publish` may be called in any thread. Listeners are called
    in the event loop, before the task ends. Without listeners, `publish` does not wake the event loop.
    """

    work: Work
    loop: asyncio.AbstractEventLoop
    task: "asyncio.Task[TextAnswer] | None" = None
    waiting: int = 0
    events: list[Event] = field(default_factory=list)
    listeners: list[Listener] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def publish(self, event: Event) -> None:
        with self._lock:
            self.events.append(event)
            for listener in self.listeners:
                self.loop.call_soon_threadsafe(listener, event)

    def listen(self, listener: Listener) -> None:
        """Send all events to a listener until it is removed, also past ones; call this in the event loop."""
        with self._lock:
            for event in self.events:
                listener(event)
            self.listeners.append(listener)

    def stop_unless_waiting(self) -> None:
        """Cancel the work if no client waits for it."""
        if not self.waiting:
            self.work.cancel()


Compute = Callable[[PendingRequest], Coroutine[Any, Any, TextAnswer]]


class RequestCache:
    """Pending requests of all clients, and cached answers.

    Above `max_requests`, or `max_requests_of_client` of one client, a request for which no client waits is
    cancelled immediately.
    """

    def __init__(self, max_requests: int, max_requests_of_client: int) -> None:
        self._max_requests, self._max_requests_of_client = max_requests, max_requests_of_client
        self._pending: dict[str, PendingRequest] = {}
        # The oldest answers come first. The request and its work are larger than the answer, and not stored.
        self._cached: dict[str, tuple[float, list[Event], TextAnswer]] = {}
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
                for event in events:
                    listener(event)
            return answer
        loop, pending = asyncio.get_running_loop(), self._pending.get(key)
        # A request of another event loop, or a cancelled request, cannot be joined.
        if pending is None or pending.work.cancelled or pending.loop is not loop:
            pending = self._begin(key, client, compute)
        assert pending.task is not None
        pending.waiting += 1
        pending.work.background = False
        if listener is not None:
            pending.listen(listener)
        try:
            return await asyncio.shield(pending.task)  # other calls may wait for it, too
        finally:
            pending.waiting -= 1
            if listener is not None:
                # The old list may be in use in another thread.
                pending.listeners = [other for other in pending.listeners if other is not listener]
            if not pending.waiting and not pending.task.done():
                pending.work.background = True
                loop.call_later(0.0 if self._is_full(client) else LINGER_SECONDS, pending.stop_unless_waiting)

    def _is_full(self, client: str) -> bool:
        clients = [pending.work.client for pending in self._pending.values() if not pending.work.cancelled]
        return len(clients) > self._max_requests or clients.count(client) > self._max_requests_of_client

    def _begin(self, key: str, client: str, compute: Compute) -> PendingRequest:
        pending = PendingRequest(Work(client), asyncio.get_running_loop())
        pending.task = asyncio.create_task(compute(pending))
        self._pending[key] = pending

        def finished(task: "asyncio.Task[TextAnswer]") -> None:
            if self._pending.get(key) is pending:
                del self._pending[key]
            if not task.cancelled() and task.exception() is None:
                self._cache(key, pending.events, task.result())

        pending.task.add_done_callback(finished)
        return pending

    def _cache(self, key: str, events: list[Event], answer: TextAnswer) -> None:
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


# --- Sessions: the segments of documents in order, with their translations, within limits.

# Limits of a session; the segments farthest from the last added segment are dropped.
KEPT_SEGMENTS: Final = 200
KEPT_CHARACTERS: Final = 64 * 1024
SESSION_SECONDS: Final = 3600.0  # time after the last request, after which a session is dropped
# Maximum number of sessions of all clients, and of one. Above it, the client with the most sessions loses its
# least recently used session.
SESSIONS: Final = 512
SESSIONS_OF_CLIENT: Final = 32


@dataclass(frozen=True, slots=True)
class ContextSentence:
    """A sentence of a segment: a translation by the system, or one `confirmed` by the client.

    `exact`: the subwords of the translation are known.
    """

    block: int
    hypothesis: SentenceHypothesis
    exact: bool
    confirmed: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """The context before a segment: blocks, and the translations of their sentences."""

    blocks: tuple[Block, ...] = ()
    sentences: tuple[ContextSentence, ...] = ()


@dataclass(slots=True)
class Segment:
    """A segment: its blocks and its answer; `made_with`: the context and options of its translation."""

    blocks: tuple[Block, ...]
    number: int | None
    as_context: Context
    answer: TextAnswer
    made_with: tuple[object, ...] = ()
    confirmed: str | None = None

    @property
    def characters(self) -> int:
        translations = sum(len(sentence.hypothesis.text) for sentence in self.as_context.sentences)
        return sum(len(block.text) for block in self.blocks) + translations


@dataclass(slots=True)
class SessionMemory:
    """The segments of a session in order; `last`: index of the last added one."""

    segments: list[Segment] = field(default_factory=list)
    last: int = -1
    used: float = field(default_factory=time.monotonic)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def find(self, blocks: tuple[Block, ...], number: int | None) -> tuple[int, Segment | None]:
        """Return the index where a segment is or will be, and the stored segment there or None."""
        if number is None:
            same = [i for i, segment in enumerate(self.segments) if segment.blocks == blocks]
            return (same[-1], self.segments[same[-1]]) if same else (self.last + 1, None)
        for i, segment in enumerate(self.segments):
            if segment.number is not None and segment.number >= number:
                return i, segment if segment.number == number else None
        return len(self.segments), None

    def before(self, at: int, sentences: int) -> Context:
        """Return the last segments before an index, with at least this many sentences, as context."""
        blocks: list[Block] = []
        kept: list[ContextSentence] = []
        for segment in reversed(self.segments[:at]):
            if len(kept) >= sentences:
                break
            context = segment.as_context
            kept = [
                *context.sentences,
                *(replace(sentence, block=sentence.block + len(context.blocks)) for sentence in kept),
            ]
            blocks[:0] = context.blocks
        return Context(tuple(blocks), tuple(kept))

    @asynccontextmanager
    async def restored_on_error(self) -> AsyncIterator[None]:
        """Return a context manager that restores the segments after an exception."""
        segments, last = list(self.segments), self.last
        try:
            yield
        except BaseException:
            self.segments, self.last = segments, last
            raise

    def keep(self, at: int, segment: Segment, replaced: bool) -> None:
        """Store a segment at an index, and drop others above the limits."""
        self.segments[at : at + replaced] = [segment]
        if not replaced:
            self.last = at
        characters = sum(kept.characters for kept in self.segments)
        while len(self.segments) > 1 and (len(self.segments) > KEPT_SEGMENTS or characters > KEPT_CHARACTERS):
            farthest = 0 if 2 * self.last >= len(self.segments) - 1 else len(self.segments) - 1
            characters -= self.segments.pop(farthest).characters
            self.last -= farthest == 0


class Sessions:
    """The sessions of all clients, in memory."""

    def __init__(self) -> None:
        self._memories: OrderedDict[tuple[str, str, str], SessionMemory] = OrderedDict()

    def of(self, client: str, name: str, system: str) -> SessionMemory:
        """Return the memory of a session, or create it."""
        now = time.monotonic()
        for key in [k for k, session in self._memories.items() if now - session.used > SESSION_SECONDS]:
            del self._memories[key]
        key = (client, name, system)
        memory = self._memories.setdefault(key, SessionMemory())
        memory.used = now
        self._memories.move_to_end(key)
        of_client = [k for k in self._memories if k[0] == client]
        if len(of_client) > SESSIONS_OF_CLIENT:
            del self._memories[of_client[0]]
        if len(self._memories) > SESSIONS:
            # Drop a session of the client with the most sessions, so that smaller clients lose none.
            [(most, _)] = Counter(k[0] for k in self._memories if k != key).most_common(1)
            del self._memories[next(k for k in self._memories if k[0] == most and k != key)]
        return memory
