"""`train --dry-run`: what a training would be, without a file."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cotext.config.recipe import load_config
from cotext.data.sampling import Cursor
from cotext.training.setup import set_up
from tests.command_line import RECIPE, TINY, World, cotext, listing, must_refuse, succeed
from tests.tiny_runs import silent


def arguments(world: World, out: Path, *further: str) -> list[str | Path]:
    return ["train", RECIPE, *TINY, *further, "--data", world.folder / "data", "--out", out, "--dry-run"]


def test_what_it_tells_is_what_training_does(world: World, tmp_path: Path) -> None:
    before = listing(world.folder)
    out = tmp_path / "run"
    found = json.loads(succeed(*arguments(world, out), "--json").out)
    assert not list(tmp_path.iterdir())
    assert listing(world.folder) == before
    setup = set_up(load_config(RECIPE, None, TINY), world.folder / "data", out, RECIPE, "cpu")
    assert found["parameters"] == sum(p.numel() for p in setup.model.parameters())
    assert found["model_memory"] == 16 * found["parameters"]
    assert found["training_sentences"] == setup.data.train.totals.sentences
    assert found["seconds"] == pytest.approx(6 * found["seconds_an_update"])
    trainer = setup.trainer(out, replace(silent(), score_development=lambda model: 0.0))
    batches = trainer.sampler.batches(Cursor())
    first, after = next(batches)
    batch = found["first_batch"]
    assert batch["rows"] == len(first.source.tokens)
    assert batch["source_tokens"] == int((first.source.sentence >= 0).sum())
    assert batch["target_tokens"] == int(first.is_label.sum())
    begin, end = first.source.current[0].tolist()
    assert batch["current"] == [begin, end]
    assert len(batch["source"]) == len(batch["target"]) == int(first.source.sentence[0].max()) + 1
    texts = set((world.folder / "train.en").read_text().splitlines())
    assert set(batch["source"]) <= texts
    # As many updates as an epoch really has, and as many rows.
    seen, rows, target_tokens = 1, len(first.source.tokens), int(first.is_label.sum())
    while trainer.sampler.epochs(after) == 0:
        batch, after = next(batches)
        seen, rows = seen + 1, rows + len(batch.source.tokens)
        target_tokens += int(batch.is_label.sum())
    assert found["updates_an_epoch"] == pytest.approx(seen, rel=0.35)
    instances = found["training_instances"]
    assert (instances["instances"], instances["too_long"]) == (rows, 0)
    assert instances["target_tokens"] == pytest.approx(target_tokens / rows)
    development = [batch.source.sentence for batch in trainer.validator.batches()]
    assert found["development_instances"]["instances"] == sum(map(len, development))
    tokens = sum(int((sentence >= 0).sum()) for sentence in development)
    assert found["development_instances"]["source_tokens"] == pytest.approx(
        tokens / sum(map(len, development))
    )


def test_for_people(world: World, tmp_path: Path) -> None:
    shown = succeed(*arguments(world, tmp_path / "run")).out
    for word in ("parameters", "instances    ", "development", "first batch", "memory", "time", "  source >",
                 "  target >", "nothing was written"):  # fmt: skip
        assert word in shown
    assert max(map(len, shown.splitlines())) < 140
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("recipe", ["casa/2to2", "mcn/final", "docflat/abd"])
def test_systems_of_every_kind(world: World, tmp_path: Path, recipe: str) -> None:
    config = load_config(recipe)
    init = ["--init", world.run] if config.train.init else []
    top = ["model.attention.top.layers=1"] if config.model.attention.top.layers else []
    shown = succeed("train", recipe, *TINY, *init, "--data", world.folder / "data", "--out", tmp_path / "r",
                    *top, "--dry-run")  # fmt: skip
    assert "parameters" in shown.out
    assert not (tmp_path / "r").exists()


def test_what_training_refuses_is_refused(world: World, tmp_path: Path) -> None:
    out = tmp_path / "run"
    outcome = cotext(*arguments(world, out, "view.max_tokens=1"))
    assert (outcome.code, out.exists()) == (2, False)
    assert "raise view.max_tokens" in outcome.err
    must_refuse("contains a run", *arguments(world, world.run))
    must_refuse(
        "--json needs --dry-run", "train", RECIPE, "--data", world.folder / "data", "--out", out, "--json"
    )
