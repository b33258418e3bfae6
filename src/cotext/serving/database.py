"""Databases of a server: SQLite files under its state folder, which all its threads share."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from cotext.runtime.errors import CotextError

VERSION: Final = 1  # of all tables
BUSY_SECONDS: Final = 30.0


class Database:
    """A SQLite file with its tables, made when it is first used; one connection, a transaction at a time.

    `durable`: a transaction that has ended is on the disk, whatever happens to the machine; else the last
    ones may be lost with its power, which is a hundred times as fast.

    Raises:
        CotextError: on first use, the file is of another version, or no database.
    """

    def __init__(self, path: Path, schema: str, durable: bool = True) -> None:
        self._path, self._schema, self._durable = path, schema, durable
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction that writes: all of it is kept, or nothing if an exception leaves it."""
        with self._lock:
            self._connection = connection = self._connection or self._opened()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # a full disk may have rolled back by itself
                    connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()

    def _opened(self) -> sqlite3.Connection:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # For all threads, one at a time; transactions are begun by `transaction` alone.
        connection = sqlite3.connect(self._path, BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            # Those who read and the one who writes do not wait for each other.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")
            connection.execute("PRAGMA foreign_keys = ON")
            [version] = connection.execute("PRAGMA user_version").fetchone()
            [tables] = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if tables and version != VERSION:
                raise CotextError(
                    f"{self._path}: is of version {version}, and this server knows version {VERSION}; serve "
                    "it with the version of Cotext that made it, or give another --state"
                )
            if not tables:
                connection.executescript(f"BEGIN; {self._schema} PRAGMA user_version = {VERSION}; COMMIT")
        except sqlite3.DatabaseError as error:
            connection.close()
            raise CotextError(
                f"{self._path}: cannot be used as a database: {error}; move it away, or give another --state"
            ) from None
        except CotextError:
            connection.close()
            raise
        return connection


# --- The characters that each client has had translated, kept on disk.

_SCHEMA: Final = "CREATE TABLE usage (client TEXT PRIMARY KEY, characters INTEGER NOT NULL);"


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
