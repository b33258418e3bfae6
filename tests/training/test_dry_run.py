"""`train --dry-run`: what a training would be, without a file."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from cotext.config.recipe import load_config
from cotext.data.batch import SpecialSymbols
from cotext.data.sampling import Cursor
from cotext.data.store import TokenStore, store_writer
from cotext.data.views import DocumentView, Limit, Mixture, View, WindowView
from cotext.training.run import InstanceCounts, count_instances, set_up
from tests.command_line import RECIPE, TINY, World, cotext, listing, must_refuse, succeed, train_arguments
from tests.data.test_sampling import SYMBOLS
from tests.tiny_runs import silent


def test_what_it_tells_is_what_training_does(world: World, tmp_path: Path) -> None:
    before = listing(world.folder)
    out = tmp_path / "run"
    asked = ("train.max_updates=1000", "train.max_epochs=2", "--dry-run", "--json")
    found = json.loads(succeed(*train_arguments(world.folder, out, *asked)).out)
    assert not list(tmp_path.iterdir())
    assert listing(world.folder) == before
    setup = set_up(load_config(RECIPE, None, TINY), world.folder / "data", out, RECIPE, "cpu")
    assert found["parameters"] == sum(p.numel() for p in setup.model.parameters())
    assert found["model_memory"] == 16 * found["parameters"]
    assert found["training_sentences"] == setup.data.train.totals.sentences
    assert found["updates"] == math.ceil(2 * found["updates_an_epoch"])
    assert found["seconds"] == pytest.approx(found["updates"] * found["seconds_an_update"])
    trainer = setup.trainer(out, replace(silent(), score_development=lambda model: 0.0))
    batches = trainer.sampler.batches(Cursor())
    first, after = next(batches)
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
    outcome = cotext(*train_arguments(world.folder, out, "view.max_tokens=1", "--dry-run"))
    assert (outcome.code, out.exists()) == (2, False)
    assert "raise view.max_tokens" in outcome.err
    must_refuse("contains a run", *train_arguments(world.folder, world.run, "--dry-run"))
    must_refuse("--json needs --dry-run", *train_arguments(world.folder, out, "--json"))


BRACKETS = SpecialSymbols(pad=1000, bos=1001, eos=1002, separators=(1003,), bracket=True)


def count(store: TokenStore, view: View, limit: int, symbols: SpecialSymbols = SYMBOLS) -> InstanceCounts:
    return count_instances(store, Mixture(((view, 1.0),)), symbols, limit)


@pytest.fixture
def by_hand(tmp_path: Path) -> TokenStore:
    """Sentences of 3, 4, 5 and of 6 source tokens, of 2, 2, 9 and 1 target tokens; a pair without a token."""
    with store_writer(tmp_path / "train.arrow", "no tokenizer") as writer:
        writer.add("a", [[1] * 3, [], [1] * 4, [1] * 5], [[2] * 2, [], [2] * 2, [2] * 9])
        writer.add("b", [[1] * 6], [[2]])
        writer.add("of nothing", [[]], [[]])
    return TokenStore(tmp_path / "train.arrow")


def test_instances_are_counted_as_by_hand(by_hand: TokenStore) -> None:
    # Rows of 4, 5, 6 and 7 tokens with their ends; of the target 3, 3, 10 and 2.
    assert count(by_hand, WindowView(0), 512) == InstanceCounts(4, 0, 1, 22 / 4, 18 / 4, 18)
    # The target of 10 is over the limit.
    assert count(by_hand, WindowView(0), 9) == InstanceCounts(3, 1, 1, 16 / 3, 8 / 3, 8)
    # Windows of two: 4, 4 + 5, 5 + 6, and 7; of the target 3, 3 + 3, 3 + 10, and 2.
    assert count(by_hand, WindowView(1), 512) == InstanceCounts(4, 0, 6 / 4, 31 / 4, 24 / 4, 18)
    # Pieces of at most 12: 4 + 5 | 6, and 7; of the target 3 + 3 | 10, and 2.
    pieces = DocumentView(Limit(12))
    assert count(by_hand, pieces, 12) == InstanceCounts(3, 0, 4 / 3, 22 / 3, 18 / 3, 18)
    # With a begin symbol each: 5 + 6 | 7, and 8.
    assert count(by_hand, pieces, 12, BRACKETS).source_tokens == 26 / 3


def test_of_a_mixture_as_many_instances_as_are_drawn_on_average(by_hand: TokenStore) -> None:
    mixture = Mixture(((DocumentView(Limit(512)), 1.0), (WindowView(0), 2.5)))
    # Documents of 15 and 7 source tokens; sentences of 4, 5 and 6, the single one being a document already.
    found = count_instances(by_hand, mixture, SYMBOLS, 512)
    assert found.instances == 2 + 3 * 2.5
    assert found.source_tokens == pytest.approx((15 + 7 + 2.5 * 15) / 9.5)
    assert found.sentences == pytest.approx((3 + 1 + 7.5) / 9.5)
    # Labels of both views: all 18, and 2.5 times those of the sentences that are not a document already.
    assert found.labels == 18 + 2.5 * 16


def test_a_corpus_without_instances(tmp_path: Path) -> None:
    with store_writer(tmp_path / "train.arrow", "no tokenizer") as writer:
        writer.add("long", [[1] * 9], [[2] * 9])
    found = count(TokenStore(tmp_path / "train.arrow"), WindowView(0), 9)
    assert found == InstanceCounts(0, 1, 0, 0, 0, 0)
