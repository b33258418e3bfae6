"""Jobs that translate files: they wait on disk, a few run at a time, and a restart resumes them."""

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
from cotext.serving.jobs.folder import RETRY_SECONDS, JobFolder, private
from cotext.serving.jobs.names import clean_name, result_name, suffix_of
from cotext.serving.jobs.table import FINISHED, JobOptions, JobStatus, JobTable, JobTicket, Row
from cotext.serving.jobs.translation import check_source
from cotext.serving.jobs.workers import LEAST_BYTES, Workers
from cotext.serving.keys import hashed
from cotext.serving.record import Client, note_system
from cotext.serving.settings import ServerSettings
from cotext.serving.sharing import SharedSystem
from cotext.serving.systems import System, Systems


class Jobs:
    """The files of all clients, each a job.

    A client can access only its own jobs; with a `key`, only the job of this key. For other jobs, methods
    raise RequestError 404. They raise CotextError if the folder is in use by another server or was written by
    another version.
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
        """Lock the folder, clean it up, and resume its jobs; called by the server or on first use.

        Raises:
            CotextError: another server uses the folder, its jobs were written by another version, or a write
                fails.
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
        """Stop; running jobs are resumed when a server starts again."""
        with self._starting:
            self._closed = True
            self._stack.close()

    @property
    def _workers(self) -> Workers:
        return self._opened or self.start()

    @contextmanager
    def upload(self) -> Iterator[Path]:
        """Yield a path for an upload, and delete the file unless submitted; `arrived` counts its bytes."""
        workers = self._workers
        path = workers.folder.upload()
        try:
            yield path
        finally:
            workers.let_go(path.name)
            remove(path)

    def announced(self, client: Client, size: int) -> None:
        """Raise the errors of `arrived` if there is no space for a file that has not arrived yet."""
        self._workers.require(client.name, size)

    def arrived(self, path: Path, client: Client, size: int) -> None:
        """Count the bytes of an upload so far; if needed, delete finished files of the client.

        Raises:
            RequestError: 429, the client has used its share; 503, there is no space.
        """
        self._workers.hold(path.name, client.name, size)

    def submit(
        self, client: Client, system: System, upload: Path, file_name: str, options: JobOptions
    ) -> JobTicket:
        """Submit a file at a path of `upload`; it is moved and synced to disk.

        `file_name`: name of the file on the client. If the content fits several formats, its suffix decides.

        Raises:
            RequestError: 400, the format is unknown or terms are not supported; 413, the file is too large;
                429 and 503, too many files wait, or there is no space.
        """
        note_system(system.name)
        workers = self._workers
        size = upload.stat().st_size
        if size > self._settings.max_file_bytes:
            raise RequestError(413, f"a file may have {self._settings.max_file_bytes:,} bytes at most")
        self._check_waiting(client)
        ticket = JobTicket(_generated(16), _generated(32))
        workers.hold(ticket.id, client.name, max(size, LEAST_BYTES), instead_of=upload.name)
        name, languages = clean_name(file_name), system.languages
        result = result_name(name, languages.source, languages.target)
        try:
            # The file first: a server that is killed in between finds a file without a job, and deletes it.
            options.wishes.check(system.opened.translator)
            path = workers.folder.take(upload, ticket.id, suffix_of(name))
            check_source(path, name)
            status = JobStatus(ticket.id, "queued", system.name, result, submitted=time.time())
            workers.table.add(status, client.name, hashed(ticket.key), name, options)
        except BaseException as error:
            workers.let_go(ticket.id)
            workers.folder.discard(ticket.id)
            if isinstance(error, CotextError):
                raise RequestError(400, str(error)) from None
            if isinstance(error, OSError):
                raise RequestError(
                    503, "the server cannot store this file; try again later", RETRY_SECONDS
                ) from None
            raise
        workers.wake()
        return ticket

    def _check_waiting(self, client: Client) -> None:
        waiting = self._workers.table.unfinished()
        count = sum(row.client == client.name for row in waiting)
        if count >= self._settings.max_waiting_of_client:
            raise RequestError(
                429, f"{count} of your files are waiting; wait until some are done", RETRY_SECONDS
            )
        if len(waiting) >= self._settings.max_waiting:
            raise RequestError(503, "too many files are waiting; try again later", RETRY_SECONDS)

    def status(self, id: str, client: Client, key: str | None = None) -> JobStatus:
        return self._workers.status(self._row(id, client, key))

    def of_client(self, client: Client) -> list[JobStatus]:
        """Return the status of all jobs of a client, the newest first."""
        workers = self._workers
        return [workers.status(row) for row in workers.table.of_client(client.name)]

    @property
    def busy(self) -> bool:
        """Whether files are being translated."""
        return self._opened is not None and any(
            row.state == "translating" for row in self._opened.table.unfinished()
        )

    def result(self, id: str, client: Client, key: str | None = None) -> tuple[Path, str]:
        """Return the translated file and its name; raise RequestError 409 if there is none."""
        row = self._row(id, client, key)
        if row.state != "done":
            why = "is not translated yet" if row.state not in FINISHED else "was not translated"
            raise RequestError(409, f"this file {why}: {row.status.message or row.state}")
        return self._workers.folder.result(id, row.suffix), row.status.file_name

    def delete(self, id: str, client: Client, key: str | None = None) -> None:
        self._workers.forget([self._row(id, client, key)])

    def _row(self, id: str, client: Client, key: str | None) -> Row:
        row = self._workers.table.find(id)
        if (
            row is None
            or row.client != client.name
            or (key is not None and not hmac.compare_digest(row.key, hashed(key)))
        ):
            raise _unknown()
        return row


def _unknown() -> RequestError:
    return RequestError(404, "there is no such file; files are deleted some time after their translation")


def _generated(size: int) -> str:
    return secrets.token_hex(size).upper()
