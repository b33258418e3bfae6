"""Whose turn it is on a model: fair queueing of the work of clients by the tokens that it takes.

    clock of a flow      grows by what is searched for it, over its weight
    clock of the model   grows by what is searched for all, over the weights of all

A flow that comes begins at the clock of the model, and the flow that is furthest behind is the next. So a
long document gets its share of every batch and no more, and a short one that comes later is in the next
batch. The flows of a client share one weight; files have an eighth of that of what somebody waits for: they
give way, and go on. (Parekh and Gallager 1993, "generalized processor sharing"; the clock is theirs.)
"""

import heapq
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from cotext.translation.document_state import FoundWindow, OpenDocument, WindowLog
from cotext.translation.translator import DocumentPool
from cotext.translation.window_search import RowGroup

# --- A piece of work of a client, as whoever does it sees it.


class CancelledError(Exception):
    """Nobody waits for this any more."""


@dataclass(slots=True, eq=False)
class Work:
    """A piece of work of a client: it can be cancelled from any thread, and hears of sentences as they come.

    `on_sentence` is called with the index of the document, of the sentence in it, and its translation, as
    soon as the sentence is finished, in the thread of the model: it must not wait for anything. `background`:
    of files, which give way to texts that somebody waits for.
    """

    client: str = ""
    background: bool = False
    on_sentence: Callable[[int, int, str], None] = lambda document, sentence, target: None
    _cancelled: threading.Event = field(default_factory=threading.Event)

    def cancel(self) -> None:
        """Stop it, at the next batch at the latest."""
        self._cancelled.set()

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for it any more."""
        return self._cancelled.is_set()


BACKGROUND_WEIGHT = 1 / 8
# Of so many batches' worth of windows those of like length share a batch.
BATCHES_AHEAD = 4
_NUMBERS = count()


@dataclass(slots=True)
class Progress:
    """What batches brought a flow: sentences finished, windows to be noted, documents that are complete."""

    sentences: int = 0
    windows: list[tuple[WindowLog, int, FoundWindow]] = field(default_factory=list)
    finished: list[OpenDocument] = field(default_factory=list)


@dataclass(slots=True)
class Turn:
    """The model for one thread alone, from `granted` to `released`; `error`: it is never granted."""

    granted: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None


@dataclass(slots=True, eq=False)
class Flow:
    """What one piece of work has a model do: search documents of a pool, or leave it alone for a `turn`.

    Its thread hears of it through `inbox`: progress, or the error that ended it. `tells`: the work hears of
    its sentences. `is_over`: its thread wants no more of it. `background` is that of its work when it was
    last looked at: other threads may change that at any moment, and a batch is made of one state of all.
    """

    work: Work
    pool: DocumentPool | None = None
    turn: Turn | None = None
    tells: bool = True
    clock: float = 0.0
    served: float = 0.0  # tokens
    documents: dict[OpenDocument, None] = field(default_factory=dict)
    heard: list[tuple[int, int, str]] = field(default_factory=list)
    progress: Progress = field(default_factory=Progress)
    inbox: "queue.SimpleQueue[Progress | BaseException]" = field(default_factory=queue.SimpleQueue)
    is_over: bool = False
    number: int = field(default_factory=lambda: next(_NUMBERS))
    background: bool = False

    def __post_init__(self) -> None:
        self.look()

    def look(self) -> None:
        """See whether its work is in the background by now."""
        self.background = self.work.background

    @property
    def order(self) -> tuple[float, bool, bool, int]:
        """Its place in the queue."""
        return self.clock, self.background, self.served > 0, self.number

    @property
    def sort(self) -> tuple[str, bool]:
        """The flows that share a weight."""
        return self.work.client, self.background

    def ready(self, tokens: float) -> list[RowGroup]:
        """What is ready of its documents: as many groups of rows as take so many tokens."""
        found: list[RowGroup] = []
        for opened in self.documents:
            assert self.pool is not None
            if tokens <= 0:
                break
            for group in self.pool.ready(opened, tokens):
                found.append(group)
                tokens -= group.cost
        return found

    def hear(self, opened: OpenDocument, sentence: int, text: str) -> None:
        """Note that a sentence is finished."""
        self.heard.append((opened.index, sentence, text))

    def tell(self, touched: Iterable[OpenDocument]) -> None:
        """Tell its thread what is new of some of its documents; those that are complete leave."""
        assert self.pool is not None
        for opened in touched:
            self.pool.settle(opened)
            if opened.done:
                self.pool.remove(opened)
                del self.documents[opened]
                self.progress.finished.append(opened)
        heard, self.heard = self.heard, []
        self.progress.sentences += len(heard)
        if self.tells:
            for each in heard:
                self.work.on_sentence(*each)
        if self.progress != Progress():
            self.inbox.put(self.progress)
            self.progress = Progress()

    def end(self, error: BaseException) -> None:
        """Tell its thread that it has ended."""
        if self.turn is not None:
            self.turn.error = error
            self.turn.granted.set()
        self.inbox.put(error)


Ready = Mapping[Flow, Sequence[RowGroup]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Groups of rows of one pool that are searched together, and the flow of each."""

    pool: DocumentPool
    groups: list[RowGroup]
    flows: list[Flow]


