"""Recipes that extend others: what they take, what wins, and what contradicts."""

import re
from pathlib import Path
from typing import Any

import yaml

from cotext.config.recipe import load_config, recipe_names
from tests.refusals import must_raise


def recipe(folder: Path, name: str, content: dict[str, Any]) -> str:
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(content))
    return str(path)


def test_keys_of_parents_are_taken_and_own_ones_win(tmp_path: Path) -> None:
    own = {"extends": ["mcn/final"], "model": {"positions": "absolute", "encoder": {"score": "absolute"}}}
    config, parent = load_config(recipe(tmp_path, "own", own)), load_config("mcn/final")
    assert (config.model.positions, config.model.encoder.score) == ("absolute", "absolute")
    assert config.model.encoder.span == parent.model.encoder.span == "sentence"
    assert config.view == parent.view
    assert config.train == parent.train
    assert config.paper == ""  # that of a parent is not its own
    parents = ["focused-concatenation/s4to4-cd", "parts/position-aware", "parts/context-discounting"]
    config = load_config(recipe(tmp_path, "own", {"extends": parents}))
    assert (config.view.before, config.loss.context_discount) == (3, 0.01)
    assert config.model.attention.score == "positions"
    config = load_config("p-transformer/ctx", overrides=["model.batch_context=flat"])
    assert (config.model.attention.score, config.model.batch_context) == ("positions", "flat")
    assert not any(name.startswith("parts/") for name in recipe_names())
    assert load_config("parts/flat-batch").model.batch_context == "flat"


def test_contradictions_circles_missing_parents_and_long_chains_are_refused(tmp_path: Path) -> None:
    own = recipe(tmp_path, "own", {"extends": ["p-transformer/ctx", "focused-concatenation/s4to4"]})
    message = must_raise(re.escape(own), load_config, own)
    for told in ("p-transformer/ctx", "focused-concatenation/s4to4", "view.before", "4", "3"):
        assert told in message
    one, other = (str(tmp_path / f"{name}.yaml") for name in ("one", "other"))
    below = recipe(tmp_path, "below", {"model": {"encoder": {"score": "alibi"}}})
    recipe(tmp_path, "one", {"model": {"encoder": None}})
    for parents in ([one, below], [below, one]):
        both = recipe(tmp_path, "both", {"extends": parents})
        must_raise(f"{parents[0]}, where model.encoder.*{parents[1]}, where model.encoder", load_config, both)
    recipe(tmp_path, "one", {"model": {"encoder": {}}})
    assert load_config(both).model.encoder.score == "alibi"
    recipe(tmp_path, "one", {"extends": [other]})
    recipe(tmp_path, "other", {"extends": [one]})
    must_raise("a cycle", load_config, one)
    missing = recipe(tmp_path, "missing", {"extends": ["parts/gate"]})
    must_raise(r"no recipe 'parts/gate'.*parts/gated-attention", load_config, missing)
    must_raise("extends must be a list", load_config, recipe(tmp_path, "text", {"extends": "mcn/final"}))
    for i in range(20):
        recipe(tmp_path, f"r{i}", {"extends": [str(tmp_path / f"r{i + 1}.yaml")]})
    recipe(tmp_path, "r20", {})
    must_raise("deep", load_config, str(tmp_path / "r0.yaml"))
