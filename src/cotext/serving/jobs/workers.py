"""The threads that translate files, a few at a time, and what is kept of finished jobs, and how long."""

import logging
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from cotext.runtime.errors import CotextError
from cotext.serving.errors import RequestError
from cotext.serving.jobs.folder import RETRY_SECONDS, JobFolder
from cotext.serving.jobs.table import FINISHED, JobStatus, JobTable, Row, State
from cotext.serving.jobs.translation import Running, translate_job
from cotext.serving.settings import SHARES, ServerSettings
from cotext.serving.sharing import CancelledError, SharedSystem, Work
from cotext.serving.systems import Systems

IDLE_SECONDS: Final = 30.0  # between looks at what has been kept long enough
REFUSED_SECONDS: Final = 2.0  # before the table is asked again, once storage has refused
STOP_SECONDS: Final = 10.0
MAX_ATTEMPTS: Final = 10  # of a file with which the server stopped each time
NOBODY: Final = ""  # the client of files that arrive before a key is shown
STRANGERS_BYTES: Final = 32 << 20  # of all files of NOBODY, which count for no client
LEAST_BYTES: Final = 4096  # of a job, for its folder and its row in the table

_log = logging.getLogger(__name__)


class Space:
    """Bytes by file and by client: of jobs, and of files that arrive. For one thread at a time.

    `most`: bytes of all files together.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: dict[str, tuple[str, int]] = {}
        self._clients: Counter[str] = Counter()

    def put(self, name: str, client: str, size: int) -> None:
        """Note that a file takes so many bytes now."""
        self.drop(name)
        self._entries[name] = client, size
        self._clients[client] += size

    def drop(self, name: str) -> None:
        """Note that a file is gone."""
        client, size = self._entries.pop(name, (NOBODY, 0))
        self._clients[client] -= size
        if not self._clients[client]:
            del self._clients[client]

    def of(self, name: str, client: str) -> int:
        """Bytes of a file, 0 if it is not this client's."""
        owner, size = self._entries.get(name, (client, 0))
        return size if owner == client else 0

    def over(self, client: str, more: int) -> int:
        """Bytes by which `more` of a client are too many; at most 0 where there is space."""
        own = self._clients[client] + more - self._share(client)
        strangers = self._clients[NOBODY]
        everything = self._clients.total() - strangers + more - self._most
        return own if client == NOBODY else max(own, everything)

    def refusal(self, client: str, more: int) -> RequestError:
        """The error for a client for whom there is no space."""
        if client == NOBODY:
            told = "too many files arrive before their keys; send the key in the header, or try again later"
            return RequestError(503, told, RETRY_SECONDS)
        if self._clients[client] + more > self._share(client):
            told = f"your files take the {self._share(client):,} bytes that a client may have here"
            return RequestError(429, f"{told}; wait until some are done, or delete some", RETRY_SECONDS)
        return RequestError(503, "the server has no room for more files; try again later", RETRY_SECONDS)

    def _share(self, client: str) -> int:
        share = self._most // SHARES
        return min(share, STRANGERS_BYTES) if client == NOBODY else share