class Turns:
    """The clocks of the flows of a model: whose turn it is, and what shares its batch of `batch_tokens`."""

    def __init__(self, batch_tokens: int) -> None:
        self.batch_tokens = batch_tokens
        self._now = 0.0

    @property
    def ahead(self) -> int:
        """As many tokens of every flow should be made ready as batches choose from."""
        return BATCHES_AHEAD * self.batch_tokens

    def begin(self, flow: Flow) -> None:
        """Let a flow come that has had nothing to be done."""
        flow.clock = max(flow.clock, self._now)

    def charge(self, charges: Iterable[tuple[Flow, float]], flows: Iterable[Flow]) -> None:
        """Move the clocks for what some of all flows have got, in tokens."""
        members = Counter(flow.sort for flow in flows)
        total = 0.0
        for flow, tokens in charges:
            flow.clock += tokens / _weight(flow.sort, members)
            flow.served += tokens
            total += tokens
        self._now += total / sum(_whole(background) for _, background in members)

    def next(self, flows: Iterable[Flow]) -> Flow:
        """The flow whose turn it is, of those that have something to be done."""
        return min(flows, key=lambda flow: flow.order)

    def batch(self, head: Flow, ready: Ready, flows: Iterable[Flow]) -> Batch:
        """What is searched in the turn of a flow: its first group, and those of all that go with it.

        What somebody waits for comes before files, and of that what is like the first in length: a batch is
        as long as its longest row.
        """
        first, pool = ready[head][0], head.pool
        assert pool is not None
        members = Counter(flow.sort for flow in flows)
        chosen, rows, longest = [(head, first)], len(first.rows), first.longest
        for background in (False, True):
            alike = {
                flow: [g for g in groups if g.width == first.width and g is not first]
                for flow, groups in ready.items()
                if flow.pool is pool and flow.background == background
            }
            candidates = self._in_turn(alike, members)
            candidates.sort(key=lambda each: abs(each[1].longest - first.longest))
            for flow, group in candidates:
                most = max(longest, group.longest)
                if (rows + len(group.rows)) * most <= self.batch_tokens:
                    chosen.append((flow, group))
                    rows, longest = rows + len(group.rows), most
        return Batch(pool, [group for _, group in chosen], [flow for flow, _ in chosen])

    def _in_turn(self, ready: Ready, members: "Counter[tuple[str, bool]]") -> list[tuple[Flow, RowGroup]]:
        """Groups in the order of their turns, of some batches' worth."""
        heap = [(flow.order, 0, flow) for flow in ready]
        heapq.heapify(heap)
        found: list[tuple[Flow, RowGroup]] = []
        tokens = 0
        while heap and tokens < self.ahead:
            order, n, flow = heapq.heappop(heap)
            if n == len(ready[flow]):
                continue
            group = ready[flow][n]
            found.append((flow, group))
            tokens += group.cost
            clock = order[0] + group.cost / _weight(flow.sort, members)
            heapq.heappush(heap, ((clock, *order[1:]), n + 1, flow))
        return found


def _whole(background: bool) -> float:
    return BACKGROUND_WEIGHT if background else 1.0


def _weight(sort: tuple[str, bool], members: "Counter[tuple[str, bool]]") -> float:
    return _whole(sort[1]) / members[sort]
