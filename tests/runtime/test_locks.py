"""One process at a time: who holds a lock, who is dead, who has taken over."""

import fcntl
import json
import multiprocessing
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cotext.runtime import CotextError, files
from cotext.runtime import files as processes
from cotext.runtime.files import (
    LAPSE_SECONDS,
    Lock,
    Process,
    holding,
    lock_path,
    require_free,
    require_new,
    working_in,
    writing,
)
from tests.loops import loop_over
from tests.refusals import must_raise


def record(path: Path, token: str = "t", **changes: Any) -> None:
    """A lock file as a process leaves it; this one's, but for some changes."""
    own = Process.current()
    fields = {"host": own.host, "machine": own.machine, "pid": own.pid, "start": own.start, "token": token}
    path.write_text(json.dumps({**fields, **changes}))


def age(path: Path, seconds: float) -> None:
    """The last sign of life was so long ago."""
    then = time.time() - seconds
    os.utime(path, (then, then))


def dead_process() -> int:
    """The number of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_lock_is_there_while_it_is_held(tmp_path: Path) -> None:
    out = tmp_path / "out.de"
    with writing(out) as lock:
        assert [p.name for p in tmp_path.iterdir()] == [".out.de.lock"]
        lock.require()
        with pytest.raises(CotextError) as refused, writing(out):
            pass
        assert str(refused.value).startswith(f"{out}: another process is working on it, id {os.getpid()} on ")
    assert list(tmp_path.iterdir()) == []
    with working_in(tmp_path / "run"):
        assert (tmp_path / "run" / ".lock").is_file()
    assert list((tmp_path / "run").iterdir()) == []


def test_an_error_gives_the_lock_back(tmp_path: Path) -> None:
    def fail() -> None:
        with writing(tmp_path / "a", tmp_path / "b"):
            assert len(list(tmp_path.iterdir())) == 2
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_locked_where_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "out")
    with (
        writing(tmp_path / "out"),
        pytest.raises(CotextError, match="another process"),
        writing(tmp_path / "link"),
    ):
        pass


HOLDER = """
import pathlib, sys, time
from cotext.runtime.files import holding
with holding(pathlib.Path(sys.argv[1]), "it"):
    print("held", flush=True)
    time.sleep(120)
"""


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    for ask in (lambda: require_free(path, "it"), Lock(path, "it").acquire):
        must_raise(f"working on it, id {process.pid} on this machine", ask)
    process.kill()
    process.wait()
    process.stdout.close()
    require_free(path, "it")
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_nobody_has_asked_how_it_ended_is_dead(tmp_path: Path) -> None:
    process = subprocess.Popen(["sleep", "60"])
    found = processes._status(process.pid)
    assert found is not None
    own = Process.current()
    living = Process(own.host, own.machine, process.pid, found[1])
    assert living.runs() is True
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is still listed
    assert living.runs() is False
    process.wait()
    assert living.runs() is False


@loop_over("pid", ["dead", "of another by now", 0, -1, 2**31, 10**30])
def test_numbers_of_no_living_process(tmp_path: Path, pid: Any) -> None:
    own = Process.current()
    known = {"dead": dead_process(), "of another by now": own.pid}
    record(tmp_path / "lock", pid=known.get(pid, pid), start=own.start + 1)
    with holding(tmp_path / "lock", "it") as lock:
        lock.require()


def test_a_holder_on_another_machine_is_believed_until_it_is_silent(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    record(path, host="node7", machine="0" * 12, pid=4711)
    age(path, 50)
    with pytest.raises(CotextError) as refused, holding(path, "runs/a"):
        pass
    message = str(refused.value)
    assert re.match("runs/a: another process is working on it, id 4711 on node7; last active", message)
    assert re.search("last active (49|50|51) seconds ago", message)
    assert message.endswith(
        f"the same command takes over {LAPSE_SECONDS:.0f} seconds without activity, or once you delete {path}"
    )
    age(path, LAPSE_SECONDS + 1)
    with holding(path, "runs/a") as lock:
        lock.require()
    assert list(tmp_path.iterdir()) == []


def test_signs_of_life_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SIGN_SECONDS", 0.01)
    with holding(tmp_path / "lock", "it"):
        age(tmp_path / "lock", 1000)
        deadline = time.monotonic() + 30
        while time.time() - (tmp_path / "lock").stat().st_mtime > 900:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_who_has_lost_the_lock_is_told_and_leaves_it_alone(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holding(path, "runs/a") as lock:
        path.unlink()
        must_raise("runs/a: another process has taken over", lock.require)
        record(path, token="another's")
        must_raise("taken over", lock.require)
    assert path.exists()


@pytest.mark.parametrize("content", [b"", b"\0" * 200])
def test_a_lock_not_fully_written(tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in between, or a machine that lost its power."""
    monkeypatch.setattr(files, "WRITING_SECONDS", 0.05)
    (tmp_path / "lock").write_bytes(content)
    with holding(tmp_path / "lock", "it") as lock:
        lock.require()


