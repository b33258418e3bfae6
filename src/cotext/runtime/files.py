"""Atomic writing of files and folders, cleaning up after killed processes, checksums, and locks.

With a lock, only one process at a time writes a run or an output, even if several machines share a disk. A
lock is a file that contains the id of the process that holds it. The holder updates its modification time
every SIGN_SECONDS. A process that finds a lock checks whether the holder still runs. On the same machine this
check is certain, and the lock of a dead process is taken over at once. A process on another machine is
considered dead if the lock was not touched for LAPSE_SECONDS. File-system locks alone are not enough, because
network disks may not support them.

A holder on another machine may be suspended rather than dead. Therefore `Lock.require` is called before every
step that must not be carried out by two processes. It raises an error if another process has taken over the
lock.
"""

import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, Final, Self

from cotext.runtime import CotextError, read_bytes


def is_first_process() -> bool:
    """Return whether this is the only process, or the first process of a launcher such as torchrun."""
    return int(os.environ.get("RANK", "0")) == 0


ON_WINDOWS: Final = os.name == "nt"


@dataclass(frozen=True, slots=True)
class Process:
    """A process, identified even if its process id is reused.

    `machine` identifies the running kernel and its process-id namespace; a container may have its own
    namespace. `start` is in clock ticks since the kernel started, or 0 if unknown.
    """

    host: str
    machine: str
    pid: int
    start: int

    @classmethod
    def current(cls) -> Self:
        _, start = _status(os.getpid()) or ("", 0)
        return cls(socket.gethostname(), _machine(), os.getpid(), start)

    def runs(self) -> bool | None:
        """Return whether the process still runs, or None if unknown: on another machine, and on Windows."""
        # On Windows, `os.kill` with signal 0 sends Ctrl-C.
        if self.machine != _machine() or ON_WINDOWS:
            return None
        if self.pid <= 0:  # a group of processes, not a process
            return False
        try:
            os.kill(self.pid, 0)
        except PermissionError:  # the process exists, and belongs to another user
            pass
        except (OSError, OverflowError):
            return False
        status = _status(self.pid)
        if status is None:
            return True
        state, start = status
        # A zombie (killed, not yet reaped by its parent) does not write any more.
        return state not in "ZX" and start == self.start


@cache
def _machine() -> str:
    parts = [socket.gethostname()]
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        parts = [boot.strip(), str(Path("/proc/self/ns/pid").stat().st_ino)]
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:12]


def _status(pid: int) -> tuple[str, int] | None:
    """Return state and start time of a process, or None if unknown (proc(5), /proc/pid/stat)."""
    try:
        content = Path(f"/proc/{pid}/stat").read_bytes()
        # The second field, the program name in brackets, may contain brackets and spaces.
        fields = content.rpartition(b")")[2].split()
        return fields[0].decode("ascii"), int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


# A temporary file of another machine that is older than this is considered abandoned.
ABANDONED_SECONDS: Final = 7 * 24 * 3600.0


@contextmanager
def replacing(
    path: Path, refusals: type[Exception] = OSError, put: Callable[[Path, Path], object] | None = None
) -> Iterator[Path]:
    """Yield a temporary name next to `path`. The file or folder written there then replaces `path`.

    A folder can only replace an empty folder or nothing. If the block fails, the temporary file is deleted
    and `path` is unchanged. `put` is called with the temporary name and `path`; the default is `os.replace`.
    Raises CotextError if the block raises OSError or an error of `refusals`, the write errors of a library.
    """
    sweep(path)
    temporary = temporary_name(path)
    try:
        yield temporary
        if ON_WINDOWS and temporary.is_dir():  # Windows cannot replace a folder, not even an empty one
            with suppress(OSError):
                path.rmdir()
        (put or os.replace)(temporary, path)
    except (OSError, refusals) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise CotextError(f"{path}: cannot be written: {reason}") from None
    finally:
        remove(temporary)


@contextmanager
def restoring(path: Path) -> Iterator[None]:
    """Restore a file, or its absence and that of its folder, if the block raises an error."""
    before, is_new = path.read_bytes() if path.is_file() else None, not path.parent.exists()
    try:
        yield
    except BaseException:
        if before is None:
            path.unlink(missing_ok=True)
        else:
            with replacing(path) as temporary:
                temporary.write_bytes(before)
        if is_new:
            with suppress(OSError):  # not empty, or never made
                path.parent.rmdir()
        raise


