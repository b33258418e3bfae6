"""The table of jobs, in memory and on disk, from which a server that is started again goes on."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from pydantic import TypeAdapter, ValidationError

from cotext.runtime.errors import CotextError
from cotext.runtime.files import remove
from cotext.serving.glossary_store import wishes_of
from cotext.serving.jobs.folder import JobFolder
from cotext.serving.jobs.names import suffix_of
from cotext.translation.wishes import Wishes

VERSION: Final = 1  # of what is kept of a job
State = Literal["queued", "translating", "done", "error"]
STATES: Final[tuple[State, ...]] = get_args(State)
FINISHED: Final[frozenset[State]] = frozenset({"done", "error"})


@dataclass(frozen=True, slots=True)
class JobOptions:
    """How a file is translated.

    `glossary_entries`: terms with their translations; several of one term are alternatives. `fast`: greedy
    search instead of the run's.
    """

    glossary_entries: tuple[tuple[str, str], ...] = ()
    fast: bool = False

    @property
    def wishes(self) -> Wishes:
        """What is asked of the translation.

        Raises:
            CotextError: an empty term, or an empty translation.
        """
        return wishes_of(self.glossary_entries)


@dataclass(frozen=True, slots=True)
class JobTicket:
    """What a client gets for a file: the name of its job, and a key that shows that the job is theirs."""

    id: str
    key: str


@dataclass(frozen=True, slots=True)
class JobStatus:
    """How far a job is.

    `sentences`: 0 until the file has been read. `seconds_remaining`: estimated from the speed so far; None
    where it is not known. `message`: what went wrong, for the client; `messages`: what there is to know of
    the file and of its translation, as text that could not be translated. `file_name`: of the result.
    `billed_characters`: of its source sentences. `submitted`: seconds since 1970.
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
        """Whether nothing more will happen."""
        return self.state in FINISHED


@dataclass(frozen=True, slots=True)
class Row:
    """A job as it is kept.

    `number` counts jobs in the order in which they came; `key`: the SHA-256 of the client's; `turn`: in the
    order in which jobs were begun, 0 before; `attempts`: how often it was begun without an end.
    """

    number: int
    key: str
    client: str
    source_name: str
    options: JobOptions
    status: JobStatus
    turn: int = 0
    attempts: int = 0
    finished: float | None = None
    version: int = VERSION

    @property
    def id(self) -> str:
        """The name of the job."""
        return self.status.id

    @property
    def state(self) -> State:
        """How far it is."""
        return self.status.state

    @property
    def suffix(self) -> str:
        """The ending of its files on this machine."""
        return suffix_of(self.source_name)


_KEPT: Final = TypeAdapter(Row)


class JobTable:
    """The jobs of a server, each in a file of its folder; what a method notes is on the disk when it returns.

    All methods may be called from any thread, and raise OSError where storage refuses.

    Raises:
        CotextError: a job on the disk is of another version, or damaged.
    """

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self._lock = threading.RLock()
        rows = [self._read(id) for id in folder.noted()]
        self._rows = {row.id: row for row in sorted(rows, key=lambda row: row.number)}

    def _read(self, id: str) -> Row:
        path = self._folder.record(id)
        try:
            row = _KEPT.validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            reason = str(error).partition("\n")[0]
            raise CotextError(
                f"{path}: cannot be read as a job: {reason}; delete its folder, or give another --state"
            ) from None
        if row.version != VERSION:
            raise CotextError(
                f"{path}: is of version {row.version}, and this server knows version {VERSION}; serve it "
                "with the version of Cotext that made it, or give another --state"
            )
        return row

    def add(self, status: JobStatus, client: str, key: str, source_name: str, options: JobOptions) -> None:
        """A new job, that waits; `key`: the SHA-256 of the client's."""
        with self._lock:
            number = 1 + max((row.number for row in self._rows.values()), default=0)
            self._keep(Row(number, key, client, source_name, options, status))

    def find(self, id: str) -> Row | None:
        """The job of an id."""
        return self._rows.get(id)

    def everything(self) -> list[Row]:
        """All jobs, the oldest first."""
        with self._lock:
            return list(self._rows.values())

    def of_client(self, client: str) -> list[Row]:
        """The jobs of a client, the newest first."""
        return [row for row in reversed(self.everything()) if row.client == client]

    def unfinished(self) -> list[Row]:
        """Those that wait or were begun, the oldest first."""
        return [row for row in self.everything() if row.state not in FINISHED]

    def counts(self) -> dict[State, int]:
        """How many jobs are in each state."""
        found = Counter(row.state for row in self.everything())
        return {state: found[state] for state in STATES}

    def last_turns(self) -> dict[str, int]:
        """When a job of each client was begun last, by turns."""
        turns: dict[str, int] = {}
        for row in self.everything():
            turns[row.client] = max(row.turn, turns.get(row.client, 0))
        return turns

    def begin(self, id: str) -> bool:
        """Note that a job is worked at; False where it has been forgotten."""
        with self._lock:  # no two jobs have one turn
            turn = 1 + max(self.last_turns().values(), default=0)
            return self._change(
                id,
                lambda row: replace(
                    row, turn=turn, attempts=row.attempts + 1, status=replace(row.status, state="translating")
                ),
            )

    def put_back(self, id: str) -> None:
        """Note that a job is left because the server stops, and by no fault of its file."""
        self._change(id, lambda row: replace(row, attempts=0))

    def read(self, id: str, sentences: int, characters: int) -> None:
        """Note what the file of a job holds."""
        self._change(
            id,
            lambda row: replace(
                row, status=replace(row.status, sentences=sentences, billed_characters=characters)
            ),
        )

    def finish(
        self, id: str, state: State, done: int = 0, message: str = "", messages: Sequence[str] = ()
    ) -> bool:
        """Note the end of a job; False where it had ended before, or is forgotten."""

        def finished(row: Row) -> Row:
            told = replace(
                row.status, state=state, sentences_done=done, message=message, messages=tuple(messages)
            )
            return replace(row, status=told, finished=time.time())

        return self._change(id, finished)

    def forget(self, ids: Iterable[str]) -> None:
        """Delete jobs."""
        with self._lock:
            for id in ids:
                if self._rows.pop(id, None) is not None:
                    remove(self._folder.record(id))

    def _change(self, id: str, change: Callable[[Row], Row]) -> bool:
        """Note a change of a job that has not ended; False where there is none."""
        with self._lock:
            row = self._rows.get(id)
            if row is None or row.state in FINISHED:
                return False
            self._keep(change(row))
            return True

    def _keep(self, row: Row) -> None:
        self._folder.note(row.id, _KEPT.dump_json(row, indent=1))
        self._rows[row.id] = row
