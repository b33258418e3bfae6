"""The threads that translate files, the disk space of clients, and the deletion of finished jobs."""

import logging
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from cotext.runtime.errors import CotextError
from cotext.serving.errors import RequestError
from cotext.serving.jobs.folder import RETRY_SECONDS, JobFolder
from cotext.serving.jobs.table import FINISHED, JobStatus, JobTable, Row, State
from cotext.serving.jobs.translation import Running, translate_job
from cotext.serving.settings import SHARES, ServerSettings
from cotext.serving.sharing import CancelledError, SharedSystem, Work
from cotext.serving.systems import Systems

IDLE_SECONDS: Final = 30.0  # between checks for expired jobs
REFUSED_SECONDS: Final = 2.0  # pause after a write has failed
STOP_SECONDS: Final = 10.0
MAX_ATTEMPTS: Final = (
    10  # starts of a job, each ended by a crash of the server; a regular stop does not count
)
LEAST_BYTES: Final = 4096  # counted for every job at least, for its folder and record

_log = logging.getLogger(__name__)


class Space:
    """Disk space of jobs and uploads in bytes, by file and by client; not thread-safe.

    `most`: limit for all clients together.
    """

    def __init__(self, most: int) -> None:
        self._most, self._share = most, most // SHARES
        self._entries: dict[str, tuple[str, int]] = {}
        self._clients: Counter[str] = Counter()

    def put(self, name: str, client: str, size: int) -> None:
        self.drop(name)
        self._entries[name] = client, size
        self._clients[client] += size

    def drop(self, name: str) -> None:
        client, size = self._entries.pop(name, ("", 0))
        self._clients[client] -= size
        if not self._clients[client]:
            del self._clients[client]

    def of(self, name: str, client: str) -> int:
        """Return the size of a file; 0 if it belongs to another client."""
        owner, size = self._entries.get(name, (client, 0))
        return size if owner == client else 0

    def over(self, client: str, more: int) -> int:
        """Return by how many bytes a limit is exceeded if the client stores `more` bytes.

        The result is zero or negative if there is space.
        """
        excess = self._clients[client] + more - self._share
        return max(excess, self._clients.total() + more - self._most)

    def refusal(self, client: str, more: int) -> RequestError:
        """Return the error for a client without space."""
        if self._clients[client] + more > self._share:
            reason = f"your files use all of the {self._share:,} bytes allowed per client"
            return RequestError(429, f"{reason}; wait until some are done, or delete some", RETRY_SECONDS)
        return RequestError(503, "the server has no room for more files; try again later", RETRY_SECONDS)


