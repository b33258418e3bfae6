"""The memory of sessions: segments of documents in their order, with their translations, within limits."""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from cotext.files.blocks import Block
from cotext.translation.document_state import SentenceHypothesis

KEPT_SEGMENTS: Final = 200  # of a session: those farthest from the one added last are forgotten
KEPT_CHARACTERS: Final = 64 * 1024
KEPT_SECONDS: Final = 3600.0  # after the last request
SESSIONS: Final = 512  # in all: of the client with the most, the one that rested longest is forgotten
SESSIONS_OF_CLIENT: Final = 32  # the one that rested longest is forgotten


@dataclass(frozen=True, slots=True)
class Spoken:
    """A sentence of a segment, as search wrote it or as it was `confirmed`; `exact`: with its subwords."""

    block: int
    hypothesis: SentenceHypothesis
    exact: bool
    confirmed: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """What stands before a segment: sentences of blocks, and their translations."""

    blocks: tuple[Block, ...] = ()
    sentences: tuple[Spoken, ...] = ()


@dataclass(slots=True)
class Segment:
    """A segment: the blocks that were asked for, and its sentences; `after`: what it was translated with."""

    blocks: tuple[Block, ...]
    number: int | None
    as_context: Context
    sentences: tuple[Spoken, ...] = ()
    after: tuple[object, ...] = ()
    confirmed: str | None = None

    @property
    def characters(self) -> int:
        """How much of it is kept."""
        translations = sum(len(each.hypothesis.text) for each in self.as_context.sentences)
        return sum(len(block.text) for block in self.blocks) + translations


@dataclass(slots=True)
class SessionMemory:
    """The segments of a session in their order; `last` is the index of the one that was added last."""

    segments: list[Segment] = field(default_factory=list)
    last: int = -1
    used: float = field(default_factory=time.monotonic)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def find(self, blocks: tuple[Block, ...], number: int | None) -> tuple[int, Segment | None]:
        """Where a segment stands, and what is kept of it there."""
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
        """The segments before one that have this many sentences, whole, as its context."""
        blocks: list[Block] = []
        found: list[Spoken] = []
        for segment in reversed(self.segments[:at]):
            if len(found) >= sentences:
                break
            context = segment.as_context
            found = [
                *context.sentences,
                *(replace(each, block=each.block + len(context.blocks)) for each in found),
            ]
            blocks[:0] = context.blocks
        return Context(tuple(blocks), tuple(found))

    @asynccontextmanager
    async def unless_refused(self) -> AsyncIterator[None]:
        """What is kept meanwhile is forgotten where an exception ends it."""
        segments, last = list(self.segments), self.last
        try:
            yield
        except BaseException:
            self.segments, self.last = segments, last
            raise

    def keep(self, at: int, segment: Segment, replaced: bool) -> None:
        """Put a segment in its place, and forget what is too much."""
        self.segments[at : at + replaced] = [segment]
        if not replaced:
            self.last = at
        characters = sum(each.characters for each in self.segments)
        while len(self.segments) > 1 and (len(self.segments) > KEPT_SEGMENTS or characters > KEPT_CHARACTERS):
            farthest = 0 if 2 * self.last >= len(self.segments) - 1 else len(self.segments) - 1
            characters -= self.segments.pop(farthest).characters
            self.last -= farthest == 0


class Sessions:
    """The sessions of all clients, in the memory of the server."""

    def __init__(self) -> None:
        self._memories: OrderedDict[tuple[str, str, str], SessionMemory] = OrderedDict()

    def of(self, client: str, name: str, system: str) -> SessionMemory:
        """The memory of a session, new if there is none."""
        now = time.monotonic()
        for key in [k for k, each in self._memories.items() if now - each.used > KEPT_SECONDS]:
            del self._memories[key]
        key = (client, name, system)
        memory = self._memories.setdefault(key, SessionMemory())
        memory.used = now
        self._memories.move_to_end(key)
        own = [k for k in self._memories if k[0] == client]
        if len(own) > SESSIONS_OF_CLIENT:
            del self._memories[own[0]]
        if len(self._memories) > SESSIONS:
            # Of the client with the most: nobody loses a session to a client that has more of them.
            [(most, _)] = Counter(k[0] for k in self._memories if k != key).most_common(1)
            del self._memories[next(k for k in self._memories if k[0] == most and k != key)]
        return memory
