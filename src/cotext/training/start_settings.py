"""The settings of a training that depend on the run which it starts from (`train.init`).

An import brings its architecture, and what a recipe adds begins without effect: `model.neutral_start`. So do
runs that started from one. Where training goes on, all is as its run folder has it.
"""

from pathlib import Path
from typing import Any

from cotext.config.model import ModelConfig
from cotext.config.recipe import Config, parse_run_config
from cotext.config.training import TrainConfig
from cotext.models.run_folder import IMPORT, describe_file, model_file
from cotext.runtime.errors import CotextError
from cotext.runtime.reading import parse_yaml, read_text

# Keys of `model` that come with weights: another value, and these weights are those of another function.
ARCHITECTURE = ("dimension", "feed_forward", "heads", "encoder_layers", "decoder_layers", "pre_norm")
# Scores that tell positions, in place of positions at the input.
IN_PLACE_OF_POSITIONS = ("rotary", "alibi")


def settle_by_start(config: Config, run: Path) -> Config:
    """Settle what is not given of architecture, neutral start and blending, for a run in this folder.

    Raises:
        CotextError: the run to start from cannot be read, or nothing there could be blended.
    """
    if not config.train.init:
        return config
    path = run / "config.yaml"
    if path.is_file():
        return _as_before(config, written_config(path))
    init = Path(config.train.init)
    there, imported = describe_file(model_file(init)).config, (init / IMPORT).is_file()
    config = _with_architecture(config, there, imported)
    config = _with_neutral_start(config, there, imported)
    return _with_first_sentence(_with_blending(config, there), there)


def _as_before(config: Config, before: Config) -> Config:
    if config.train.init_architecture == "auto":
        config = _laid_over(config, "train", init_architecture=before.train.init_architecture)
    if config.train.init_architecture == "run":
        config = _laid_over(config, "model", **architecture(config, before))
    if config.model.neutral_start is None:
        config = _laid_over(config, "model", neutral_start=before.model.neutral_start)
    if config.model.from_first is None:
        config = _laid_over(config, "model", from_first=before.model.from_first)
    if config.view.open_source is None:
        config = _laid_over(config, "view", open_source=before.view.open_source)
    if config.train.blend_updates is None:
        config = _laid_over(config, "train", blend_updates=before.train.blend_updates)
    return config


def _with_architecture(config: Config, there: Config, imported: bool) -> Config:
    kind = config.train.init_architecture
    if kind == "auto" and (imported or there.train.init_architecture == "run"):
        kind = "run"
    if kind != "run":
        return config
    config = _laid_over(config, "train", init_architecture=kind)
    return _laid_over(config, "model", **architecture(config, there))


def architecture(config: Config, there: Config) -> dict[str, Any]:
    """The keys of `model` that come with the weights of another run, as far as these are taken."""
    keys = set(ARCHITECTURE)
    if config.train.init_parts == "encoder":
        keys.remove("decoder_layers")
    return {key: getattr(there.model, key) for key in keys}


def _with_neutral_start(config: Config, there: Config, imported: bool) -> Config:
    if config.model.neutral_start is None and (imported or there.model.neutral_start):
        config = _laid_over(config, "model", neutral_start=True)
    known = there.view.separators in ("bracket", "numbered") and there.view.open_source is not False
    bracketed = config.view.separators in ("bracket", "numbered")
    if config.model.neutral_start and config.view.open_source is None and bracketed and not known:
        config = _laid_over(config, "view", open_source=False)
    return config


def _with_blending(config: Config, there: Config) -> Config:
    changed = replacements(there.model, config.model)
    if config.train.blend_updates and not changed:
        raise CotextError(
            f"train.blend_updates = {config.train.blend_updates}: nothing of this model takes the place of "
            f"something that {config.train.init} has; leave it out"
        )
    if config.train.blend_updates is None and config.model.neutral_start and changed:
        config = _laid_over(config, "train", blend_updates=config.train.warmup_updates)
    return config


def replacements(there: ModelConfig, here: ModelConfig) -> list[str]:
    """The settings by which something takes the place of what another model has, and which can be blended in.

    None where that model has such a thing itself: both would be blended.
    """
    if _replacing(there):
        return []
    return _replacing(here)


def _replacing(model: ModelConfig) -> list[str]:
    found = []
    if model.positions == "none":
        found.append("model.positions = none")
    if model.target_positions == "none":
        found.append("model.target_positions = none")
    scores = {model.stack(side).score for side in ("encoder", "decoder", "cross")}
    found += [f"the score {score}" for score in IN_PLACE_OF_POSITIONS if score in scores]
    if model.batch_context == "mean":
        found.append("model.batch_context = mean")
    return found


def blended(train: TrainConfig, done: int) -> float:
    """The share of what is blended in that is in force after so many updates."""
    return min(done / train.blend_updates, 1.0) if train.blend_updates else 1.0


def _with_first_sentence(config: Config, there: Config) -> Config:
    """Settle `model.from_first`: weights that know no shift and no segments keep first sentences as they are."""
    model = config.model
    if model.from_first is None and (model.positions == "shifted" or model.segments == "sinusoidal"):
        known = (there.model.positions, there.model.segments) == (model.positions, model.segments)
        return _laid_over(config, "model", from_first=there.model.from_first if known else False)
    return config


def _laid_over(config: Config, section: str, **values: Any) -> Config:
    changed = getattr(config, section).model_copy(update=values)
    return config.model_copy(update={section: changed})


def written_config(path: Path) -> Config:
    """The configuration in a run folder; raises CotextError as `parse_config`."""
    return parse_run_config(parse_yaml(read_text(path), str(path)), str(path))
