"""Every command that writes, killed before every file operation it has: the same command ends the same."""

import shutil
from itertools import count
from pathlib import Path

import pytest

from tests.command_line import World, cotext, documents_file, listing, succeed
from tests.killing import Moment, run_killed, writing_commands
from tests.tiny_runs import assert_same_run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "command", ["prepare", "overwrite", "distill", "translate", "train", "score", "contrastive"]
)
def test_killed_before_any_operation(world: World, tmp_path: Path, command: str) -> None:
    source = documents_file(tmp_path / "in.en", 4, 11)
    out, expected = tmp_path / "out", tmp_path / "expected"

    def arguments(out: Path) -> list[str | Path]:
        return writing_commands(world, source, out)[command]

    succeed(*arguments(expected))
    before = {path.name for path in tmp_path.iterdir()}
    for number in count(1):
        if command == "overwrite":
            shutil.copytree(expected, out)
        killed = run_killed(arguments(out), Moment(number))
        again = cotext(*arguments(out))
        # `translate` does not replace a finished output, even if it was killed before it left its lock.
        is_finished = command == "translate" and "exists; choose another name" in again.err
        assert is_finished or again.code == 0, again.err
        left = {".out.lock"} if is_finished and killed else set()
        assert {path.name for path in tmp_path.iterdir()} - left == before | {"out"}, number
        if command == "train":
            assert_same_run(out, expected)
            assert not list(out.rglob(".*")), number
        elif out.is_dir():
            assert listing(out) == listing(expected), number
        else:
            assert out.read_bytes() == expected.read_bytes(), number
        shutil.rmtree(out) if out.is_dir() else out.unlink()
        if not killed:
            break
    assert number > 2
