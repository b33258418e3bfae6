"""Systems whose models serve many threads, with fair queueing of client requests, weighted by tokens.

    clock of a flow      increases by the tokens searched for it, divided by its weight
    clock of the model   increases by the tokens searched for all flows, divided by all weights

A new flow starts at the clock of the model, and the flow with the smallest clock is the next. So a long
document gets only its share of every batch, and a short document that comes later is in the next batch. The
flows of a client share one weight. Files have an eighth of the weight of texts, for which a client waits.
(Parekh and Gallager 1993, "generalized processor sharing".)
"""

import heapq
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count

import torch

from cotext.runtime import CotextError
from cotext.serving.settings import BATCH_TOKENS
from cotext.serving.systems import System
from cotext.translation.document_state import FoundWindow, OpenDocument, WindowLog
from cotext.translation.open import OpenedRun
from cotext.translation.translator import DocumentPool, DocumentTranslator, Pool
from cotext.translation.window_search import BATCHES_AHEAD, RowGroup, WindowSearch

# --- Work of clients.


class CancelledError(Exception):
    """The work was cancelled."""


@dataclass(slots=True, eq=False)
class Work:
    """The work of a request or a job; can be cancelled from any thread.

    `on_sentence` is called with document index, sentence index and translation when a sentence is finished.
    It may be called in the model thread, so it must not block. `background`: low priority, for files.
    """

    client: str = ""
    background: bool = False
    on_sentence: Callable[[int, int, str], None] = lambda document, sentence, target: None
    cancelled: bool = False

    def cancel(self) -> None:
        """Stop the work before the next batch."""
        self.cancelled = True


BACKGROUND_WEIGHT = 1 / 8
_NUMBERS = count()


@dataclass(slots=True)
class Progress:
    """New results of a flow: finished sentences, windows to log, complete documents."""

    sentences: int = 0
    windows: list[tuple[WindowLog, int, FoundWindow]] = field(default_factory=list)
    finished: list[OpenDocument] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Flow:
    """What a `Work` waits for: the search of documents of a pool, or exclusive use of the model.

    The thread of the flow reads `inbox`: progress, or the error that ended the flow. Without a pool, the
    first progress grants exclusive use of the model until `released`. `tells`: whether to call
    `Work.on_sentence`. `unreported`: finished sentences. `background`: copy of the work's
    attribute, which other threads may change while a batch is made.
    """

    work: Work
    pool: DocumentPool | None = None
    released: threading.Event = field(default_factory=threading.Event)
    tells: bool = True
    clock: float = 0.0
    served: float = 0.0  # tokens
    documents: dict[OpenDocument, None] = field(default_factory=dict)
    unreported: list[tuple[int, int, str]] = field(default_factory=list)
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
        """Return groups of rows (windows to search) of the documents, up to a number of tokens."""
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
        """Send new results of some documents to the thread of the flow, and remove complete documents."""
        assert self.pool is not None
        for opened in touched:
            self.pool.settle(opened)
            if opened.done:
                self.pool.remove(opened)
                del self.documents[opened]
                self.progress.finished.append(opened)
        finished, self.unreported = self.unreported, []
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
        """Return groups in the order of the queue, up to `ahead` tokens."""
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


# --- Systems: the documents of many threads share batches.

IDLE_SECONDS = 5.0  # time without work after which the thread ends; it is started again when needed


class _Notes:
    """A log of windows; the thread of the client writes its entries, because writing may block."""

    def __init__(self, own: WindowLog, flow: Flow) -> None:
        self._own, self._flow = own, flow

    def found(self, document: int) -> Sequence[FoundWindow]:
        return self._own.found(document)

    def note(self, document: int, window: FoundWindow) -> None:
        self._flow.progress.windows.append((self._own, document, window))


