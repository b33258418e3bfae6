"""Private folders on disk, durable writes, the disk space of clients, and names of their files."""

import os
import re
import shutil
import unicodedata
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import quote

from cotext.runtime import CotextError
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
        raise CotextError(f"{folder}: not a usable state folder: {error.strerror or error}") from None
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
        self._entries: dict[str, tuple[str, int]] = {}

    def put(self, name: str, client: str, size: int) -> None:
        """Set the size of a file."""
        self._entries[name] = client, size

    def drop(self, name: str) -> None:
        self._entries.pop(name, None)

    def of(self, name: str) -> int:
        """Return the size of a file; 0 if it is unknown."""
        return self._entries.get(name, ("", 0))[1]

    def require(self, client: str, more: int) -> None:
        """Raise RequestError 429 or 503 if there is no space for `more` bytes of a client."""
        sizes: Counter[str] = Counter()
        for owner, size in self._entries.values():
            sizes[owner] += size
        if sizes[client] + more > self._share:
            reason = f"your files use all of the {self._share:,} bytes allowed per client"
            raise RequestError(429, f"{reason}; delete some, or wait until they are deleted", RETRY_SECONDS)
        if sizes.total() + more > self._most:
            raise RequestError(503, "the server has no room for more files; try again later", RETRY_SECONDS)


# --- Names of files from clients, which are shown but never used as paths.

MAX_CHARACTERS: Final = 150
MAX_BYTES: Final = 240  # limit of file names in common file systems
_UNSAFE: Final = re.compile(r'[<>:"|?*/\\]')  # not allowed in file names on some systems
_SUFFIX: Final = re.compile(r"\.[a-z0-9]{1,10}")
_UNNAMED: Final = "file"


def clean_name(name: str) -> str:
    """Return the last part of a path as a name that is valid on all systems; never empty, `.` or `..`."""
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", name.encode("utf-8", "replace").decode()))[-1]
    # Without control characters, among them those of the writing direction.
    kinds = {c: unicodedata.category(c) for c in last}
    shown = "".join(" " if kinds[c] in ("Zl", "Zp") else c for c in last if kinds[c][0] != "C")
    stem, suffix = _divided(_UNSAFE.sub("_", shown).strip(" ."))
    stem = stem[: MAX_CHARACTERS - len(suffix)]
    while len((stem + suffix).encode()) > MAX_BYTES:
        stem = stem[:-1]
    return f"{stem.strip()}{suffix}" if stem.strip() else f"{_UNNAMED}{suffix}"


def suffix_of(name: str) -> str:
    """Return the suffix for the file on disk, such as `.docx`; "" if it is not plain ASCII."""
    suffix = PurePosixPath(name).suffix.lower()
    return suffix if _SUFFIX.fullmatch(suffix) else ""


def result_name(name: str, source: str, target: str) -> str:
    """Return `NAME.de.docx` for `NAME.docx` and `NAME.en.docx`, by language codes; `name` must be clean."""
    stem, suffix = _divided(name)
    return clean_name(f"{stem.removesuffix(f'.{source}') or stem}.{target}{suffix}")


def _divided(name: str) -> tuple[str, str]:
    """Split a name before its suffix, unless the suffix is too long."""
    suffix = PurePosixPath(name).suffix if name else ""
    return (name.removesuffix(suffix), suffix) if len(suffix) <= 16 else (name, "")


def attachment(name: str) -> str:
    """Return the header `Content-Disposition` for a download with a clean name (RFC 6266, RFC 8187)."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    fallback = re.sub(r'[%"\\]', "_", plain).strip(" .") or _UNNAMED
    return f"attachment; filename=\"{fallback}\"; filename*=UTF-8''{quote(name, safe='')}"
