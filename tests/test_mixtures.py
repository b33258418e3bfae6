"""Recipes that combine ideas: no slot of theirs does nothing."""

from functools import cache
from typing import Any

import torch

from cotext.config.recipe import Config, load_config, recipe_names
from cotext.data.batch import Batch
from cotext.data.build import build_view, special_symbols
from cotext.data.collate import make_batch
from cotext.data.sampling import instances_of
from cotext.data.store import TokenDocument
from cotext.losses.build import build_loss
from cotext.models.build import build_model
from tests.golden import SETTINGS, SOURCE, TARGET, TOKENIZER
from tests.loops import loop_over

COMBINED = [name for name in recipe_names() if name.split("/")[0] in ("mixtures", "modern", "han")]
# Key of a slot that a recipe fills, and its neutral value.
NEUTRAL: dict[str, Any] = {
    "model.attention.score": "content",
    "model.attention.span": "row",
    "model.attention.top.layers": 0,
    "model.encoder.score": "content",
    "model.encoder.span": "row",
    "model.decoder.span": "sentence",
    "model.cross.score": "content",
    "model.cross.span": "row",
    "model.batch_context": "none",
    "model.document_layer": "none",
    "model.positions": "absolute",
    "model.segments": "none",
    "loss.context_discount": 1.0,
}
# What goes with a slot, and is put back with it.
ALSO = {
    # The decoder's score is that of its memory.
    "model.decoder.span": ["model.decoder.score=content"],
    # Nodes and gates are of sentences.
    "model.attention.span": ["model.attention.top.layers=0"],
}


def overrides(key: str) -> list[str]:
    return [f"{key}={NEUTRAL[key]}", *ALSO.get(key, [])]


@cache
def config_of(recipe: str, *settings: str) -> Config:
    return load_config(recipe, overrides=[*SETTINGS, "model.dropout=0", *settings])


def filled(recipe: str) -> list[str]:
    """Keys of the slots that a recipe fills."""
    content = config_of(recipe).model_dump()
    found = []
    for key, neutral in NEUTRAL.items():
        value: Any = content
        for part in key.split("."):
            value = value[part] if isinstance(value, dict) else None
        if value not in (neutral, None):
            found.append(key)
    return found


def batch_of(config: Config) -> Batch:
    rows = instances_of(TokenDocument("d", 0, SOURCE, TARGET), build_view(config.view))
    return make_batch(list(rows), special_symbols(TOKENIZER, config.view))


def outcome(config: Config, weights: dict[str, torch.Tensor]) -> torch.Tensor:
    """Loss of a document's rows, with the given weights as far as the model has them."""
    torch.manual_seed(1)
    model = build_model(config, TOKENIZER.vocabulary_size).double().eval()
    own = model.state_dict()
    model.load_state_dict({**own, **{name: weights[name] for name in own if name in weights}})
    with torch.no_grad():
        return build_loss(config.loss)(model, batch_of(config)).loss


@cache
def weights_of(recipe: str) -> dict[str, torch.Tensor]:
    """Of a model of which no part is neutral."""
    torch.manual_seed(0)
    weights = build_model(config_of(recipe), TOKENIZER.vocabulary_size).double().state_dict()
    return {name: w + 0.2 * torch.randn_like(w) for name, w in weights.items()}


def test_every_combined_recipe_fills_two_slots_or_is_about_one() -> None:
    assert len(COMBINED) >= 13
    for recipe in COMBINED:
        assert len(filled(recipe)) >= 2, recipe


@loop_over(("recipe", "key"), [(name, key) for name in COMBINED for key in filled(name)])
def test_no_slot_does_nothing(recipe: str, key: str) -> None:
    """With one slot put back to neutral, and the same weights elsewhere, the loss is another one."""
    weights = weights_of(recipe)
    whole = outcome(config_of(recipe), weights)
    without = outcome(config_of(recipe, *overrides(key)), weights)
    assert abs(float(whole - without)) > 1e-6 * abs(float(whole))
