"""The characters that each client has had translated, kept on disk."""

from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cotext.serving.database import Database
from cotext.serving.deepl.asked import asked
from cotext.serving.errors import RequestError
from cotext.serving.requests import service_of

_SCHEMA: Final = "CREATE TABLE IF NOT EXISTS usage (client TEXT PRIMARY KEY, characters INTEGER NOT NULL)"


class Usage:
    """Characters of clients, told apart by name."""

    def __init__(self, state: Path) -> None:
        self._database = Database(state / "usage.sqlite3", _SCHEMA)

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


def usage_of(request: Request) -> Usage:
    """What is counted by the server that is asked."""
    return Usage(service_of(request).settings.state)


def check_quota(request: Request, client: str) -> None:
    """Raise RequestError 456 where a client has had all that it may."""
    most = service_of(request).settings.max_characters_of_client
    if usage_of(request).characters(client) >= most:
        raise RequestError(456, f"Quota exceeded: {most:,} characters have been translated for you")


async def tell_usage(request: Request) -> Response:
    """`GET /v2/usage`."""
    _, client = await asked(request)
    count = usage_of(request).characters(client.name)
    limit = service_of(request).settings.max_characters_of_client
    return JSONResponse({"character_count": count, "character_limit": limit})