class SharedSystem:
    """A system for many threads, whose documents share batches of at most `batch_tokens`.

    One thread runs the model on batches of the waiting documents. Documents of all flows with the same search
    share its pool. `batches` counts the batches.
    """

    def __init__(self, system: System, batch_tokens: int = BATCH_TOKENS) -> None:
        self.batches = 0
        self._opened = self._listing = system.opened
        with suppress(CotextError):  # systems without n-best search
            self._listing = system.opened.listing()
        for opened in (self._opened, self._listing):
            assert opened.translator.windows  # created now, so that all threads share them
        self._turns = BatchScheduler(batch_tokens)
        self._changed = threading.Condition()
        self._flows: dict[Flow, None] = {}
        self._pools: dict[WindowSearch, DocumentPool] = {}
        self._thread: threading.Thread | None = None
        self._holder: int | None = None  # the thread with exclusive use of the model
        self._threads = torch.get_num_threads()
        self._is_stopped = False

    def opened_for(self, work: Work, lists: bool = False) -> OpenedRun:
        """Return the run with a thread-safe translator; `lists`: n-best lists if possible.

        Its `translate` raises `CancelledError` after the work is cancelled. Other uses of the model
        (alignment, scoring, analysis) need `exclusively`.
        """
        opened = self._listing if lists else self._opened
        return replace(opened, translator=self._sharing(opened.translator, work))

    def _sharing(self, translator: DocumentTranslator, work: Work, tells: bool = True) -> DocumentTranslator:
        """Return a translator that queues its documents; `tells`: call `Work.on_sentence`."""

        def make_pool(search: WindowSearch) -> Pool:
            if self._is_held_here:
                return DocumentPool(search)
            pool = self._pools.setdefault(search, DocumentPool(search))
            return _SharedPool(self, Flow(work, pool, tells=tells))

        sharing = translator.with_pools(make_pool)
        if translator.first_pass is not None:
            sharing.first_pass = self._sharing(translator.first_pass, work, tells=False)
        return sharing

    @property
    def _is_held_here(self) -> bool:
        """Whether the calling thread has exclusive use of the model."""
        return self._holder == threading.get_ident()

    def add(self, flow: Flow, opened: OpenDocument) -> None:
        """Queue a document; only the model thread may use it until it is complete or the flow has ended.

        Raises CancelledError if the server stops.
        """
        assert flow.pool is not None
        if flow.tells:
            # Sentences without a token and those from a log are not searched: report them now.
            silent = set(range(len(opened.document.sentences))) - set(opened.kept)
            for j in sorted(silent | opened.texts.keys()):
                flow.work.on_sentence(opened.index, j, opened.texts.get(j, ""))
        opened.on_sentence = lambda sentence, text: flow.unreported.append((opened.index, sentence, text))
        if opened.log is not None:
            opened.log = _Notes(opened.log, flow)
        with self._changed:
            if flow.is_over:
                return  # the error is in the inbox
            if not flow.documents:
                self._enqueue(flow)
            flow.pool.add(opened)
            flow.documents[opened] = None
            self._tell(flow, [opened])

    @contextmanager
    def exclusively(self, work: Work) -> Iterator[None]:
        """Give the calling thread exclusive use of the model between two batches.

        Raises CancelledError if the work was cancelled while it waited, or the server stops.
        """
        if self._is_held_here:
            yield
            return
        flow = Flow(work)
        with self._changed:
            self._enqueue(flow)
        if isinstance(granted := flow.inbox.get(), BaseException):
            raise granted
        self._holder = threading.get_ident()
        try:
            yield
        finally:
            self._holder = None
            flow.released.set()

    def stop(self) -> None:
        """Cancel all waiting work, and accept no more."""
        with self._changed:
            self._is_stopped = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None:
            thread.join()

    def _enqueue(self, flow: Flow) -> None:
        """Queue a flow that was idle."""
        if self._is_stopped:
            raise CancelledError("the server stops")
        self._turns.begin(flow)
        self._flows[flow] = None
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="model", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _run(self) -> None:
        torch.set_num_threads(self._threads)
        while (step := self._next()) is not None:
            if isinstance(step, Flow):
                step.inbox.put(Progress())
                step.released.wait()
                continue
            pool = step[0][0].pool
            assert pool is not None
            self._search(pool, [group for _, group in step])
            with self._changed:
                for flow in dict.fromkeys(flow for flow, _ in step):
                    documents = (group.document for _, group in step if group.document in flow.documents)
                    self._tell(flow, list(dict.fromkeys(documents)))

    def _next(self) -> Batch | Flow | None:
        """Return the next step; None if there was no work for a while, or the server stops."""
        with self._changed:
            while not self._is_stopped:
                if (step := self._chosen()) is not None:
                    return step
                if not self._changed.wait(IDLE_SECONDS) and not self._flows:
                    break
            for flow in list(self._flows):
                self._fail(flow, CancelledError("the server stops"))
            self._thread = None
            return None

    def _chosen(self) -> Batch | Flow | None:
        ready: dict[Flow, list[RowGroup]] = {}
        for flow in list(self._flows):
            flow.background = flow.work.background
            if flow.is_over or flow.work.cancelled:
                self._fail(flow, CancelledError())
                continue
            try:
                ready[flow] = flow.ready(self._turns.ahead)
            except Exception as error:  # raised, for example, by the constraints of its sentences
                self._fail(flow, error)
        able = [flow for flow, groups in ready.items() if groups or flow.pool is None]
        if not able:
            return None
        head = min(able, key=lambda flow: flow.order)
        if head.pool is None:
            self._turns.charge([(head, self._turns.batch_tokens)], self._flows)
            del self._flows[head]
            return head
        batch = self._turns.batch(head, ready, self._flows)
        self._turns.charge([(flow, float(group.cost)) for flow, group in batch], self._flows)
        return batch

    def _search(self, pool: DocumentPool, groups: Sequence[RowGroup]) -> None:
        """Search a batch; if it fails, halve it to find the document that fails."""
        self.batches += 1
        failed: Exception | None = None
        try:
            pool.search(groups)
        except Exception as error:
            failed = error
        remaining = [group for group in groups if pool.is_ready(group)]
        if failed is not None and len(remaining) == 1:
            with self._changed:
                for flow in [flow for flow in self._flows if remaining[0].document in flow.documents]:
                    self._fail(flow, failed)
        elif remaining:
            failed = None  # its traceback holds device memory
            for half in (remaining[: len(remaining) // 2], remaining[len(remaining) // 2 :]):
                # A failure in the first half may have ended documents of the second.
                if rest := [group for group in half if pool.is_ready(group)]:
                    self._search(pool, rest)

    def _tell(self, flow: Flow, touched: Sequence[OpenDocument]) -> None:
        if flow in self._flows:
            try:
                flow.tell(touched)
            except Exception as error:  # raised by a listener
                self._fail(flow, error)

    def _fail(self, flow: Flow, error: BaseException) -> None:
        """End a flow with an error, and remove its documents from the pool."""
        flow.is_over = True
        del self._flows[flow]
        for opened in flow.documents:
            assert flow.pool is not None
            flow.pool.remove(opened)
        flow.documents.clear()
        flow.inbox.put(error)


class _SharedPool:
    """The pool of one call, whose documents are in the queue of the model."""

    def __init__(self, shared: SharedSystem, flow: Flow) -> None:
        self._shared, self._flow = shared, flow
        self._documents: dict[OpenDocument, None] = {}
        self._finished: list[OpenDocument] = []

    @property
    def documents(self) -> Sequence[OpenDocument]:
        return list(self._documents)

    def add(self, opened: OpenDocument) -> None:
        self._documents[opened] = None
        self._shared.add(self._flow, opened)

    def advance(self, on_sentences: Callable[[int], None]) -> None:
        """Wait for the progress of a batch, or raise the error that ended the flow."""
        progress = self._flow.inbox.get()
        if isinstance(progress, BaseException):
            raise progress
        for log, document, window in progress.windows:
            log.note(document, window)
        on_sentences(progress.sentences)
        self._finished += progress.finished

    def take_finished(self) -> Sequence[OpenDocument]:
        finished, self._finished = self._finished, []
        for opened in finished:
            del self._documents[opened]
        return finished

    def close(self) -> None:
        self._flow.is_over = True  # its documents are dropped before the next batch
