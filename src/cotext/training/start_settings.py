"""Settings that depend on the data, or on the run from which training starts (`train.init`).

Training from an imported model uses its architecture, and new parts start without effect
(`model.neutral_start`). This also holds for runs that descend from an import. When training resumes, these
settings are read from the run folder.
"""

from pathlib import Path
from typing import Any

from cotext.config.recipe import Blended, Config, parse_config
from cotext.data.build import further_symbols, has_rows_of_several, has_separators, has_target_rows_of_several
from cotext.data.documents import Languages, check_pair
from cotext.models.checks import keeps_current
from cotext.models.run_folder import IMPORT, describe_file, model_file
from cotext.runtime import CotextError
from cotext.runtime.reading import parse_yaml, read_text
from cotext.training.prepared_data import PreparedData

# Keys of `model` that belong to the weights: with other values, the same weights compute another function.
ARCHITECTURE = (
    *("dimension", "feed_forward", "heads", "encoder_layers", "decoder_layers", "pre_norm", "activation"),
    *("position_encoding", "learned_positions", "wavelengths", "first_position"),
    *("embedding_norm", "separate_embeddings", "output_bias"),
)
OF_DECODER = {"decoder_layers", "output_bias"}
# Scores that depend on positions, so that the input needs none.
IN_PLACE_OF_POSITIONS = ("rotary", "alibi")
# Keys that are None until they are derived from the run to start from.
DERIVED = (
    ("model", "neutral_start"),
    ("model", "from_first"),
    ("view", "open_source"),
    ("train", "blend"),
    ("train", "blend_updates"),
)


def settle_by_start(config: Config, run: Path) -> Config:
    """Complete the settings of architecture, neutral start and blending, for a run in the folder `run`.

    Blending mixes a new part in gradually (`train.blend`). Raises CotextError if the run to start from cannot
    be read, or `train.blend` names parts that are not new.
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
    for section, key in DERIVED:
        if getattr(getattr(config, section), key) is None:
            config = _laid_over(config, section, **{key: getattr(getattr(before, section), key)})
    if config.model.neutral_start and before.model.attention.others == "gated":
        config = _with_gated_others(config)
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
    """Return the keys of `model` that belong to the weights taken from another run."""
    left_out = OF_DECODER if config.train.init_parts == "encoder" else set()
    return {key: getattr(there.model, key) for key in ARCHITECTURE if key not in left_out}


def _with_neutral_start(config: Config, there: Config, imported: bool) -> Config:
    if config.model.neutral_start is None and (imported or there.model.neutral_start):
        config = _laid_over(config, "model", neutral_start=True)
    known = there.view.bracketed and there.view.open_source is not False
    separate = not has_rows_of_several(there.view) or there.model.attention.others == "gated"
    if config.model.neutral_start and has_rows_of_several(config.view) and separate:
        config = _with_gated_others(config)
    if config.model.neutral_start and config.view.open_source is None and config.view.bracketed and not known:
        config = _laid_over(config, "view", open_source=False)
    return config


def _with_gated_others(config: Config) -> Config:
    """Set separators, positions and attention so that each sentence of a sequence is encoded separately.

    Every sentence has the begin and end symbols of a sentence model, and its own positions. Attention to
    other sentences passes gates that start closed.
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
    requested = config.train.blend
    if unchanged := [kind for kind in requested or () if kind not in new]:
        raise CotextError(
            f"train.blend = {unchanged[0]}: this is not new, compared with {config.train.init}; remove it"
            + (f", or choose from {', '.join(new)}" if new else "")
        )
    if requested is None and config.model.neutral_start and new:
        config = _laid_over(config, "train", blend=tuple(new))
    if config.train.blend and config.train.blend_updates is None:
        config = _laid_over(config, "train", blend_updates=config.train.warmup_updates)
    return config


def replacements(there: Config, here: Config) -> list[Blended]:
    """Return the parts that are new, compared with another model, and cannot start without effect."""
    known = _replacing(there)
    return [kind for kind in _replacing(here) if kind not in known]


def _replacing(config: Config) -> list[Blended]:
    model, parts = config.model, list[Blended]()
    kinds = {model.positions, model.target_positions or model.positions}
    sinusoidal = "sinusoidal" in (model.segments, model.target_segments)
    if "none" in kinds or (has_rows_of_several(config.view) and ("shifted" in kinds or sinusoidal)):
        parts.append("positions")
    if any(model.stack(side).score in IN_PLACE_OF_POSITIONS for side in ("encoder", "decoder", "cross")):
        parts.append("score")
    if model.batch_context == "mean":
        parts.append("mean")
    if has_separators(config.view):
        parts.append("separators")
    if further_symbols(config.view):
        parts.append("symbols")
    return parts


def _with_first_sentence(config: Config, there: Config) -> Config:
    """Set `model.from_first`, so that first sentences are encoded as in a run without shift and segments."""
    model = config.model
    if model.from_first is None and (model.positions == "shifted" or model.segments == "sinusoidal"):
        known = (there.model.positions, there.model.segments) == (model.positions, model.segments)
        return _laid_over(config, "model", from_first=there.model.from_first if known else False)
    return config


def _laid_over(config: Config, section: str, **values: Any) -> Config:
    changed = getattr(config, section).model_copy(update=values)
    return config.model_copy(update={section: changed})


def written_config(path: Path) -> Config:
    """Read the configuration in a run folder; raises CotextError as `parse_config`."""
    return parse_config(parse_yaml(read_text(path), str(path)), str(path))


REQUIRED = "required"  # `train.init` of a recipe that cannot start from fresh weights


def resolve(config: Config, data: PreparedData) -> Config:
    """Set the values that depend on the corpus: languages, `model.shift`, and `view.numbers`.

    Raises CotextError if the languages of the configuration and of the data differ.
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
    """Complete a configuration, given the data, the run to start from, and the run folder.

    `train.init` need not be given again to resume an existing run. Raises CotextError if the recipe requires
    a run to start from, and none is given; also the errors of `resolve` and `settle_by_start`.
    """
    init, path = config.train.init, run / "config.yaml"
    if path.is_file():
        before = written_config(path).train.init
        if init in ("", REQUIRED) or (before and Path(init).resolve() == Path(before).resolve()):
            init = before
    if init == REQUIRED:
        raise CotextError(f"{recipe} starts from a trained model: give --init RUN")
    return settle_by_start(_laid_over(resolve(config, data), "train", init=init), run)
