"""Jobs in shards: what is joined is what one process writes, byte for byte, whatever happens on the way."""

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from cotext.evaluation.studies.context import context_use
from cotext.evaluation.studies.contrastive import contrastive
from cotext.runtime.jobs.engine import folder_of
from cotext.runtime.jobs.journal import Journal
from tests.command_line import World, cotext, listing, must_refuse, succeed
from tests.loops import loop_over

DOCS = Path(__file__).parents[2] / "docs"
# Each on files of the world, WORLD, into OUT.
COMMANDS = {
    "translate": "translate WORLD/run WORLD/train.en --out OUT --set beam=2",
    "score": "score WORLD/run --source WORLD/train.en --target WORLD/train.de --out OUT",
    "contrastive": "contrastive WORLD/run WORLD/suite.json WORLD/copy.json --controls --out OUT",
    "generative": "contrastive WORLD/run WORLD/suite.json --generate --out OUT --set beam=1",
    "cxmi": "cxmi WORLD/run --source WORLD/test.en --target WORLD/test.de --out OUT",
}


@pytest.fixture(autouse=True)
def small_groups(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Suites and documents of the world are few: those that share batches are fewer."""
    shutil.copy(world.folder / "suite.json", world.folder / "copy.json")
    monkeypatch.setattr(contrastive, "SUITE_CHUNK", 4)
    monkeypatch.setattr(context_use, "DOCUMENTS_AT_ONCE", 2)


def command(name: str, world: World, out: Path) -> list[str]:
    return [
        word.replace("WORLD", str(world.folder)).replace("OUT", str(out)) for word in COMMANDS[name].split()
    ]


def interrupted(arguments: list[str], units: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop after so many units, with a line that is only begun."""
    add, done = Journal.add, 0

    def added(part: Journal, unit: int, found: dict[str, object]) -> None:
        nonlocal done
        if done == units:
            with part.path.open("ab") as file:
                file.write(b'{"unit": 3, "res')
            raise KeyboardInterrupt
        add(part, unit, found)
        done += 1

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "add", added)
        assert cotext(*arguments).code == 130


