"""Jobs that translate files: they wait on disk, a few run at a time, and a restart resumes them."""

import hmac
import logging
import os
import re
import secrets
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from cotext.data.faults import faults_in_words, shown_places
from cotext.data.formats.streams import COMPRESSIONS, GZ_BEGINNING, XZ_BEGINNING
from cotext.files.table import GENERIC, file_formats, format_of
from cotext.files.translate_files import BlockOptions, open_job
from cotext.runtime import CotextError
from cotext.runtime.files import working_in
from cotext.runtime.jobs.engine import run
from cotext.serving.keys import hashed
from cotext.serving.record import CURRENT, RequestError, stopping, without_paths
from cotext.serving.settings import ServerSettings
from cotext.serving.sharing import CancelledError, SharedSystem, Work
from cotext.serving.state import (
    FINISHED,
    LEAST_BYTES,
    RETRY_SECONDS,
    JobOptions,
    JobStatus,
    JobTable,
    JobTicket,
    Row,
    Space,
    State,
    clean_name,
    disk_full,
    private,
    require_room,
    result_name,
)
from cotext.serving.systems import System, Systems
from cotext.translation.corpus_files import FileReport

# --- Translation of the file of one job, resumed from its journal.

MAX_MESSAGES: Final = 100
# Sentences that are reported this soon after the first one were translated before a restart, and are read
# from the journal of the job. They do not count for the speed.
AT_ONCE_SECONDS: Final = 0.1
_OPTION: Final = re.compile(r" \(--[^()]*\)$")  # advice that only applies to the command line


@dataclass(slots=True)
class Running:
    """A running job; `done` counts its translated sentences."""

    work: Work
    done: int = 0
    _begun: float = 0.0
    _done_before: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def advance(self, count: int) -> None:
        now = time.monotonic()
        with self._lock:
            self._begun = self._begun or now
            self.done += count
            if now - self._begun < AT_ONCE_SECONDS:
                self._done_before = self.done

    def updated(self, status: JobStatus) -> JobStatus:
        """Return a status with the sentences done, and the remaining time estimated from the speed."""
        with self._lock:
            seconds, count = time.monotonic() - self._begun, self.done - self._done_before
            done = min(self.done, status.sentences)
            speed = count / seconds if self._begun and seconds else 0.0
        remaining = round((status.sentences - done) / speed, 1) if speed else None
        return replace(status, sentences_done=done, seconds_remaining=remaining)


def translate_job(
    row: Row, table: JobTable, system: System, shared: SharedSystem, running: Running
) -> list[str]:
    """Translate the file of a job; return messages about the translation.

    The journal is kept, in case the final state of the job cannot be saved. Raises CotextError: the file
    cannot be translated; the message is for the client, without paths. Raises CancelledError if the job was
    cancelled.
    """
    source, out = table.source(row), table.result(row)
    before: list[str] = []
    names = {
        source: row.source_name,
        out.with_name(f"{out.name}.partial"): row.status.file_name,
        out: row.status.file_name,
        out.parent: row.source_name,
        table.root: "the server",
        system.opened.folder: system.name,
    }
    try:
        format = format_of(source)
        # Plain text is read as prose, even if it looks like the corpus format `text` (one sentence per line).
        # Clients also send notes, lists and poems, in which an empty line does not end a document.
        if format == "text":
            format = file_formats()[GENERIC]
        alone = partial(shared.exclusively, running.work)
        terms = row.options.terminology
        options = BlockOptions(frozenset(), terms, before.append, by_window=True, alone=alone)
        job = open_job(shared.opened_for(running.work), source, out, format, options)
        table.change(row.id, {"sentences": job.sentences, "billed_characters": job.characters})
        at_start = list(before)  # later messages are also in the report
        report = run(job, running.advance, overwrite=True, keep=True)
    except CotextError as error:
        raise CotextError(without_paths(str(error), names)) from None
    messages = [*at_start, *report.messages, *_of_sentences(report)]
    shown = [without_paths(_OPTION.sub("", message), names) for message in dict.fromkeys(messages)]
    if len(shown) > MAX_MESSAGES:
        shown[MAX_MESSAGES:] = [f"... and {len(shown) - MAX_MESSAGES:,} more messages"]
    return shown


