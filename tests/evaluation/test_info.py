"""What a folder says of itself, whole or damaged."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from cotext.config.recipe import load_config
from cotext.evaluation.studies.info.folder import folder_info, run_info
from cotext.models.checkpoint import load_run
from cotext.models.run_folder import require_one_run
from cotext.runtime.files import sealed, unsealed
from tests.command_line import (
    WITH_BLEU,
    World,
    cotext,
    documents_file,
    must_refuse,
    prepare_arguments,
    succeed,
    train_arguments,
    writable_copy,
)
from tests.refusals import must_raise
from tests.tiny_runs import journal, toy_documents


@pytest.fixture
def copy(world: World, tmp_path: Path) -> Path:
    """A copy of the run and of its data, which may be spoiled."""
    for name in ("run", "data"):
        writable_copy(world.folder / name, tmp_path / name)
    return tmp_path


def info(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(succeed("info", folder, "--json").out)
    return found


def test_a_run_tells_its_system_its_data_and_its_scores(world: World) -> None:
    found = folder_info(world.run).as_dict()
    weights = load_file(world.run / "model.safetensors")
    assert found["format"] == "cotext-run"
    assert found["signature"] == load_run(world.run).signature
    assert found["system"]["recipe"] == "focused-concatenation/s2to2"
    assert found["system"]["paper"] == load_config("focused-concatenation/s2to2").paper
    assert found["model"]["parameters"] == sum(tensor.numel() for tensor in weights.values())
    assert (found["tokenizer"]["pieces"], found["checkpoints"], found["problems"]) == (48, [3, 6], [])
    documents = toy_documents(24, 0)
    assert found["data"]["folder"] == str(world.folder / "data")
    assert found["data"]["state"] == "there"
    assert found["data"]["train"]["documents"] == 24
    assert found["data"]["train"]["sentences"] == sum(len(d.source) for d in documents)
    reports = journal(world.run)
    validations = [report for report in reports if report["kind"] == "validation"]
    best = min(validations, key=lambda report: report["nll_current"])
    training = found["training"]
    assert (training["finished"], training["update"]) == (True, 6)
    assert training["best_loss"] == {"value": best["nll_current"], "update": best["update"]}
    assert f"nll_current {best['nll_current']:.4g} nats a token" in succeed("info", world.run).out
    chosen = min(validations, key=lambda report: report["undiscounted"])
    assert training["best_by"] == "undiscounted"
    assert training["best"] == {"value": chosen["undiscounted"], "update": chosen["update"]}
    assert training["best_bleu"]["value"] == max(report["bleu"] for report in validations)
    assert training["final"]["loss"] == reports[-1]["nll_current"]
    files = [path for path in world.run.rglob("*") if path.is_file()]
    assert found["bytes"]["all"] == sum(path.stat().st_size for path in files)


def test_what_must_travel_is_enough_and_needed(world: World, tmp_path: Path) -> None:
    found = folder_info(world.run).as_dict()
    files = found["travels"]["files"]
    assert sorted(files) == ["model.safetensors", "tokenizer/sentencepiece.model", "tokenizer/tokenizer.json"]
    elsewhere = tmp_path / "elsewhere"
    for name in files:
        (elsewhere / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(world.run / name, elsewhere / name)
    source = documents_file(tmp_path / "in.en", 3, 5)
    for run, out in ((world.run, "here.de"), (elsewhere, "there.de")):
        succeed("translate", run, source, "--out", tmp_path / out)
    assert (tmp_path / "here.de").read_bytes() == (tmp_path / "there.de").read_bytes()
    moved = folder_info(elsewhere).as_dict()
    assert (moved["problems"], moved["data"], moved["training"]) == ([], None, None)
    assert all(moved[key] == found[key] for key in ("signature", "system", "model"))
    assert moved["bytes"]["all"] == found["travels"]["bytes"]
    for name in files:
        (elsewhere / name).rename(tmp_path / "away")
        assert cotext("translate", elsewhere, source, "--out", tmp_path / "none").code == 2
        (tmp_path / "away").rename(elsewhere / name)


def test_prepared_data_tell_what_they_are(world: World, tmp_path: Path) -> None:
    arguments = prepare_arguments(world.folder, tmp_path / "data")
    extra = ("--clean", "copies", "--split", "--source-language", "en", "--target-language", "de")
    succeed(*arguments, *extra)
    found = info(tmp_path / "data")
    report = json.loads((tmp_path / "data" / "report.json").read_text())
    del report["files"], report["crc32"]
    assert (found["format"], found["report"], found["problems"]) == ("cotext-data", report, [])
    shown = succeed("info", tmp_path / "data").out
    for part in ("en-de", "sentencepiece, 48 pieces", "train.en", "clean: copies=0", "dev: of ", "left out"):
        assert part in shown


def test_distilled_data_tell_whose_targets_they_have(world: World, tmp_path: Path) -> None:
    out = tmp_path / "distilled"
    succeed("distill", world.run, "--data", world.folder / "data", "--out", out, "--set", "beam=1")
    shown = succeed("info", out).out
    assert re.search(r"^ +targets by +model:transformer\|updates:.*\|beam:1", shown, re.M)
    assert f"distill: {world.run}" in shown


def test_interrupted_runs_and_those_without_a_model(copy: Path) -> None:
    path = copy / "run" / "metrics.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert info(copy / "run")["training"]["finished"] is False
    written = copy / "run" / "config.yaml"
    written.write_text(written.read_text().replace("label_smoothing: 0.1", "label_smoothing: 0.3"))
    shown = succeed("info", copy / "run").out
    assert "interrupted, or still in training, at update 6" in shown
    assert "  loss.label_smoothing: 0.1 in the model, which counts, 0.3 in this file" in shown
    (copy / "run" / "model.safetensors").unlink()
    found = info(copy / "run")
    assert found["system"]["recipe"] == "focused-concatenation/s2to2"
    assert (found["model"]["parameters"], found["travels"]["files"]) == (None, [])
    assert "no model yet" in found["problems"][0]


def test_data_that_are_gone_or_others_are_told(copy: Path) -> None:
    data = json.loads((copy / "run" / "data.json").read_text())["folder"]
    assert folder_info(copy / "run").as_dict()["data"]["state"] == "there"
    shutil.copytree(copy / "data", copy / "moved")
    path = copy / "run" / "data.json"
    content = unsealed(path.read_text())
    assert content["folder"] == data
    for folder, state in ((copy / "moved", "there"), (copy / "none", "missing")):
        path.write_text(sealed({**content, "folder": str(folder)}))
        assert folder_info(copy / "run").as_dict()["data"]["state"] == state
    path.write_text(sealed({**content, "checksums": {"train.arrow": "0" * 64}}))
    assert folder_info(copy / "run").as_dict()["data"]["state"] == "other"


def spoil(path: Path, kind: str) -> None:
    content = path.read_bytes()
    third = len(content) // 3
    flipped = content[:third] + bytes([content[third] ^ 0x55]) + content[third + 1 :]
    path.unlink()
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "endless":
            path.symlink_to("/dev/zero")
        case _:
            path.write_bytes({"cut": content[: len(content) // 2], "flip": flipped, "empty": b""}[kind])


@pytest.mark.parametrize("kind", ["cut", "flip", "empty", "pipe", "folder", "endless"])
@pytest.mark.parametrize(
    "name",
    [
        *(f"run/{name}" for name in ("model.safetensors", "data.json", "metrics.jsonl")),
        *(f"run/tokenizer/{name}" for name in ("tokenizer.json", "sentencepiece.model")),
        *(f"data/{name}" for name in ("report.json", "tokenizer/tokenizer.json")),
    ],
)
def test_damage_is_told_beside_the_rest(copy: Path, name: str, kind: str) -> None:
    spoil(copy / name, kind)
    found = folder_info(copy / name.partition("/")[0])
    json.dumps(found.as_dict(), allow_nan=False)
    # Weights are not read; a last report that is cut short is what an interruption leaves.
    silent = [("run/model.safetensors", "flip"), ("run/metrics.jsonl", "cut"), ("run/metrics.jsonl", "empty")]
    assert found.problems or (name, kind) in silent
    assert found.facts["tokenizer"] or "tokenizer" in name
    shown = succeed("info", copy / name.partition("/")[0]).out
    assert max(map(len, shown.splitlines())) < 800


def test_an_odd_name_shows_as_escapes_and_a_foreign_folder_is_refused(copy: Path, tmp_path: Path) -> None:
    path = copy / "run" / "data.json"
    path.write_text(sealed({**unsealed(path.read_text()), "folder": "/a\x1b[2J\udc80/b"}))
    assert r"/a\x1b[2J\udc80/b" in succeed("info", copy / "run").out
    assert info(copy / "run")["data"]["folder"] == "/a\x1b[2J\udc80/b"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("nothing of ours")
    must_refuse("not a run, an engine or prepared data", "info", tmp_path / "other")
    (tmp_path / "other" / "notes.bin").write_bytes(b"\x00\xff\x00")
    assert cotext("info", tmp_path / "other" / "notes.bin").code == 2


@pytest.fixture(scope="module")
def trained(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of the seeds 2 and 10."""
    folder = tmp_path_factory.mktemp("seeds") / "base"
    succeed(*train_arguments(world.folder, folder, WITH_BLEU, "--seeds", "10,2"))
    return folder


