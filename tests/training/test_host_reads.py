"""No update waits for the device to tell the CPU a number: over every recipe, and every slot.

Here the device is torch's `meta`, whose tensors have no values: whatever asks for one fails, and so does a
product of a tensor there and one on the CPU.
"""

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch
from test_leaks import SMALL, SYSTEMS, TOKENIZER, config_of

from cotext.config.recipe import Config, load_config, recipe_names
from cotext.data.batch import Batch, Instance, hide_words
from cotext.data.build import build_view, special_symbols
from cotext.data.collate import make_batch
from cotext.layers.moving import moved
from cotext.losses.build import build_loss
from cotext.models.build import build_model

LENGTHS = [[2, 4, 3, 2, 6], [2], [3, 1, 2]]


def training_batch(config: Config) -> Batch:
    """Rows of three documents."""
    view = build_view(config.view)
    rows = []
    for d, lengths in enumerate(LENGTHS):
        source = [[(5 * d + 3 * k + i) % 36 for i in range(n)] for k, n in enumerate(lengths)]
        target = [[(7 * d + 5 * k + i) % 36 for i in range(n + k % 2)] for k, n in enumerate(lengths)]
        for w in view.split(*([len(s) for s in side] for side in (source, target))):
            rows.append(Instance(d, w, [source[j] for j in w.source], [target[j] for j in w.target]))
    return make_batch(rows, special_symbols(TOKENIZER, config.view))


def on_meta(batch: Batch) -> Batch:
    return moved(batch, lambda x: x.to("meta"))


@pytest.fixture(autouse=True)
def _without_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device `meta` has none."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind=None: False)
    monkeypatch.setattr(torch, "autocast", lambda kind, enabled=True, **other: nullcontext())


@pytest.fixture(autouse=True, scope="module")
def _with_ctc() -> Iterator[None]:
    """Of the gradient of CTC, torch does not know on `meta` that it has the shape of the probabilities."""
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("_ctc_loss_backward", lambda grad, p, *rest: torch.empty_like(p), "Meta")
        yield


def update(config: Config, on_device: bool = True) -> None:
    torch.manual_seed(0)
    model = build_model(config, TOKENIZER.vocabulary_size).to("meta")
    loss = build_loss(config.loss)
    batch = on_meta(loss.indexed(model, training_batch(config), training=True))
    batch = hide_words(batch, 0.1, special_symbols(TOKENIZER, config.view), 0)
    outcome = loss(model, batch, 0.5)
    (outcome.loss / outcome.count).backward()


def recipes() -> dict[str, Config]:
    found = {}
    for name in recipe_names():
        config = load_config(name, "tiny", [*SMALL, "model.dropout=0.1", "model.attention_dropout=0.1"])
        found.setdefault(repr((config.model, config.view, config.loss)), (name, config))
    return dict(found.values())


RECIPES = recipes()


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_recipes(name: str) -> None:
    update(RECIPES[name])


@pytest.mark.parametrize("system", sorted(SYSTEMS))
def test_slots(system: str) -> None:
    update(config_of(system, "window"))