def check_source(path: Path, name: str) -> None:
    """Raise CotextError if the format of a file is unknown or the file is compressed.

    `name`: the client's name for the file.
    """
    with path.open("rb") as file:
        beginning = file.read(len(XZ_BEGINNING))
    if beginning.startswith((XZ_BEGINNING, GZ_BEGINNING)) or path.suffix in COMPRESSIONS:
        raise CotextError(f"{name}: is compressed; unpack it and send the files in it")
    try:
        format_of(path)
    except CotextError as error:
        raise CotextError(_OPTION.sub("", str(error).replace(str(path), name))) from None


def _of_sentences(report: FileReport) -> Iterable[str]:
    """Yield messages about sentences that the client should check."""
    for where, what in (
        (report.missing, "without a translation"),
        (report.truncated, "cut off at the length limit"),
        (report.long, "longer than any sentence used in training"),
        (report.shed, "translated with less context than others"),
    ):
        if where:
            sentences = f"{len(where):,} sentence{'s' if len(where) > 1 else ''}"
            yield f"{sentences} {what}; {report.places} {shown_places(where)}"
    if report.faults:
        yield faults_in_words(report.faults)


# --- The queue.

IDLE_SECONDS: Final = 30.0  # between checks for expired jobs
REFUSED_SECONDS: Final = 2.0  # pause after a write has failed
STOP_SECONDS: Final = 10.0
# How often a job is started again if the server crashed or could not save the result. A regular stop of the
# server resets the count.
MAX_ATTEMPTS: Final = 10

_log = logging.getLogger(__name__)


