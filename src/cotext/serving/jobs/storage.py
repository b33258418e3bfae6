"""Private folders on disk, durable writes, and the disk space of clients."""

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Final

from cotext.runtime.errors import CotextError
from cotext.runtime.files import ON_WINDOWS
from cotext.serving.errors import RequestError
from cotext.serving.settings import SHARES

# Required free disk space, as a multiple of the size of the upload (for file, journal and result).
SPACE_FACTOR: Final = 4
KEPT_FREE_BYTES: Final = 64 << 20
RETRY_SECONDS: Final = 600.0


def private(folder: Path) -> Path:
    """Create a folder that only the owner can read, if absent; raise CotextError if this fails."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise CotextError(
            f"{folder}: cannot be used as the folder of a server: {error.strerror or error}"
        ) from None
    return folder


def to_disk(path: Path) -> None:
    """Sync a file or a folder to disk; raise OSError if this fails."""
    if ON_WINDOWS:  # can sync neither folders nor files opened for reading
        return
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def write_durably(path: Path, content: bytes) -> None:
    """Replace a private file atomically and sync it to disk; raise OSError if this fails."""
    temporary = path.with_name(f".{path.name}")
    temporary.write_bytes(content)
    temporary.chmod(0o600)
    to_disk(temporary)
    temporary.replace(path)
    to_disk(path.parent)


def require_room(folder: Path, size: int) -> None:
    """Raise RequestError 503 if a folder has too little disk space for a file of this size and its result."""
    if shutil.disk_usage(folder).free < size * SPACE_FACTOR + KEPT_FREE_BYTES:
        raise disk_full()


def disk_full() -> RequestError:
    """Return the error for a file that does not fit on the disk."""
    message = "the server has too little disk space for this file; try again later"
    return RequestError(503, message, RETRY_SECONDS)


class Space:
    """Disk space of jobs and uploads in bytes, by file and by client; not thread-safe.

    `most`: limit for all clients together.
    """

    def __init__(self, most: int) -> None:
        self._most, self._share = most, most // SHARES
        self._entries: dict[str, tuple[str, int, bool]] = {}
        self._clients: Counter[str] = Counter()

    def put(self, name: str, client: str, size: int, arriving: bool = False) -> None:
        """Set the size of a file; `arriving`: it is an upload, not a job."""
        self.drop(name)
        self._entries[name] = client, size, arriving
        self._clients[client] += size

    def drop(self, name: str) -> None:
        client, size, _ = self._entries.pop(name, ("", 0, False))
        self._clients[client] -= size
        if not self._clients[client]:
            del self._clients[client]

    def of(self, name: str) -> int:
        """Return the size of a file; 0 if it is unknown."""
        return self._entries.get(name, ("", 0, False))[1]

    def arriving(self, client: str) -> int:
        """Return the size of all uploads of a client."""
        return sum(size for owner, size, arriving in self._entries.values() if arriving and owner == client)

    def over(self, client: str, more: int) -> int:
        """Return by how many bytes a limit is exceeded if the client stores `more` bytes.

        The result is zero or negative if there is space.
        """
        excess = self._clients[client] + more - self._share
        return max(excess, self._clients.total() + more - self._most)

    def refusal(self, client: str, more: int) -> RequestError:
        """Return the error for a client without space."""
        if self._clients[client] + more > self._share:
            reason = f"your files use all of the {self._share:,} bytes allowed per client"
            return RequestError(429, f"{reason}; wait until some are done, or delete some", RETRY_SECONDS)
        return RequestError(503, "the server has no room for more files; try again later", RETRY_SECONDS)
