"""Files and folders that appear under their names when they are whole."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cotext.errors import CotextError


@contextmanager
def replacing(path: Path, refusals: type[Exception] = OSError) -> Iterator[Path]:
    """Yield a temporary name beside `path`; what the block writes there then replaces `path`.

    A file or a folder, a folder only where there is none or an empty one. If the block fails, nothing is left
    of it, and `path` is as it was.

    Raises:
        CotextError: storage refuses, or what is to be written; a library may say so by one of `refusals`.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        os.replace(temporary, path)
    except (OSError, refusals) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise CotextError(f"{path}: cannot be written: {reason}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        with suppress(OSError):
            temporary.unlink()


def leftovers(folder: Path, *names: str) -> list[Path]:
    """What a process that was killed inside `replacing` has left of the named files of a folder."""
    return [path for name in names for path in folder.glob(f".{name}.*")]


def checksum(path: Path) -> str:
    """SHA-256 of the content of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
