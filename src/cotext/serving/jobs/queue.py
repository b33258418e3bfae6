"""Files as jobs: they wait on disk, a few are translated at a time, and a restart goes on with them."""

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cotext.runtime.errors import CotextError
from cotext.runtime.files import remove
from cotext.runtime.locks import working_in
from cotext.serving.errors import RequestError, stopping
from cotext.serving.jobs.folder import RETRY_SECONDS, JobFolder
from cotext.serving.jobs.names import clean_name, result_name, suffix_of
from cotext.serving.jobs.table import FINISHED, STATES, JobOptions, JobStatus, JobTable, JobTicket, Row, State
from cotext.serving.jobs.translation import check_source
from cotext.serving.jobs.workers import LEAST_BYTES, NOBODY, Workers
from cotext.serving.record import Client, note_system
from cotext.serving.settings import ServerSettings
from cotext.serving.sharing import SharedSystem
from cotext.serving.state import private
from cotext.serving.systems import System, Systems


class Jobs:
    """The files of all clients, each a job; what is asked of it takes no longer than a file of the disk does.

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
        self._opened: Workers | None = None
        self._closed = False

    def start(self) -> Workers:
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
            return self._opened

    def _open(self) -> Workers:
        with ExitStack() as stack:
            state = private(self._settings.state)
            stack.enter_context(working_in(state))
            folder = JobFolder(state / "jobs")
            workers = Workers(folder, JobTable(folder), self._systems, self._shared, self._settings)
            workers.recover()
            workers.start()
            stack.callback(workers.stop)
            self._stack = stack.pop_all()
            return workers

    def close(self) -> None:
        """Stop; what is translated now goes on when a server is started again."""
        with self._starting:
            self._closed = True
            self._stack.close()

    @property
    def _workers(self) -> Workers:
        return self._opened or self.start()

    @contextmanager
    def upload(self) -> Iterator[Path]:
        """A path that a file may be written to, counted by `arrived`; deleted unless it is submitted."""
        workers = self._workers
        path = workers.folder.upload()
        try:
            yield path
        finally:
            workers.let_go(path.name)
            remove(path)

    def announced(self, client: Client, size: int) -> None:
        """Refuse a file for which there is no space, before it arrives; an announcement takes none.

        Raises:
            RequestError: 429, 503: as `arrived`.
        """
        self._workers.require(client.name, size)

    def arrived(self, path: Path, client: Client | None, size: int) -> None:
        """Count the bytes of an upload that have arrived so far; the client's finished files make room.

        `client`: None before a key is shown.

        Raises:
            RequestError: 429, the files of this client take its share; 503, there is no space.
        """
        self._workers.hold(path.name, NOBODY if client is None else client.name, size)

    def submit(
        self, client: Client, system: System, upload: Path, file_name: str, options: JobOptions
    ) -> JobTicket:
        """Take a file at a path of `upload`, from which it is moved.

        It is on the disk when this returns. `file_name`: the client's, by whose ending formats are told apart
        where the content leaves it open.

        Raises:
            RequestError: 400, a file of no format, terms that the system cannot keep; 413, too long; 429 and
                503, too many files wait, or there is no space.
        """
        note_system(system.name)
        workers = self._workers
        size = upload.stat().st_size
        if size > self._settings.max_file_bytes:
            raise RequestError(413, f"a file may have {self._settings.max_file_bytes:,} bytes at most")
        self._check_waiting(client)
        ticket = JobTicket(_generated(16), _generated(32))
        workers.hold(ticket.id, client.name, max(size, LEAST_BYTES), instead_of=upload.name)
        try:
            self._take(ticket, client, system, upload, clean_name(file_name), options)
        except BaseException:
            workers.let_go(ticket.id)
            raise
        workers.wake()
        return ticket

    def _take(
        self,
        ticket: JobTicket,
        client: Client,
        system: System,
        upload: Path,
        name: str,
        options: JobOptions,
    ) -> None:
        """Put a file on the disk, then into the table: killed in between, a server finds a file of no job."""
        folder, languages = self._workers.folder, system.languages
        try:
            options.wishes.check(system.opened.translator)
            path = folder.take(upload, ticket.id, suffix_of(name))
            check_source(path, name)
            result = result_name(name, languages.source, languages.target)
            status = JobStatus(ticket.id, "queued", system.name, result, submitted=time.time())
            self._workers.table.add(status, client.name, _hashed(ticket.key), name, options)
        except CotextError as error:
            folder.discard(ticket.id)
            raise RequestError(400, str(error)) from None
        except OSError:
            folder.discard(ticket.id)
            raise RequestError(
                503, "the server cannot keep this file; try again later", RETRY_SECONDS
            ) from None

    def _check_waiting(self, client: Client) -> None:
        waiting = self._workers.table.unfinished()
        own = sum(row.client == client.name for row in waiting)
        if own >= self._settings.max_waiting_of_client:
            raise RequestError(429, f"{own} of your files wait; wait until some are done", RETRY_SECONDS)
        if len(waiting) >= self._settings.max_waiting:
            raise RequestError(503, "too many files wait; try again later", RETRY_SECONDS)

    def status(self, id: str, client: Client, key: str | None = None) -> JobStatus:
        """How far a job is."""
        return self._workers.told(self._row(id, client, key))

    def of_client(self, client: Client) -> list[JobStatus]:
        """All jobs of a client, the newest first."""
        workers = self._workers
        return [workers.told(row) for row in workers.table.of_client(client.name)]

    def counts(self) -> dict[State, int]:
        """How many jobs of all clients are in each state."""
        if self._opened is None or self._closed:
            return dict.fromkeys(STATES, 0)
        return self._opened.table.counts()

    def result(self, id: str, client: Client, key: str | None = None) -> tuple[Path, str]:
        """The translated file, and its name for the client.

        Raises:
            RequestError: 409, there is none: not yet, or not any more.
        """
        row = self._row(id, client, key)
        if row.state != "done":
            why = "is not translated yet" if row.state not in FINISHED else "was not translated"
            raise RequestError(409, f"this file {why}: {row.status.message or row.state}")
        return self._workers.folder.result(id, row.suffix), row.status.file_name

    def owner_of(self, id: str, key: str) -> Client:
        """The client whose job has this key: for addresses that are secrets themselves."""
        row = self._workers.table.find(id)
        if row is None or not hmac.compare_digest(row.key, _hashed(key)):
            raise _unknown()
        return Client(row.client)

    def delete(self, id: str, client: Client, key: str | None = None) -> None:
        """Stop a job and forget it, with all its files."""
        self._workers.forget([self._row(id, client, key)])

    def _row(self, id: str, client: Client, key: str | None) -> Row:
        row = self._workers.table.find(id)
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
