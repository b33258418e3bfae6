"""The identity of the process that wrote a file, and whether it still runs: for locks and temporary files."""

import hashlib
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self


def is_first_process() -> bool:
    """Whether this process is alone, or the first of those that a launcher such as torchrun has started."""
    return int(os.environ.get("RANK", "0")) == 0


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
        """Whether it still runs; None: it belongs to another machine, which cannot be asked from here."""
        if self.machine != _machine():
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
