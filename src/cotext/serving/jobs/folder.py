"""The folder of jobs: one folder with a generated name per job, and a folder of uploads."""

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
# Space for a file, its journal and its result.
TIMES_THE_SIZE: Final = 4
KEPT_FREE_BYTES: Final = 64 << 20
RETRY_SECONDS: Final = 600.0


class JobFolder:
    """Files of jobs; paths do not contain names from clients."""

    def __init__(self, root: Path) -> None:
        self.root = private(root)
        self._uploads = private(root / UPLOADS)

    def of(self, id: str) -> Path:
        """Return the folder of a job."""
        return self.root / id

    def source(self, id: str, suffix: str) -> Path:
        """Return the path of the uploaded file of a job."""
        return self.of(id) / f"{SOURCE}{suffix}"

    def result(self, id: str, suffix: str) -> Path:
        """Return the path of the translated file of a job."""
        return self.of(id) / f"{RESULT}{suffix}"

    def upload(self) -> Path:
        """Return a new path for an upload."""
        return self._uploads / secrets.token_hex(16)

    def take(self, upload: Path, id: str, suffix: str) -> Path:
        """Create the folder of a job, move its file there, and sync it; raise OSError if a write fails."""
        self.of(id).mkdir(mode=0o700)
        path = self.source(id, suffix)
        shutil.move(upload, path)
        path.chmod(0o600)
        for each in (path, path.parent, self.root):
            to_disk(each)
        return path

    def record(self, id: str) -> Path:
        """Return the path of the record of a job."""
        return self.of(id) / RECORD

    def noted(self) -> list[str]:
        """Return the ids of the jobs that have a record."""
        return [path.parent.name for path in self.root.glob(f"*/{RECORD}")]

    def note(self, id: str, record: bytes) -> None:
        """Write the record of a job durably; raise OSError if a write fails."""
        write_durably(self.record(id), record)

    def keep(self, id: str, *names: str) -> None:
        """Delete all files of a job except these and its record."""
        with suppress(OSError):
            for path in self.of(id).iterdir():
                if path.name not in (RECORD, *names):
                    remove(path)

    def discard(self, id: str) -> None:
        """Delete all files of a job."""
        remove(self.of(id))

    def sweep(self, known: Collection[str]) -> None:
        """Delete all uploads and the folders of unknown jobs, which a killed server has left."""
        for path in self.root.iterdir():
            if path.name not in known and path.name != UPLOADS:
                remove(path)
        for path in self._uploads.iterdir():
            remove(path)

    def size(self, id: str) -> int:
        """Return the total size of the files of a job, in bytes."""
        return sum(_sizes(self.of(id)))

    def require_room(self, size: int) -> None:
        """Raise RequestError 503 if the disk has no space for a file of this size and its translation."""
        free = shutil.disk_usage(self.root).free
        if free < size * TIMES_THE_SIZE + KEPT_FREE_BYTES:
            raise RequestError(503, "the server has no room for this file; try again later", RETRY_SECONDS)


def _sizes(folder: Path) -> Iterator[int]:
    with suppress(OSError):
        for path in folder.iterdir():
            with suppress(OSError):
                yield path.stat().st_size
