"""Fair queueing of client requests on a model, weighted by tokens.

    clock of a flow      increases by the tokens searched for it, divided by its weight
    clock of the model   increases by the tokens searched for all, divided by the weights of all

A new flow starts at the clock of the model, and the flow with the smallest clock is the next. So a long
document gets only its share of every batch, and a short document that comes later is in the next batch. The
flows of a client share one weight. Files have an eighth of the weight of texts, for which a client waits.
(Parekh and Gallager 1993, "generalized processor sharing".)
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

# --- Work of clients.


class CancelledError(Exception):
    """The work was cancelled."""


@dataclass(slots=True, eq=False)
class Work:
    """The work of a request or a job; can be cancelled from any thread.

    `on_sentence` is called with document index, sentence index and translation when a sentence is finished.
    It is called in the model thread, and must not block. `background`: low priority, for files.
    """

    client: str = ""
    background: bool = False
    on_sentence: Callable[[int, int, str], None] = lambda document, sentence, target: None
    cancelled: bool = False

    def cancel(self) -> None:
        """Stop the work before the next batch."""
        self.cancelled = True


BACKGROUND_WEIGHT = 1 / 8
# Windows of similar length share a batch, chosen from the windows of this many batches.
BATCHES_AHEAD = 4
_NUMBERS = count()


@dataclass(slots=True)
class Progress:
    """New results of a flow: finished sentences, windows to log, complete documents."""

    sentences: int = 0
    windows: list[tuple[WindowLog, int, FoundWindow]] = field(default_factory=list)
    finished: list[OpenDocument] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Flow:
    """The queued demand of a `Work` on a model: documents of a pool to search, or exclusive use.

    The thread of the flow reads `inbox`: progress, or the error that ended the flow. Without a pool, the
    first progress grants exclusive use of the model until `released`. `tells`: whether to call
    `Work.on_sentence`. `is_over`: whether its thread has ended it. `background`: copy of the work's
    attribute, which other threads may change while a batch is made.
    """

    work: Work
    pool: DocumentPool | None = None
    released: threading.Event = field(default_factory=threading.Event)
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

    @property
    def order(self) -> tuple[float, bool, bool, int]:
        """The sort key in the queue."""
        return self.clock, self.background, self.served > 0, self.number

    @property
    def sort(self) -> tuple[str, bool]:
        """The key of flows that share a weight."""
        return self.work.client, self.background

    def ready(self, tokens: float) -> list[RowGroup]:
        """Return groups of rows (windows to search) of its documents, up to a number of tokens."""
        groups: list[RowGroup] = []
        for opened in self.documents:
            assert self.pool is not None
            if tokens <= 0:
                break
            for group in self.pool.ready(opened, tokens):
                groups.append(group)
                tokens -= group.cost
        return groups

    def tell(self, touched: Iterable[OpenDocument]) -> None:
        """Send new results of some documents to its thread, and remove complete documents."""
        assert self.pool is not None
        for opened in touched:
            self.pool.settle(opened)
            if opened.done:
                self.pool.remove(opened)
                del self.documents[opened]
                self.progress.finished.append(opened)
        finished, self.heard = self.heard, []
        self.progress.sentences += len(finished)
        if self.tells:
            for sentence in finished:
                self.work.on_sentence(*sentence)
        if self.progress != Progress():
            self.inbox.put(self.progress)
            self.progress = Progress()


Ready = Mapping[Flow, Sequence[RowGroup]]
Batch = list[tuple[Flow, RowGroup]]  # groups of rows of one pool, and the flow of each


class BatchScheduler:
    """Chooses the next flow by the clocks, and fills batches of `batch_tokens`."""

    def __init__(self, batch_tokens: int) -> None:
        self.batch_tokens = batch_tokens
        self.ahead = BATCHES_AHEAD * batch_tokens  # tokens of each flow that a batch is chosen from
        self._now = 0.0

    def begin(self, flow: Flow) -> None:
        """Add a flow that was idle."""
        flow.clock = max(flow.clock, self._now)

    def charge(self, charges: Iterable[tuple[Flow, float]], flows: Iterable[Flow]) -> None:
        """Advance the clocks by the tokens of some flows; `flows`: all flows."""
        members = Counter(flow.sort for flow in flows)
        total = 0.0
        for flow, tokens in charges:
            flow.clock += tokens / _weight(flow.sort, members)
            flow.served += tokens
            total += tokens
        self._now += total / sum(_whole(background) for _, background in members)

    def batch(self, head: Flow, ready: Ready, flows: Iterable[Flow]) -> Batch:
        """Return a batch with the first group of a flow, and groups of all flows that fit.

        Texts come before files, and groups of similar length first, because rows are padded to the longest.
        """
        first = ready[head][0]
        members = Counter(flow.sort for flow in flows)
        chosen, rows, longest = [(head, first)], len(first.rows), first.longest
        for background in (False, True):
            alike = {
                flow: [group for group in groups if group is not first]
                for flow, groups in ready.items()
                if flow.pool is head.pool and flow.background == background
            }
            candidates = self._in_turn(alike, members)
            candidates.sort(key=lambda candidate: abs(candidate[1].longest - first.longest))
            for flow, group in candidates:
                most = max(longest, group.longest)
                if (rows + len(group.rows)) * most <= self.batch_tokens:
                    chosen.append((flow, group))
                    rows, longest = rows + len(group.rows), most
        return chosen

    def _in_turn(self, ready: Ready, members: "Counter[tuple[str, bool]]") -> list[tuple[Flow, RowGroup]]:
        """Return groups in the order of the queue, for some batches."""
        heap = [(flow.order, 0, flow) for flow in ready]
        heapq.heapify(heap)
        groups: list[tuple[Flow, RowGroup]] = []
        tokens = 0
        while heap and tokens < self.ahead:
            order, n, flow = heapq.heappop(heap)
            if n == len(ready[flow]):
                continue
            group = ready[flow][n]
            groups.append((flow, group))
            tokens += group.cost
            clock = order[0] + group.cost / _weight(flow.sort, members)
            heapq.heappush(heap, ((clock, *order[1:]), n + 1, flow))
        return groups


def _whole(background: bool) -> float:
    return BACKGROUND_WEIGHT if background else 1.0


def _weight(sort: tuple[str, bool], members: "Counter[tuple[str, bool]]") -> float:
    return _whole(sort[1]) / members[sort]