def write_text(path: Path, text: str, errors: str = "strict") -> None:
    """Write a text file in UTF-8, which appears when it is complete; `errors` as in `str.encode`."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors=errors)


def temporary_name(path: Path) -> Path:
    """Return a new hidden name next to `path`, which contains the process id."""
    process = Process.current()
    identity = f"{process.machine}-{process.pid}-{process.start}-{secrets.token_hex(2)}"
    return path.with_name(f".{path.name}.{identity}.partial")


def leftovers(path: Path, alone: bool = False) -> list[Path]:
    """Return the temporary files of `path` that ended processes have left behind.

    `alone`: this process holds the lock that every writer of `path` needs, so files of other machines count
    as left behind.
    """
    process = r"([0-9a-f]{12})-([0-9]+)-([0-9]+)-[0-9a-f]{4}"
    pattern = re.compile(rf"\.{re.escape(path.name)}\.{process}\.partial")
    abandoned: list[Path] = []
    with suppress(OSError):
        for other in path.parent.iterdir():
            if match := pattern.fullmatch(other.name):
                runs = Process("", match[1], int(match[2]), int(match[3])).runs()
                if runs is False or (runs is None and (alone or _abandoned(other))):
                    abandoned.append(other)
    return sorted(abandoned)


def _abandoned(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > ABANDONED_SECONDS
    except OSError:
        return False


def sweep(path: Path, alone: bool = False) -> None:
    """Delete the `leftovers` of a file or folder."""
    for leftover in leftovers(path, alone):
        remove(leftover)


def remove(path: Path) -> None:
    """Delete a file, a link or a folder. Errors are ignored, also if it does not exist."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def discard(folder: Path) -> bool:
    """Rename a folder to a hidden name, then delete it, so that an interruption leaves no partial folder.

    Return whether this succeeded.
    """
    hidden = temporary_name(folder)
    with suppress(OSError):
        os.replace(folder, hidden)
        remove(hidden)
    return not (folder.exists() or hidden.exists())