class Jobs:
    """The files of all clients, each a job, and the threads that translate them.

    A client can access only its own jobs; with a `key`, only the job of this key. For other jobs, methods
    raise RequestError 404. The first use raises the errors of `start`.
    """

    def __init__(
        self, systems: Systems, shared: Mapping[str, SharedSystem], settings: ServerSettings
    ) -> None:
        self._systems = {system.name: system for system in systems}
        self._shared, self._settings = shared, settings
        self._starting = threading.Lock()
        self._folder_lock = ExitStack()
        self._opened: JobTable | None = None
        self._threads: list[threading.Thread] = []
        self._running: dict[str, Running] = {}
        self._turns: dict[str, int] = {}  # by client: the turn of its last started job
        self._space = Space(settings.max_jobs_bytes)
        self._changed = threading.Condition()
        self._stopping = threading.Event()

    @property
    def table(self) -> JobTable:
        return self._opened or self.start()

    def start(self) -> JobTable:
        """Lock the folder, clean it up, and resume its jobs; called by the server or on first use.

        Raises CotextError if another server uses the folder, its jobs were written by another version, or a
        write fails.
        """
        with self._starting:
            if self._stopping.is_set():
                raise stopping()
            if self._opened is None:
                with ExitStack() as stack:
                    state = private(self._settings.state)
                    stack.enter_context(working_in(state))
                    table = JobTable(state / "jobs")
                    self._recover(table)
                    self._folder_lock = stack.pop_all()
                self._opened = table
                for number in range(self._settings.files_at_once):
                    thread = threading.Thread(target=self._work, name=f"files-{number}", daemon=True)
                    self._threads.append(thread)
                    thread.start()
            return self._opened

    def close(self) -> None:
        """Stop; running jobs are resumed when a server starts again."""
        with self._starting:
            with self._changed:
                self._stopping.set()
                for running in self._running.values():
                    running.work.cancel()
                self._changed.notify_all()
            deadline = time.monotonic() + STOP_SECONDS
            for thread in self._threads:
                thread.join(max(deadline - time.monotonic(), 0.0))
            self._folder_lock.close()

    def reserve(self, client: str, size: int) -> str:
        """Reserve space for an upload until `release`, and return the name of the reservation.

        Raises RequestError: 429 if the files of the client use all of its share; 503 if there is no space.
        """
        name, size, table = secrets.token_hex(16), max(size, LEAST_BYTES), self.table
        with self._changed:
            for id in self._running:
                self._measure(id)
            self._space.require(client, size)
            require_room(table.root, size)
            self._space.put(name, client, size)
        return name

    def release(self, reservation: str) -> None:
        """End a reservation; the space of submitted files stays reserved."""
        with self._changed:
            self._space.drop(reservation)

    def submit(
        self,
        client: str,
        system: System,
        file: BinaryIO,
        file_name: str,
        options: JobOptions,
        reservation: str = "",
    ) -> JobTicket:
        """Submit a file, which is copied and synced to disk.

        `file_name`: name of the file on the client. If the content fits several formats, the suffix of this
        name decides. `reservation`: reserved space for the file, which is released.

        Raises RequestError: 400 if the format is unknown or terms are not supported; 413 if the file is too
        large; 429 if the client, 503 if the server has too many waiting files or too little space.
        """
        CURRENT.get().system = system.name
        file.seek(0, os.SEEK_END)
        size = file.tell()
        file.seek(0)
        if size > self._settings.max_file_bytes:
            raise RequestError(413, f"a file may have {self._settings.max_file_bytes:,} bytes at most")
        waiting = self.table.unfinished()
        count = sum(row.client == client for row in waiting)
        if count >= self._settings.max_waiting_of_client:
            raise RequestError(429, f"{count} of your files are waiting; send fewer at a time", RETRY_SECONDS)
        if len(waiting) >= self._settings.max_waiting:
            raise RequestError(503, "too many files are waiting; try again later", RETRY_SECONDS)
        ticket = JobTicket(secrets.token_hex(16).upper(), secrets.token_hex(32).upper())
        name, languages = clean_name(file_name), system.languages
        result = result_name(name, languages.source, languages.target)
        status = JobStatus(ticket.id, "queued", system.name, result, submitted=time.time())
        row = Row(0, hashed(ticket.key), client, name, options, status)
        reservation = reservation or self.reserve(client, size)
        try:
            # The file first: a server that is killed in between finds a file without a job, and deletes it.
            options.terminology.check(system.opened.translator)
            check_source(self.table.store(row, file), name)
            with self._changed:
                self.table.add(row)
                self._space.put(row.id, client, max(size, LEAST_BYTES))
                self._space.drop(reservation)
                self._changed.notify()
        except BaseException as error:
            self.release(reservation)
            self.table.discard(row)
            if isinstance(error, CotextError):
                raise RequestError(400, str(error)) from None
            if isinstance(error, OSError):
                raise disk_full() from None
            raise
        return ticket

    def status(self, id: str, client: str, key: str | None = None) -> JobStatus:
        return self._status(self._row(id, client, key))

    def of_client(self, client: str) -> list[JobStatus]:
        """Return the status of all jobs of a client, the newest first."""
        rows = reversed(self.table.everything())
        return [self._status(row) for row in rows if row.client == client]

    def result(self, id: str, client: str, key: str | None = None) -> tuple[Path, str]:
        """Return the translated file and its name; raise RequestError 409 if there is none."""
        row = self._row(id, client, key)
        if row.state != "done":
            why = "is not translated yet" if row.state not in FINISHED else "was not translated"
            raise RequestError(409, f"this file {why}: {row.status.message or row.state}")
        return self.table.result(row), row.status.file_name

    def delete(self, id: str, client: str, key: str | None = None) -> None:
        self._forget(self.table, [self._row(id, client, key)])

    def _row(self, id: str, client: str, key: str | None) -> Row:
        row = self.table.find(id)
        if (
            row is None
            or row.client != client
            or (key is not None and not hmac.compare_digest(row.key, hashed(key)))
        ):
            message = "there is no such file; files are deleted some time after their translation"
            raise RequestError(404, message)
        return row

    def _status(self, row: Row) -> JobStatus:
        """Return the status of a job, with its current progress."""
        with self._changed:
            running = self._running.get(row.id)
        return row.status if running is None or row.status.finished else running.updated(row.status)

    # --- Space.

    def _measure(self, id: str) -> None:
        """Update the size of a job, unless it has been deleted."""
        if (row := self.table.find(id)) is not None:
            self._space.put(id, row.client, self.table.size(id))

    def _forget(self, table: JobTable, rows: Iterable[Row]) -> None:
        """Cancel jobs and delete them."""
        with self._changed:
            table.forget(rows)
            for row in rows:
                self._space.drop(row.id)
                if row.id in self._running:
                    self._running[row.id].work.cancel()
        for row in rows:
            table.discard(row)

    def _tidy(self, table: JobTable) -> None:
        """Delete jobs that finished too long ago."""
        last = time.time() - 3600 * self._settings.keep_files_hours
        self._forget(table, [r for r in table.everything() if r.finished is not None and r.finished < last])

    def _recover(self, table: JobTable) -> None:
        """Clean up after a killed server: files without a job, and jobs without a file."""
        table.sweep()
        for row in table.everything():
            if row.state == "done":
                table.delete_except(row, table.result(row))
                if not table.result(row).is_file():
                    self._forget(table, [row])
            elif row.state in FINISHED:
                table.delete_except(row)
            elif not table.source(row).is_file():
                table.finish(row.id, "error", message="the uploaded file was lost; send it again")
        self._tidy(table)
        for row in table.everything():
            self._space.put(row.id, row.client, table.size(row.id))

    # --- The threads: interrupted jobs first, then clients in turn.

    def _work(self) -> None:
        while not self._stopping.is_set():
            try:
                claimed = self._claim()
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
                    self._measure(row.id)
                    self._changed.notify()

    def _claim(self) -> tuple[Row, Running] | None:
        """Claim the next job for this thread; None if there was none for a while."""
        table = self.table
        with self._changed:
            if self._stopping.is_set():
                return None
            waiting = [row for row in table.unfinished() if row.id not in self._running]
            if waiting:
                row = self._next(waiting)
                # False if the job has been deleted.
                if table.change(row.id, {"state": "translating"}, attempts=row.attempts + 1):
                    self._running[row.id] = running = Running(Work(row.client, background=True))
                    return row, running
            else:
                self._changed.wait(IDLE_SECONDS)
        self._tidy(table)
        return None

    def _next(self, waiting: list[Row]) -> Row:
        """Choose an interrupted job first, otherwise a job of the client with the fewest running jobs.

        Among these clients, the one that has waited longest since its last turn comes first.
        """
        at_work = Counter(running.work.client for running in self._running.values())
        turns = {row.client: self._turns.get(row.client, 0) for row in self.table.everything()}
        row = min(waiting, key=lambda r: (r.state == "queued", at_work[r.client], turns[r.client], r.number))
        self._turns = {**turns, row.client: 1 + max(turns.values())}
        return row

    def _run(self, row: Row, running: Running) -> None:
        """Run a job and save its final state; delete the files of cancelled and deleted jobs."""
        state: State = "error"
        table, message, messages = self.table, "", list[str]()
        try:
            messages = self._translate(row, running)
            state = "done"
        except CancelledError:
            if self._stopping.is_set():
                table.change(row.id, {}, attempts=0)
                return
        except CotextError as error:
            message = str(error)
        except Exception as error:
            # Only the location is logged, because the message of an exception may contain text of a client.
            where = "".join(traceback.format_tb(error.__traceback__))
            _log.error("a file was not translated: %s\n%s", type(error).__name__, where)
            message = f"{row.source_name}: an internal server error occurred while translating this file"
        if state == "error":
            table.delete_except(row)  # frees disk space for the record
        if not table.finish(row.id, state, running.done, message, messages):
            table.discard(row)
        elif state == "done":
            table.delete_except(row, table.result(row))

    def _translate(self, row: Row, running: Running) -> list[str]:
        system = self._systems.get(row.status.system)
        if system is None:
            message = f"the system {row.status.system!r} is no longer served"
            raise CotextError(f"{row.source_name}: {message}; choose one of {', '.join(self._systems)}")
        if row.attempts >= MAX_ATTEMPTS:
            message = f"the server did not finish this file in {MAX_ATTEMPTS} attempts; split the file"
            raise CotextError(f"{row.source_name}: {message}")
        return translate_job(row, self.table, system, self._shared[system.name], running)
