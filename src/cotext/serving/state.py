"""The folder of a server's state: nobody else's, and on the disk whatever happens to the machine."""

import os
from pathlib import Path

from cotext.runtime.errors import CotextError
from cotext.runtime.files import ON_WINDOWS


def private(folder: Path) -> Path:
    """A folder that nobody but the owner of this process can read, made if absent.

    Raises:
        CotextError: storage refuses.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise CotextError(f"{folder}: cannot be the folder of a server: {error.strerror or error}") from None
    return folder


def to_disk(path: Path) -> None:
    """Wait until a file or a folder is on the disk; raises OSError where storage refuses."""
    if ON_WINDOWS:  # which takes neither folders nor files that are open for reading
        return
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def write_durably(path: Path, content: bytes) -> None:
    """Write a file, which is on the disk for certain, the old one or the new; nobody else can read it.

    Raises:
        OSError: storage refuses.
    """
    temporary = path.with_name(f".{path.name}")
    temporary.write_bytes(content)
    temporary.chmod(0o600)
    to_disk(temporary)
    temporary.replace(path)
    to_disk(path.parent)
