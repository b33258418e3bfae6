"""Private and durable files for the state of a server."""

import os
from pathlib import Path

from cotext.runtime.errors import CotextError
from cotext.runtime.files import ON_WINDOWS


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
