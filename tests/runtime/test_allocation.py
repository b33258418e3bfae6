"""Large blocks by themselves: in processes of their own, as what malloc is told holds for a whole process."""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import cotext

import cotext.cli.train as command
from cotext.runtime import allocation
from cotext.runtime.allocation import TORCH_SWITCH, map_large_blocks

ON_GLIBC = sys.platform == "linux" and hasattr(ctypes.CDLL(None), "gnu_get_libc_version")
# Blocks of 5 MiB with a small one that stays behind each, all of them freed but for the small ones.
WORK = """
import ctypes, json, os, sys
from pathlib import Path
from cotext.runtime import allocation
from cotext.runtime.allocation import map_large_blocks
allocation.HUGE_PAGES = Path(sys.argv[2])
mapped = map_large_blocks() if sys.argv[1] == "mapped" else None
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes, libc.free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]
libc.free(libc.malloc(31 << 20))  # from here on, glibc would keep blocks of up to this size in its heap
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
before, blocks = resident(), []
for _ in range(30):
    block = libc.malloc(5 << 20)
    ctypes.memset(block, 1, 5 << 20)
    blocks.append(block)
    libc.malloc(100_000)  # larger than what is free among the small ones
for block in blocks:
    libc.free(block)
torch = os.environ.get("THP_MEM_ALLOC_ENABLE")
print(json.dumps({"mapped": mapped, "kept": resident() - before, "torch": torch}))
"""


def worked(way: str, pages: Path = allocation.HUGE_PAGES, **environment: str) -> dict[str, Any]:
    plain = {name: value for name, value in os.environ.items() if name not in allocation._OWN_CHOICES}
    ran = subprocess.run(
        [sys.executable, "-c", WORK, way, str(pages)],
        env={**plain, **environment},
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


@pytest.mark.skipif(not ON_GLIBC, reason="another C library")
def test_what_is_freed_goes_back_though_small_blocks_stay(tmp_path: Path) -> None:
    """Torch asks for huge pages where only those who ask get them."""
    assert worked("plain")["kept"] > 100
    pages = tmp_path / "enabled"
    for text, asks in (("always [madvise] never\n", "1"), ("[always] madvise never\n", None)):
        pages.write_text(text)
        found = worked("mapped", pages)
        assert (found["mapped"], found["torch"]) == (True, asks)
        assert found["kept"] < 10


@pytest.mark.parametrize("name", ["THP_MEM_ALLOC_ENABLE", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"])
def test_what_a_person_has_chosen_stays(name: str, tmp_path: Path) -> None:
    pages = tmp_path / "enabled"
    pages.write_text("[always] madvise never\n")
    chosen = {"GLIBC_TUNABLES": "glibc.malloc.check=0"}.get(name, "0" if name == TORCH_SWITCH else "64000000")
    found = worked("mapped", pages, **{name: chosen})
    assert found["mapped"] is False
    assert found["torch"] == ("0" if name == TORCH_SWITCH else None)


def test_nothing_is_done_behind_the_back_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which has read its switch by then: mapped blocks in small pages would cost time."""
    import torch

    assert torch.__name__ in sys.modules
    assert not map_large_blocks()
    assert TORCH_SWITCH not in os.environ


@pytest.mark.parametrize("text", ["always madvise [never]\n", None])
def test_without_huge_pages_nothing_changes(
    text: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "enabled"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(allocation, "HUGE_PAGES", path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert not map_large_blocks()
    assert TORCH_SWITCH not in os.environ


def test_memory_is_spared_on_request_or_the_request_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(command, "map_large_blocks", lambda: asked.append(True) or len(asked) == 1)
    arguments = ("train", "no-such-recipe", "--data", "d", "--out", "o")
    assert "no-such-recipe" in cotext(*arguments).err
    assert not asked
    assert "no-such-recipe" in cotext(*arguments, "--spare-memory").err
    refused = cotext(*arguments, "--spare-memory")
    assert (refused.code, "--spare-memory needs Linux" in refused.err) == (2, True)


def test_the_command_line_has_not_imported_torch_when_training_begins() -> None:
    code = "import sys, cotext.cli.main, cotext.cli.train; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
