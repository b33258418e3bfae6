"""What every dialect asks: texts to be translated, for a client, by a system."""

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, TypeVar

from cotext.data.splitting import Splitting
from cotext.files.blocks import Block, Contents
from cotext.files.translate_blocks import BlockDocuments
from cotext.runtime.errors import CotextError, is_out_of_memory
from cotext.serving.answers import Answers, Asked, Listener, SourceSentence, TextAnswer
from cotext.serving.errors import RequestError, stopping, without_paths
from cotext.serving.glossary_store import GlossaryStore
from cotext.serving.jobs import Jobs
from cotext.serving.record import Client, note_system, note_translated
from cotext.serving.session_memory import Sessions
from cotext.serving.settings import ServerSettings
from cotext.serving.sharing import CancelledError, SharedSystem, Work
from cotext.serving.systems import System, Systems
from cotext.translation.document_state import WindowLog
from cotext.translation.translator import alternatives
from cotext.translation.wishes import Wishes

__all__ = ["Client", "Listener", "Service", "SourceSentence", "TextAnswer", "TextRequest"]

T = TypeVar("T")
RETRY_SECONDS: Final = 10.0
_NUMBERS = count()


@dataclass(frozen=True, slots=True)
class TextRequest:
    """Documents to be translated, each as one, as blocks in reading order.

    Blocks without `translate` are context; those without `split` are a sentence each. `given`: translations
    of sentences that are not searched, and are context of those after them, by document and sentence as they
    are counted once blocks are split. `fast`: greedy search instead of the run's. `alternatives`: as many
    further translations as the run's beam has, none with terms or copied text. `log`: windows that were
    found before, and where others are noted; a request with one is computed by itself.
    """

    system: System
    documents: tuple[tuple[Block, ...], ...]
    wishes: Wishes = field(default_factory=Wishes)
    given: Mapping[int, Mapping[int, str]] = field(default_factory=dict)
    fast: bool = False
    alternatives: bool = False
    splitting: Splitting | None = field(default_factory=Splitting)
    log: WindowLog | None = None


