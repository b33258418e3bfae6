"""Every command that writes, killed at moments drawn at random: the same command ends the same."""

import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.command_line import World, documents_file, listing, succeed
from tests.hostile.attacks import Attacks
from tests.hostile.test_damage import essence
from tests.killing import writing_commands
from tests.pretrained_models import marian_model
from tests.tiny_runs import PROCESSES

COMMANDS = ("prepare", "overwrite", "distill", "translate", "train", "score", "contrastive")
COMMANDS += ("average", "compare", "import", "hub", "int8", "ctranslate2")
LIBRARIES = {"import": "transformers", "ctranslate2": "ctranslate2"}
KILLS = 14  # of each
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def _run(arguments: list[str | Path]) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    succeed(*arguments)


def timed(arguments: list[str | Path]) -> float:
    """Seconds that a command takes in a process of its own."""
    begun = time.monotonic()
    process = PROCESSES.Process(target=_run, args=(arguments,), daemon=True)
    process.start()
    process.join(timeout=120)
    assert process.exitcode == 0
    return time.monotonic() - begun


def killed(arguments: list[str | Path], after: float, number: int) -> bool:
    """Run a command and send it a signal; False where it came to its end before."""
    process = PROCESSES.Process(target=_run, args=(arguments,), daemon=True)
    process.start()
    process.join(timeout=after)
    if process.exitcode is None and process.pid is not None:
        with suppress(ProcessLookupError):  # it may end just now; its parent is another process
            os.kill(process.pid, number)
    process.join(timeout=120)
    assert process.exitcode is not None, "it goes on"
    return process.exitcode != 0


def content(path: Path) -> object:
    """What a command left, without what the clock decides."""
    if path.is_file():
        return path.read_bytes()
    return _trained(path) if (path / "metrics.jsonl").exists() else listing(path)


def _trained(run: Path) -> dict[str, object]:
    """What training leaves, of training states the last alone: an interruption adds one of its own."""
    last = f"checkpoints/{max(path.name for path in (run / 'checkpoints').iterdir())}/"
    found = essence(run)
    states = {name for name in found if name.endswith("/optimizer.safetensors") or "/process-" in name}
    return {name: content for name, content in found.items() if name.startswith(last) or name not in states}


@pytest.mark.parametrize("command", COMMANDS)
def test_killed_at_any_moment(attacks: Attacks, tmp_path: Path, world: World, command: str) -> None:
    source = documents_file(tmp_path / "in.en", 12, 11)
    suite, out = world.folder / "suite.json", tmp_path / "out"
    expected = tmp_path / "expected" / out.name  # exports write the name of their folder
    expected.parent.mkdir()
    if (library := LIBRARIES.get(command)) is not None:
        pytest.importorskip(library)
    foreign = marian_model(tmp_path / "foreign") if command == "import" else None

    def arguments(out: Path) -> list[str | Path]:
        return {
            **writing_commands(world, source, out),
            "average": ["average", world.run, "--checkpoint", "3", "--checkpoint", "6", "--out", out],
            "compare": ["compare", world.run, "--suite", suite, "--no-controls", "--out", out],
            "import": ["import", str(foreign), "--out", out],
        }.get(command, ["export", world.run, "--to", command, "--out", out])

    timed(arguments(expected))
    seconds = timed(arguments(tmp_path / "again"))
    want = content(expected)
    shutil.rmtree(tmp_path / "again") if (tmp_path / "again").is_dir() else (tmp_path / "again").unlink()
    before = {path.name for path in tmp_path.iterdir()}
    kills = 0
    for attempt in range(6 * KILLS):
        if kills >= KILLS:
            break
        if command == "overwrite":
            shutil.copytree(expected, out)
        what, before_it = f"{attempt}:", kills
        for _ in range(attacks.random.randint(1, 3)):  # before it may end
            after, number = attacks.random.uniform(0, seconds), attacks.random.choice(SIGNALS)
            ended = killed(arguments(out), after, number)
            what += f" {signal.Signals(number).name} after {after:.3f} s{'' if ended else ' (too late)'}"
            kills += ended
            if not ended:
                break
        if ended:
            outcome = attacks.run(what, *arguments(out))
            # Killed while checks of the complete output were printed: there is nothing to go on with.
            done = outcome is not None and ": exists; " in outcome.err and content(out) == want
            if outcome is not None and outcome.code != 0 and not done:
                attacks.fail(what, f"did not go on: {outcome.err[:300]}")
                outcome = None
        if not out.exists():
            attacks.fail(what, "no result")
        elif content(out) != want:
            attacks.fail(what, "another result")
        elif left := {path.name for path in tmp_path.iterdir()} - before - {"out"}:
            attacks.fail(what, f"left {left}")
        else:
            attacks.unharmed(kills - before_it)
        for path in tmp_path.iterdir():
            if path.name not in before:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert kills >= KILLS
