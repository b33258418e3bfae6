"""Runs of several seeds: each as if trained by itself, and nothing begun that could be refused."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cotext.config.recipe import Config, load_config
from cotext.evaluation.studies.compare.job import run_folders
from cotext.models.run_folder import noted_seeds, seeds_in
from cotext.training import run as runs
from cotext.training.resume import TrainingProgress
from cotext.training.run import train_seeds
from cotext.training.trainer import TrainingCallbacks
from tests.command_line import World, cotext, listing, must_refuse, succeed, train_arguments
from tests.loops import loop_over
from tests.refusals import must_raise
from tests.tiny_runs import assert_same_run, prepare_toy, run_config, silent, train_here


@pytest.fixture(scope="module")
def alone(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Runs of two seeds, each trained by itself."""
    folder = tmp_path_factory.mktemp("alone")
    for seed, config in configs(2, 3).items():
        train_here(config, data, folder / f"{seed}")
    return {seed: folder / f"{seed}" for seed in (2, 3)}


def configs(*seeds: int, **settings: int) -> dict[int, Config]:
    return {seed: run_config(seed=seed, **{"max_updates": 8, **settings}) for seed in seeds}


@contextmanager
def unwatched(seed: int) -> Iterator[TrainingCallbacks]:
    yield silent()


def trained(data: Path, folder: Path, chosen: dict[int, Config]) -> dict[int, TrainingProgress]:
    return train_seeds(chosen, data, folder, unwatched)


def test_each_is_the_run_that_it_would_be_alone(data: Path, alone: dict[int, Path], tmp_path: Path) -> None:
    found = trained(data, tmp_path / "runs", configs(2, 3))
    assert {seed: done.finished for seed, done in found.items()} == {2: True, 3: True}
    assert seeds_in(tmp_path / "runs") == [2, 3]
    for seed, run in alone.items():
        assert_same_run(tmp_path / "runs" / f"seed-{seed}", run)
        assert noted_seeds(tmp_path / "runs" / f"seed-{seed}") == [2, 3]
        assert noted_seeds(run) == []
    weights = {(run / "model.safetensors").read_bytes() for run in alone.values()}
    assert len(weights) == 2


