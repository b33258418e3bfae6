"""What `cotext info` says of runs of several seeds, and commands that take one run."""

import json
import re
import shutil
from pathlib import Path

import pytest
from command_line import RECIPE, TINY, WITH_BLEU, World, cotext, succeed

from cotext.evaluation.studies.info.folder import SeedsSummary, folder_info
from cotext.evaluation.studies.info.run import run_info
from cotext.models.run_folder import require_one_run
from cotext.runtime.errors import CotextError


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


def summary(folder: Path) -> SeedsSummary:
    found = folder_info(folder)
    assert isinstance(found, SeedsSummary)
    return found


def rows_of_table(shown: str) -> dict[str, list[str]]:
    """Cells of the table by seed."""
    head, *lines = shown[shown.index("\nseed  training") :].strip("\n").split("\n\n")[0].splitlines()
    assert re.split("  +", head)[6:9] == ["at update", "final loss", "final BLEU"]
    cells = [re.split("  +", line) for line in lines]
    return {row[0]: row[1:] for row in cells}


def test_what_seeds_share_is_told_once_and_each_has_its_line(trained: Path) -> None:
    found = json.loads(succeed("info", trained, "--json").out)
    assert (found["format"], found["seeds"], found["problems"]) == ("cotext-seeds", [2, 10], [])
    alone = {seed: run_info(trained / f"seed-{seed}") for seed in (2, 10)}
    assert found["runs"] == json.loads(json.dumps([run.as_dict() for run in alone.values()]))
    assert found["bytes"] == sum(path.stat().st_size for path in trained.rglob("*") if path.is_file())
    shown = succeed("info", trained).out
    assert shown.startswith(f"{trained}: runs of the seeds 2 and 10\n")
    for once in ("  recipe  ", "  parameters  ", "  tokenizer  ", "  signature  "):
        assert shown.count(once) == 1
    assert "problem" not in shown
    table = rows_of_table(shown)
    assert list(table) == ["2", "10"]
    for seed, run in alone.items():
        best, final = run.facts["training"]["best_loss"], run.facts["training"]["final"]
        cells = table[str(seed)]
        assert cells[:4] == ["finished", "6", f"{best['value']:.4g}", str(best["update"])]
        assert cells[6] == f"{final['loss']:.4g}"
    assert table["2"][2] != table["10"][2]


def test_what_differs_is_told_by_seed(copy: Path) -> None:
    """Seed 2 has lost its last report and its last checkpoint, seed 10 has everything."""
    journal = copy / "seed-2" / "metrics.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:-1]))
    shutil.rmtree(copy / "seed-2" / "checkpoints" / "00000006")
    shown = succeed("info", copy).out
    table = rows_of_table(shown)
    assert (table["2"][0], table["2"][6:8], table["10"][0]) == ("not finished", ["-", "-"], "finished")
    _, own = shown.split("\nseed 2\n")
    mine, others = own.split("\nseed 10\n")
    assert "checkpoints   3; " in mine
    assert "checkpoints   3, 6; " in others
    assert "recipe" not in own


def test_a_run_that_was_just_begun_does_not_hide_the_others(copy: Path) -> None:
    (copy / "seed-7").mkdir()
    shown = succeed("info", copy).out
    assert rows_of_table(shown)["7"][:4] == ["not known", "-", "-", "-"]
    assert shown.count("  recipe  ") == 1
    assert "no model yet" in shown.split("\nseed 7\n")[1]
    shutil.rmtree(copy / "seed-2")
    shutil.rmtree(copy / "seed-10")
    shown = succeed("info", copy).out
    assert shown.startswith(f"{copy}: runs of the seeds 7\n")
    assert "no model yet" in shown


@pytest.mark.parametrize("kind", ["missing", "renamed", "settings", "damaged"])
def test_runs_that_make_no_system_are_told(world: World, copy: Path, kind: str) -> None:
    ten = copy / "seed-10"
    if kind == "missing":
        shutil.rmtree(ten)
        wanted = "the run of seed 10 is missing: the others were trained with --seeds 2,10"
    elif kind == "renamed":
        ten.rename(copy / "seed-11")
        wanted = f"{copy / 'seed-11'}: holds a run of seed 10"
    elif kind == "settings":
        shutil.rmtree(ten)
        arguments = (*TINY, WITH_BLEU, "train.seed=10", "train.learning_rate=0.002")
        succeed("train", RECIPE, *arguments, "--data", world.folder / "data", "--out", ten)
        wanted = "train.learning_rate: "
    else:
        (ten / "model.safetensors").write_bytes(b"damaged")
        found = summary(copy)
        assert (found.problems, found.runs[2].problems) == ([], [])
        assert "damaged" in found.runs[10].problems[0]
        return
    assert any(wanted in problem for problem in summary(copy).problems)
    assert wanted in succeed("info", copy).out


def test_a_command_of_one_run_names_those_to_choose_from(world: World, trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.de"
    refused = cotext("translate", trained, world.folder / "test.en", "--out", out)
    assert refused.code == 2
    assert f"name one of them: {trained / 'seed-2'}, {trained / 'seed-10'}\n" in refused.err
    assert not out.exists()
    succeed("translate", trained / "seed-2", world.folder / "test.en", "--out", out)


def test_of_many_seeds_the_first_are_named(tmp_path: Path) -> None:
    for seed in range(1, 8):
        (tmp_path / f"seed-{seed}").mkdir()
    with pytest.raises(CotextError) as caught:
        require_one_run(tmp_path)
    assert str(caught.value).endswith(f"{tmp_path / 'seed-5'}, ...")
    assert "seeds 1,2,3,4,5,6,7, and is none itself" in str(caught.value)
