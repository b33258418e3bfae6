"""Every shipped recipe is opened and built; each that is trained in a way of its own is, for two updates."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from torch import nn

from cotext.config.recipe import Config, leaves, load_config, recipe_names
from cotext.config.sizes import SIZES
from cotext.models.build import parameters_asked
from cotext.models.build_views import build_view
from cotext.models.checkpoint import load_run
from cotext.models.checks import check
from cotext.training.inputs import REQUIRED, open_data, settle
from tests.loops import loop_over
from tests.tiny_runs import journal, train_here

VERY_SMALL = [
    *("model.dimension=16", "model.feed_forward=32", "model.heads=2"),
    *("model.encoder_layers=2", "model.decoder_layers=1"),
    "train.max_updates=2",  # the second on the weights that the first has moved
    *("train.max_tokens=300", "train.warmup_updates=1", "train.log_every=1"),
    *("train.validate_bleu=false", "train.threads=1"),
]


@pytest.fixture(scope="module")
def start(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that recipes start from which cannot be trained from nothing."""
    run = tmp_path_factory.mktemp("recipes") / "start"
    train_here(load_config("g-transformer/sent", "tiny", VERY_SMALL), data, run)
    return run


# What training reads off its corpus, and how it is written as an override.
OF_THE_CORPUS = ["model.shift=8", "view.numbers=5"]


BUILT: set[str] = set()
# With another of these, the same modules are built.
OF_NO_MODULE = {"feed_forward", "initialisation", "dropout", "attention_dropout", "activation_dropout"}
# Numbers of the optimizer and of the end of training, with which nothing is trained in another way.
NUMBERS = {"learning_rate", "adam_betas", "adam_epsilon", "patience", "average", "clip_norm", "fresh_rate"}


def parameters(config: Config, vocabulary: int) -> int:
    """The parameters of the model, of which only the shapes are made."""
    with pytest.MonkeyPatch.context() as patch:
        for layer in (nn.Linear, nn.LayerNorm):  # numbers that are drawn for nothing take half of the time
            patch.setattr(layer, "reset_parameters", lambda layer: None)
        return parameters_asked(config, vocabulary)


def values_of(recipe: str) -> set[tuple[str, str]]:
    """The keys of a recipe with their values, but for numbers of the optimizer and of search."""
    content = load_config(recipe, "tiny").model_dump(include={"view", "model", "loss", "train"})
    return {(key, repr(value)) for key, value in leaves(content) if key.removeprefix("train.") not in NUMBERS}


def with_every_value() -> list[str]:
    """As few recipes as hold every value that any recipe has. `test_golden.py` has the losses of all."""
    values = {name: values_of(name) for name in recipe_names()}
    left, found = set.union(*values.values()), []
    while left:
        found.append(max(values, key=lambda name: len(values[name] & left)))
        left -= values[found[-1]]
    return found


@pytest.mark.parametrize("recipe", with_every_value())
def test_trains(recipe: str, data: Path, start: Path, tmp_path: Path) -> None:
    config = load_config(recipe, "tiny", VERY_SMALL)
    if config.train.init == REQUIRED:
        config = load_config(recipe, "tiny", [*VERY_SMALL, f"train.init={start}"])
    progress = train_here(config, data, tmp_path / "run")
    assert (progress.update, progress.finished) == (2, True)
    losses = [entry["loss"] for entry in journal(tmp_path / "run") if entry["kind"] == "train"]
    assert len(losses) == 2
    assert all(0 < loss < 20 for loss in losses)
    loaded = load_run(tmp_path / "run")
    # As it is settled for a folder that is not there yet.
    assert loaded.config == settle(config, open_data(data), tmp_path / "another", recipe)


@loop_over("recipe", recipe_names())
@loop_over("size", SIZES)
def test_every_size_can_be_built(recipe: str, size: str) -> None:
    config = load_config(recipe, size, OF_THE_CORPUS)
    build_view(config.view)
    check(config)
    modules = repr((config.model.model_dump(exclude=OF_NO_MODULE), config.view, config.train.blend))
    assert modules in BUILT or parameters(config, 100) > 0
    BUILT.add(modules)
    if size in ("tiny", "small"):
        assert config.model.dimension == SIZES[size]["model"]["dimension"]
    assert config.paper, "a recipe says which row of which table it stands for"


@loop_over("recipe", recipe_names())
def test_a_recipe_repeats_no_default(recipe: str) -> None:
    """What a recipe writes is what it is about."""
    import cotext

    path = Path(cotext.__file__).parent / "config" / "recipes" / f"{recipe}.yaml"
    written = yaml.safe_load(path.read_text())
    below = [load_config(parent) for parent in written.pop("extends", [])] or [Config()]
    clear = {"view.after", "view.kind", "model.shift", "model.attention.top.span"}  # said for clarity
    assert set(repeated(written, [config.model_dump(mode="json") for config in below])) <= clear


def repeated(written: dict[str, Any], below: list[dict[str, Any]], prefix: str = "") -> Iterator[str]:
    """Dotted keys whose value is the same in all that lies below."""
    for key, value in written.items():
        if isinstance(value, dict):
            yield from repeated(value, [each.get(key) or {} for each in below], f"{prefix}{key}.")
        elif all(each.get(key, Ellipsis) == value for each in below):
            yield f"{prefix}{key}"


def test_parameters_of_the_base_transformer() -> None:
    """Vaswani et al. 2017, table 3, base: 65 million with a vocabulary of 37,000.

    With 32,000 symbols, dimension D = 512 and feed-forward F = 2048, one matrix for both embeddings and the
    output layer, biases in every other linear layer:

        embedding        32,000 * D                                  16,384,000
        attention        4 * (D * D + D)                              1,050,624
        feed-forward     D * F + F  +  F * D + D                      2,099,712
        layer norm       2 * D                                            1,024
        encoder block    attention + feed-forward + 2 norms           3,152,384
        decoder block    2 attentions + feed-forward + 3 norms        4,204,032
        all              embedding + 6 * encoder + 6 * decoder       60,522,496
    """
    base = load_config("focused-concatenation/base", "base")
    assert parameters(base, 32_000) == 60_522_496
    assert parameters(base, 37_000) == 60_522_496 + 5000 * 512
    learned = load_config("focused-concatenation/s4to4-lrn-cd", "base")
    assert parameters(learned, 32_000) == parameters(base, 32_000) + 4 * 512
    pre_norm = load_config("focused-concatenation/base", "base", ["model.pre_norm=true"])
    assert parameters(pre_norm, 32_000) == parameters(base, 32_000) + 2 * 2 * 512  # the norms at the top
