"""Recipes that combine ideas: no slot of theirs does nothing, and what has no kernel is refused by name."""

from functools import cache
from typing import Any

import pytest
import torch

from cotext.config.recipe import Config, load_config, recipe_names
from cotext.data.batch import Batch
from cotext.data.build import build_view, special_symbols
from cotext.data.collate import make_batch
from cotext.data.sampling import instances_of
from cotext.data.store import TokenDocument
from cotext.losses.build import build_loss
from cotext.models.build import build_model
from cotext.models.checks import check
from cotext.runtime.errors import CotextError
from tests.golden import SETTINGS, SOURCE, TARGET, TOKENIZER
from tests.loops import loop_over
from tests.tiny import tiny_config, window

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


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a memory in the encoder": (
        {"encoder": {"span": "memory"}},
        r"model\.encoder\.span = memory.*row, sentence",
    ),
    "a memory with contents": (
        {"decoder": {"span": "memory"}},
        r"model\.attention\.score = content.*transformer_xl",
    ),
    "nodes of what is to come": (
        {"decoder": {"span": "nodes"}},
        r"model\.decoder\.span = nodes.*non_autoregressive",
    ),
    "nodes of what is to come, on top": (
        {"attention": {"top": {"layers": 1, "span": "nodes"}}},
        r"model\.attention\.top\.span = nodes.*non_autoregressive",
    ),
    "segment distances of a target": (
        {"decoder": {"score": "segment_distance"}},
        r"model\.decoder\.score = segment_distance.*no kernel",
    ),
    "more top layers than layers": (
        {"attention": {"top": {"layers": 9}}},
        r"model\.attention\.top\.layers = 9.*\d layers",
    ),
    "absolute positions beside those of sentences": (
        {"attention": {"score": "absolute"}, "positions": "reset"},
        r"model\.positions = reset.*absolute",
    ),
    "a shift of the target alone": (
        {"target_positions": "shifted"},
        r"model\.target_positions = shifted.*model\.positions = shifted",
    ),
    "source sentences that are gone": (
        {"encoder": {"top": {"layers": 1, "span": "current"}}, "cross": {"span": "sentence"}},
        r"model\.cross\.span = sentence.*choose row",
    ),
    "a layer over sentences that are gone": (
        {"encoder": {"top": {"layers": 1, "span": "current"}}, "document_layer": "segment_gate"},
        r"document_layer = segment_gate.*current",
    ),
    "a segment gate on the target": (
        {"document_layer": "segment_gate", "document": {"target": True}},
        r"document\.target.*segment_gate.*in the encoder; remove",
    ),
    "a document layer on no side": (
        {"document_layer": "hierarchical", "document": {"source": False}},
        r"neither model\.document\.source nor",
    ),
    "a loss of paths from left to right": ({"writes": "non_autoregressive"}, r"loss\.name = glancing"),
}


@loop_over("what", REFUSED)
def test_what_has_no_kernel_is_refused_by_name(what: str) -> None:
    model, message = REFUSED[what]
    with pytest.raises(CotextError, match=f"(?s){message}"):
        check(tiny_config(model=model, view=window(2)))


@pytest.mark.parametrize("key", ["batch_context", "document_layer"])
def test_non_autoregressive_models_take_no_parts_of_others(key: str) -> None:
    kind = {"batch_context": "flat", "document_layer": "hierarchical"}[key]
    with pytest.raises(CotextError, match=rf"model\.{key} = {kind}.*non_autoregressive"):
        check(load_config("casa/casa", "tiny", [f"model.{key}={kind}"]))