@pytest.fixture
def seeds(trained: Path, tmp_path: Path) -> Path:
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
    assert all(run.render() in shown for run in alone.values())


def test_a_run_that_was_just_begun_does_not_hide_the_others(seeds: Path) -> None:
    (seeds / "seed-7").mkdir()
    shown = succeed("info", seeds).out
    assert shown.count("  recipe  ") == 2
    assert "no model yet" in shown
    shutil.rmtree(seeds / "seed-2")
    shutil.rmtree(seeds / "seed-10")
    shown = succeed("info", seeds).out
    assert shown.startswith(f"{seeds}: runs of the seeds 7\n")
    assert "no model yet" in shown


def test_runs_that_make_no_system_are_told(seeds: Path) -> None:
    (seeds / "seed-10" / "model.safetensors").write_bytes(b"damaged")
    found = folder_info(seeds)
    whole, damaged = found.parts
    assert (found.problems, whole.problems) == ([], [])
    assert "damaged" in damaged.problems[0]
    shutil.rmtree(seeds / "seed-10")
    assert "the run of seed 10 is missing: the others were trained with --seeds 2,10" in str(
        folder_info(seeds).problems
    )


def test_a_command_of_one_run_names_those_to_choose_from(world: World, trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.de"
    choice = f"choose one of them: {trained / 'seed-2'}, {trained / 'seed-10'}\n"
    must_refuse(choice, "translate", trained, world.folder / "test.en", "--out", out)
    assert not out.exists()
    for seed in range(1, 8):  # of many, the first
        (tmp_path / f"seed-{seed}").mkdir()
    told = must_raise("seeds 1,2,3,4,5,6,7; choose one of them", require_one_run, tmp_path)
    assert told.endswith(f"{tmp_path / 'seed-5'}, ...")
