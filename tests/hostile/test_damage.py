"""Damage to every file of a run, of prepared data and of interrupted work: refused, or of no effect."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command_line import (
    Outcome,
    World,
    documents_file,
    listing,
    succeed,
    train_arguments,
    writable_copy,
)
from tests.hostile.attacks import Attacks
from tests.hostile.mutations import mutate
from tests.killing import Moment, run_killed
from tests.tiny_runs import journal

# What a run folder holds that no command reads again.
UNREAD = "events.out"


def files_of(folder: Path) -> list[str]:
    """Every file below a folder that matters."""
    files = (name for name in listing(folder) if (folder / name).is_file())
    return [name for name in files if UNREAD not in name]


def damage(folder: Path, name: str, attacks: Attacks) -> str:
    """Damage a file; returns how."""
    path = folder / name
    kind = attacks.random.random()
    if kind < 0.06:
        path.unlink()
        return f"{name} deleted"
    if kind < 0.1:
        path.unlink()
        path.mkdir()
        return f"{name} became a folder"
    content, how = mutate(path.read_bytes(), attacks.random)
    path.write_bytes(content)
    return f"{name} {how}"


def copied(whole: Path, to: Path) -> Path:
    """A copy that may be written to, in place of what was there."""
    if to.exists():
        shutil.rmtree(to)
    return writable_copy(whole, to)


def attack(
    attacks: Attacks,
    number: int,
    whole: Path,
    folder: Path,
    command: list[str | Path],
    same: Callable[[], bool],
    names: list[str],
    same_but_for_reports: Callable[[Outcome], bool] = lambda outcome: False,
) -> None:
    """Damage a file of a copy of `whole`, run a command, and see that its result is the same or none.

    Of a run that goes on, reports that are damaged are lost; that has to be said.
    """
    copied(whole, folder)
    name = attacks.random.choice(names)
    what = f"{number}: {damage(folder, name, attacks)}"
    outcome = attacks.run(what, *command)
    if outcome is None or outcome.code == 2:
        return
    if not same() and not (name == "metrics.jsonl" and same_but_for_reports(outcome)):
        attacks.fail(what, f"another result, without a word: {outcome.out[-300:]} {outcome.err[-300:]}")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return documents_file(tmp_path_factory.mktemp("source") / "in.en", 4, 11)


@pytest.mark.parametrize("part", range(2))
def test_runs_that_translate(attacks: Attacks, world: World, tmp_path: Path, source: Path, part: int) -> None:
    out, run = tmp_path / "out", tmp_path / "run"
    succeed("translate", world.run, source, "--out", out)
    expected = out.read_bytes()
    names = [name for name in files_of(world.run) if not name.startswith("checkpoints")]
    for number in range(200):
        out.unlink(missing_ok=True)
        command = ["translate", run, source, "--out", out]
        attack(attacks, number, world.run, run, command, lambda: out.read_bytes() == expected, names)


def essence(run: Path) -> dict[str, object]:
    """What training leaves, without what the clock decides."""
    found: dict[str, object] = {}
    for name in files_of(run):
        content = (run / name).read_bytes()
        if name == "metrics.jsonl":
            found[name] = journal(run)
        elif "tensorboard" not in name:
            # White space may be gone from JSON: what it says is the same.
            found[name] = json.loads(content) if name.endswith(".json") else content
    return found


@pytest.fixture(scope="module")
def interrupted(world: World, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    """A run that was killed behind its first checkpoint, and what it would have become."""
    folder = tmp_path_factory.mktemp("interrupted")
    command = train_arguments(world.folder, folder / "run")
    succeed(*command)
    expected = essence(folder / "run")
    shutil.rmtree(folder / "run")
    number = 1
    while not (folder / "run" / "checkpoints" / "00000003").is_dir():
        shutil.rmtree(folder / "run", ignore_errors=True)
        assert run_killed(command, Moment(number))
        number += 1
    return folder / "run", expected


@pytest.mark.parametrize("part", range(2))
def test_a_run_that_goes_on(
    attacks: Attacks, world: World, tmp_path: Path, interrupted: tuple[Path, dict[str, object]], part: int
) -> None:
    whole, expected = interrupted
    # Same path: it is in the configuration of what starts from another run.
    run, kept = whole, copied(whole, tmp_path / "kept")
    names = files_of(kept)

    def told(outcome: Outcome) -> bool:
        now = {name: content for name, content in essence(run).items() if name != "metrics.jsonl"}
        words = outcome.err.replace("\n", "")
        return "metrics.jsonl: " in words and now == {name: expected[name] for name in now}

    command = train_arguments(world.folder, run)
    for number in range(150):
        attack(attacks, number, kept, run, command, lambda: essence(run) == expected, names, told)
    copied(kept, run)


def test_data_to_train_on(attacks: Attacks, world: World, tmp_path: Path) -> None:
    data, run, whole = tmp_path / "data", tmp_path / "run", world.folder / "data"
    copied(whole, data)
    command = train_arguments(tmp_path, run)
    succeed(*command)
    expected = essence(run)
    names = files_of(whole)
    for number in range(150):
        shutil.rmtree(run, ignore_errors=True)
        attack(attacks, number, whole, data, command, lambda: essence(run) == expected, names)


def test_an_interrupted_translation(attacks: Attacks, world: World, tmp_path: Path, source: Path) -> None:
    folder, out = tmp_path / "whole", tmp_path / "copy" / "out.de"
    folder.mkdir()
    command = ["translate", world.run, source, "--set", "max_tokens=40", "--out"]
    succeed(*command, tmp_path / "expected")
    expected = (tmp_path / "expected").read_bytes()
    # Right before the result gets its name: the journal is complete.
    assert run_killed([*command, folder / "out.de"], Moment(path="out.de", operations=("replace", "rename")))
    journals = [name for name in files_of(folder) if "lock" not in name]
    assert journals
    for number in range(200):
        given = (folder, out.parent, [*command, out])
        attack(attacks, number, *given, lambda: out.read_bytes() == expected, journals)


def meaning(folder: Path) -> dict[str, object]:
    """The files of a prepared folder; white space in its report has no meaning."""
    found: dict[str, object] = dict(listing(folder))
    return {**found, "report.json": json.loads((folder / "report.json").read_text())}


def test_an_interrupted_distillation(attacks: Attacks, world: World, tmp_path: Path) -> None:
    folder, copy = tmp_path / "whole", tmp_path / "copy"
    folder.mkdir()
    command = ["distill", world.run, "--data", world.folder / "data", "--out"]
    succeed(*command, tmp_path / "expected")
    expected = meaning(tmp_path / "expected")
    assert run_killed([*command, folder / "out"], Moment(path="out", operations=("replace", "rename")))
    names = [name for name in files_of(folder) if "lock" not in name]
    assert names
    for number in range(100):
        given = (folder, copy, [*command, copy / "out"])
        attack(attacks, number, *given, lambda: meaning(copy / "out") == expected, names)


def test_results_and_reports(attacks: Attacks, world: World, tmp_path: Path) -> None:
    """Decisions of a suite, which `evaluate` reads again."""
    whole = tmp_path / "whole"
    whole.mkdir()
    decide = ("contrastive", world.run, world.folder / "suite.json")
    succeed(*decide, "--out", whole / "a.json")
    succeed(*decide, "--checkpoint", "3", "--out", whole / "b.json")
    command = ["compare-decisions", tmp_path / "copy/a.json", tmp_path / "copy/b.json"]
    for number in range(100):
        attack(attacks, number, whole, tmp_path / "copy", command, lambda: True, ["a.json", "b.json"])
