"""Locks: one process at a time writes a run or an output, also where several machines share a disk.

A lock is a file that says which process holds it, and that the holder touches every SIGN_SECONDS. Whoever
finds one asks whether its holder still runs. On the same machine that is certain, and the lock of a dead
process is taken over at once. A process on another machine is taken for dead when its last sign of life is
LAPSE_SECONDS old. Locks of the file system itself are not relied on: network disks may lack them.

A holder on another machine may have been held up, and not be dead. Hence `Lock.require`, to be called before
what must not be done by two: it refuses once another process has taken the lock over.
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

from cotext.runtime.errors import CotextError
from cotext.runtime.files import ON_WINDOWS, Process, sweep

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

NAME: Final = ".lock"  # in a folder that is worked in
SIGN_SECONDS: Final = 15.0
LAPSE_SECONDS: Final = 120.0
WRITING_SECONDS: Final = 1.0  # between making a lock file and writing into it, more than generously
ATTEMPTS: Final = 20
MAX_BYTES: Final = 4096


class Lock:
    """A lock to `acquire` and to `release`; `what` is the name of the locked thing in messages."""

    def __init__(self, path: Path, what: str) -> None:
        self.path = path
        self.what = what
        self._token = secrets.token_hex(8)
        self._file: IO[str] | None = None
        self._released = threading.Event()
        self._signs = threading.Thread(target=self._show_signs, daemon=True)

    def acquire(self) -> None:
        """Take the lock, also from a dead holder.

        Raises:
            CotextError: another process holds it, something else is in its place, or storage refuses.
        """
        try:
            for _ in range(ATTEMPTS):
                if self._make():
                    self._signs.start()
                    return
                _clear_away(self.path, self.what)
        except OSError as error:
            raise CotextError(
                f"{self.what}: cannot be written: {error.strerror or error} (its lock, {self.path})"
            ) from None
        raise CotextError(f"{self.what}: one process after the other is at work on it; try again")

    def require(self) -> None:
        """Raise CotextError where the lock has been taken over by another process."""
        if _read(self.path)[1] != self._token:
            raise CotextError(
                f"{self.what}: another process has taken over, as this one gave no sign of life for "
                f"{LAPSE_SECONDS:.0f} seconds (or {self.path} was deleted); this one stops here"
            )

    def release(self) -> None:
        """Give the lock back; does nothing where it is another's by now."""
        if self._file is None:
            return
        self._released.set()
        self._signs.join()
        self._file.close()  # Windows deletes no open file
        with suppress(OSError, CotextError):
            if _read(self.path)[1] == self._token:
                self.path.unlink()

    def _make(self) -> bool:
        """Make the lock file; False where there is one."""
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
            with suppress(OSError):  # refused once more
                file.close()
            raise
        self._file = file
        return True

    def _show_signs(self) -> None:
        assert self._file is not None
        while not self._released.wait(SIGN_SECONDS):
            # By its number, not its name, which may stand for another's lock by now; on Windows it cannot.
            with suppress(OSError):
                os.utime(self._file.fileno() if os.utime in os.supports_fd else self.path)


@contextmanager
def holding(path: Path, what: str) -> Iterator[Lock]:
    """Hold the lock in the file `path`; raises CotextError as `Lock.acquire`."""
    lock = Lock(path, what)
    lock.acquire()
    try:
        yield lock
    finally:
        lock.release()


@contextmanager
def writing(*outputs: Path) -> Iterator[Lock]:
    """Hold outputs against other processes, and clear away what killed ones have left of them.

    The lock stands beside an output, which is a file, or a folder that appears when it is whole. Yields the
    lock of the first.

    Raises:
        CotextError: another process is writing one of them, or storage refuses.
    """
    with ExitStack() as stack:
        locks: list[Lock] = []
        for out in outputs:
            locks.append(stack.enter_context(holding(beside(out), str(out))))
            sweep(Path(os.path.realpath(out)))
        yield locks[0]


def beside(out: Path) -> Path:
    """The lock of an output; of what a link leads to, if it is one."""
    final = Path(os.path.realpath(out))
    return final.with_name(f".{final.name}.lock")


@contextmanager
def working_in(folder: Path) -> Iterator[Lock]:
    """Hold a folder, which is made if absent, against other processes that would work in it too.

    What is refused before anything is written leaves no folder behind.

    Raises:
        CotextError: another process is at work in it, or storage refuses.
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
        with suppress(OSError):  # not empty: it holds earlier work, or somebody else's files
            folder.rmdir()
        raise


def require_free(path: Path, what: str) -> None:
    """Raise CotextError where a living process holds the lock in a file."""
    _clear_away(path, what)


def _clear_away(path: Path, what: str) -> None:
    """Delete the lock file of a dead holder.

    Raises:
        CotextError: the holder is alive or may be, or the file is no lock.
        OSError: storage refuses.
    """
    if not path.is_file() and os.path.lexists(path):
        raise _in_the_way(path)
    with suppress(FileNotFoundError), path.open("rb") as file:
        # Of several that find a holder dead, one at a time: or the second would delete the lock of the first.
        # Where the system or the file system has no locks, `require` is what is left.
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
        return  # killed before it could say who it was
    runs = holder.runs()
    if runs:
        raise CotextError(
            f"{what}: another process is at work on it, number {holder.pid} on this machine; wait until it "
            "has ended"
        )
    silent = _silent_seconds(path) if runs is None else LAPSE_SECONDS
    if silent < LAPSE_SECONDS:
        raise CotextError(
            f"{what}: another process is at work on it, number {holder.pid} on {holder.host}, which gave its "
            f"last sign of life {silent:.0f} seconds ago; wait until it has ended. If it is dead, the same "
            f"command takes over {LAPSE_SECONDS:.0f} seconds after that sign, or once you delete {path}"
        )


def _read(path: Path) -> tuple[Process | None, str]:
    """Who holds a lock, and its token; None and nothing where the file does not say so, or is no more.

    Raises:
        CotextError: it holds something else.
    """
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
    return CotextError(f"{path}: is in the way, and no lock of Cotext; move it away")


def _silent_seconds(path: Path) -> float:
    """How long ago the holder of a lock gave its last sign of life, by the clock that dates files there."""
    with tempfile.TemporaryFile(dir=path.parent) as file:
        now = os.fstat(file.fileno()).st_mtime
    return now - path.stat().st_mtime