class Workers:
    """Threads that run jobs of the table: first interrupted ones, then clients in turn."""

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
        """Clean up after a killed server: files without a job, and jobs without a file."""
        rows = self.table.everything()
        self.folder.sweep({row.id for row in rows})
        for row in rows:
            if row.state == "done":
                self.folder.delete_except(row.id, self.folder.result(row.id, row.suffix).name)
                if not self.folder.result(row.id, row.suffix).is_file():
                    self.forget([row])
            elif row.state in FINISHED:
                self.folder.delete_except(row.id)
            elif not self.folder.source(row.id, row.suffix).is_file():
                self.table.finish(row.id, "error", message="the uploaded file was lost; send it again")
        self._tidy()
        for row in self.table.everything():
            self._space.put(row.id, row.client, max(self.folder.size(row.id), LEAST_BYTES))

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Interrupt running jobs, which are resumed later."""
        with self._changed:
            self._stopping.set()
            for running in self._running.values():
                running.work.cancel()
            self._changed.notify_all()
        deadline = time.monotonic() + STOP_SECONDS
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0.0))

    def wake(self) -> None:
        """Notify the threads of a new job."""
        with self._changed:
            self._changed.notify()

    def status(self, row: Row) -> JobStatus:
        """Return the status of a job, with its current progress."""
        with self._changed:
            running = self._running.get(row.id)
        return row.status if running is None or row.status.finished else running.updated(row.status)

    def forget(self, rows: Iterable[Row]) -> None:
        """Cancel jobs and delete them."""
        with self._changed:
            self.table.forget(row.id for row in rows)
            for row in rows:
                self._space.drop(row.id)
                if row.id in self._running:
                    self._running[row.id].work.cancel()
        for row in rows:
            self.folder.discard(row.id)

    def hold(self, name: str, client: str, size: int, instead_of: str = "") -> None:
        """Reserve bytes for a file; if needed, delete the oldest finished jobs of the client.

        `name`: name of an upload or job; an existing reservation of this name is replaced. `instead_of`: name
        of another reservation to replace.

        Raises:
            RequestError: the errors of `require`; no reservation is changed then, and no job deleted.
        """
        with self._changed:
            for id, running in self._running.items():
                self._measure(id, running.client)
            held = self._space.of(name, client) + self._space.of(instead_of, client)
            if leaving := self._leaving(client, size - held):
                self.forget(leaving)
            self.folder.require_room(size)
            self._space.drop(instead_of)
            self._space.put(name, client, size)

    def let_go(self, name: str) -> None:
        with self._changed:
            self._space.drop(name)

    def require(self, client: str, size: int) -> None:
        """Check that there is space for a file, without reserving it.

        Raises:
            RequestError: 429, the client has used its share; 503, the total limit is reached, or the disk is
                full.
        """
        with self._changed:
            self._leaving(client, size)
            self.folder.require_room(size)

    def _leaving(self, client: str, more: int) -> list[Row]:
        """Return the oldest finished jobs of a client that must be deleted to free space for `more` bytes.

        Raises:
            RequestError: deleting all finished jobs would not be enough.
        """
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
        """Update the size of a job, unless it has been deleted."""
        if self._space.of(id, client):
            self._space.put(id, client, max(self.folder.size(id), LEAST_BYTES))

    def _tidy(self) -> None:
        """Delete jobs that finished too long ago."""
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
            except OSError:  # the end of the job could not be saved; it is run again
                _log.exception("the result of a job could not be saved")
                self._stopping.wait(REFUSED_SECONDS)
            finally:
                with self._changed:
                    del self._running[row.id]
                    self._measure(row.id, row.client)
                    self._changed.notify()

    def _claimed(self) -> tuple[Row, Running] | None:
        """Claim the next job for this thread; None if there was none for a while."""
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
        """Choose an interrupted job first, otherwise a job of the client with the fewest running jobs.

        Among these clients, the one that has waited longest since its last turn comes first.
        """
        at_work = Counter(running.client for running in self._running.values())
        turns = self.table.last_turns()
        return min(
            waiting, key=lambda r: (r.state == "queued", at_work[r.client], turns.get(r.client, 0), r.number)
        )

    def _run(self, row: Row, running: Running) -> None:
        """Run a job and save its final state; delete the files of cancelled and deleted jobs."""
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
            # Only the location, because the message of an exception may contain text of a client.
            where = "".join(traceback.format_tb(error.__traceback__))
            _log.error("a file was not translated: %s\n%s", type(error).__name__, where)
            message = f"{row.source_name}: an internal server error occurred while translating this file"
        if state == "error":
            self.folder.delete_except(row.id)  # frees disk space for the record
        if not self.table.finish(row.id, state, running.done, message, messages):
            self.folder.discard(row.id)
        elif state == "done":
            self.folder.delete_except(row.id, self.folder.result(row.id, row.suffix).name)

    def _translated(self, row: Row, running: Running) -> list[str]:
        system = self._systems.get(row.status.system)
        if system is None:
            raise CotextError(
                f"{row.source_name}: the system {row.status.system!r} is no longer served; send the file "
                f"again with one of these systems: {', '.join(self._systems)}"
            )
        if row.attempts >= MAX_ATTEMPTS:
            raise CotextError(
                f"{row.source_name}: the server stopped {MAX_ATTEMPTS} times while translating this file; "
                "split the file and send its parts"
            )
        on_read = partial(self.table.read, row.id)
        return translate_job(row, self.folder, system, self._shared[row.status.system], running, on_read)
