"""One model for many: the work of all clients on it, each in a thread of its own."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from cotext.data.documents import Document
from cotext.decoding.document_state import WindowLog
from cotext.decoding.open import OpenedRun
from cotext.decoding.translator import DocumentTranslator, Translation
from cotext.files.guide import Guide
from cotext.serving.systems import System


class CancelledError(Exception):
    """Nobody waits for this any more."""


@dataclass(slots=True)
class Work:
    """A piece of work of a client: it can be cancelled from any thread, and hears of sentences as they come.

    `on_sentence` is called with the index of the document, of the sentence in it, and its translation.
    `background`: of files, which give way to texts that somebody waits for.
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


class _Shared(DocumentTranslator):
    """The translator of a system as one piece of work sees it."""

    def __init__(self, owner: "SharedSystem", translator: DocumentTranslator, work: Work) -> None:
        self.__dict__.update(translator.__dict__)
        self._owner, self._own, self._work = owner, translator, work

    def translate(
        self,
        documents: Iterable[Document],
        on_sentences: Callable[[int], None] = lambda count: None,
        guide: Guide | None = None,
        taken: Mapping[int, Mapping[int, str]] | None = None,
        log: WindowLog | None = None,
    ) -> Iterator[tuple[int, Translation]]:
        """As any translator, in batches shared with the others."""

        def unless_cancelled(count: int) -> None:
            if self._work.cancelled:
                raise CancelledError
            on_sentences(count)

        with self._owner.exclusively(self._work):
            for index, translation in self._own.translate(documents, unless_cancelled, guide, taken, log):
                for j, target in enumerate(translation.document.sentences):
                    self._work.on_sentence(index, j, target)
                yield index, translation


class SharedSystem:
    """A system whose model works for one thread at a time."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._model = threading.Lock()

    def opened_for(self, work: Work, fast: bool = False) -> OpenedRun:
        """The run, whose translator may be used in the calling thread; `fast`: greedily.

        What reads the model otherwise (alignment, scoring, analysis) goes into `exclusively`.
        """
        opened = self._system.opened
        return replace(opened, translator=_Shared(self, opened.translator, work))

    @contextmanager
    def exclusively(self, work: Work) -> Iterator[None]:
        """The model for this thread alone, when its turn comes.

        Raises:
            CancelledError: the work was cancelled while it waited.
        """
        with self._model:
            if work.cancelled:
                raise CancelledError
            yield
