"""One model for many: a system whose documents share batches, as each piece of work sees it."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from cotext.serving.settings import BATCH_TOKENS
from cotext.serving.sharing.model_thread import ModelThread
from cotext.serving.sharing.turns import Flow
from cotext.serving.sharing.work import Work
from cotext.serving.systems import System
from cotext.translation.document_state import OpenDocument
from cotext.translation.open import OpenedRun
from cotext.translation.pool import Pool
from cotext.translation.translator import DocumentTranslator


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


class _Shared(DocumentTranslator):
    """The translator of a system as one piece of work sees it; `tells`: it hears of the sentences."""

    def __init__(
        self, shared_model: ModelThread, translator: DocumentTranslator, work: Work, tells: bool = True
    ) -> None:
        self.__dict__.update(translator.__dict__, windows=translator.windows)
        self._shared_model, self._work, self._tells = shared_model, work, tells
        if translator.first_pass is not None:
            self.first_pass = _Shared(shared_model, translator.first_pass, work, tells=False)

    def _pool(self) -> Pool:
        if self._shared_model.is_held_here:
            return super()._pool()
        flow = self._shared_model.begin(self._work, self.windows, self._tells)
        return _SharedPool(self._shared_model, flow)


class SharedSystem:
    """A system whose model works for many threads: their documents share batches.

    `batch_tokens`: what the hypotheses of a batch take at most.
    """

    def __init__(self, system: System, batch_tokens: int = BATCH_TOKENS) -> None:
        self._model = ModelThread(batch_tokens)
        # One search for each, whichever thread comes first.
        self._opened = {fast: system.opened.greedy() if fast else system.opened for fast in (False, True)}
        for opened in self._opened.values():
            assert opened.translator.windows

    @property
    def batches(self) -> int:
        """How many batches were searched so far."""
        return self._model.batches

    def opened_for(self, work: Work, fast: bool = False) -> OpenedRun:
        """The run, whose translator may be used in any thread, beside others; `fast`: greedily.

        Its `translate` raises `CancelledError` once the work is cancelled. What reads the model otherwise
        (alignment, scoring, analysis) goes into `exclusively`.
        """
        opened = self._opened[fast]
        return replace(opened, translator=_Shared(self._model, opened.translator, work))

    def exclusively(self, work: Work) -> AbstractContextManager[None]:
        """The model for this thread alone, between two batches, when its turn comes.

        Raises:
            CancelledError: the work was cancelled while it waited, or the server stops.
        """
        return self._model.exclusively(work)

    def stop(self) -> None:
        """Cancel all work, and take up no more."""
        self._model.stop()