class Workers:
    """Threads that take jobs from the table: those begun before first, then by turns of the clients."""

    def __init__(
        self,
        folder: JobFolder,
        table: JobTable,
        systems: Systems,
        shared: Mapping[str, SharedSystem],
        settings: ServerSettings,
    ) -> None:
        self.folder, self.table, self._settings = folder, table, settings
        self._systems, self._shared = {system.name: system for system in systems}, shared
        self._running: dict[str, Running] = {}
        self._space = Space(settings.max_jobs_bytes)
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, name=f"files-{number}", daemon=True)
            for number in range(settings.files_at_once)
        ]

    def recover(self) -> None:
        """Put in order what a server that was killed has left: files without a job, jobs without a file."""
        rows = self.table.everything()
        self.folder.sweep({row.id for row in rows})
        for row in rows:
            if row.state == "done":
                self.folder.keep(row.id, self.folder.result(row.id, row.suffix).name)
                if not self.folder.result(row.id, row.suffix).is_file():
                    self.forget([row])
            elif row.state in FINISHED:
                self.folder.keep(row.id)
            elif not self.folder.source(row.id, row.suffix).is_file():
                self.table.finish(row.id, "error", message="the file is lost; send it again")
        self._tidy()
        for row in self.table.everything():
            self._measure(row.id, row.client)

    def start(self) -> None:
        """Begin to work."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Leave what is being translated, to be gone on with."""
        with self._changed:
            self._stopping.set()
            for running in self._running.values():
                running.work.cancel()
            self._changed.notify_all()
        deadline = time.monotonic() + STOP_SECONDS
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0.0))

    def wake(self) -> None:
        """Say that a job waits."""
        with self._changed:
            self._changed.notify()

    def told(self, row: Row) -> JobStatus:
        """The status of a job, with what its thread knows."""
        with self._changed:
            running = self._running.get(row.id)
        return row.status if running is None or row.status.finished else running.told(row.status)

    def forget(self, rows: Iterable[Row]) -> None:
        """Stop jobs and delete all there is of them."""
        with self._changed:
            self.table.forget(row.id for row in rows)
            for row in rows:
                self._space.drop(row.id)
                if row.id in self._running:
                    self._running[row.id].work.cancel()
        for row in rows:
            self.folder.discard(row.id)

    def hold(self, name: str, client: str, size: int, instead_of: str = "") -> None:
        """Note that a file of a client takes so many bytes; the oldest finished jobs of the client make room.

        `name`: of an upload or a job, which may be held with fewer bytes. `instead_of`: another name, under
        which the same bytes were held.

        Raises:
            RequestError: as `require`; nothing has changed.
        """
        with self._changed:
            for id, running in self._running.items():
                self._measure_again(id, running.client)
            held = self._space.of(name, client) + self._space.of(instead_of, client)
            if leaving := self._leaving(client, size - held):
                self.forget(leaving)
            self.folder.require_room(size)
            self._space.drop(instead_of)
            self._space.put(name, client, size)

    def let_go(self, name: str) -> None:
        """Note that a file is gone."""
        with self._changed:
            self._space.drop(name)

    def require(self, client: str, size: int) -> None:
        """Refuse a file of so many bytes that is announced; no space is held, and nothing leaves.

        Raises:
            RequestError: 429, the files of this client take its share; 503, those of all take everything, or
                the disk is full.
        """
        with self._changed:
            self._leaving(client, size)
            self.folder.require_room(size)

    def _leaving(self, client: str, more: int) -> list[Row]:
        """The jobs of a client that leave for `more` bytes of it, the oldest first."""
        over, leaving = self._space.over(client, more), []
        if over > 0:
            finished = [row for row in self.table.of_client(client) if row.state in FINISHED]
            for row in sorted(finished, key=lambda row: row.finished or 0.0):
                if over > 0:
                    leaving.append(row)
                    over -= self._space.of(row.id, client)
        if over > 0:
            raise self._space.refusal(client, more)
        return leaving

    def _measure(self, id: str, client: str) -> None:
        """Note what a job takes."""
        self._space.put(id, client, max(self.folder.size(id), LEAST_BYTES))

    def _measure_again(self, id: str, client: str) -> None:
        """Note what a job takes, unless it has been forgotten."""
        if self._space.of(id, client):
            self._measure(id, client)

    def _tidy(self) -> None:
        """Forget what was finished long enough ago."""
        last = time.time() - 3600 * self._settings.keep_files_hours
        self.forget([r for r in self.table.everything() if r.finished is not None and r.finished < last])

    def _work(self) -> None:
        while not self._stopping.is_set():
            try:
                claimed = self._claimed()
            except OSError:
                _log.exception("the table of jobs cannot be used")
                self._stopping.wait(REFUSED_SECONDS)
                continue
            if claimed is None:
                continue
            row, running = claimed
            try:
                self._run(row, running)
            except OSError:  # storage refuses even the end of the job, which is tried again
                _log.exception("the end of a job could not be noted")
                self._stopping.wait(REFUSED_SECONDS)
            finally:
                with self._changed:
                    del self._running[row.id]
                    self._measure_again(row.id, row.client)
                    self._changed.notify()

    def _claimed(self) -> tuple[Row, Running] | None:
        """The next job, which is this thread's now; none where none waited for a while."""
        with self._changed:
            if self._stopping.is_set():
                return None
            waiting = [row for row in self.table.unfinished() if row.id not in self._running]
            if waiting:
                row = self._next(waiting)
                if self.table.begin(row.id):
                    self._running[row.id] = running = Running(Work(row.client, background=True), row.client)
                    return row, running
            else:
                self._changed.wait(IDLE_SECONDS)
        self._tidy()
        return None

    def _next(self, waiting: list[Row]) -> Row:
        """A job begun before; else one of the client with the fewest at work, whose last is longest ago."""
        at_work = Counter(running.client for running in self._running.values())
        turns = self.table.last_turns()
        return min(
            waiting, key=lambda r: (r.state == "queued", at_work[r.client], turns.get(r.client, 0), r.number)
        )

    def _run(self, row: Row, running: Running) -> None:
        """Translate, and note how it ended; a job that was cancelled, or forgotten, leaves no file."""
        state: State = "error"
        message, messages = "", []
        try:
            messages = self._translated(row, running)
            state = "done"
        except CancelledError:
            if self._stopping.is_set():
                self.table.put_back(row.id)
                return
        except CotextError as error:
            message = str(error)
        except Exception as error:
            # Where it happened; the text of an exception may be that of a client.
            where = "".join(traceback.format_tb(error.__traceback__))
            _log.error("a file was not translated: %s\n%s", type(error).__name__, where)
            message = f"{row.source_name}: the server failed at this file, and not by anything that is in it"
        if state == "error":
            self.folder.keep(row.id)  # before its end is noted, which needs room on the disk, too
        if not self.table.finish(row.id, state, running.done, message, messages):
            self.folder.discard(row.id)
        elif state == "done":
            self.folder.keep(row.id, self.folder.result(row.id, row.suffix).name)

    def _translated(self, row: Row, running: Running) -> list[str]:
        system = self._systems.get(row.status.system)
        if system is None:
            raise CotextError(
                f"{row.source_name}: the system {row.status.system!r} is not served any more; send the file "
                f"again, for one of {', '.join(self._systems)}"
            )
        if row.attempts >= MAX_ATTEMPTS:
            raise CotextError(
                f"{row.source_name}: the server stopped {MAX_ATTEMPTS} times while it translated this file; "
                "send a part of it"
            )

        def on_read(sentences: int, characters: int) -> None:
            running.read(sentences, characters)
            self.table.read(row.id, sentences, characters)

        return translate_job(row, self.folder, system, self._shared[row.status.system], running, on_read)
