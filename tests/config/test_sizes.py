"""A size scales the whole and keeps what a recipe is about."""

from collections import defaultdict

import pytest

from cotext.config.model import ModelConfig
from cotext.config.recipe import load_config, recipe_names
from cotext.config.sizes import SIZES, STACKS
from tests.loops import loop_over

# Rows of several papers that are one system.
THE_SAME = {frozenset({"docflat/g-transformer", "g-transformer/finetune"})}
# Recipes of other corpora: a size decides what they differ in, dropout and batches.
CORPORA = ("-news", "-europarl")


def top_layers(model: ModelConfig) -> dict[str, int]:
    """How many top layers of another kind every section asks for that says so."""
    tops = {name: getattr(model, name).top for name in STACKS}
    return {name: top.layers for name, top in tops.items() if top is not None}


@loop_over(
    ("recipe", "base", "small", "tiny"),
    [
        ("g-transformer/randinit", (6, 6), (4, 4), (2, 2)),
        ("casa/shadow-10-2", (10, 2), (7, 1), (5, 1)),
        ("casa/shadow-8-4", (8, 4), (5, 3), (4, 2)),
        ("casa/casa", (6, 4), (4, 3), (3, 2)),
        ("mcn/final", (4, 4), (4, 4), (2, 2)),
    ],
)
def test_depths(recipe: str, base: tuple[int, int], small: tuple[int, int], tiny: tuple[int, int]) -> None:
    """10 + 2 and 8 + 4 layers remain different systems, and deeper in the encoder than in the decoder."""
    for size, depths in (("base", base), ("ted", small), ("small", small), ("tiny", tiny)):
        model = load_config(recipe, size).model
        assert (model.encoder_layers, model.decoder_layers) == depths, size


@loop_over("size", SIZES)
def test_no_two_recipes_become_one(size: str) -> None:
    found = defaultdict(set)
    for name in recipe_names():
        if size in ("tiny", "small") and name.endswith(CORPORA):
            continue
        found[load_config(name, size).model_copy(update={"paper": ""}).model_dump_json()].add(name)
    assert {frozenset(names) for names in found.values() if len(names) > 1} == THE_SAME


@loop_over("size", SIZES)
def test_every_stack_has_both_kinds_of_layers(size: str) -> None:
    """Local ones below and others on top; a decoder of a single layer has both in one."""
    seen = 0
    for recipe in recipe_names():
        model, asked = load_config(recipe, size).model, top_layers(load_config(recipe).model)
        found = top_layers(model)
        assert found.keys() == asked.keys()
        shortest = min(model.encoder_layers, model.decoder_layers)
        for name, layers in found.items():
            seen += layers > 0
            assert (layers > 0) == (asked[name] > 0), recipe
            assert layers == asked[name] if size == "base" else layers < max(shortest, 2), recipe
    assert seen > 20


def test_what_is_asked_for_has_the_last_word() -> None:
    asked = ["model.encoder_layers=9", "model.attention.top.layers=4", "train.learning_rate=0.01"]
    config = load_config("casa/casa", "tiny", asked)
    assert (config.model.encoder_layers, config.model.decoder_layers) == (9, 2)
    assert (config.model.attention.top.layers, config.train.learning_rate) == (4, 0.01)


@pytest.mark.parametrize("size", ["tiny", "small"])
def test_training_that_goes_on_from_a_run_keeps_its_lower_rate(size: str) -> None:
    scratch = SIZES[size]["train"]["learning_rate"]
    assert load_config("g-transformer/randinit", size).train.learning_rate == scratch
    for name, base in ((name, load_config(name).train) for name in recipe_names()):
        expected = pytest.approx(scratch * base.learning_rate / 7e-4, rel=0.05)
        assert not base.init or load_config(name, size).train.learning_rate == expected
