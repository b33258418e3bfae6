"""Databases of a server: SQLite files under its state folder, which all its threads share."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

BUSY_SECONDS: Final = 30.0


class Database:
    """A SQLite file with its tables, made when it is first used; one connection, a transaction at a time.

    `durable`: a transaction that has ended is on the disk, whatever happens to the machine; else the last
    ones may be lost with its power, which is a hundred times as fast.
    """

    def __init__(self, path: Path, schema: str, durable: bool = True) -> None:
        self._path, self._schema, self._durable = path, schema, durable
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction that writes: all of it is kept, or nothing if an exception leaves it."""
        with self._lock:
            connection = self._connection = self._connection or self._opened()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _opened(self) -> sqlite3.Connection:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        connection = sqlite3.connect(self._path, BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.executescript(self._schema)
        return connection
