"""Files and folders that appear under their names when they are whole, and the processes that write them."""

import hashlib
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Self

from cotext.runtime.errors import CotextError


def is_first_process() -> bool:
    """Whether this process is alone, or the first of those that a launcher such as torchrun has started."""
    return int(os.environ.get("RANK", "0")) == 0


ON_WINDOWS: Final = os.name == "nt"


@dataclass(frozen=True, slots=True)
class Process:
    """A process, told apart from all others of its machine, earlier and later ones with its number included.

    `machine` names the running kernel and its process numbers, those of a container being its own. `start` is
    in clock ticks since the kernel started, 0 where the system does not tell.
    """

    host: str
    machine: str
    pid: int
    start: int

    @classmethod
    def current(cls) -> Self:
        """This process."""
        _, start = _status(os.getpid()) or ("", 0)
        return cls(socket.gethostname(), _machine(), os.getpid(), start)

    def runs(self) -> bool | None:
        """Whether it still runs; None: unknown, as on another machine, and everywhere on Windows."""
        # On Windows, signal 0 is Ctrl-C.
        if self.machine != _machine() or ON_WINDOWS:
            return None
        if self.pid <= 0:  # which stands for several processes
            return False
        try:
            os.kill(self.pid, 0)
        except PermissionError:  # somebody else's process
            pass
        except (OSError, OverflowError):
            return False
        status = _status(self.pid)
        if status is None:
            return True
        state, start = status
        # Killed, and its parent has not asked how it ended: it will not write any more.
        return state not in "ZX" and start == self.start


@cache
def _machine() -> str:
    parts = [socket.gethostname()]
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        parts = [boot.strip(), str(Path("/proc/self/ns/pid").stat().st_ino)]
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:12]


def _status(pid: int) -> tuple[str, int] | None:
    """State and start of a process; None where the system does not tell (proc(5), /proc/pid/stat)."""
    try:
        content = Path(f"/proc/{pid}/stat").read_bytes()
        # The second field, the name of the program, may hold anything, and ends with the last bracket.
        fields = content.rpartition(b")")[2].split()
        return fields[0].decode("ascii"), int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


# Nobody writes so long on what another machine left under a temporary name.
ABANDONED_SECONDS: Final = 7 * 24 * 3600.0


@contextmanager
def replacing(
    path: Path,
    refusals: type[Exception] = OSError,
    put: Callable[[Path, Path], object] | None = None,
) -> Iterator[Path]:
    """Yield a temporary name beside `path`; what the block writes there then replaces `path`.

    A file or a folder, a folder only where there is none or an empty one. If the block fails, nothing is left
    of it, and `path` is as it was. `put` takes the temporary name and `path`; default: `os.replace`.

    Raises:
        CotextError: storage refuses, or what is to be written; a library may say so by one of `refusals`.
    """
    sweep(path)
    temporary = temporary_name(path)
    try:
        yield temporary
        if temporary.is_dir():  # Windows replaces no folder, not even an empty one
            with suppress(OSError):
                path.rmdir()
        (put or os.replace)(temporary, path)
    except (OSError, refusals) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise CotextError(f"{path}: cannot be written: {reason}") from None
    finally:
        remove(temporary)


def temporary_name(path: Path) -> Path:
    """A new hidden name beside `path` for what is going to replace it; it tells which process it is of."""
    own = Process.current()
    return path.with_name(f".{path.name}.{own.machine}-{own.pid}-{own.start}-{secrets.token_hex(2)}.partial")


def leftovers(path: Path) -> list[Path]:
    """Temporary files of `path` left by processes that have ended."""
    process = r"([0-9a-f]{12})-([0-9]+)-([0-9]+)-[0-9a-f]{4}"
    pattern = re.compile(rf"\.{re.escape(path.name)}\.{process}\.partial")
    found: list[Path] = []
    with suppress(OSError):
        for other in path.parent.iterdir():
            if match := pattern.fullmatch(other.name):
                runs = Process("", match[1], int(match[2]), int(match[3])).runs()
                if runs is False or (runs is None and _abandoned(other)):
                    found.append(other)
    return sorted(found)


def _abandoned(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > ABANDONED_SECONDS
    except OSError:
        return False


def sweep(path: Path) -> None:
    """Delete the `leftovers` of a file or folder; what still runs keeps its own."""
    for left in leftovers(path):
        remove(left)


def remove(path: Path) -> None:
    """Delete a file, a link or a folder, if it is there and storage lets us."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def discard(folder: Path) -> None:
    """Delete a folder under another name: cut short, it leaves nothing that looks whole."""
    with suppress(OSError):
        hidden = temporary_name(folder)
        os.replace(folder, hidden)
        remove(hidden)


def require_new(out: Path) -> None:
    """Raise CotextError where a folder that is to be made exists and is not empty."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CotextError(f"{out}: exists; choose another --out")


def standard_folder(variable: str, usual: str) -> Path:
    """The folder `cotext` in a base directory of the XDG specification: of the variable, else ~/`usual`."""
    named = os.environ.get(variable, "")
    # By the specification, what is not absolute is ignored.
    return (Path(named) if named.startswith("/") else Path.home() / usual) / "cotext"


def checksum(path: Path) -> str:
    """SHA-256 of the content of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
