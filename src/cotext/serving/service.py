"""What every dialect asks: texts to be translated, for a client, by a system."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from anyio import to_thread

from cotext.data.splitting import Splitting
from cotext.decoding.document_state import WindowLog
from cotext.decoding.translate_blocks import BlockDocuments, PairedSentence
from cotext.decoding.wishes import Wishes
from cotext.files.blocks import Block, Contents
from cotext.runtime.errors import CotextError
from cotext.serving.errors import RequestError, without_paths
from cotext.serving.glossary_store import GlossaryStore
from cotext.serving.jobs import Jobs
from cotext.serving.record import note_translated
from cotext.serving.session_memory import Sessions
from cotext.serving.settings import ServerSettings
from cotext.serving.sharing import SharedSystem, Work
from cotext.serving.systems import System, Systems

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks: nothing of one is told another. `name` may stand in logs and files; a key may not."""

    name: str = "anybody"


@dataclass(frozen=True, slots=True)
class TextRequest:
    """Documents to be translated, each as one, as blocks in reading order.

    Blocks without `translate` are context; those without `split` are a sentence each. `given`: translations
    of sentences that are not searched, and are context of those after them, by document and sentence as they
    are counted once blocks are split. `fast`: greedy search instead of the run's. `log`: windows that were
    found before, and where others are noted; a request with one is worked at by itself.
    """

    system: System
    documents: tuple[tuple[Block, ...], ...]
    wishes: Wishes = field(default_factory=Wishes)
    given: Mapping[int, Mapping[int, str]] = field(default_factory=dict)
    fast: bool = False
    splitting: Splitting | None = field(default_factory=Splitting)
    log: WindowLog | None = None


@dataclass(frozen=True, slots=True)
class TextAnswer:
    """Their translation: as many documents of as many blocks, and the sentences beside their translations."""

    documents: list[list[Block]]
    pairs: list[PairedSentence]


@dataclass(frozen=True, slots=True)
class SourceSentence:
    """A sentence of a request, before it is translated; all count from 0, `number` within the document."""

    document: int
    block: int
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Listener:
    """What a client hears while it waits, in the loop of the server: all sentences, then each when done."""

    on_start: Callable[[list[SourceSentence]], None] = lambda sentences: None
    on_sentence: Callable[[int, int, str], None] = lambda document, number, target: None


class Service:
    """Translation for clients: systems that share their models, limits, and what is kept on disk."""

    def __init__(self, systems: Systems, settings: ServerSettings) -> None:
        self.systems, self.settings = systems, settings
        self.sessions = Sessions()
        self.glossaries = GlossaryStore(settings.state)
        self._shared = {system.name: SharedSystem(system) for system in systems}
        self.jobs = Jobs(systems, self._shared, settings)

    async def start(self) -> None:
        """Begin what goes on without requests; called once the server's loop runs, before any request."""
        await to_thread.run_sync(self.jobs.start)

    async def stop(self) -> None:
        """End it: what is on disk goes on when the server is started again."""
        await to_thread.run_sync(self.jobs.close)

    @property
    def folders(self) -> list[Path]:
        """Folders of this machine that no client hears of."""
        return [*(system.opened.folder for system in self.systems), self.settings.state]

    def shared(self, system: System) -> SharedSystem:
        """The model of a system, to be worked with in a thread."""
        return self._shared[system.name]

    async def translate(
        self, request: TextRequest, client: Client, listener: Listener | None = None
    ) -> TextAnswer:
        """Translate; a task that is cancelled, as that of a client that is gone, stops the work.

        Raises:
            RequestError: what the client has to put right (400), or too much of it (413, 429, 503).
        """
        loop = asyncio.get_running_loop()
        heard = listener or Listener()

        def on_sentence(document: int, number: int, target: str) -> None:
            loop.call_soon_threadsafe(heard.on_sentence, document, number, target)

        def on_start(sentences: list[SourceSentence]) -> None:
            loop.call_soon_threadsafe(heard.on_start, sentences)

        work = Work(client.name, on_sentence=on_sentence)
        return await self.in_thread(partial(self._translate, request, work, on_start), work)

    async def in_thread(self, call: Callable[[], T], work: Work) -> T:
        """Run what takes long in a thread; cancelled, `work` stops, and nobody waits for the thread."""
        try:
            return await to_thread.run_sync(call, abandon_on_cancel=True)
        except asyncio.CancelledError:
            work.cancel()
            raise
        except CotextError as error:
            raise RequestError(400, without_paths(str(error), self.folders)) from None

    def _translate(
        self, request: TextRequest, work: Work, on_start: Callable[[list[SourceSentence]], None]
    ) -> TextAnswer:
        shared = self.shared(request.system)
        opened = shared.opened_for(work, request.fast)
        splitter = request.splitting.splitter(opened.languages.source) if request.splitting else None
        contents = Contents([list(blocks) for blocks in request.documents])
        texts = BlockDocuments(opened, contents, splitter, request.wishes)
        texts.check()
        on_start([])
        everything = range(len(texts.documents))
        found = dict(
            opened.translator.translate(
                texts.documents,
                guide=texts.guide(everything),
                taken=request.given or texts.taken(everything),
                log=request.log,
            )
        )
        note_translated(request.system.name, list(found.values()))
        with shared.exclusively(work):
            return TextAnswer(texts.blocks(found), texts.paired(found))