def test_finished_ones_stay_and_others_join_them(data: Path, alone: dict[int, Path], tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    trained(data, folder, configs(2))
    before = {n: c for n, c in listing(folder / "seed-2").items() if not n.startswith("seeds")}
    trained(data, folder, configs(2, 3))
    assert {n: c for n, c in listing(folder / "seed-2").items() if not n.startswith("seeds")} == before
    assert noted_seeds(folder / "seed-2") == [2, 3]
    assert_same_run(folder / "seed-3", alone[3])


def test_stopped_it_begins_no_other_and_goes_on(data: Path, alone: dict[int, Path], tmp_path: Path) -> None:
    begun = []

    @contextmanager
    def watched(seed: int) -> Iterator[TrainingCallbacks]:
        def stop(figures: dict[str, float]) -> None:
            if seed == 2 and figures["update"] == 3:
                os.kill(os.getpid(), signal.SIGTERM)

        begun.append(seed)
        yield replace(silent(), on_update=stop)

    folder = tmp_path / "runs"
    found = train_seeds(configs(2, 3), data, folder, watched)
    assert {seed: done.finished for seed, done in found.items()} == {2: False}
    assert begun == [2]
    assert seeds_in(folder) == [2]
    # What was to come is known all the same.
    assert noted_seeds(folder / "seed-2") == [2, 3]
    trained(data, folder, configs(2, 3))
    for seed, run in alone.items():
        assert_same_run(folder / f"seed-{seed}", run)


def test_no_folder_is_left_of_what_cannot_be_trained(data: Path, tmp_path: Path) -> None:
    too_small = {
        seed: config.model_copy(update={"view": config.view.model_copy(update={"max_tokens": 1})})
        for seed, config in configs(2, 3).items()
    }
    must_raise("", trained, data, tmp_path / "runs", too_small)
    must_raise("no prepared data", trained, tmp_path / "none", tmp_path / "runs", configs(2, 3))
    assert not list(tmp_path.iterdir())


@loop_over("kind", ["settings", "notes", "a run", "file", "damaged", "other seed", "others", "data", "init"])
def test_what_is_wrong_with_a_later_seed_is_told_before_the_first_is_trained(
    data: Path, alone: dict[int, Path], tmp_path: Path, kind: str
) -> None:
    folder, expected = tmp_path / "runs", "choose another --out"
    asked = configs(*((1,) if kind in ("others", "data") else (1, 2)))
    if kind == "init":
        asked[2], expected = run_config(seed=2, init=str(tmp_path / "none")), "none: no such run"
    elif kind == "file":
        folder.write_text("")
    elif kind == "a run":
        shutil.copytree(alone[2], folder)
    elif kind == "notes":
        (folder / "seed-2").mkdir(parents=True)
        (folder / "seed-2" / "notes.txt").write_text("")
    else:
        shutil.copytree(alone[3 if kind == "other seed" else 2], folder / "seed-2")
    if kind in ("settings", "others"):
        asked = configs(*asked, log_every=2, warmup_updates=5)
        expected = "train.warmup_updates: 4 in the run, 5 requested"
    elif kind == "other seed":
        expected = "train.seed: 3 in the run, 2 requested"
    elif kind == "damaged":
        (folder / "seed-2" / "checkpoints" / "00000008" / "trainer.json").write_text("{}")
        expected = "trainer.json: damaged"
    elif kind == "data":
        data, expected = prepare_toy(tmp_path / "other", seed=5), "seed-2: trained on other data; choose"
    before = listing(tmp_path)
    must_raise(expected, trained, data, folder, asked)
    assert listing(tmp_path) == before


def test_of_several_processes_the_first_checks_alone(
    data: Path, alone: dict[int, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another may come when the first has its lock already."""
    folder = tmp_path / "runs"
    shutil.copytree(alone[3], folder / "seed-2")
    begun = []

    def train(config: Config, *arguments: object) -> TrainingProgress:
        begun.append(config.train.seed)
        return TrainingProgress(finished=True)

    monkeypatch.setattr(runs, "train", train)
    monkeypatch.setenv("RANK", "1")
    trained(data, folder, configs(2, 4))
    assert begun == [2, 4]
    monkeypatch.setenv("RANK", "0")
    must_raise("seed: 3 in the run, 2 requested", trained, data, folder, configs(2, 4))


def test_the_command_says_where_it_is(world: World, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    estimated = succeed(*train_arguments(world.folder, out), "--seeds", "5,7", "--dry-run").out
    assert estimated.endswith("these figures hold for each of 2 seeds\n")
    assert not list(tmp_path.iterdir())
    done = succeed(*train_arguments(world.folder, out), "--seeds", "5,7")
    assert done.out == "".join(
        f"{out / f'seed-{seed}'}: {line}\n"
        for seed, line in zip((5, 7), [each.split(": ")[1] for each in done.out.splitlines()], strict=True)
    )
    assert done.out.count("finished at update 6, best at ") == 2
    for number, seed in enumerate((5, 7), 1):
        assert f"seed {seed} ({number} of 2): {out / f'seed-{seed}'}" in done.err
        assert f"s2to2, seed {seed} 6/6" in done.err
    assert succeed(*train_arguments(world.folder, out), "--seeds", "5,7").out == done.out
    assert "choose another --out" in cotext(*train_arguments(world.folder, out)).err


@loop_over(
    ("given", "more", "message"),
    [
        ("1,01", [], "1 is given twice"),
        ("1-3", [], "such as 1,2,3"),
        ("", [], "such as 1,2,3"),
        ("1,,2", [], "such as 1,2,3"),
        ("-1", [], "such as 1,2,3"),
        ("9" * 30, [], "such as 1,2,3"),
        ("9" * 19, [], "train.seed"),
        ("1,2", ["train.seed=3"], "train.seed and --seeds"),
        ("1,2", ["model.heads=3"], "heads"),
    ],
)
def test_seeds_that_are_none(world: World, tmp_path: Path, given: str, more: list[str], message: str) -> None:
    must_refuse(message, *train_arguments(world.folder, tmp_path / "runs", *more), f"--seeds={given}")
    assert not list(tmp_path.iterdir())


def test_each_seed_starts_from_its_own(world: World, tmp_path: Path) -> None:
    given = ["--seeds", "1,2", "--init", tmp_path / "first"]
    succeed(*train_arguments(world.folder, tmp_path / "first"), "--seeds", "1,2")
    message = "first: contains no run with seed 3 to start from, only with 1,2"
    must_refuse(message, *train_arguments(world.folder, tmp_path / "then"), *given[2:], "--seeds", "2,3")
    assert not (tmp_path / "then").exists()
    message = "contains a run for each of the seeds 1,2"
    must_refuse(message, *train_arguments(world.folder, tmp_path / "then"), *given[2:])
    succeed(*train_arguments(world.folder, tmp_path / "then"), *given)
    for seed in (1, 2):
        config = load_config(str(tmp_path / "then" / f"seed-{seed}" / "config.yaml"))
        assert config.train.init == str(tmp_path / "first" / f"seed-{seed}")
    assert list(run_folders(tmp_path / "then")) == [1, 2]
