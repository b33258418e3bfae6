"""Large blocks of memory that the system has back as soon as they are free, and gives in huge pages."""

import os
import re
import sys
from pathlib import Path
from typing import Final

HUGE_PAGES: Final = Path("/sys/kernel/mm/transparent_hugepage/enabled")
TORCH_SWITCH: Final = "THP_MEM_ALLOC_ENABLE"  # buffers of 2 MiB and more at whole huge pages, and in such
MAPPED_BYTES: Final = 2**22  # a block of 2 MiB takes, with what it is moved by to begin at a huge page
_M_MMAP_THRESHOLD: Final = -3  # of mallopt in malloc.h
_OWN_CHOICES: Final = (TORCH_SWITCH, "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES", "LD_PRELOAD")


def map_large_blocks() -> bool:
    """Have each large block of this process mapped by itself, in huge pages; whether that could be had.

    Of a batch of training, tensors of a few sizes are made and freed in turn. In the heap of the C library,
    small blocks that stay come to lie between them, and what is free there is in pieces that the next tensors
    do not fit into: at base size, a fifth of the peak. A mapping of its own goes back whole, but the system
    clears every new one, which takes time, less of it in huge pages than in those of 4 KiB.

    Only before torch is imported, on Linux with glibc, where the system gives huge pages: to all, or to those
    that ask, which an environment variable has torch do. Where all get them, torch does not ask: each of its
    blocks would then begin a huge page behind its mapping, whose own first page would be a huge one too.
    Whoever has chosen an allocation in the environment keeps it.
    """
    given = _huge_pages()
    if "torch" in sys.modules or any(name in os.environ for name in _OWN_CHOICES) or not given:
        return False
    import ctypes  # milliseconds, which no other command is to take at its start

    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version") or not library.mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES):
        return False
    if given == "madvise":
        os.environ[TORCH_SWITCH] = "1"
    return True


def _huge_pages() -> str:
    """To whom the system gives huge pages: `always`, `madvise` (those that ask), or empty: to nobody."""
    try:
        found = re.search(r"\[(always|madvise)\]", HUGE_PAGES.read_text(encoding="ascii"))
    except OSError:  # no Linux, or one without them
        return ""
    return found[1] if found else ""