@loop_over("name", COMMANDS)
def test_shards_joined_are_what_one_process_writes(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    one, out = tmp_path / "one", tmp_path / "out"
    whole = succeed(*command(name, world, one))
    sharded = command(name, world, out)
    for shard in ("2/2", "1/2"):
        arguments = [*sharded, "--shard", shard]
        if shard == "2/2":
            interrupted(arguments, 1, monkeypatch)
        shown = succeed(*arguments).out
        assert shown.startswith(f"shard {shard}: ")
        assert ("(1 of them already done)" in shown) == (shard == "2/2")
        assert not out.exists()
    joined = succeed("join", out)
    assert out.read_bytes() == one.read_bytes()
    assert joined.out == whole.out.replace(str(one), str(out))
    assert not folder_of(out).exists()


def test_scores_of_what_was_written_come_with_it(world: World, tmp_path: Path) -> None:
    """Up to rounding: documents share batches with others in a shard than in one process."""
    one, out = tmp_path / "one", tmp_path / "out"
    succeed(*command("translate", world, one), "--scores", tmp_path / "one.tsv")
    for shard in ("1/2", "2/2"):
        succeed(*command("translate", world, out), "--scores", tmp_path / "out.tsv", "--shard", shard)
    found = json.loads(succeed("join", out, "--json").out)
    lines, others = (scores_in(tmp_path / name) for name in ("one.tsv", "out.tsv"))
    assert found["sentences"] == len(lines)
    for line, other in zip(lines, others, strict=True):
        (*place, value, tokens), (*other_place, other_value, other_tokens) = line, other
        assert (place, tokens) == (other_place, other_tokens)
        assert float(value) == pytest.approx(float(other_value), abs=1e-4)


def test_all_shards_have_the_same_settings(world: World, tmp_path: Path) -> None:
    out = tmp_path / "out"
    succeed(*command("translate", world, out), "--shard", "1/2")
    arguments = [*command("translate", world, out), "--shard", "2/2"]
    must_refuse("job.scores: False before, True now", *arguments, "--scores", tmp_path / "s.tsv")
    beam = "  job.config.decode.beam: 2 before, 3 now"
    precision = "  job.config.decode.precision: float32 before, bfloat16 now"
    refused = must_refuse(beam, *arguments, "--set", "beam=3", "--set", "precision=bfloat16")
    assert refused.err.rstrip().splitlines()[-2:] == [beam, precision]


def test_scores_that_are_there_are_not_replaced_unasked(world: World, tmp_path: Path) -> None:
    out, scores = tmp_path / "out", tmp_path / "scores.tsv"
    succeed(*command("translate", world, out), "--scores", scores, "--shard", "1/1")
    scores.write_text("of somebody else")
    must_refuse(f"{scores}: exists; move it away", "join", out)
    assert (scores.read_text(), out.exists()) == ("of somebody else", False)
    succeed("join", out, "--overwrite")
    assert len(scores_in(scores)) > 1


def test_a_folder_is_not_replaced_by_joining(world: World, tmp_path: Path) -> None:
    """Which is told before anything is written."""
    out = tmp_path / "out"
    succeed("distill", world.run, "--data", world.folder / "data", "--out", out, "--shard", "1/1")
    out.mkdir()
    (out / "notes").write_text("of somebody else")
    for more in ([], ["--overwrite"]):
        must_refuse("is a folder that is not empty", "join", out, *more)
    (out / "notes").unlink()
    succeed("join", out)
    assert (out / "train.arrow").exists()


def scores_in(table: Path) -> list[list[str]]:
    return [line.split("\t") for line in table.read_text().splitlines()[1:]]


def test_what_is_no_shard_is_refused(world: World, tmp_path: Path) -> None:
    for name, shard, more, message in (
        ("score", "3/2", [], "--shard '3/2': write i/n"),
        ("translate", "1/2", ["--overwrite"], "not with --bilingual or --overwrite"),
        ("translate", "1/2", ["--format", "prose"], "--shard can be used only with a single corpus"),
    ):
        must_refuse(message, *command(name, world, tmp_path / "out"), "--shard", shard, *more)
        assert list(tmp_path.iterdir()) == []
    suite = ("contrastive", world.run, world.folder / "suite.json")
    must_refuse("--shard needs --out", *suite, "--shard", "1/2")


@pytest.mark.parametrize("name", ["translate", "contrastive", "cxmi"])
def test_what_shards_have_read_must_still_be_there(world: World, tmp_path: Path, name: str) -> None:
    out, copy = tmp_path / "out", tmp_path / "copy"
    copy.mkdir()
    for file in ("train.en", "test.en", "test.de", "suite.json", "copy.json"):
        (copy / file).write_bytes((world.folder / file).read_bytes())
    arguments = [word.replace("WORLD/run", str(world.run)) for word in COMMANDS[name].split()]
    arguments = [word.replace("WORLD", str(copy)).replace("OUT", str(out)) for word in arguments]
    succeed(*arguments, "--shard", "1/1")
    for file in copy.iterdir():
        file.write_text(file.read_text().replace("the", "a"))
    refused = must_refuse(str(copy), "join", out)
    assert not out.exists()
    assert "put" in refused.err or "restore" in refused.err


def jobs_of(script: Path, environment: dict[str, str], folder: Path) -> list[list[str]]:
    """The calls of `cotext` that a batch script makes, as a job of an array would."""
    recorder, log = folder / "bin" / "cotext", folder / "calls"
    recorder.parent.mkdir(exist_ok=True)
    recorder.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {shlex.quote(str(log))}\n')
    recorder.chmod(0o755)
    log.write_text("")
    path = f"{recorder.parent}:{os.environ['PATH']}"
    subprocess.run(["bash", script], env={**environment, "PATH": path}, check=True, timeout=30, cwd=folder)
    return [shlex.split(line) for line in log.read_text().splitlines()]


@pytest.mark.parametrize("name", ["translate", "distill"])
def test_the_scripts_for_slurm_do_what_one_process_does(world: World, tmp_path: Path, name: str) -> None:
    one, out, data = tmp_path / "one", tmp_path / "out", world.folder / "data"
    if name == "translate":
        given = {"RUN": world.run, "SOURCE": world.folder / "train.en", "OUT": out}
        succeed("translate", world.run, world.folder / "train.en", "--out", one)
    else:
        given = {"TEACHER": world.run, "DATA": data, "OUT": out}
        succeed("distill", world.run, "--data", data, "--out", one)
    environment = {key: str(value) for key, value in given.items()}
    for task in (2, 1):
        array = {"SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_TASK_COUNT": "2", "SLURM_CPUS_PER_TASK": "1"}
        [call] = jobs_of(DOCS / "slurm" / f"{name}.sbatch", {**environment, **array}, tmp_path)
        succeed(*call)
    # Some tasks alone, which SLURM counts for themselves.
    some = {"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "1", "SHARDS": "4"}
    [call] = jobs_of(DOCS / "slurm" / f"{name}.sbatch", {**environment, **some}, tmp_path)
    assert call[-2:] == ["--shard", "3/4"]
    [call] = jobs_of(DOCS / "slurm" / "join.sbatch", environment, tmp_path)
    succeed(*call)
    if name == "distill":
        assert listing(out) == listing(one)
    else:
        assert out.read_bytes() == one.read_bytes()
