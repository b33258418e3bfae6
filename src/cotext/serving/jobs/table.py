"""The table of jobs on disk: SQLite, from which a server that is started again goes on."""

import json
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cotext.runtime.errors import CotextError
from cotext.serving.database import connect, transaction, write_ahead
from cotext.serving.jobs.names import suffix_of
from cotext.serving.jobs.values import STATES, JobOptions, JobStatus, State

VERSION: Final = 1  # of the schema
BUSY_SECONDS: Final = 10.0
_APPLICATION: Final = 0x436F744A  # says of the file whose tables these are
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
) STRICT
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
        CotextError: the file is of another version, or no table of jobs.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.RLock()
        self._connection = connect(path, BUSY_SECONDS)
        try:
            self._prepare(path)
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise CotextError(
                f"{path}: cannot be used as a table of jobs: {error}; move it away, or give another --state"
            ) from None
        except CotextError:
            self._connection.close()
            raise

    def _prepare(self, path: Path) -> None:
        write_ahead(self._connection)
        with self._transaction() as run:
            [version] = run.execute("PRAGMA user_version").fetchone()
            [application] = run.execute("PRAGMA application_id").fetchone()
            [tables] = run.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if not tables:
                run.execute(_SCHEMA)
                run.execute(f"PRAGMA user_version = {VERSION}")
                run.execute(f"PRAGMA application_id = {_APPLICATION}")
            elif (version, application) != (VERSION, _APPLICATION):
                known = f"its jobs are of version {version}, and this server knows version {VERSION}"
                what = known if application == _APPLICATION else "holds other tables than those of jobs"
                raise CotextError(
                    f"{path}: {what}; serve it with the version of Cotext that made it, or give another "
                    "--state"
                )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, transaction(self._connection) as connection:
            yield connection

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def add(self, values: Mapping[str, Any]) -> None:
        """A new job, that waits."""
        content = {**values, "state": "queued", "submitted": time.time()}
        names = ", ".join(content)
        marks = ", ".join(f":{name}" for name in content)
        with self._transaction() as run:
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
        with self._lock:
            found = self._connection.execute("SELECT state, count(*) FROM jobs GROUP BY state").fetchall()
        return {**dict.fromkeys(STATES, 0), **dict(found)}

    def _select(self, which: str, *values: Any) -> list[Row]:
        with self._lock:
            return [Row(*row) for row in self._connection.execute(f"SELECT * FROM jobs {which}", values)]

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
        with self._lock:
            return dict(self._connection.execute("SELECT client, max(turn) FROM jobs GROUP BY client"))

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
        with self._transaction() as run:
            run.executemany("DELETE FROM jobs WHERE id = ?", [(id,) for id in ids])

    def _changes(self, statement: str, *values: Any) -> bool:
        with self._transaction() as run:
            return run.execute(statement, values).rowcount > 0
