"""Locks: only one process at a time writes a run or an output, even if several machines share a disk.

A lock is a file that contains the id of the process that holds it. The holder updates its modification time
every SIGN_SECONDS. A process that finds a lock checks whether the holder still runs. On the same machine this
check is certain, and the lock of a dead process is taken over at once. A process on another machine is
considered dead if the lock was not touched for LAPSE_SECONDS. File-system locks alone are not enough, because
network disks may not support them.

A holder on another machine may be suspended rather than dead. Therefore `Lock.require` is called before every
step that must not be carried out by two processes. It raises an error if another process has taken over the
lock.
"""

import json
import os
import secrets
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Final

from cotext.runtime import CotextError
from cotext.runtime.files import ON_WINDOWS, Process, replacing, require_new, sweep

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
MAX_BYTES: Final = 4096


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
                f"{self.what}: cannot be written: {error.strerror or error} (its lock, {self.path})"
            ) from None
        raise CotextError(f"{self.what}: several processes take turns to write it; try again")

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

    The lock file is next to the output. Yields the lock of the first output; raises as `Lock.acquire`.
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
    """Create a folder if necessary, and lock it; raise as `Lock.acquire`.

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
