"""The folder of jobs: one folder with a generated name per job, and a folder of uploads."""

import os
import secrets
import shutil
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from cotext.runtime.errors import CotextError
from cotext.runtime.files import ON_WINDOWS, remove
from cotext.serving.errors import RequestError

UPLOADS: Final = "uploads"
RECORD: Final = "job.json"
SOURCE, RESULT = "source", "result"
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


class JobFolder:
    """The files of jobs; paths do not contain names that clients have sent."""

    def __init__(self, root: Path) -> None:
        self.root = private(root)
        self._uploads = private(root / UPLOADS)

    def job_path(self, id: str) -> Path:
        return self.root / id

    def source(self, id: str, suffix: str) -> Path:
        return self.job_path(id) / f"{SOURCE}{suffix}"

    def result(self, id: str, suffix: str) -> Path:
        return self.job_path(id) / f"{RESULT}{suffix}"

    def upload(self) -> Path:
        """Return a new path for an upload."""
        return self._uploads / secrets.token_hex(16)

    def take(self, upload: Path, id: str, suffix: str) -> Path:
        """Create the folder of a job, move its file there, and sync it; raise OSError if a write fails."""
        self.job_path(id).mkdir(mode=0o700)
        path = self.source(id, suffix)
        shutil.move(upload, path)
        path.chmod(0o600)
        for each in (path, path.parent, self.root):
            to_disk(each)
        return path

    def record_path(self, id: str) -> Path:
        return self.job_path(id) / RECORD

    def recorded_ids(self) -> list[str]:
        return [path.parent.name for path in self.root.glob(f"*/{RECORD}")]

    def write_record(self, id: str, record: bytes) -> None:
        """Write the record of a job durably; raise OSError if a write fails."""
        write_durably(self.record_path(id), record)

    def delete_except(self, id: str, *names: str) -> None:
        """Delete all files of a job except its record and the files called `names`."""
        with suppress(OSError):
            for path in self.job_path(id).iterdir():
                if path.name not in (RECORD, *names):
                    remove(path)

    def discard(self, id: str) -> None:
        remove(self.job_path(id))

    def sweep(self, known: Collection[str]) -> None:
        """Delete all uploads and the folders of jobs that are not in `known`, left by a killed server."""
        for path in self.root.iterdir():
            if path.name not in known and path.name != UPLOADS:
                remove(path)
        for path in self._uploads.iterdir():
            remove(path)

    def size(self, id: str) -> int:
        """Return the total size of the files of a job, in bytes."""
        return sum(_sizes(self.job_path(id)))

    def require_room(self, size: int) -> None:
        """Raise RequestError 503 if there is too little disk space for a file of this size and its result."""
        free = shutil.disk_usage(self.root).free
        if free < size * SPACE_FACTOR + KEPT_FREE_BYTES:
            raise RequestError(
                503, "the server has too little disk space for this file; try again later", RETRY_SECONDS
            )


def _sizes(folder: Path) -> Iterator[int]:
    with suppress(OSError):
        for path in folder.iterdir():
            with suppress(OSError):
                yield path.stat().st_size
