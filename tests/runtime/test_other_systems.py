"""What Windows and macOS do in other ways, forced on this system: neither was at hand.

A file that is open or mapped is neither deleted nor renamed nor replaced, and no folder is replaced; there is
no fcntl, no resource, no fork, no signal 0, and the time of an open file is set by its name alone.
"""

import ast
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import cotext as package
from cotext.data.formats import streams
from cotext.runtime import CotextError, files
from cotext.runtime.files import Process, holding, replacing, writing
from tests.command_line import (
    World,
    must_refuse,
    prepare_arguments,
    process_environment,
    succeed,
    train_arguments,
)

# Modules of Python that Windows lacks.
POSIX_ONLY = {"fcntl", "resource", "pwd", "grp", "termios", "pty", "tty", "syslog"}


def in_use() -> set[Path]:
    """The files that this process has open or mapped."""
    found = set()
    for number in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.add(number.readlink())
    mapped = (line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines())
    return found | {Path(fields[5]) for fields in mapped if len(fields) == 6}


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process on a system with the rules of Windows, as far as they can be had here."""
    monkeypatch.setattr(shutil, "_use_fd_functions", False)
    if sys.version_info >= (3, 14):  # which reads the line above at import
        monkeypatch.setattr(shutil, "_rmtree_impl", shutil._rmtree_unsafe)
    replace, unlink, kill = os.replace, os.unlink, os.kill

    def refuse(*paths: Any) -> None:
        for path in map(os.path.realpath, paths):
            used = [each for each in in_use() if each == Path(path) or Path(path) in each.parents]
            if used:
                raise PermissionError(13, f"The process cannot access the file: {used}", str(path))

    def checked_replace(source: Any, target: Any, **further: Any) -> None:
        refuse(source, target)
        if Path(target).is_dir():
            raise PermissionError(13, "Access is denied", str(target))
        replace(source, target, **further)

    def checked_unlink(path: Any, **further: Any) -> None:
        refuse(path)
        unlink(path, **further)

    def checked_kill(pid: int, number: int) -> None:
        assert number != 0, "signal 0 is Ctrl-C on Windows"
        kill(pid, number)

    for name, checked in {"replace": checked_replace, "rename": checked_replace}.items():
        monkeypatch.setattr(os, name, checked)
    monkeypatch.setattr(os, "unlink", checked_unlink)
    monkeypatch.setattr(os, "remove", checked_unlink)
    monkeypatch.setattr(os, "kill", checked_kill)
    monkeypatch.setattr(os, "supports_fd", os.supports_fd - {os.utime})
    for name in ("fork", "sched_getaffinity"):
        monkeypatch.delattr(os, name)
    monkeypatch.setattr(files, "fcntl", None)
    for module in (files, streams):
        monkeypatch.setattr(module, "ON_WINDOWS", True)


def test_the_rules_of_windows_are_forced(windows: None, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("")
    with path.open("rb"):
        for change in (path.unlink, lambda: path.rename(tmp_path / "b"), lambda: shutil.rmtree(tmp_path)):
            with pytest.raises(PermissionError):
                change()
    (tmp_path / "folder").mkdir()
    with pytest.raises(PermissionError):
        path.replace(tmp_path / "folder")
    path.unlink()


def test_prepare_train_translate_and_export(windows: None, world: World, tmp_path: Path) -> None:
    data, run = tmp_path / "data", tmp_path / "run"
    succeed(*prepare_arguments(world.folder, data))
    succeed(*prepare_arguments(world.folder, data), "--seed", "2", "--overwrite")
    shutil.copytree(data, tmp_path / "copy" / "data")
    succeed(*train_arguments(tmp_path / "copy", run))
    succeed("info", run)
    for _ in range(2):
        succeed("translate", run, world.folder / "test.en", "--out", tmp_path / "out.de", "--overwrite")
    (tmp_path / "empty").mkdir()
    succeed("export", run, "--to", "int8", "--out", tmp_path / "empty")
    shard = ("score", run, "--source", world.folder / "test.en", "--target", world.folder / "test.de")
    succeed(*shard, "--out", tmp_path / "scores.tsv", "--shard", "1/1")
    succeed("join", tmp_path / "scores.tsv")
    hidden = [path.name for path in tmp_path.rglob(".*") if path.name != ".lock"]
    assert hidden == []
    assert not [*run.glob(".lock")], "locks are given back"


def test_a_lock_of_a_process_that_may_live_is_respected(windows: None, tmp_path: Path) -> None:
    """There is no telling whether a process of this machine lives: its signs of life decide, as elsewhere."""
    out = tmp_path / "out"
    assert Process.current().runs() is None
    with writing(out), pytest.raises(CotextError, match="last active 0 seconds ago"), writing(out):
        pass
    lock = tmp_path / ".out.lock"
    assert not lock.exists()
    with holding(lock, "out"):
        content = lock.read_bytes()
    lock.write_bytes(content)  # of a process that was killed
    os.utime(lock, (0, 0))
    with writing(out):
        pass


def test_an_empty_folder_is_replaced(windows: None, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for kept in (None, "a"):
        with replacing(out) as temporary:
            temporary.mkdir()
            (temporary / "a").write_text("")
        if kept is None:
            (out / "a").unlink()
    assert [path.name for path in out.iterdir()] == ["a"]
    with pytest.raises(CotextError, match="cannot be written"), replacing(out) as temporary:
        temporary.mkdir()


def test_standard_input_without_a_name(windows: None, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the cat sees\r\na dog runs\r\n")))
    shown = succeed("translate", world.run, "-", "--no-split").out
    assert len(shown.splitlines()) == 2


def test_it_starts_without_modules_that_windows_lacks(world: World, tmp_path: Path) -> None:
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({sorted(POSIX_ONLY)}))\n"
        "from cotext.cli.main import main\n"
        "main()"
    )
    source = world.folder / "test.en"
    words = ("translate", world.run, source, "--out", tmp_path / "out.de")
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        env=process_environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def imports(node: ast.AST, guarded: bool = False) -> Iterator[tuple[str, bool]]:
    """The modules that a file imports, each with whether the import may fail or happens later."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((alias.name, guarded) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield str(child.module), guarded
        later = isinstance(child, ast.Try | ast.FunctionDef | ast.Lambda)
        yield from imports(child, guarded or later)


def test_the_source_needs_nothing_that_windows_lacks() -> None:
    """Modules at once; functions of `os` and signals at all, but where the code asks for them first."""
    lacking = {"fork", "getuid", "geteuid", "kill", "getpgid", "setsid", "mkfifo", "uname", "nice"}
    used = set()
    for path in Path(package.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert not [name for name, guarded in imports(tree) if name in POSIX_ONLY and not guarded], path
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                known = {"os": lacking, "signal": {"SIGKILL", "SIGHUP", "SIGUSR1", "SIGALRM", "alarm"}}
                if node.attr in known.get(node.value.id, ()):
                    used.add(f"{path.name}: {ast.unparse(node)}")
    assert used == {"files.py: os.kill"}  # in `Process.runs`, not on Windows


def test_names_that_differ_in_case_alone_are_not_two_files(world: World, tmp_path: Path) -> None:
    """On Windows and macOS they are one: the second would replace the first."""
    for name in ("a/Letter.en", "b/letter.en"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("the cat sees\n")
    words = (tmp_path / "a/Letter.en", tmp_path / "b/letter.en", "--out-dir", tmp_path / "out")
    must_refuse("letter.en", "translate", world.run, *words)
