"""Databases of a server: SQLite files under its state folder, which all its threads share."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
            self._connection = self._connection or self._opened()
            with transaction(self._connection) as connection:
                yield connection

    def _opened(self) -> sqlite3.Connection:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        connection = connect(self._path, BUSY_SECONDS)
        write_ahead(connection, self._durable)
        connection.execute("PRAGMA foreign_keys = ON")
        connection.executescript(self._schema)
        return connection


def connect(path: Path, busy_seconds: float) -> sqlite3.Connection:
    """A connection for all threads, one at a time, whose transactions are begun by `transaction` alone."""
    return sqlite3.connect(path, busy_seconds, isolation_level=None, check_same_thread=False)


def write_ahead(connection: sqlite3.Connection, durable: bool = True) -> None:
    """Let those who read and the one who writes not wait for each other; `durable`: see `Database`."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """A transaction that writes: all of it is kept, or nothing if an exception leaves it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # a full disk may have rolled back by itself
            connection.execute("ROLLBACK")
        raise


# --- The characters that each client has had translated, kept on disk.

_SCHEMA: Final = "CREATE TABLE IF NOT EXISTS usage (client TEXT PRIMARY KEY, characters INTEGER NOT NULL);"


class UsageStore:
    """Characters of clients, told apart by name."""

    def __init__(self, state: Path) -> None:
        self._database = Database(state / "usage.sqlite3", _SCHEMA, durable=False)

    def characters(self, client: str) -> int:
        """The characters of a client so far."""
        with self._database.transaction() as database:
            query = "SELECT characters FROM usage WHERE client = ?"
            row = database.execute(query, (client,)).fetchone()
            return int(row[0]) if row else 0

    def add(self, client: str, characters: int) -> None:
        """Count characters that were translated."""
        with self._database.transaction() as database:
            query = (
                "INSERT INTO usage VALUES (?, ?)"
                " ON CONFLICT (client) DO UPDATE SET characters = characters + excluded.characters"
            )
            database.execute(query, (client, characters))
