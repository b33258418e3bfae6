"""The characters that each client has had translated, kept on disk."""

from pathlib import Path
from typing import Final

from cotext.serving.database import Database

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
