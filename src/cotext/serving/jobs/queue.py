"""Files as jobs: they wait on disk, a few are translated at a time, and a restart goes on with them."""

import asyncio
import hashlib
import hmac
import secrets
import sqlite3
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from cotext.runtime.errors import CotextError
from cotext.runtime.files import remove
from cotext.runtime.locks import working_in
from cotext.serving.errors import RequestError, stopping
from cotext.serving.jobs.folder import RETRY_SECONDS, TABLE, JobFolder, private
from cotext.serving.jobs.names import clean_name, result_name, suffix_of
from cotext.serving.jobs.table import JobTable, Row
from cotext.serving.jobs.translation import check_options, check_source
from cotext.serving.jobs.values import FINISHED, STATES, Asker, JobOptions, JobStatus, JobTicket, Owner, State
from cotext.serving.jobs.workers import LEAST_BYTES, NOBODY, Workers
from cotext.serving.record import note_system
from cotext.serving.settings import ServerSettings
from cotext.serving.sharing import SharedSystem
from cotext.serving.systems import System, Systems

WATCH_SECONDS: Final = 0.2


class Jobs:
    """The files of all clients, each a job; what is asked of it takes no longer than SQLite does.

    A client sees its own jobs alone, and of those, where it gives a `key`, the one of that key: others are
    404. All methods raise RequestError, and whatever makes the folder unusable, CotextError: another server
    works in it, or it is of another version.
    """

    def __init__(
        self, systems: Systems, shared: Mapping[str, SharedSystem], settings: ServerSettings
    ) -> None:
        self._systems, self._shared, self._settings = systems, shared, settings
        self._stack = ExitStack()
        self._starting = threading.Lock()
        self._opened: tuple[JobFolder, JobTable, Workers] | None = None
        self._closed = False

    def start(self) -> None:
        """Hold the folder, clear away what a killed server has left, and go on with what it had begun.

        A server does so when it starts; else the first use does.

        Raises:
            CotextError: another server works in the folder; its jobs are of another version; storage refuses.
        """
        with self._starting:
            if self._closed:
                raise stopping()
            if self._opened is None:
                self._opened = self._open()

    def _open(self) -> tuple[JobFolder, JobTable, Workers]:
        with ExitStack() as stack:
            state = private(self._settings.state)
            stack.enter_context(working_in(state))
            folder = JobFolder(state / "jobs")
            table = JobTable(folder.root / TABLE)
            stack.callback(table.close)
            workers = Workers(folder, table, self._systems, self._shared, self._settings)
            workers.recover()
            workers.start()
            stack.callback(workers.stop)
            self._stack = stack.pop_all()
            return folder, table, workers

    def close(self) -> None:
        """Stop; what is translated now goes on when a server is started again."""
        with self._starting:
            self._closed = True
            self._stack.close()

    def _parts(self) -> tuple[JobFolder, JobTable, Workers]:
        if self._opened is None:
            self.start()
        assert self._opened is not None
        return self._opened

    @contextmanager
    def upload(self) -> Iterator[Path]:
        """A path that a file may be written to, counted by `arrived`; deleted unless it is submitted."""
        folder, _, workers = self._parts()
        path = folder.upload()
        try:
            yield path
        finally:
            workers.let_go(path.name)
            remove(path)

    def announced(self, client: Asker, size: int) -> None:
        """Refuse a file for which there is no space, before it arrives; an announcement takes none.

        Raises:
            RequestError: 429, 503: as `arrived`.
        """
        self._parts()[2].require(client.name, size)

    def arrived(self, path: Path, client: Asker | None, size: int) -> None:
        """Count the bytes of an upload that have arrived so far; the client's finished files make room.

        `client`: None before a key is shown.

        Raises:
            RequestError: 429, the files of this client take its share; 503, there is no space.
        """
        self._parts()[2].hold(path.name, NOBODY if client is None else client.name, size)

    def submit(
        self, client: Asker, system: System, content: bytes | Path, file_name: str, options: JobOptions
    ) -> JobTicket:
        """Take a file, given as bytes or at a path of `upload`, from which it is moved.

        It is on the disk when this returns. `file_name`: the client's, by whose ending formats are told apart
        where the content leaves it open.

        Raises:
            RequestError: 400, a file of no format, terms that the system cannot keep; 413, too long; 429 and
                503, too many files wait, or there is no space.
        """
        note_system(system.name)
        _, table, workers = self._parts()
        size = content.stat().st_size if isinstance(content, Path) else len(content)
        if size > self._settings.max_file_bytes:
            raise RequestError(413, f"a file may have {self._settings.max_file_bytes:,} bytes at most")
        self._check_waiting(table, client)
        ticket = JobTicket(_generated(16), _generated(32))
        upload = content.name if isinstance(content, Path) else ""
        workers.hold(ticket.id, client.name, max(size, LEAST_BYTES), instead_of=upload)
        try:
            self._take(ticket, client, system, content, clean_name(file_name), options)
        except BaseException:
            workers.let_go(ticket.id)
            raise
        workers.wake()
        return ticket

    def _take(
        self,
        ticket: JobTicket,
        client: Asker,
        system: System,
        content: bytes | Path,
        name: str,
        options: JobOptions,
    ) -> None:
        """Put a file on the disk, then into the table: killed in between, a server finds a file of no job."""
        folder, table, _ = self._parts()
        languages = system.languages
        try:
            check_options(options, system)
            path = folder.take(content, ticket.id, suffix_of(name))
            check_source(path, name)
            table.add(
                {
                    "id": ticket.id,
                    "key": _hashed(ticket.key),
                    "client": client.name,
                    "system": system.name,
                    "file_name": name,
                    "result_name": clean_name(options.output_name)
                    if options.output_name
                    else result_name(name, languages.source, languages.target),
                    "options": options.to_json(),
                }
            )
        except CotextError as error:
            folder.discard(ticket.id)
            raise RequestError(400, str(error)) from None
        except (OSError, sqlite3.Error):
            folder.discard(ticket.id)
            raise RequestError(
                503, "the server cannot keep this file; try again later", RETRY_SECONDS
            ) from None

    def _check_waiting(self, table: JobTable, client: Asker) -> None:
        waiting = table.unfinished()
        own = sum(row.client == client.name for row in waiting)
        if own >= self._settings.max_waiting_of_client:
            raise RequestError(429, f"{own} of your files wait; wait until some are done", RETRY_SECONDS)
        if len(waiting) >= self._settings.max_waiting:
            raise RequestError(503, "too many files wait; try again later", RETRY_SECONDS)

    def status(self, id: str, client: Asker, key: str | None = None) -> JobStatus:
        """How far a job is."""
        _, _, workers = self._parts()
        return workers.told(self._row(id, client, key))

    def of_client(self, client: Asker) -> list[JobStatus]:
        """All jobs of a client, the newest first."""
        _, table, workers = self._parts()
        return [workers.told(row) for row in table.of_client(client.name)]

    def counts(self) -> dict[State, int]:
        """How many jobs of all clients are in each state."""
        if self._opened is None or self._closed:
            return dict.fromkeys(STATES, 0)
        return self._opened[1].counts()

    def result(self, id: str, client: Asker, key: str | None = None) -> tuple[Path, str]:
        """The translated file, and its name for the client.

        Raises:
            RequestError: 409, there is none: not yet, or not any more.
        """
        folder, _, _ = self._parts()
        row = self._row(id, client, key)
        if row.state != "done":
            why = "is not translated yet" if row.state not in FINISHED else "was not translated"
            raise RequestError(409, f"this file {why}: {row.message or row.state}")
        return folder.result(id, row.suffix), row.result_name

    def owner_of(self, id: str, key: str) -> Asker:
        """The client whose job has this key: for addresses that are secrets themselves."""
        _, table, _ = self._parts()
        row = table.find(id)
        if row is None or not hmac.compare_digest(row.key, _hashed(key)):
            raise _unknown()
        return Owner(row.client)

    def cancel(self, id: str, client: Asker, key: str | None = None) -> JobStatus:
        """Stop a job that is not done, and delete its files; one that is done stays as it is."""
        _, _, workers = self._parts()
        workers.cancel(self._row(id, client, key))
        return self.status(id, client, key)

    def delete(self, id: str, client: Asker, key: str | None = None) -> None:
        """Stop a job and forget it, with all its files."""
        _, _, workers = self._parts()
        workers.forget([self._row(id, client, key)])

    async def watch(
        self, id: str, client: Asker, key: str | None = None, is_over: Callable[[], bool] = lambda: False
    ) -> AsyncGenerator[JobStatus]:
        """The status of a job, now and whenever it has changed, until it is finished, or watching is over."""
        told = None
        while not (self._closed or is_over()):
            status = self.status(id, client, key)
            if status != told:
                told = status
                yield status
            if status.finished:
                return
            await asyncio.sleep(WATCH_SECONDS)

    def _row(self, id: str, client: Asker, key: str | None) -> Row:
        _, table, _ = self._parts()
        row = table.find(id)
        if (
            row is None
            or row.client != client.name
            or (key is not None and not hmac.compare_digest(row.key, _hashed(key)))
        ):
            raise _unknown()
        return row


def _unknown() -> RequestError:
    return RequestError(404, "there is no such file; it may have been deleted, as files are after a time")


def _generated(size: int) -> str:
    return secrets.token_hex(size).upper()


def _hashed(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
