"""Requests that are worked at, and answers kept for a while: equal ones of a client are computed once.

Clients ask again: the official one of DeepL gives up after ten seconds and repeats its request, up to five
times. So work goes on for a moment after the last who waits is gone, behind that of others; whoever comes
with the same request joins it, and hears what it has missed. What is complete is kept for some minutes.
"""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cotext.files.blocks import Block
from cotext.files.translate_blocks import PairedSentence
from cotext.serving.errors import RequestError
from cotext.serving.sharing.turns import Work

LINGER_SECONDS: Final = 5.0
KEPT_SECONDS: Final = 180.0
KEPT_BYTES: Final = 32 * 1024 * 1024
KEPT_BYTES_OF_CLIENT: Final = KEPT_BYTES // 8
RETRY_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class TextAnswer:
    """Their translation: as many documents of as many blocks, and the sentences beside their translations.

    `alternatives`: the documents again, with the second best translation of every sentence, the third, ...
    `bytes`: about what it takes to keep it: its characters, and what stands around them.
    """

    documents: list[list[Block]]
    pairs: list[PairedSentence]
    alternatives: list[list[list[Block]]] = field(default_factory=list)
    bytes: int = field(init=False)

    def __post_init__(self) -> None:
        """Count the bytes: in the thread that made the answer, as there may be many blocks."""
        versions = (self.documents, *self.alternatives)
        blocks = [block for documents in versions for document in documents for block in document]
        characters = sum(len(block.text) for block in blocks)
        characters += sum(len(pair.source) + len(pair.target) for pair in self.pairs)
        object.__setattr__(self, "bytes", 4 * characters + 500 * (len(blocks) + len(self.pairs) + 1))


@dataclass(frozen=True, slots=True)
class SourceSentence:
    """A sentence of a request, before it is translated; all count from 0, `number` within the document.

    `before`: what stands between it and the one before it in its block.
    """

    document: int
    block: int
    number: int
    text: str
    before: str = ""


@dataclass(frozen=True, slots=True)
class Listener:
    """What a client hears while it waits, in the loop of the server: all sentences, then each when done."""

    on_start: Callable[[list[SourceSentence]], None] = lambda sentences: None
    on_sentence: Callable[[int, int, str], None] = lambda document, number, target: None


@dataclass(slots=True, eq=False)
class _Ear:
    """A listener, and how much it has heard."""

    listener: Listener
    heard: int = -1  # sentences; -1: not the start


@dataclass(slots=True)
class _Heard:
    """What was heard of a request so far, in threads, and is told, in the loop."""

    sources: list[SourceSentence] | None = None
    sentences: list[tuple[int, int, str]] = field(default_factory=list)

    def tell(self, ear: _Ear) -> None:
        """Tell a listener what it has not heard, in the loop."""
        if self.sources is None:
            return
        if ear.heard < 0:
            ear.heard = 0
            ear.listener.on_start(self.sources)
        while ear.heard < len(self.sentences):
            ear.heard += 1
            ear.listener.on_sentence(*self.sentences[ear.heard - 1])


