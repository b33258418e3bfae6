"""One model for many: a system whose documents share batches, as each piece of work sees it."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace

import torch

from cotext.runtime.errors import CotextError
from cotext.serving.settings import BATCH_TOKENS
from cotext.serving.sharing.turns import Batch, CancelledError, Flow, Turn, Turns, Work
from cotext.serving.systems import System
from cotext.translation.document_state import FoundWindow, OpenDocument, WindowLog
from cotext.translation.open import OpenedRun
from cotext.translation.translator import DocumentPool, DocumentTranslator, Pool
from cotext.translation.window_search import RowGroup, WindowSearch

# --- The one thread that works with a model, and the work of many threads that waits for it.

IDLE_SECONDS = 5.0  # without work, after which the thread ends, to be started again


class _Notes:
    """A log of windows whose notes are taken by the thread of the work, as it may wait for a disk."""

    def __init__(self, own: WindowLog, flow: Flow) -> None:
        self._own, self._flow = own, flow

    def found(self, document: int) -> Sequence[FoundWindow]:
        return self._own.found(document)

    def note(self, document: int, window: FoundWindow) -> None:
        self._flow.progress.windows.append((self._own, document, window))


class ModelThread:
    """A model that one thread works with: batch after batch, each of whatever waits for it.

    The documents of all flows that are opened with one search share its pool. The searches are of one model,
    or of models that no other thread works with. `batches` counts those that were searched.
    """

    def __init__(self, batch_tokens: int) -> None:
        self.batches = 0
        self._turns = Turns(batch_tokens)
        self._changed = threading.Condition()
        self._flows: dict[Flow, None] = {}
        self._pools: dict[WindowSearch, DocumentPool] = {}
        self._thread: threading.Thread | None = None
        self._holder: int | None = None  # the thread that has the model for itself
        self._threads = torch.get_num_threads()
        self._is_stopped = False

    @property
    def is_held_here(self) -> bool:
        """Whether the calling thread has the model for itself."""
        return self._holder == threading.get_ident()

    def begin(self, work: Work, search: WindowSearch, tells: bool = True) -> Flow:
        """A flow for documents of a piece of work; `tells`: the work hears of their sentences."""
        return Flow(work, self._pools.setdefault(search, DocumentPool(search)), tells=tells)

    def end(self, flow: Flow) -> None:
        """Take back a flow with all that waits in it, at the next batch."""
        flow.is_over = True  # there is time to hear of it

    def add(self, flow: Flow, opened: OpenDocument) -> None:
        """Let a document wait in a flow; it is the model's until it is complete, or the flow over.

        Raises:
            CancelledError: the server stops.
        """
        assert flow.pool is not None
        if flow.tells:
            # Those without a token, and those that a log has found.
            silent = set(range(len(opened.document.sentences))) - set(opened.kept)
            for j in sorted(silent | opened.texts.keys()):
                flow.work.on_sentence(opened.index, j, opened.texts.get(j, ""))
        opened.on_sentence = lambda sentence, text: flow.hear(opened, sentence, text)
        if opened.log is not None:
            opened.log = _Notes(opened.log, flow)
        with self._changed:
            if flow.is_over:
                return  # its error is in its inbox
            if not flow.documents:
                self._come(flow)
            flow.pool.add(opened)
            flow.documents[opened] = None
            self._tell(flow, [opened])

    @contextmanager
    def exclusively(self, work: Work) -> Iterator[None]:
        """The model for the calling thread, between two batches, when its turn comes.

        Raises:
            CancelledError: the work was cancelled while it waited, or the server stops.
        """
        if self.is_held_here:
            yield
            return
        turn = Turn()
        with self._changed:
            self._come(Flow(work, turn=turn))
        turn.granted.wait()
        if turn.error is not None:
            raise turn.error
        self._holder = threading.get_ident()
        try:
            yield
        finally:
            self._holder = None
            turn.released.set()

    def stop(self) -> None:
        """End all that waits, as cancelled; nothing is taken up any more."""
        with self._changed:
            self._is_stopped = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None:
            thread.join()

    def _come(self, flow: Flow) -> None:
        """Let a flow wait that has had nothing to be done."""
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
            if isinstance(step, Turn):
                step.granted.set()
                step.released.wait()
                continue
            self._search(step.pool, step.groups)
            with self._changed:
                for flow in dict.fromkeys(step.flows):
                    own = (group.document for group in step.groups if group.document in flow.documents)
                    self._tell(flow, list(dict.fromkeys(own)))

    def _next(self) -> Batch | Turn | None:
        """What is to be done; None: there has been nothing for a while, or the server stops."""
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

    def _chosen(self) -> Batch | Turn | None:
        ready: dict[Flow, list[RowGroup]] = {}
        for flow in list(self._flows):
            flow.look()
            if flow.is_over or flow.work.cancelled:
                self._fail(flow, CancelledError())
                continue
            try:
                ready[flow] = flow.ready(self._turns.ahead)
            except Exception as error:  # of what is asked of its sentences
                self._fail(flow, error)
        able = [flow for flow, groups in ready.items() if groups or flow.turn]
        if not able:
            return None
        head = self._turns.next(able)
        if head.turn is not None:
            self._turns.charge([(head, self._turns.batch_tokens)], self._flows)
            del self._flows[head]
            return head.turn
        batch = self._turns.batch(head, ready, self._flows)
        costs = (float(group.cost) for group in batch.groups)
        self._turns.charge(zip(batch.flows, costs, strict=True), self._flows)
        return batch

    def _search(self, pool: DocumentPool, groups: Sequence[RowGroup]) -> None:
        """Search a batch; one that fails is halved until it is known which document it fails for."""
        self.batches += 1
        failed: Exception | None = None
        try:
            pool.search(groups)
        except Exception as error:
            failed = error
        left = [group for group in groups if pool.waits(group)]
        if failed is not None and len(left) == 1:
            with self._changed:
                for flow in [flow for flow in self._flows if left[0].document in flow.documents]:
                    self._fail(flow, failed)
        elif left:
            failed = None  # its frames hold memory of the device
            for half in (left[: len(left) // 2], left[len(left) // 2 :]):
                # What has failed in the first half may have taken other documents with it.
                if rest := [group for group in half if pool.waits(group)]:
                    self._search(pool, rest)

    def _tell(self, flow: Flow, touched: Sequence[OpenDocument]) -> None:
        if flow in self._flows:
            try:
                flow.tell(touched)
            except Exception as error:  # of who listens
                self._fail(flow, error)

    def _fail(self, flow: Flow, error: BaseException) -> None:
        """End a flow, whose documents leave their pool."""
        flow.is_over = True
        del self._flows[flow]
        for opened in flow.documents:
            assert flow.pool is not None
            flow.pool.remove(opened)
        flow.documents.clear()
        flow.end(error)


class _SharedPool:
    """The documents of one call, which wait for the model among those of all others."""

    def __init__(self, model: ModelThread, flow: Flow) -> None:
        self._model, self._flow = model, flow
        self._documents: dict[OpenDocument, None] = {}
        self._finished: list[OpenDocument] = []

    @property
    def documents(self) -> Sequence[OpenDocument]:
        return list(self._documents)

    def add(self, opened: OpenDocument) -> None:
        self._documents[opened] = None
        self._model.add(self._flow, opened)

    def advance(self, on_sentences: Callable[[int], None]) -> None:
        """Wait for what a batch brings, or raise the error that ended it."""
        brought = self._flow.inbox.get()
        if isinstance(brought, BaseException):
            raise brought
        for log, document, window in brought.windows:
            log.note(document, window)
        on_sentences(brought.sentences)
        self._finished += brought.finished

    def take_finished(self) -> Sequence[OpenDocument]:
        finished, self._finished = self._finished, []
        for opened in finished:
            del self._documents[opened]
        return finished

    def close(self) -> None:
        self._model.end(self._flow)


class SharedSystem:
    """A system whose model works for many threads: their documents share batches.

    `batch_tokens`: what the hypotheses of a batch take at most.
    """

    def __init__(self, system: System, batch_tokens: int = BATCH_TOKENS) -> None:
        self._model = ModelThread(batch_tokens)
        # One search for each, whichever thread comes first.
        self._opened = {fast: system.opened.greedy() if fast else system.opened for fast in (False, True)}
        self._listing = system.opened
        with suppress(CotextError):  # of systems whose search has no lists
            self._listing = system.opened.listing()
        for opened in (*self._opened.values(), self._listing):
            assert opened.translator.windows

    @property
    def batches(self) -> int:
        """How many batches were searched so far."""
        return self._model.batches

    def opened_for(self, work: Work, fast: bool = False, lists: bool = False) -> OpenedRun:
        """The run, whose translator may be used in any thread, beside others; `fast`: greedily.

        `lists`: with the best translations of every sentence, where its search has them.
        Its `translate` raises `CancelledError` once the work is cancelled. What reads the model otherwise
        (alignment, scoring, analysis) goes into `exclusively`.
        """
        opened = self._listing if lists else self._opened[fast]
        return replace(opened, translator=self._sharing(opened.translator, work))

    def _sharing(self, translator: DocumentTranslator, work: Work, tells: bool = True) -> DocumentTranslator:
        """A translator as one piece of work sees it; `tells`: the work hears of its sentences."""

        def make_pool(search: WindowSearch) -> Pool:
            if self._model.is_held_here:
                return DocumentPool(search)
            return _SharedPool(self._model, self._model.begin(work, search, tells))

        found = translator.with_pools(make_pool)
        if translator.first_pass is not None:
            found.first_pass = self._sharing(translator.first_pass, work, tells=False)
        return found

    def exclusively(self, work: Work) -> AbstractContextManager[None]:
        """The model for this thread alone, between two batches, when its turn comes.

        Raises:
            CancelledError: the work was cancelled while it waited, or the server stops.
        """
        return self._model.exclusively(work)

    def stop(self) -> None:
        """Cancel all work, and take up no more."""
        self._model.stop()
