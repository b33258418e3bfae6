"""The folder of jobs: a folder for each under a generated name, with its record, and uploads beside them."""

import secrets
import shutil
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from cotext.runtime.files import remove
from cotext.serving.errors import RequestError
from cotext.serving.state import private, to_disk, write_durably

UPLOADS: Final = "uploads"
RECORD: Final = "job.json"
SOURCE, RESULT = "source", "result"
# A file takes its own size, that of its journal and that of its result.
TIMES_THE_SIZE: Final = 4
KEPT_FREE_BYTES: Final = 64 << 20
RETRY_SECONDS: Final = 600.0


class JobFolder:
    """Files of jobs; what a client calls them is not in any path."""

    def __init__(self, root: Path) -> None:
        self.root = private(root)
        self._uploads = private(root / UPLOADS)

    def of(self, id: str) -> Path:
        """The folder of a job."""
        return self.root / id

    def source(self, id: str, suffix: str) -> Path:
        """The file of a job as it came."""
        return self.of(id) / f"{SOURCE}{suffix}"

    def result(self, id: str, suffix: str) -> Path:
        """Its translation."""
        return self.of(id) / f"{RESULT}{suffix}"

    def upload(self) -> Path:
        """A new path for a file that arrives."""
        return self._uploads / secrets.token_hex(16)

    def take(self, upload: Path, id: str, suffix: str) -> Path:
        """Make the folder of a job and move its file there, which is on the disk for certain.

        Raises:
            OSError: storage refuses.
        """
        self.of(id).mkdir(mode=0o700)
        path = self.source(id, suffix)
        shutil.move(upload, path)
        path.chmod(0o600)
        for each in (path, path.parent, self.root):
            to_disk(each)
        return path

    def record(self, id: str) -> Path:
        """The file that says what is known of a job."""
        return self.of(id) / RECORD

    def noted(self) -> list[str]:
        """The jobs that have a record."""
        return [path.parent.name for path in self.root.glob(f"*/{RECORD}")]

    def note(self, id: str, record: bytes) -> None:
        """Write the record of a job; it is on the disk for certain, the old one or the new.

        Raises:
            OSError: storage refuses.
        """
        write_durably(self.record(id), record)

    def keep(self, id: str, *names: str) -> None:
        """Delete all files of a job but these and its record."""
        with suppress(OSError):
            for path in self.of(id).iterdir():
                if path.name not in (RECORD, *names):
                    remove(path)

    def discard(self, id: str) -> None:
        """Delete all files of a job."""
        remove(self.of(id))

    def sweep(self, known: Collection[str]) -> None:
        """Delete what belongs to no job of these, and all uploads: of a server that was killed."""
        for path in self.root.iterdir():
            if path.name not in known and path.name != UPLOADS:
                remove(path)
        for path in self._uploads.iterdir():
            remove(path)

    def size(self, id: str) -> int:
        """The bytes of a job's files."""
        return sum(_sizes(self.of(id)))

    def require_room(self, size: int) -> None:
        """Refuse a file of so many bytes where the disk has no room for it and for its translation.

        Raises:
            RequestError: 503.
        """
        free = shutil.disk_usage(self.root).free
        if free < size * TIMES_THE_SIZE + KEPT_FREE_BYTES:
            raise RequestError(503, "the server has no room for this file; try again later", RETRY_SECONDS)


def _sizes(folder: Path) -> Iterator[int]:
    with suppress(OSError):
        for path in folder.iterdir():
            with suppress(OSError):
                yield path.stat().st_size
