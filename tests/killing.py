"""Kill commands before a chosen file operation: at any moment at which a folder changes, without waiting."""

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.command_line import World, cotext, prepare_arguments, succeed, train_arguments
from tests.tiny_runs import PROCESSES

# Operations that add or remove names. Other tests truncate written files at any byte.
OPERATIONS = ("replace", "rename", "unlink", "mkdir", "rmdir")


@dataclass(frozen=True, slots=True)
class Moment:
    """The moment before the `number`-th of some operations on a path that ends with `path`."""

    number: int = 1
    path: str = ""
    operations: tuple[str, ...] = OPERATIONS


def writing_commands(world: World, source: Path, out: Path) -> dict[str, list[str | Path]]:
    """Commands that write a file or a folder, by name; `overwrite` writes to an existing folder."""
    test, data = world.folder / "test", world.folder / "data"
    return {
        "prepare": prepare_arguments(world.folder, out),
        "overwrite": [*prepare_arguments(world.folder, out), "--overwrite"],
        "distill": ["distill", world.run, "--data", data, "--out", out],
        "translate": ["translate", world.run, source, "--out", out, "--set", "max_tokens=40"],
        "train": train_arguments(world.folder, out, "train.keep=1"),
        "score": ["score", world.run, "--source", f"{test}.en", "--target", f"{test}.de", "--out", out],
        "contrastive": ["contrastive", world.run, world.folder / "suite.json", "--out", out],
    }


def run_killed(arguments: list[str | Path], moment: Moment) -> bool:
    """Run a command in a separate process that kills itself; return False if it ended before."""
    process = PROCESSES.Process(target=_run, args=(arguments, moment), daemon=True)
    process.start()
    process.join(timeout=120)
    assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
    return process.exitcode == -signal.SIGKILL


def killed_when(ready: Callable[[], bool], *arguments: str | Path) -> None:
    """Run a command in a separate process, and kill it as soon as `ready` returns True."""
    process = PROCESSES.Process(target=cotext, args=arguments, daemon=True)
    process.start()
    deadline = time.monotonic() + 120
    while not ready():
        assert process.is_alive(), process.exitcode
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL, process.exitcode


def die_at(moment: Moment) -> None:
    """Make this process kill itself at this moment."""
    count = itertools.count(1)
    for name in moment.operations:
        _watch(name, moment, count)


def _run(arguments: list[str | Path], moment: Moment) -> None:
    die_at(moment)
    succeed(*arguments)


def _watch(name: str, moment: Moment, count: Iterator[int]) -> None:
    original = getattr(os, name)

    def act(*args: object, **kwargs: object) -> object:
        paths = [str(each) for each in args if isinstance(each, str | Path)]
        if any(path.endswith(moment.path) for path in paths) and next(count) == moment.number:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)

    setattr(os, name, act)
