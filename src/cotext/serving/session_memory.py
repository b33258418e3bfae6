"""Memory of sessions: the segments of documents in order, with their translations, within limits."""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from cotext.files.blocks import Block
from cotext.serving.answers import TextAnswer
from cotext.translation.document_state import SentenceHypothesis

# Limits of a session; the segments farthest from the last added segment are dropped.
KEPT_SEGMENTS: Final = 200
KEPT_CHARACTERS: Final = 64 * 1024
KEPT_SECONDS: Final = 3600.0  # time after the last request, after which a session is dropped
# Limits of all clients and of one; the least recently used session (of the largest client) is dropped.
SESSIONS: Final = 512
SESSIONS_OF_CLIENT: Final = 32


@dataclass(frozen=True, slots=True)
class Spoken:
    """A translated or `confirmed` sentence of a segment; `exact`: its subwords are known."""

    block: int
    hypothesis: SentenceHypothesis
    exact: bool
    confirmed: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """The context before a segment: blocks, and the translations of their sentences."""

    blocks: tuple[Block, ...] = ()
    sentences: tuple[Spoken, ...] = ()


@dataclass(slots=True)
class Segment:
    """A segment: its blocks and its answer; `after`: context and options of its translation."""

    blocks: tuple[Block, ...]
    number: int | None
    as_context: Context
    answer: TextAnswer
    after: tuple[object, ...] = ()
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
        """Return the index of a segment, and the stored segment there or None."""
        if number is None:
            same = [i for i, segment in enumerate(self.segments) if segment.blocks == blocks]
            return (same[-1], self.segments[same[-1]]) if same else (self.last + 1, None)
        for i, segment in enumerate(self.segments):
            if segment.number == number:
                return i, segment
            if segment.number is not None and segment.number > number:
                return i, None
        return len(self.segments), None

    def before(self, at: int, sentences: int) -> Context:
        """Return the last segments before an index, with at least this many sentences, as context."""
        blocks: list[Block] = []
        kept: list[Spoken] = []
        for segment in reversed(self.segments[:at]):
            if len(kept) >= sentences:
                break
            context = segment.as_context
            kept = [
                *context.sentences,
                *(replace(spoken, block=spoken.block + len(context.blocks)) for spoken in kept),
            ]
            blocks[:0] = context.blocks
        return Context(tuple(blocks), tuple(kept))

    @asynccontextmanager
    async def unless_refused(self) -> AsyncIterator[None]:
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
        for key in [k for k, session in self._memories.items() if now - session.used > KEPT_SECONDS]:
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