NOTES = [b"my notes", b"[1]", b"{}", b'{"pid": 3}', b'{"pid": "x", "start": 1}', b"[" * 4000, b"x" * 9000]


@loop_over(
    "make",
    [
        *(partial(Path.write_bytes, data=content) for content in NOTES),
        *(Path.mkdir, os.mkfifo, partial(Path.symlink_to, target="nowhere")),
    ],
)
def test_what_is_no_lock_is_left_alone(tmp_path: Path, make: Callable[[Path], object]) -> None:
    path = tmp_path / "lock"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(CotextError, match="lock: exists, and is not a lock of Cotext"), holding(path, "it"):
        pass
    assert (path.read_bytes() if path.is_file() else None) == before


def test_storage_that_refuses(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(CotextError, match="x: cannot be written: Not a directory"), writing(file / "x"):
        pass
    with pytest.raises(CotextError, match="file: cannot be written: no folder"), working_in(file):
        pass


def test_one_of_two_takes_over_from_a_dead_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other has done so between our look and our deletion: its lock stays.

    Whoever looks holds the file alone.
    """
    path = tmp_path / "lock"
    record(path, pid=dead_process(), start=7)
    look = files._require_dead

    def overtaken(path: Path, what: str) -> None:
        with path.open("rb") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        look(path, what)
        path.unlink()
        record(path, token="the other's")

    monkeypatch.setattr(files, "_require_dead", overtaken)
    must_raise("working on it", Lock(path, "it").acquire)
    assert json.loads(path.read_text())["token"] == "the other's"


def test_what_killed_processes_have_left_of_an_output_is_cleared_away(tmp_path: Path) -> None:
    own = Process.current()
    names = {
        "dead": f".out.{own.machine}-{dead_process()}-7-abcd.partial",
        "living": f".out.{own.machine}-{own.pid}-{own.start}-abcd.partial",
        "elsewhere": f".out.{'0' * 12}-1-7-abcd.partial",
        "elsewhere, old": f".out.{'0' * 12}-1-8-abcd.partial",
        "another's": f".out.de.{own.machine}-{dead_process()}-7-abcd.partial",
        "user's": ".out.partial",
    }
    for name in names.values():
        (tmp_path / name).touch()
    age(tmp_path / names["elsewhere, old"], 8 * 24 * 3600)
    with writing(tmp_path / "out"):
        assert lock_path(tmp_path / "out").exists()
    left = {key for key, name in names.items() if (tmp_path / name).exists()}
    assert left == {"living", "elsewhere", "another's", "user's"}
    (tmp_path / "out").touch()  # complete, but killed before its lock was released
    record(lock_path(tmp_path / "out"), pid=dead_process())
    must_raise("exists; choose another --out", require_new, tmp_path / "out")
    assert not lock_path(tmp_path / "out").exists()


def test_machines_and_starts_tell_processes_apart() -> None:
    own = Process.current()
    assert own.runs() is True
    assert own.start > 0
    assert re.fullmatch("[0-9a-f]{12}", own.machine)
    assert Process("", "0" * 12, own.pid, own.start).runs() is None
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        other = pool.apply(Process.current)
        assert other.machine == own.machine
        assert other.runs() is True
    assert other.runs() is False