@dataclass(slots=True, eq=False)
class Asked:
    """A request that is worked at."""

    work: Work
    loop: asyncio.AbstractEventLoop
    task: "asyncio.Task[TextAnswer] | None" = None
    waiting: int = 0
    heard: _Heard = field(default_factory=_Heard)
    ears: list[_Ear] = field(default_factory=list)

    def start(self, sources: list[SourceSentence]) -> None:
        """Note all sentences; from any thread."""
        self.heard.sources = sources
        self._call()

    def hear(self, document: int, number: int, target: str) -> None:
        """Note a sentence that is finished; from any thread."""
        self.heard.sentences.append((document, number, target))
        self._call()

    def _call(self) -> None:
        for ear in list(self.ears):
            self.loop.call_soon_threadsafe(self.heard.tell, ear)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A complete answer, without the request and its work, which hold more than the answer itself."""

    client: str
    since: float
    bytes: int
    heard: _Heard
    answer: TextAnswer


class Answers:
    """The requests of all clients that are worked at, at most so many, and the answers kept."""

    def __init__(self, most: int, most_of_client: int) -> None:
        self._most, self._most_of_client = most, most_of_client
        self._asked: dict[str, Asked] = {}
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._bytes: Counter[str] = Counter()  # of clients

    @property
    def asked(self) -> Sequence[Asked]:
        """The requests that are worked at."""
        return list(self._asked.values())

    async def answer(
        self,
        key: str,
        client: str,
        compute: Callable[[Asked], Coroutine[Any, Any, TextAnswer]],
        listener: Listener | None,
    ) -> TextAnswer:
        """The answer to a request, computed unless one of the same key is, or was.

        Raises:
            RequestError: 429, 503: too much is worked at.
        """
        ear = _Ear(listener or Listener())
        self._forget()
        if (kept := self._kept.get(key)) is not None:
            kept.heard.tell(ear)
            return kept.answer
        asked = self._known(key)
        if asked is None:
            self._require_place(client)
            asked = self._begun(key, client, compute)
        assert asked.task is not None
        asked.waiting += 1
        asked.work.background = False
        if listener is not None:
            asked.ears.append(ear)
        try:
            asked.heard.tell(ear)
            answer = await asyncio.shield(asked.task)  # others may wait for it, too
            asked.heard.tell(ear)
            return answer
        finally:
            asked.waiting -= 1
            if listener is not None:
                asked.ears.remove(ear)
            if not asked.waiting and not asked.task.done():
                asked.work.background = True
                asked.loop.call_later(LINGER_SECONDS, _stop_unless_waited_for, asked)

    def _known(self, key: str) -> Asked | None:
        asked = self._asked.get(key)
        # Of another loop, or no more to be had, it is of no use to this one.
        alive = asked is not None and not asked.work.cancelled and asked.loop is asyncio.get_running_loop()
        return asked if alive else None

    def _require_place(self, client: str) -> None:
        """Refuse one more request than the limits have room for; what nobody waits for makes room first."""
        every = [asked for asked in self._asked.values() if not asked.work.cancelled]
        own = [asked for asked in every if asked.work.client == client]
        for some, most in ((every, self._most), (own, self._most_of_client)):
            if len(some) < most:
                continue
            if left := [asked for asked in some if not asked.waiting]:
                min(left, key=lambda asked: asked.work.client != client).work.cancel()
            elif some is every:
                raise RequestError(503, "the server is full; try again later", RETRY_SECONDS)
            else:
                told = f"more than {most} requests at once; wait for answers before asking more"
                raise RequestError(429, told, RETRY_SECONDS)

    def _begun(
        self, key: str, client: str, compute: Callable[[Asked], Coroutine[Any, Any, TextAnswer]]
    ) -> Asked:
        asked = Asked(Work(client), asyncio.get_running_loop())
        asked.work.on_sentence = asked.hear
        asked.task = asyncio.create_task(compute(asked))
        self._asked[key] = asked

        def over(task: "asyncio.Task[TextAnswer]") -> None:
            if self._asked.get(key) is asked:
                del self._asked[key]
            if not task.cancelled() and task.exception() is None:
                self._keep(key, client, asked.heard, task.result())

        asked.task.add_done_callback(over)
        return asked

    def _keep(self, key: str, client: str, heard: _Heard, answer: TextAnswer) -> None:
        size = answer.bytes + sum(4 * len(text) + 500 for _, _, text in heard.sentences)
        if size <= KEPT_BYTES_OF_CLIENT and key not in self._kept:
            self._bytes[client] += size
            self._kept[key] = _Kept(client, time.monotonic(), size, heard, answer)
            self._forget()

    def _forget(self) -> None:
        """Let go of answers that are old, or too many: of the client that has the most, the oldest."""
        now = time.monotonic()
        while self._kept:
            key, left = next(iter(self._kept.items()))
            if now - left.since < KEPT_SECONDS:
                [(client, most)] = self._bytes.most_common(1)
                if most <= KEPT_BYTES_OF_CLIENT and self._bytes.total() <= KEPT_BYTES:
                    return
                key, left = next((k, kept) for k, kept in self._kept.items() if kept.client == client)
            del self._kept[key]
            self._bytes[left.client] -= left.bytes
            if not self._bytes[left.client]:
                del self._bytes[left.client]


def _stop_unless_waited_for(asked: Asked) -> None:
    if not asked.waiting:
        asked.work.cancel()
