"""The table of jobs on disk, from which a server that is started again goes on: SQLite."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

from cotext.serving.database import Database
from cotext.serving.glossary_store import wishes_of
from cotext.serving.jobs.names import suffix_of
from cotext.translation.wishes import Wishes

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

    def to_json(self) -> str:
        """As it is kept on disk."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "JobOptions":
        """Undo `to_json`."""
        content = json.loads(text)
        return cls(tuple((source, target) for source, target in content["glossary_entries"]), content["fast"])


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


_SCHEMA: Final = """
CREATE TABLE jobs (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  key TEXT NOT NULL,
  client TEXT NOT NULL,
  system TEXT NOT NULL,
  file_name TEXT NOT NULL,
  result_name TEXT NOT NULL,
  options TEXT NOT NULL,
  state TEXT NOT NULL,
  turn INTEGER NOT NULL DEFAULT 0,
  attempts INTEGER NOT NULL DEFAULT 0,
  sentences INTEGER NOT NULL DEFAULT 0,
  sentences_done INTEGER NOT NULL DEFAULT 0,
  billed_characters INTEGER NOT NULL DEFAULT 0,
  message TEXT NOT NULL DEFAULT '',
  messages TEXT NOT NULL DEFAULT '[]',
  submitted REAL NOT NULL,
  finished REAL
) STRICT;
"""


@dataclass(frozen=True, slots=True)
class Row:
    """A job as the table has it.

    `number` counts jobs in the order in which they came; `key`: the SHA-256 of the client's; `turn`: in the
    order in which jobs were begun, 0 before; `attempts`: how often it was begun without an end.
    """

    number: int
    id: str
    key: str
    client: str
    system: str
    file_name: str
    result_name: str
    options: str
    state: State
    turn: int
    attempts: int
    sentences: int
    sentences_done: int
    billed_characters: int
    message: str
    messages: str
    submitted: float
    finished: float | None

    @property
    def wanted(self) -> JobOptions:
        """The client's options."""
        return JobOptions.from_json(self.options)

    @property
    def suffix(self) -> str:
        """The ending of its files on this machine."""
        return suffix_of(self.file_name)

    @property
    def status(self) -> JobStatus:
        """What a client is told."""
        return JobStatus(
            self.id,
            self.state,
            self.system,
            self.result_name,
            self.sentences,
            self.sentences_done,
            None,
            self.billed_characters,
            self.message,
            tuple(json.loads(self.messages)),
            self.submitted,
        )


class JobTable:
    """The jobs of a server, in one SQLite file; every method is one transaction, from any thread.

    Raises:
        CotextError: as `Database`.
    """

    def __init__(self, path: Path) -> None:
        self._database = Database(path, _SCHEMA)
        self.counts()  # raises where it cannot be used

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def add(self, values: Mapping[str, Any]) -> None:
        """A new job, that waits."""
        content = {**values, "state": "queued", "submitted": time.time()}
        names = ", ".join(content)
        marks = ", ".join(f":{name}" for name in content)
        with self._database.transaction() as run:
            run.execute(f"INSERT INTO jobs ({names}) VALUES ({marks})", content)

    def find(self, id: str) -> Row | None:
        """The job of an id."""
        return next(iter(self._select("WHERE id = ?", id)), None)

    def of_client(self, client: str) -> list[Row]:
        """The jobs of a client, the newest first."""
        return self._select("WHERE client = ? ORDER BY number DESC", client)

    def unfinished(self) -> list[Row]:
        """Those that wait or were begun, the oldest first."""
        return self._select("WHERE state IN ('queued', 'translating') ORDER BY number")

    def everything(self) -> list[Row]:
        """All jobs, the oldest first."""
        return self._select("ORDER BY number")

    def counts(self) -> dict[State, int]:
        """How many jobs are in each state."""
        with self._database.transaction() as run:
            found = run.execute("SELECT state, count(*) FROM jobs GROUP BY state").fetchall()
        return {**dict.fromkeys(STATES, 0), **dict(found)}

    def _select(self, which: str, *values: Any) -> list[Row]:
        with self._database.transaction() as run:
            return [Row(*row) for row in run.execute(f"SELECT * FROM jobs {which}", values)]

    def begin(self, id: str) -> bool:
        """Note that a job is worked at; False where it has been cancelled or forgotten."""
        return self._changes(
            "UPDATE jobs SET state = 'translating', attempts = attempts + 1, "
            "turn = (SELECT max(turn) FROM jobs) + 1 WHERE id = ? AND state IN ('queued', 'translating')",
            id,
        )

    def put_back(self, id: str) -> None:
        """Note that a job is left because the server stops, and by no fault of its file."""
        self._changes("UPDATE jobs SET attempts = 0 WHERE id = ?", id)

    def last_turns(self) -> dict[str, int]:
        """When a job of each client was begun last, by turns."""
        with self._database.transaction() as run:
            return dict(run.execute("SELECT client, max(turn) FROM jobs GROUP BY client"))

    def read(self, id: str, sentences: int, characters: int) -> None:
        """Note what the file of a job holds."""
        self._changes(
            "UPDATE jobs SET sentences = ?, billed_characters = ? WHERE id = ?", sentences, characters, id
        )

    def finish(
        self, id: str, state: State, done: int = 0, message: str = "", messages: Sequence[str] = ()
    ) -> bool:
        """Note the end of a job; False where it had ended before, or is forgotten."""
        return self._changes(
            "UPDATE jobs SET state = ?, sentences_done = ?, message = ?, messages = ?, finished = ? "
            "WHERE id = ? AND state IN ('queued', 'translating')",
            *(state, done, message, json.dumps(list(messages)), time.time(), id),
        )

    def forget(self, ids: Iterable[str]) -> None:
        """Delete jobs."""
        with self._database.transaction() as run:
            run.executemany("DELETE FROM jobs WHERE id = ?", [(id,) for id in ids])

    def _changes(self, statement: str, *values: Any) -> bool:
        with self._database.transaction() as run:
            return run.execute(statement, values).rowcount > 0
