"""Runs made by previews of 0.1.0: their keys and weights are renamed when they are loaded."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from golden import SETTINGS, TOKENIZER, former
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from cotext.config.recipe import load_config, parse_run_config
from cotext.models.build import build_model
from cotext.models.checkpoint import CHECKSUM, load_weights, model_checksum, save_model
from cotext.models.run_folder import describe_file

# recipe -> the section `model` that such a run kept, sizes aside
KEPT: dict[str, dict[str, Any]] = {
    "focused-concatenation/s4to4-shift-cd": {"name": "transformer", "positions": "shifted"},
    "p-transformer/ctx": {"name": "p_transformer", "p_transformer": {"self_source": True, "relative": True}},
    "g-transformer/randinit": {"name": "g_transformer", "g_transformer": {"global_layers": 2}},
    "flat-transformer/flat": {
        "name": "flat_transformer",
        "segments": "learned",
        "flat_transformer": {"current_layers": 1},
    },
    "docflat/docflat-d-source": {"name": "docflat", "docflat": {"gate": "discrete", "target": False}},
    "docflat/abd": {"name": "datapoints", "datapoints": {"source": True, "target": False}},
    "docflat/mbe": {"name": "batch_embedding"},
    "mcn/final": {
        "name": "mcn",
        "positions": "reset",
        "segments": "learned",
        "mcn": {"local": True, "xl": True},
    },
    "mcn/doc2sent-relative": {
        "name": "mcn",
        "positions": "reset",
        "segments": "learned",
        "mcn": {"gate": False, "xl": False},
    },
    "casa/casa": {"name": "casa", "casa": {"context_layers": 2}},
    "casa/latent-no-target": {"name": "casa", "casa": {"latent": True, "target_context": False}},
    "casa/glat": {
        "name": "casa",
        "casa": {"path": "length", "local": False, "context_layers": 0, "soft_copy": "row"},
    },
}


@pytest.mark.parametrize("recipe", KEPT)
def test_keys_are_renamed(recipe: str) -> None:
    now = load_config(recipe)
    sizes = {
        key: getattr(now.model, key)
        for key in ("encoder_layers", "decoder_layers", "dropout", "initialisation")
    }
    kept = {
        "model": {**sizes, **KEPT[recipe]},
        "train": {"validate_documents": 6},
        "decode": {"neighbours": 5, "schedule": "parallel"},
    }
    then = parse_run_config(kept, "a run")
    assert then.model == now.model
    assert (then.decode.group_windows, then.decode.schedule) == (5, "simultaneous")


def test_keys_of_today_are_left_alone() -> None:
    now = load_config("casa/latent")
    assert parse_run_config(now.model_dump(), "a run") == now


@pytest.mark.parametrize("recipe", ["mcn/final", "docflat/docflat-c", "docflat/abd-both", "casa/latent"])
def test_weights_are_renamed(recipe: str, tmp_path: Path) -> None:
    """Under the names of then, in a file with its checksum, and in one that is described without torch."""
    config = load_config(recipe, overrides=SETTINGS)
    weights = build_model(config, TOKENIZER.vocabulary_size).state_dict()
    path = tmp_path / "model.safetensors"
    save_model(path, weights, config, "words", [1])
    with safe_open(path, framework="numpy") as file:
        metadata = dict(file.metadata())
    before = {former(name): tensor for name, tensor in load_file(path).items()}
    assert before.keys() != weights.keys()
    content = yaml.safe_load(metadata["cotext.config"])
    content["decode"]["neighbours"] = content["decode"].pop("group_windows")
    metadata["cotext.config"] = yaml.safe_dump(content)
    metadata[CHECKSUM] = model_checksum(before, metadata)
    save_file(before, path, metadata)
    loaded = load_weights(path)
    assert loaded.keys() == weights.keys()
    assert all(torch.equal(loaded[name], weights[name]) for name in weights)
    assert describe_file(path).config == config
    assert json.loads(metadata["cotext.updates"]) == [1]
