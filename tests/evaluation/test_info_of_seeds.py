"""What `cotext info` says of runs of several seeds, and commands that take one run."""

import json
import shutil
from pathlib import Path

import pytest

from cotext.evaluation.studies.info.folder import folder_info, run_info
from cotext.models.run_folder import require_one_run
from tests.command_line import RECIPE, TINY, WITH_BLEU, World, must_refuse, succeed
from tests.refusals import must_raise


@pytest.fixture(scope="module")
def trained(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of the seeds 2 and 10."""
    folder = tmp_path_factory.mktemp("seeds") / "base"
    settings = (*TINY, WITH_BLEU)
    succeed("train", RECIPE, *settings, "--data", world.folder / "data", "--out", folder, "--seeds", "10,2")
    return folder


@pytest.fixture
def copy(trained: Path, tmp_path: Path) -> Path:
    """The same, to be spoiled."""
    return Path(shutil.copytree(trained, tmp_path / "base"))


def test_every_seed_is_described(trained: Path) -> None:
    found = json.loads(succeed("info", trained, "--json").out)
    assert (found["format"], found["seeds"], found["problems"]) == ("cotext-seeds", [2, 10], [])
    alone = {seed: run_info(trained / f"seed-{seed}") for seed in (2, 10)}
    assert found["runs"] == json.loads(json.dumps([run.as_dict() for run in alone.values()]))
    assert found["bytes"] == sum(path.stat().st_size for path in trained.rglob("*") if path.is_file())
    shown = succeed("info", trained).out
    assert shown.startswith(f"{trained}: runs of the seeds 2 and 10\n")
    assert "problem" not in shown
    assert all(run.render() in shown for run in alone.values())


def test_a_run_that_was_just_begun_does_not_hide_the_others(copy: Path) -> None:
    (copy / "seed-7").mkdir()
    shown = succeed("info", copy).out
    assert shown.count("  recipe  ") == 2
    assert "no model yet" in shown
    shutil.rmtree(copy / "seed-2")
    shutil.rmtree(copy / "seed-10")
    shown = succeed("info", copy).out
    assert shown.startswith(f"{copy}: runs of the seeds 7\n")
    assert "no model yet" in shown


def test_runs_that_make_no_system_are_told(copy: Path) -> None:
    (copy / "seed-10" / "model.safetensors").write_bytes(b"damaged")
    found = folder_info(copy)
    whole, damaged = found.parts
    assert (found.problems, whole.problems) == ([], [])
    assert "damaged" in damaged.problems[0]
    shutil.rmtree(copy / "seed-10")
    missing = "the run of seed 10 is missing: the others were trained with --seeds 2,10"
    assert any(missing in problem for problem in folder_info(copy).problems)
    assert missing in succeed("info", copy).out


def test_a_command_of_one_run_names_those_to_choose_from(world: World, trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.de"
    choice = f"choose one of them: {trained / 'seed-2'}, {trained / 'seed-10'}\n"
    must_refuse(choice, "translate", trained, world.folder / "test.en", "--out", out)
    assert not out.exists()
    succeed("translate", trained / "seed-2", world.folder / "test.en", "--out", out)
    for seed in range(1, 8):  # of many, the first
        (tmp_path / f"seed-{seed}").mkdir()
    told = must_raise("seeds 1,2,3,4,5,6,7; choose one of them", require_one_run, tmp_path)
    assert told.endswith(f"{tmp_path / 'seed-5'}, ...")