class Service:
    """Translation for clients: systems that share their models, limits, and what is kept on disk."""

    def __init__(self, systems: Systems, settings: ServerSettings) -> None:
        self.systems, self.settings = systems, settings
        self.sessions = Sessions()
        self.glossaries = GlossaryStore(settings.state)
        self._shared = {system.name: SharedSystem(system, settings.batch_tokens) for system in systems}
        self.jobs = Jobs(systems, self._shared, settings)
        self._answers = Answers(settings.max_waiting, settings.max_waiting_of_client)
        # Each request waits in a thread, and so may what other handlers do.
        self._threads = ThreadPoolExecutor(2 * settings.max_waiting, thread_name_prefix="request")
        self.is_stopping = False

    async def start(self) -> None:
        """Begin what goes on without requests; called once the server's loop runs, before any request.

        Raises:
            CotextError: as `Jobs.start`.
        """
        await asyncio.to_thread(self.jobs.start)

    async def stop(self) -> None:
        """End it: what is on disk goes on when the server is started again.

        Requests get as long as `stop_seconds`; the rest is cancelled.
        """
        self.is_stopping = True
        if tasks := [asked.task for asked in self._answers.asked if asked.task is not None]:
            await asyncio.wait(tasks, timeout=self.settings.stop_seconds)
        await asyncio.to_thread(self.jobs.close)
        for shared in self._shared.values():
            await asyncio.to_thread(shared.stop)
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def folder_names(self) -> dict[Path, str]:
        """Folders of this machine that no client hears of, and the part of each that is told instead."""
        folders = [*(system.opened.folder for system in self.systems), self.settings.state]
        return {folder: folder.absolute().name for folder in folders}

    @property
    def waiting(self) -> int:
        """Requests whose texts are being translated, or wait for it."""
        return len(self._answers.asked)

    def shared(self, system: System) -> SharedSystem:
        """The model of a system, to be worked with in a thread."""
        return self._shared[system.name]

    async def translate(
        self, request: TextRequest, client: Client, listener: Listener | None = None
    ) -> TextAnswer:
        """Translate; equal requests of a client are computed once, while they wait and for a while after.

        A task that is cancelled, as that of a client that is gone, stops the work a few seconds later, unless
        somebody else waits for it. Nothing of the answer may be changed: others get the same.

        Raises:
            RequestError: what the client has to put right (400), or too much of it (413, 429, 503).
        """
        if self.is_stopping:
            raise stopping()
        note_system(request.system.name)
        # In a thread, as a text may have a hundred thousand blocks.
        key = await asyncio.get_running_loop().run_in_executor(self._threads, _key, request, client)
        compute = partial(self._compute, request)
        try:
            async with asyncio.timeout(self.settings.request_seconds):
                return await self._answers.answer(key, client.name, compute, listener)
        except TimeoutError:
            raise RequestError(
                503,
                f"not done within {self.settings.request_seconds:g} seconds; send less at once, or try later",
                RETRY_SECONDS,
            ) from None

    async def in_thread(self, call: Callable[[], T], work: Work) -> T:
        """Run what takes long in a thread; cancelled, `work` stops, and nobody waits for the thread.

        Raises:
            RequestError: what the call raised that a client can put right, or is to know of.
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
            raise RequestError(413, "a sentence takes more memory than there is; send shorter ones") from None

    async def _compute(self, request: TextRequest, asked: Asked) -> TextAnswer:
        return await self.in_thread(partial(self._translate, request, asked), asked.work)

    def _translate(self, request: TextRequest, asked: Asked) -> TextAnswer:
        work, shared = asked.work, self.shared(request.system)
        opened = shared.opened_for(work, request.fast)
        splitter = request.splitting.splitter(opened.languages.source) if request.splitting else None
        contents = Contents([list(blocks) for blocks in request.documents])
        alone = partial(shared.exclusively, work)
        texts = BlockDocuments(opened, contents, splitter, request.wishes, alone, request.given)
        self.check_sentences(sum(len(document.sentences) for document in texts.documents))
        texts.check()
        asked.start([SourceSentence(*each) for each in texts.sentences])

        def on_sentence(index: int, sentence: int, target: str) -> None:
            own = taken.get(index, {}).get(sentence)
            text = texts.written(index, sentence, target) if own is None else own
            asked.hear(texts.numbers[index], sentence, text)

        everything = range(len(texts.documents))
        guide, taken = texts.guide(everything), texts.taken(everything)
        work.on_sentence = on_sentence
        lists = request.alternatives and guide is None
        translator = shared.opened_for(work, request.fast, lists).translator
        found = dict(translator.translate(texts.documents, guide=guide, taken=taken, log=request.log))
        note_translated(found.values())
        pairs = (replace(pair, document=texts.numbers[pair.document]) for pair in texts.paired(found))
        others = [texts.blocks(each) for each in alternatives(found)]
        return TextAnswer(texts.blocks(found), list(pairs), others)

    def check_sentences(self, sentences: int) -> None:
        """Refuse a request of more sentences than are taken at once, with RequestError 413."""
        if sentences > self.settings.max_sentences:
            raise RequestError(
                413,
                f"{sentences:,} sentences; {self.settings.max_sentences:,} are taken at once: send them in "
                "several requests, or as a file",
            )


def _key(request: TextRequest, client: Client) -> str:
    """What tells requests apart whose answers may differ, or are not for the same eyes."""
    by_itself = None if request.log is None else next(_NUMBERS)
    given = sorted((document, sorted(own.items())) for document, own in request.given.items())
    parts = (
        client.name,
        request.system.name,
        request.documents,
        request.wishes.settings,
        given,
        request.fast,
        request.alternatives,
        request.splitting,
        by_itself,
    )
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()
