"""The settings of a training that depend on the run which it starts from (`train.init`).

An import brings its architecture, and what a recipe adds begins without effect: `model.neutral_start`. So do
runs that started from one. Where training goes on, all is as its run folder has it.
"""

from pathlib import Path
from typing import Any

from cotext.config.recipe import Config, parse_config
from cotext.config.training import Blended, TrainConfig
from cotext.data.build import further_symbols, has_rows_of_several, has_separators, has_target_rows_of_several
from cotext.data.languages import Languages, check_pair
from cotext.models.checks import keeps_current
from cotext.models.run_folder import IMPORT, describe_file, model_file
from cotext.runtime.errors import CotextError
from cotext.runtime.reading import parse_yaml, read_text
from cotext.training.prepared_data import PreparedData

# Keys of `model` that come with weights: another value, and these weights are those of another function.
ARCHITECTURE = (
    *("dimension", "feed_forward", "heads", "encoder_layers", "decoder_layers", "pre_norm", "activation"),
    *("position_encoding", "learned_positions", "wavelengths", "first_position"),
    *("embedding_norm", "separate_embeddings", "output_bias"),
)
OF_DECODER = {"decoder_layers", "output_bias"}
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
    if config.model.neutral_start and _gated_already(before):
        config = _with_gated_others(config)
    if config.model.from_first is None:
        config = _laid_over(config, "model", from_first=before.model.from_first)
    if config.view.open_source is None:
        config = _laid_over(config, "view", open_source=before.view.open_source)
    if config.train.blend is None:
        config = _laid_over(config, "train", blend=before.train.blend)
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
    left_out = OF_DECODER if config.train.init_parts == "encoder" else set()
    return {key: getattr(there.model, key) for key in ARCHITECTURE if key not in left_out}


def _with_neutral_start(config: Config, there: Config, imported: bool) -> Config:
    if config.model.neutral_start is None and (imported or there.model.neutral_start):
        config = _laid_over(config, "model", neutral_start=True)
    known = there.view.bracketed and there.view.open_source is not False
    single = not has_rows_of_several(there.view)
    if config.model.neutral_start and has_rows_of_several(config.view) and (single or _gated_already(there)):
        config = _with_gated_others(config)
    if config.model.neutral_start and config.view.open_source is None and config.view.bracketed and not known:
        config = _laid_over(config, "view", open_source=False)
    return config


def _gated_already(config: Config) -> bool:
    return config.model.attention.others == "gated"


def _with_gated_others(config: Config) -> Config:
    """Settle separators, positions and attention so that every sentence of a row is what it is alone.

    It has the begin and the end that a sentence model knows and positions that restart, and other sentences
    come in behind gates, where an attention can see any.
    """
    model, view = config.model, config.view
    if not view.bracketed:
        config = _laid_over(config, "view", separators="bracket")
    settled: dict[str, Any] = {"attention": model.attention.model_copy(update={"others": "gated"})}
    alone = {"decoder": not has_target_rows_of_several(view), "cross": keeps_current(model)}
    settled |= {
        side: getattr(model, side).model_copy(update={"others": "joint"})
        for side, is_alone in alone.items()
        if is_alone
    }
    settled |= {
        key: "reset" for key in ("positions", "target_positions") if getattr(model, key) == "absolute"
    }
    return _laid_over(config, "model", **settled)


def _with_blending(config: Config, there: Config) -> Config:
    new = replacements(there, config)
    asked = config.train.blend
    if foreign := [kind for kind in asked or () if kind not in new]:
        raise CotextError(
            f"train.blend = {foreign[0]}: that is no change from {config.train.init} to this recipe; "
            + (f"leave it out, or choose of {', '.join(new)}" if new else "leave it out")
        )
    if asked is None and config.model.neutral_start and new:
        config = _laid_over(config, "train", blend=tuple(new))
    if config.train.blend and config.train.blend_updates is None:
        config = _laid_over(config, "train", blend_updates=config.train.warmup_updates)
    return config


def replacements(there: Config, here: Config) -> list[Blended]:
    """What a model has that cannot begin without effect, and another one has not."""
    known = _replacing(there)
    return [kind for kind in _replacing(here) if kind not in known]


def _replacing(config: Config) -> list[Blended]:
    model, found = config.model, list[Blended]()
    kinds = {model.positions, model.target_positions or model.positions}
    sinusoidal = "sinusoidal" in (model.segments, model.target_segments)
    if "none" in kinds or (has_rows_of_several(config.view) and ("shifted" in kinds or sinusoidal)):
        found.append("positions")
    if any(model.stack(side).score in IN_PLACE_OF_POSITIONS for side in ("encoder", "decoder", "cross")):
        found.append("score")
    if model.batch_context == "mean":
        found.append("mean")
    if has_separators(config.view):
        found.append("separators")
    if further_symbols(config.view):
        found.append("symbols")
    return found


def blended(train: TrainConfig, done: int) -> float:
    """The share of what is blended in that is in force after so many updates."""
    return min(done / train.blend_updates, 1.0) if train.blend and train.blend_updates else 1.0


def _with_first_sentence(config: Config, there: Config) -> Config:
    """Settle `model.from_first`: weights without shift and segments keep first sentences as they are."""
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
    return parse_config(parse_yaml(read_text(path), str(path)), str(path))


# --- The settings of a run that depend on its data, or on the run that it starts from.


REQUIRED = "required"  # `train.init` of a recipe that cannot start from fresh weights


def resolve(config: Config, data: PreparedData) -> Config:
    """Replace what depends on the corpus: languages, shift `corpus`, and numbers that no sentence has.

    Raises:
        CotextError: the configuration tells other languages than the data.
    """
    view, model = config.view, config.model
    configured = Languages.parse(config.languages)
    check_pair(data.languages, configured, "the configuration (languages)", f"{data.folder} is")
    if model.positions == "shifted" and model.shift == "corpus":
        model = model.model_copy(update={"shift": data.mean_sentence_tokens})
    if view.separators == "numbered":
        most = data.most_sentences()
        numbers = most if view.numbers == "corpus" else min(view.numbers, most)
        view = view.model_copy(update={"numbers": numbers})
    languages = config.languages or str(data.languages)
    return config.model_copy(update={"view": view, "model": model, "languages": languages})


def settle(config: Config, data: PreparedData, run: Path, recipe: str) -> Config:
    """Settle all that depends on the data, on the run to start from, and on what is in the run folder.

    Raises:
        CotextError: as `resolve`, `settle_start` and `settle_by_start`.
    """
    return settle_by_start(settle_start(resolve(config, data), run, recipe), run)


def settle_start(config: Config, run: Path, recipe: str) -> Config:
    """Settle `train.init`: to go on with a run that is there already, it need not be given again.

    Raises:
        CotextError: the recipe needs a run to start from, and none is named.
    """
    init, path = config.train.init, run / "config.yaml"
    if path.is_file():
        before = written_config(path).train.init
        if init in ("", REQUIRED) or (before and Path(init).resolve() == Path(before).resolve()):
            init = before
    if init == REQUIRED:
        raise CotextError(f"{recipe} starts from a trained model: give --init RUN")
    return config.model_copy(update={"train": config.train.model_copy(update={"init": init})})
