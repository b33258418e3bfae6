"""The translation service that all APIs use."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, TypeVar

from cotext.data.splitting import Splitter
from cotext.files.blocks import Block, Contents
from cotext.files.translate_blocks import BlockDocuments
from cotext.runtime import CotextError, is_out_of_memory
from cotext.serving.answers import (
    Listener,
    PendingRequest,
    RequestCache,
    Sessions,
    SourceSentence,
    TextAnswer,
)
from cotext.serving.jobs import Jobs
from cotext.serving.record import CURRENT, RequestError, note_translated, stopping, without_paths
from cotext.serving.settings import ServerSettings
from cotext.serving.sharing import CancelledError, SharedSystem, Work
from cotext.serving.state import GlossaryStore
from cotext.serving.systems import System, Systems
from cotext.translation.document_state import WindowLog
from cotext.translation.open import Terminology
from cotext.translation.translator import alternatives

T = TypeVar("T")
IN_LOOP_CHARACTERS: Final = 4096  # keys of longer texts are computed in a thread, not in the event loop
_NUMBERS = count()


@dataclass(frozen=True, slots=True)
class TextRequest:
    """Documents to translate, as blocks in reading order.

    `given`: fixed translations, by document and sentence (after splitting); they are context of later
    sentences. `alternatives`: also return other translations of the beam, unless there are terms or copied
    texts. `log`: windows that were found before, and a log for new ones; such requests are not cached.
    """

    system: System
    documents: tuple[tuple[Block, ...], ...]
    terminology: Terminology = field(default_factory=Terminology)
    given: Mapping[int, Mapping[int, str]] = field(default_factory=dict)
    alternatives: bool = False
    log: WindowLog | None = None


class Service:
    """Translation for clients: systems with shared models, limits, and data on disk."""

    def __init__(self, systems: Systems, settings: ServerSettings) -> None:
        self.systems, self.settings = systems, settings
        self.sessions = Sessions()
        self.glossaries = GlossaryStore(settings.state)
        self._shared = {system.name: SharedSystem(system, settings.batch_tokens) for system in systems}
        self.jobs = Jobs(systems, self._shared, settings)
        self._requests = RequestCache(settings.max_waiting, settings.max_waiting_of_client)
        # Each request waits in a thread; other handlers use threads, too.
        self._threads = ThreadPoolExecutor(2 * settings.max_waiting, thread_name_prefix="request")
        self.is_stopping = False

    async def start(self) -> None:
        """Start the jobs, before the first request; raise the errors of `Jobs.start`."""
        await asyncio.to_thread(self.jobs.start)

    async def stop(self) -> None:
        """Stop; requests have `stop_seconds` to finish, and jobs are resumed at the next start."""
        self.is_stopping = True
        if tasks := [request.task for request in self._requests.pending if request.task is not None]:
            await asyncio.wait(tasks, timeout=self.settings.stop_seconds)
        await asyncio.to_thread(self.jobs.close)
        for shared in self._shared.values():
            await asyncio.to_thread(shared.stop)
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def folder_names(self) -> dict[Path, str]:
        """Folders of this machine, and the names that replace them in messages for clients."""
        folders = [*(system.opened.folder for system in self.systems), self.settings.state]
        return {folder: folder.absolute().name for folder in folders}

    def shared(self, system: System) -> SharedSystem:
        """Return the shared model of a system, for use in threads."""
        return self._shared[system.name]

    async def translate(
        self, request: TextRequest, client: str, listener: Listener | None = None
    ) -> TextAnswer:
        """Translate; equal requests of a client are computed once, and answers are cached for a while.

        If the task is cancelled, because the client disconnects, the work stops a few seconds later unless
        an equal request waits for it. The answer is shared and must not be modified. Raises RequestError:
        400, the request is invalid; 413, 429, 503, it exceeds a limit.
        """
        if self.is_stopping:
            raise stopping()
        CURRENT.get().system = request.system.name
        if [*map(len, request.documents)] == [1] and len(request.documents[0][0].text) <= IN_LOOP_CHARACTERS:
            key = _key(request, client)
        else:  # in a thread, because a text may have a hundred thousand blocks
            key = await asyncio.get_running_loop().run_in_executor(self._threads, _key, request, client)

        async def compute(pending: PendingRequest) -> TextAnswer:
            return await self.in_thread(partial(self._translate, request, pending), pending.work)

        async with self.in_time():
            return await self._requests.answer(key, client, compute, listener)

    @asynccontextmanager
    async def in_time(self) -> AsyncIterator[None]:
        """Limit the time of a request; raise RequestError 503 when it is over."""
        seconds = self.settings.request_seconds
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            message = f"not done within {seconds:g} seconds; send less text at once, or try again later"
            raise RequestError(503, message) from None

    async def in_thread(self, call: Callable[[], T], work: Work) -> T:
        """Run a call in a thread; if the task is cancelled, cancel `work` without waiting for the thread.

        Raises RequestError: an error of the call that concerns the client.
        """
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, partial(copy_context().run, call))
        except asyncio.CancelledError:
            work.cancel()
            raise
        except CancelledError:
            raise stopping() from None
        except CotextError as error:
            raise RequestError(400, without_paths(str(error), self.folder_names)) from None
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            raise RequestError(413, "a sentence needs more memory than is available; shorten it") from None

    def _translate(self, request: TextRequest, pending: PendingRequest) -> TextAnswer:
        work, shared = pending.work, self.shared(request.system)
        opened = shared.opened_for(work)
        splitter = Splitter(opened.languages.source)
        contents = Contents([list(blocks) for blocks in request.documents])
        alone = partial(shared.exclusively, work)
        texts = BlockDocuments(opened, contents, splitter, request.terminology, alone, request.given)
        self.check_sentences(sum(len(document.sentences) for document in texts.documents))
        texts.check()
        pending.publish([SourceSentence(*sentence) for sentence in texts.sentences])

        def on_sentence(index: int, sentence: int, target: str) -> None:
            fixed = taken.get(index, {}).get(sentence)
            text = texts.written(index, sentence, target) if fixed is None else fixed
            text = texts.for_people(index, sentence, text)
            pending.publish((texts.numbers[index], sentence, text))

        indices = range(len(texts.documents))
        guide, taken = texts.guide(indices), texts.taken(indices)
        work.on_sentence = on_sentence
        if request.alternatives and guide is None:
            opened = shared.opened_for(work, lists=True)
        translations = dict(
            opened.translator.translate(texts.documents, guide=guide, taken=taken, log=request.log)
        )
        note_translated(translations.values())
        pairs = (replace(pair, document=texts.numbers[pair.document]) for pair in texts.paired(translations))
        others = [texts.blocks(version) for version in alternatives(translations)]
        return TextAnswer(texts.blocks(translations), list(pairs), others)

    def check_sentences(self, sentences: int) -> None:
        """Raise RequestError 413 if a request has too many sentences."""
        if sentences > (most := self.settings.max_sentences):
            message = f"{sentences:,} sentences, but at most {most:,} are allowed"
            raise RequestError(413, f"{message}; send several requests, or a file")


def _key(request: TextRequest, client: str) -> str:
    """Return a key that is equal only for equal requests of one client; unique for requests with a log."""
    unique = None if request.log is None else next(_NUMBERS)
    given = sorted((document, sorted(fixed.items())) for document, fixed in request.given.items())
    texts = (request.documents, given, request.terminology.settings, request.alternatives)
    parts = (client, request.system.name, texts, unique)
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()
