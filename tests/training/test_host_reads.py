"""No update makes the CPU wait for a value from the device: tested for every recipe and slot.

The device is torch's `meta`, whose tensors have no values: reading a value fails, as does a product of a
tensor there with one on the CPU.
"""

import itertools
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path

import pytest
import torch

from benchmarks.speed.operators import HostReads
from cotext.config.recipe import Config, load_config, recipe_names
from cotext.data.batch import Batch, Instance, hide_words, make_batch
from cotext.models.build import build_model
from cotext.models.build_views import build_view, special_symbols
from cotext.runtime.devices import moved
from cotext.training.losses import build_loss
from cotext.training.run import set_up
from tests.test_leaks import SMALL, SYSTEMS, TOKENIZER, config_of
from tests.tiny import random_model
from tests.tiny_runs import run_config, silent

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


def update(config: Config) -> None:
    torch.manual_seed(0)
    model = build_model(config, TOKENIZER.vocabulary_size).to("meta")
    loss = build_loss(config.loss)
    batch = on_meta(loss.laid_out(model, training_batch(config), training=True))
    batch = hide_words(batch, 0.1, special_symbols(TOKENIZER, config.view), 0)
    outcome = loss(model, batch, 0.5)
    (outcome.loss / outcome.count).backward()


QUICK = {
    *("focused-concatenation/s4to4-shift-cd", "p-transformer/doc", "g-transformer/randinit", "mcn/final"),
    *("flat-transformer/flat", "casa/casa", "casa/glat", "mixtures/docflat-g-transformer"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow]) for n in recipe_names()]
)
def test_recipes(name: str) -> None:
    update(load_config(name, "tiny", [*SMALL, "model.dropout=0.1", "model.attention_dropout=0.1"]))


@pytest.mark.parametrize("system", sorted(SYSTEMS))
def test_slots(system: str) -> None:
    update(config_of(system, "window"))


@pytest.mark.parametrize("system", sorted(SYSTEMS))
def test_a_batch_laid_out_ahead_has_the_same_loss(system: str) -> None:
    """Bit for bit: the model computes the same layouts as training does in advance."""
    config = config_of(system, "window")
    model, loss, batch = random_model(config, TOKENIZER), build_loss(config.loss), training_batch(config)
    with torch.no_grad():
        ahead, here = (
            loss(model, each).loss for each in (loss.laid_out(model, batch, model.training), batch)
        )
    assert torch.equal(ahead, here)


def test_the_training_loop(data: Path, tmp_path: Path) -> None:
    """On the CPU, where what asks for a value is counted: none but for the report."""
    (tmp_path / "run").mkdir()
    trainer = set_up(run_config(), data, tmp_path / "run", "test", "cpu").trainer(tmp_path / "run", silent())
    with closing(trainer._updates()) as updates:
        for batches, _ in itertools.islice(updates, 3):
            with HostReads() as reads:
                trainer._update(batches, stop_requested=False)
            assert not reads.counts
    with HostReads() as reads:
        trainer._report()
    assert 0 < reads.counts.total() < 14
