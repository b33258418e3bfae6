"""Bytes that the files of each client take on the disk, and their limits."""

from collections import Counter
from typing import Final

from cotext.serving.errors import RequestError
from cotext.serving.settings import SHARES

NOBODY: Final = ""  # the client of files that arrive before a key is shown
STRANGERS_BYTES: Final = 32 << 20  # of all files of NOBODY, which count for no client
LEAST_BYTES: Final = 4096  # of a job, for its folder and its row in the table
RETRY_SECONDS: Final = 600.0


class Space:
    """Bytes by file and by client: of jobs, and of files that arrive. For one thread at a time.

    `most`: bytes of all files together.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: dict[str, tuple[str, int]] = {}
        self._clients: Counter[str] = Counter()

    def put(self, name: str, client: str, size: int) -> None:
        """Note that a file takes so many bytes now."""
        self.drop(name)
        self._entries[name] = client, size
        self._clients[client] += size

    def drop(self, name: str) -> None:
        """Note that a file is gone."""
        client, size = self._entries.pop(name, (NOBODY, 0))
        self._clients[client] -= size
        if not self._clients[client]:
            del self._clients[client]

    def of(self, name: str, client: str) -> int:
        """Bytes of a file, 0 if it is not this client's."""
        owner, size = self._entries.get(name, (client, 0))
        return size if owner == client else 0

    def over(self, client: str, more: int) -> int:
        """Bytes by which `more` of a client are too many; at most 0 where there is space."""
        own = self._clients[client] + more - self._share(client)
        strangers = self._clients[NOBODY]
        everything = self._clients.total() - strangers + more - self._most
        return own if client == NOBODY else max(own, everything)

    def refusal(self, client: str, more: int) -> RequestError:
        """The error for a client for whom there is no space."""
        if client == NOBODY:
            told = "too many files arrive before their keys; send the key in the header, or try again later"
            return RequestError(503, told, RETRY_SECONDS)
        if self._clients[client] + more > self._share(client):
            told = f"your files take the {self._share(client):,} bytes that a client may have here"
            return RequestError(429, f"{told}; wait until some are done, or delete some", RETRY_SECONDS)
        return RequestError(503, "the server has no room for more files; try again later", RETRY_SECONDS)

    def _share(self, client: str) -> int:
        share = self._most // SHARES
        return min(share, STRANGERS_BYTES) if client == NOBODY else share
