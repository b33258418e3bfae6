"""A size scales the whole and keeps what a recipe is about."""

from collections import defaultdict
from collections.abc import Iterator

import pytest
import torch
from cotext.models.casa import Casa

from cotext.config.recipe import Config, load_config, recipe_names
from cotext.config.sizes import SIZES, TOP_LAYERS
from cotext.layers.context_nodes import ContextSelfAttention
from cotext.models.build import build_model
from cotext.models.g_transformer import Gated, GTransformer
from cotext.models.interface import Model
from cotext.models.mcn import MCN, GlobalContext

# Rows of several papers that are one system.
THE_SAME = {frozenset({"docflat/g-transformer", "g-transformer/finetune"})}


def built(config: Config) -> Model:
    model = config.model.model_copy(update={"shift": 8})
    with torch.device("meta"):
        return build_model(config.model_copy(update={"model": model}), 100)


def of_a_model(name: str) -> list[str]:
    return [recipe for recipe in recipe_names() if load_config(recipe).model.name == name]


@pytest.mark.parametrize(
    ("recipe", "size", "depths"),
    [
        ("g-transformer/randinit", "base", (6, 6)),
        ("g-transformer/randinit", "small", (4, 4)),
        ("g-transformer/randinit", "tiny", (2, 2)),
        ("casa/shadow-10-2", "base", (10, 2)),
        ("casa/shadow-10-2", "small", (7, 1)),
        ("casa/shadow-10-2", "tiny", (5, 1)),
        ("casa/shadow-8-4", "base", (8, 4)),
        ("casa/shadow-8-4", "small", (5, 3)),
        ("casa/shadow-8-4", "tiny", (4, 2)),
        ("casa/casa", "base", (6, 4)),
        ("casa/casa", "small", (4, 3)),
        ("casa/casa", "tiny", (3, 2)),
        ("mcn/final", "base", (4, 4)),
        ("mcn/final", "ted", (4, 4)),
        ("mcn/final", "small", (4, 4)),
        ("mcn/final", "tiny", (2, 2)),
    ],
)
def test_depths(recipe: str, size: str, depths: tuple[int, int]) -> None:
    """10 + 2 and 8 + 4 layers remain different systems, and deeper in the encoder than in the decoder."""
    model = load_config(recipe, size).model
    assert (model.encoder_layers, model.decoder_layers) == depths


@pytest.mark.parametrize("size", SIZES)
def test_no_two_recipes_become_one(size: str) -> None:
    found = defaultdict(set)
    for name in recipe_names():
        found[load_config(name, size).model_copy(update={"paper": ""}).model_dump_json()].add(name)
    assert {frozenset(names) for names in found.values() if len(names) > 1} == THE_SAME


@pytest.mark.parametrize("size", SIZES)
def test_every_stack_has_both_kinds_of_layers(size: str) -> None:
    """Local ones below and others on top; a decoder of a single layer has both in one."""
    for name, key in TOP_LAYERS.items():
        for recipe in of_a_model(name):
            model = load_config(recipe, size).model
            layers = getattr(getattr(model, name), key)
            asked = getattr(getattr(load_config(recipe).model, name), key)
            shortest = min(model.encoder_layers, model.decoder_layers)
            assert (layers > 0) == (asked > 0), recipe
            assert layers == asked if size == "base" else layers < max(shortest, 2), recipe


@pytest.mark.parametrize("size", SIZES)
def test_casa_has_local_and_context_layers_on_every_side(size: str) -> None:
    system = built(load_config("casa/casa", size))
    assert isinstance(system, Casa)
    for stack in (system.encoder, system.decoder):
        context = [isinstance(block.attention, ContextSelfAttention) for block in stack]
        assert not context[0]
        assert context[-1]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("recipe", ["g-transformer/randinit", "casa/2to2", "casa/shadow-10-2"])
def test_g_transformer_has_local_and_global_layers(recipe: str, size: str) -> None:
    system = built(load_config(recipe, size))
    assert isinstance(system, GTransformer)
    gated = [isinstance(block.attention, Gated) for block in system.encoder]
    assert not gated[0]
    assert gated[-1]
    assert any(isinstance(block.attention, Gated) for block in system.decoder)


@pytest.mark.parametrize("size", SIZES)
def test_mcn_has_local_layers_below_the_global_one(size: str) -> None:
    system = built(load_config("mcn/final", size))
    assert isinstance(system, MCN)
    *below, top = system.encoder
    assert isinstance(top, GlobalContext)
    assert len(below) == load_config("mcn/sent", size).model.encoder_layers >= 2


def test_what_is_asked_for_has_the_last_word() -> None:
    asked = ["model.encoder_layers=9", "model.casa.context_layers=4", "train.learning_rate=0.01"]
    config = load_config("casa/casa", "tiny", asked)
    assert (config.model.encoder_layers, config.model.decoder_layers) == (9, 2)
    assert (config.model.casa.context_layers, config.train.learning_rate) == (4, 0.01)


def starting_from_a_run() -> Iterator[str]:
    return (name for name in recipe_names() if load_config(name).train.init)


@pytest.mark.parametrize("size", ["tiny", "small"])
def test_training_that_goes_on_from_a_run_keeps_its_lower_rate(size: str) -> None:
    scratch = SIZES[size]["train"]["learning_rate"]
    assert load_config("g-transformer/randinit", size).train.learning_rate == scratch
    for name in starting_from_a_run():
        share = load_config(name).train.learning_rate / 7e-4
        assert load_config(name, size).train.learning_rate == pytest.approx(scratch * share, rel=0.05)