def require_new(out: Path) -> None:
    """Raise CotextError if the output folder already exists and is not empty."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        with suppress(CotextError, OSError):  # delete the lock of a process that was killed after writing
            require_free(lock_path(out), str(out))
        raise CotextError(f"{out}: exists; choose another --out")


def require_absent(path: Path, overwrite: bool) -> None:
    """Raise CotextError if an output file exists and must not be overwritten."""
    if path.exists() and not overwrite:
        raise CotextError(f"{path}: exists; choose another --out, or add --overwrite to replace it")


def standard_folder(variable: str, usual: str) -> Path:
    """Return the folder `cotext` in an XDG base directory, given by the variable or else ~/`usual`."""
    named = os.environ.get(variable, "")
    # According to the specification, relative paths must be ignored.
    return (Path(named) if named.startswith("/") else Path.home() / usual) / "cotext"


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


MAX_SEALED_BYTES: Final = 1 << 32  # largest file of sealed lines

_SEAL = re.compile(r',\s*"crc32": "([0-9a-f]{8})"\s*\}\s*\Z')


def sealed(content: Mapping[str, Any]) -> str:
    """Return a line of JSON, without line feed, whose last entry is the CRC-32 of the text before it."""
    beginning = json.dumps(content)[:-1]
    return f'{beginning}, "crc32": "{crc32(beginning)}"}}'


def unsealed(line: str) -> dict[str, Any]:
    """Undo `sealed`; raises ValueError if the line is damaged, cut off, or has no checksum."""
    seal = _SEAL.search(line)
    if seal is None or crc32(line[: seal.start()]) != seal[1]:
        raise ValueError("damaged or cut off")
    try:
        content: dict[str, Any] = json.loads(line)
    except RecursionError:
        raise ValueError("nested too deep") from None
    del content["crc32"]
    return content


def sealed_lines(path: Path, max_bytes: int = MAX_SEALED_BYTES) -> list[str]:
    """Return the lines of a file of sealed lines and, as the last item, the text after the last line feed.

    The last item is empty, unless writing was interrupted. A missing file counts as empty. Invalid UTF-8 is
    replaced, so the checksum of its line is wrong. Raises the errors of `read_bytes`.
    """
    if not os.path.lexists(path):
        return [""]
    return read_bytes(path, max_bytes).decode(errors="replace").split("\n")


def crc32(text: str) -> str:
    """Return the CRC-32 of a text, in hexadecimal."""
    return f"{zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"


def digests(folder: Path, paths: Iterable[Path]) -> dict[str, str]:
    """Return the SHA-256 of files by their paths relative to a folder, sorted."""
    return {path.relative_to(folder).as_posix(): checksum(path) for path in sorted(paths)}


def is_occupied(out: Path) -> bool:
    """Return whether the output folder exists and is not empty."""
    return out.is_dir() and any(out.iterdir())


def require_whole(folder: Path, expected: Mapping[str, str], remedy: str) -> None:
    """Raise CotextError if a file below a folder is missing or differs from its digest.

    `remedy` states what to do.
    """
    for name, digest in expected.items():
        path = folder / name
        try:
            if not path.is_file():
                raise CotextError(f"{path}: is missing; {remedy}")
            actual = checksum(path)
        except OSError as error:
            raise CotextError(f"{path}: cannot be read: {error.strerror or error}") from None
        if actual != digest:
            raise CotextError(f"{path}: damaged, or does not belong to the other files; {remedy}")


fcntl: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

NAME: Final = ".lock"  # the lock file in a locked folder
SIGN_SECONDS: Final = 15.0
LAPSE_SECONDS: Final = 120.0
WRITING_SECONDS: Final = 1.0  # upper bound of the time between creating a lock file and writing into it
ATTEMPTS: Final = 20
MAX_BYTES: Final = 4096  # of a lock file


class Lock:
    """A lock to `acquire` and to `release`; `what` is the locked file or folder, for messages."""

    def __init__(self, path: Path, what: str) -> None:
        self.path = path
        self.what = what
        self._token = secrets.token_hex(8)
        self._file: IO[str] | None = None
        self._released = threading.Event()
        self._signs = threading.Thread(target=self._show_signs, daemon=True)

    def acquire(self) -> None:
        """Take the lock, also from a dead holder; raise CotextError if it is held or cannot be written."""
        try:
            for _ in range(ATTEMPTS):
                if self._make():
                    self._signs.start()
                    return
                require_free(self.path, self.what)
        except OSError as error:
            raise CotextError(
                f"{self.what}: cannot be written: {error.strerror or error} (lock file {self.path})"
            ) from None
        raise CotextError(f"{self.what}: several processes write it alternately; try again")

    def require(self) -> None:
        """Raise CotextError if another process has taken the lock over."""
        if _read(self.path)[1] != self._token:
            raise CotextError(
                f"{self.what}: another process has taken over, because this one did not update its lock for "
                f"{LAPSE_SECONDS:.0f} seconds (or {self.path} was deleted); this process stops"
            )

    def release(self) -> None:
        """Delete the lock file, unless another process has taken the lock over."""
        if self._file is None:
            return
        self._released.set()
        self._signs.join()
        self._file.close()  # Windows deletes no open file
        with suppress(OSError, CotextError):
            if _read(self.path)[1] == self._token:
                self.path.unlink()

    def _make(self) -> bool:
        """Create the lock file; return False if it exists."""
        record = json.dumps({**asdict(Process.current()), "token": self._token})
        try:
            file = self.path.open("x", encoding="utf-8")
        except FileExistsError:
            return False
        try:
            file.write(record)
            file.flush()
        except OSError:
            self.path.unlink()
            with suppress(OSError):  # closing flushes again, and may fail again
                file.close()
            raise
        self._file = file
        return True

    def _show_signs(self) -> None:
        assert self._file is not None
        while not self._released.wait(SIGN_SECONDS):
            # Use the descriptor: the path may now be the lock of another process. Windows needs the path.
            with suppress(OSError):
                os.utime(self._file.fileno() if os.utime in os.supports_fd else self.path)


@contextmanager
def holding(path: Path, what: str) -> Iterator[Lock]:
    """Hold the lock in the file `path`; raise the same errors as `Lock.acquire`."""
    lock = Lock(path, what)
    lock.acquire()
    try:
        yield lock
    finally:
        lock.release()


@contextmanager
def writing(*outputs: Path) -> Iterator[Lock]:
    """Lock output files or folders, and delete temporary files that killed processes have left.

    The lock file is next to the output. Yields the lock of the first output. Errors: see `Lock.acquire`.
    """
    with ExitStack() as stack:
        locks: list[Lock] = []
        for out in outputs:
            locks.append(stack.enter_context(holding(lock_path(out), str(out))))
            sweep(Path(os.path.realpath(out)))
        yield locks[0]


def lock_path(out: Path) -> Path:
    """Return the lock file of an output; symbolic links are resolved first."""
    final = Path(os.path.realpath(out))
    return final.with_name(f".{final.name}.lock")


@contextmanager
def working_in(folder: Path) -> Iterator[Lock]:
    """Create a folder if necessary, and lock it; raise the same errors as `Lock.acquire`.

    If the block raises CotextError before it has written anything, the empty folder is deleted.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise CotextError(f"{folder}: cannot be written: no folder can be made there: {reason}") from None
    try:
        with holding(folder / NAME, str(folder)) as lock:
            yield lock
    except CotextError:
        with suppress(OSError):  # not empty: the folder contains earlier results or other files
            folder.rmdir()
        raise


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes `out`, which is locked.

    Raises CotextError if `out` exists and is not empty; also the errors of `Lock.acquire` and `replacing`.
    """
    require_new(out)
    with writing(out), replacing(out.resolve()) as temporary:
        yield temporary


def require_free(path: Path, what: str) -> None:
    """Delete the lock file of a dead holder, if there is one.

    Raises CotextError if the holder is alive or may be, or the file is not a lock. Raises OSError for a
    storage error.
    """
    if not path.is_file() and os.path.lexists(path):
        raise _in_the_way(path)
    with suppress(FileNotFoundError), path.open("rb") as file:
        # Several processes may find the same dead holder. One at a time deletes its lock, or the second would
        # delete the new lock of the first. On file systems without locks, only `require` prevents this.
        with suppress(OSError):
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
        _require_dead(path, what)
        if os.path.samestat(os.fstat(file.fileno()), path.stat()):
            if ON_WINDOWS:  # which deletes no open file
                file.close()
            path.unlink()


def _require_dead(path: Path, what: str) -> None:
    holder, token = _read(path)
    deadline = time.monotonic() + WRITING_SECONDS
    while not token and path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
        holder, token = _read(path)
    if holder is None:
        return  # killed before it wrote its identity
    runs = holder.runs()
    if runs:
        raise CotextError(
            f"{what}: another process is working on it, id {holder.pid} on this machine; wait until it "
            "has ended"
        )
    silent = _silent_seconds(path) if runs is None else LAPSE_SECONDS
    if silent < LAPSE_SECONDS:
        raise CotextError(
            f"{what}: another process is working on it, id {holder.pid} on {holder.host}; "
            f"last active {silent:.0f} seconds ago; wait until it has ended. If it is dead, the same "
            f"command takes over {LAPSE_SECONDS:.0f} seconds without activity, or once you delete {path}"
        )


def _read(path: Path) -> tuple[Process | None, str]:
    """Return the holder of a lock and its token, or (None, "") if the file is empty or was deleted."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES).strip(b"\0")
    except FileNotFoundError:
        return None, ""
    if not content:
        return None, ""
    try:
        record = json.loads(content)
        numbers = int(record["pid"]), int(record["start"])
        return Process(str(record["host"]), str(record["machine"]), *numbers), str(record["token"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise _in_the_way(path) from None


def _in_the_way(path: Path) -> CotextError:
    return CotextError(f"{path}: exists, and is not a lock of Cotext; move it away")


def _silent_seconds(path: Path) -> float:
    """Return the seconds since the holder touched the lock, by the clock of the file system."""
    with tempfile.TemporaryFile(dir=path.parent) as file:
        now = os.fstat(file.fileno()).st_mtime
    return now - path.stat().st_mtime
