"""Training with `train.weight_by`: equal weights change nothing, and no run goes on with other weights."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_runs import prepare_toy, run_config, train_here, with_section, write_weights

from cotext.config.recipe import Config, load_config
from cotext.data.store import TokenStore
from cotext.evaluation.studies.info.run import run_info
from cotext.models.run_folder import describe_file
from cotext.runtime.errors import CotextError
from cotext.training.prepared_data import open_data
from cotext.training.resolve import settle


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_toy(tmp_path_factory.mktemp("data"))


def weights_file(data: Path, path: Path, *values: float) -> Path:
    """Weights in turn."""
    store = TokenStore(data / "train.arrow")
    documents = [(d.id, [values[(d.index + j) % len(values)] for j in range(len(d.source))]) for d in store]
    write_weights(path, data, documents)
    return path


def config_with(path: Path | str, updates: int = 4) -> Config:
    return run_config(weight_by=str(path), max_updates=updates, validate_every=2)


def same_models(one: Path, other: Path) -> bool:
    a, b = (load_file(run / "model.safetensors") for run in (one, other))
    return all(torch.equal(a[name], b[name]) for name in a)


def test_equal_weights_are_none_and_others_are_not(data: Path, tmp_path: Path) -> None:
    plain, even, uneven = (tmp_path / name for name in ("plain", "even", "uneven"))
    train_here(config_with(""), data, plain)
    train_here(config_with(weights_file(data, tmp_path / "even.jsonl", 7.0)), data, even)
    path = weights_file(data, tmp_path / "uneven.jsonl", 0.1, 5.0)
    train_here(config_with(path), data, uneven)
    assert same_models(plain, even)
    assert not same_models(plain, uneven)

    digest = describe_file(uneven / "model.safetensors").config.train.weights_digest
    assert f"|weighted:{digest[:12]}|" in describe_file(uneven / "model.safetensors").signature
    assert "weighted" not in describe_file(plain / "model.safetensors").signature
    shown = run_info(uneven)
    assert f"weighted by   {path} ({digest[:12]})" in shown.render()
    assert shown.as_dict()["system"]["weights_digest"] == digest
    assert shown.facts["data"]["state"] == "there" or shown.facts["data"]["state"] == "other"
    assert "weighted" not in run_info(plain).render()
    assert json.loads((uneven / "data.json").read_text())["checksums"]["weights of sentences"] == digest


def test_a_run_goes_on_with_the_same_weights_alone(data: Path, tmp_path: Path) -> None:
    path = weights_file(data, tmp_path / "w.jsonl", 0.1, 5.0)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train_here(config_with(path), data, whole)
    train_here(config_with(path, updates=2), data, parts)
    # The file may lie elsewhere by now.
    moved = path.rename(tmp_path / "moved.jsonl")
    changed = weights_file(data, tmp_path / "changed.jsonl", 0.2, 5.0)
    for other in (str(changed), ""):
        with pytest.raises(CotextError, match=r"weights"):
            train_here(config_with(other), data, parts)
    train_here(config_with(moved), data, parts)
    assert same_models(whole, parts)


def test_what_cannot_be_weighted_is_refused_before_there_is_a_run(data: Path, tmp_path: Path) -> None:
    path, run = weights_file(data, tmp_path / "w.jsonl", 1.0), tmp_path / "run"
    missing = tmp_path / "none.jsonl"
    other = prepare_toy(tmp_path / "other", seed=9)
    by_rows = load_config("casa/glat-ctc", "tiny", [f"train.weight_by={path}"])
    wrong = with_section(config_with(path), "train", weights_digest="0" * 64)
    alone = with_section(config_with(""), "train", weights_digest="0" * 64)
    for config, folder, message in (
        (config_with(missing), data, "none.jsonl"),
        (config_with(path), other, "weights of other data"),
        (by_rows, data, r"train.weight_by: with model.nat.path = row"),
        (wrong, data, "not the weights that train.weights_digest tells"),
        (alone, data, "name it by train.weight_by"),
    ):
        with pytest.raises(CotextError, match=message):
            train_here(config, folder, run)
        assert not run.exists()


def test_the_digest_is_filled_in(data: Path, tmp_path: Path) -> None:
    path = weights_file(data, tmp_path / "w.jsonl", 1.0)
    config = settle(config_with(path), open_data(data), tmp_path / "run", "test")
    assert len(config.train.weights_digest) == 64
    assert settle(config, open_data(data), tmp_path / "run", "test") == config
