"""How much memory this process may still take."""

import os
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


def free_memory() -> int:
    """Bytes that the machine has left, and the group of processes that this one is limited with.

    Where the system does not tell, half of what there is.
    """
    try:
        lines = dict(line.split(":", 1) for line in MEMINFO.read_text(encoding="ascii").splitlines())
        free = 1024 * int(lines["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    try:
        limit, used = (
            int((CGROUP / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current")
        )
    except (OSError, ValueError):  # no such group, or no limit
        return free
    return min(free, max(0, limit - used))
