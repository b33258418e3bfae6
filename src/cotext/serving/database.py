"""Databases of a server: SQLite files under its state folder, which processes and threads share."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

BUSY_SECONDS: Final = 30.0


class Database:
    """A SQLite file; its tables are made when it is first used.

    Each transaction has a connection of its own, so that any thread may use it.
    """

    def __init__(self, path: Path, schema: str) -> None:
        self._path, self._schema = path, schema

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction that writes: all of it is kept, or nothing if an exception leaves it."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with closing(sqlite3.connect(self._path, BUSY_SECONDS, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("BEGIN IMMEDIATE")
            try:
                for statement in filter(str.strip, self._schema.split(";")):
                    connection.execute(statement)
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
