"""The table of jobs, in memory and on disk, and the folders of their files."""

import shutil
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

from pydantic import TypeAdapter, ValidationError

from cotext.runtime import CotextError
from cotext.runtime.files import remove
from cotext.serving.glossary_store import wishes_of
from cotext.serving.jobs.storage import private, suffix_of, to_disk, write_durably
from cotext.translation.open import Wishes

VERSION: Final = 1  # version of the record of a job
RECORD: Final = "job.json"
LEAST_BYTES: Final = 4096  # counted for every job at least, for its folder and record
State = Literal["queued", "translating", "done", "error"]
FINISHED: Final[frozenset[State]] = frozenset({"done", "error"})


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Terms with their translations; several translations of one term are alternatives."""

    glossary_entries: tuple[tuple[str, str], ...] = ()

    @property
    def wishes(self) -> Wishes:
        """The terms as constraints; raise CotextError for an empty term or translation."""
        return wishes_of(self.glossary_entries)


@dataclass(frozen=True, slots=True)
class JobTicket:
    """Response to an upload: the id of the job, and a secret key for it."""

    id: str
    key: str


@dataclass(frozen=True, slots=True)
class JobStatus:
    """Status of a job.

    `sentences`: 0 until the file has been read. `seconds_remaining`: estimate, or None. `message`: the error.
    `messages`: notes about the file and its translation, such as text that is not translated. `file_name`:
    name of the translated file. `billed_characters`: number of characters of the source sentences.
    `submitted`: seconds since 1970.
    """

    id: str
    state: State
    system: str
    file_name: str
    sentences: int = 0
    sentences_done: int = 0
    seconds_remaining: float | None = None
    billed_characters: int = 0
    message: str = ""
    messages: tuple[str, ...] = ()
    submitted: float = 0.0

    @property
    def finished(self) -> bool:
        return self.state in FINISHED


@dataclass(frozen=True, slots=True)
class Row:
    """The record of a job.

    `number`: position in the order of submission. `key`: SHA-256 of the key of the job. `attempts`: number
    of starts without a final state.
    """

    number: int
    key: str
    client: str
    source_name: str
    options: JobOptions
    status: JobStatus
    attempts: int = 0
    finished: float | None = None
    version: int = VERSION

    @property
    def id(self) -> str:
        return self.status.id

    @property
    def state(self) -> State:
        return self.status.state

    @property
    def suffix(self) -> str:
        return suffix_of(self.source_name)


_KEPT: Final = TypeAdapter(Row)


class JobTable:
    """The jobs of a server: for each a folder with a generated name, its record and its files.

    Changes of records are on disk when a method returns. Methods may be called from any thread, and raise
    OSError if a write fails. No path contains a name that a client has sent.

    Raises:
        CotextError: a record on disk is damaged or was written by another version.
    """

    def __init__(self, root: Path) -> None:
        self.root = private(root)
        self._lock = threading.RLock()
        rows = [_read(path) for path in root.glob(f"*/{RECORD}")]
        self._rows = {row.id: row for row in sorted(rows, key=lambda row: row.number)}

    def source(self, row: Row) -> Path:
        return self.root / row.id / f"source{row.suffix}"

    def result(self, row: Row) -> Path:
        return self.root / row.id / f"result{row.suffix}"

    def store(self, row: Row, file: BinaryIO) -> Path:
        """Create the folder of a job, and copy its file there, synced to disk."""
        path = self.source(row)
        path.parent.mkdir(mode=0o700)
        with path.open("xb") as copy:
            path.chmod(0o600)
            shutil.copyfileobj(file, copy)
        for written in (path, path.parent, self.root):
            to_disk(written)
        return path

    def size(self, id: str) -> int:
        """Return the total size of the files of a job, in bytes; at least LEAST_BYTES."""
        size = 0
        with suppress(OSError):
            for path in (self.root / id).iterdir():
                with suppress(OSError):
                    size += path.stat().st_size
        return max(size, LEAST_BYTES)

    def delete_except(self, row: Row, *kept: Path) -> None:
        """Delete all files of a job except its record and the files `kept`."""
        with suppress(OSError):
            for path in (self.root / row.id).iterdir():
                if path.name != RECORD and path not in kept:
                    remove(path)

    def discard(self, row: Row) -> None:
        """Delete the folder of a job."""
        remove(self.root / row.id)

    def sweep(self) -> None:
        """Delete folders without a record, left by a killed server."""
        for path in self.root.iterdir():
            if path.name not in self._rows:
                remove(path)

    def add(self, row: Row) -> None:
        """Add a waiting job, with the next number."""
        with self._lock:
            number = 1 + max((known.number for known in self._rows.values()), default=0)
            self._keep(replace(row, number=number))

    def find(self, id: str) -> Row | None:
        """Return a job by id, or None."""
        return self._rows.get(id)

    def everything(self) -> list[Row]:
        """Return all jobs, the oldest first."""
        with self._lock:
            return list(self._rows.values())

    def of_client(self, client: str) -> list[Row]:
        """Return the jobs of a client, the newest first."""
        return [row for row in reversed(self.everything()) if row.client == client]

    def unfinished(self) -> list[Row]:
        """Return the waiting and running jobs, the oldest first."""
        return [row for row in self.everything() if row.state not in FINISHED]

    def begin(self, row: Row) -> bool:
        """Mark a waiting job as running; return False if it has been deleted."""
        return self._change(row.id, {"state": "translating"}, attempts=row.attempts + 1)

    def put_back(self, id: str) -> None:
        """Reset the attempts of a job that a regular stop of the server interrupts."""
        self._change(id, {}, attempts=0)

    def read(self, id: str, sentences: int, characters: int) -> None:
        self._change(id, {"sentences": sentences, "billed_characters": characters})

    def finish(
        self, id: str, state: State, done: int = 0, message: str = "", messages: Sequence[str] = ()
    ) -> bool:
        """Mark a job as ended; return False if it had ended before or was deleted."""
        status = {"state": state, "sentences_done": done, "message": message, "messages": tuple(messages)}
        return self._change(id, status, finished=time.time())

    def forget(self, rows: Iterable[Row]) -> None:
        with self._lock:
            for row in rows:
                if self._rows.pop(row.id, None) is not None:
                    remove(self.root / row.id / RECORD)

    def _change(self, id: str, status: Mapping[str, Any], **changes: Any) -> bool:
        """Change the record of a job that has not ended, and its status; return False if there is none."""
        with self._lock:
            row = self._rows.get(id)
            if row is None or row.state in FINISHED:
                return False
            self._keep(replace(row, status=replace(row.status, **status), **changes))
            return True

    def _keep(self, row: Row) -> None:
        write_durably(self.root / row.id / RECORD, _KEPT.dump_json(row, indent=1))
        self._rows[row.id] = row


def _read(path: Path) -> Row:
    try:
        row = _KEPT.validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        reason = str(error).partition("\n")[0]
        message = f"not a valid record of a job: {reason}"
        raise CotextError(f"{path}: {message}; delete its folder, or choose another --state") from None
    if row.version != VERSION:
        message = f"has version {row.version}, but this server reads version {VERSION}"
        raise CotextError(f"{path}: {message}; use the Cotext that wrote it, or another --state")
    return row
