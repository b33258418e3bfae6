"""The classes of parts named in a configuration, and settings of parts that are not chosen.

Such settings have no effect. A user who sets one expects an effect, and the configuration and signature of
the run would suggest that there was one. Settings that a recipe contains for a part that was removed on
purpose are accepted. Settings of views are checked where views are built.
"""

import re
from collections.abc import Iterable
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, TypeVar

from cotext.config.parts import DOCUMENT_LAYERS, OWN, module
from cotext.config.recipe import Config, differences, is_file
from cotext.models.interface import DocumentLayer
from cotext.runtime import CotextError, leaves, parse_yaml, read_text, shown

TARGET_CONTEXT: Final = "windows with target sentences before the current one"
# Settings, or sections (with a dot at the end), and the condition under which they have an effect.
# Alternatives are separated by commas. `view.kind` may be that of any view that is mixed.
USES: Final = {
    "view.open_source": "view.separators = bracket or numbered",
    "view.indexed_separators": "view.separators = indexed",
    "view.numbers": "view.separators = numbered",
    "model.attention.top.": "model.attention.top.layers other than 0",
    "model.attention.gate_rate": "model.attention.others = gated",
    "model.batch.": "model.batch_context other than none",
    "model.batch.gate": "model.batch_context = flat",
    "model.batch.threshold": "model.batch.gate = discrete",
    "model.context_encoder": "view.kind = window or cumulative",
    "model.context_layers": "model.context_encoder other than none",
    "train.freeze": "train.init other than ''",
    "model.document.": "model.document_layer other than none",
    "model.document.word_weights": "model.document.level = both",
    "model.document.later": "model.document.source = true",
    "model.encoder.": "model.reads_source = true",
    "model.cross.": "model.reads_source = true",
    "model.encoder_layers": "model.reads_source = true",
    "model.source_sentences": "model.reads_source = true",
    "model.nat.": "model.writes = non_autoregressive",
    "model.nat.codes": "model.nat.latent = true",
    "model.nat.code_mixing": "model.nat.latent = true",
    "model.nat.code_weight": "model.nat.latent = true",
    "model.nat.length_offsets": "model.nat.path = length",
    "model.wavelengths": "model.position_encoding = sinusoidal",
    "model.learned_positions": "model.position_encoding = learned",
    "model.relative_span": "model.attention.score = relative or positions, "
    "model.encoder.score = relative or positions, model.decoder.score = relative or positions",
    "model.shift": "model.positions = shifted",
    "model.from_first": "model.positions = shifted, model.segments = sinusoidal, "
    "model.target_segments = sinusoidal",
    "model.segments_from": "model.segments = learned or sinusoidal, "
    "model.target_segments = learned or sinusoidal",
    "loss.context_discount": TARGET_CONTEXT,
    "loss.glancing": "loss.name = glancing",
}


def refuse_unused(config: Config, recipe: str, overrides: Iterable[str]) -> None:
    """Raise CotextError with all settings of view, model and loss that have no effect with other settings.

    `config` is the result of the recipe and of overrides, such as `key.path=value`. A shipped recipe is
    accepted; of a file, its own settings are checked.
    """
    written = {override.partition("=")[0] for override in overrides}
    if is_file(recipe):
        written.update(key for key, _ in leaves(parse_yaml(read_text(Path(recipe)), recipe) or {}))
    problems, others = [], _of_other_document_layers(config)
    for key, _, value in differences(Config(), config):
        if not any(key == own or key.startswith(f"{own}.") for own in written):
            continue
        uses = [use for start, use in USES.items() if key.startswith(start) and not _holds(use, config)]
        if uses or key in others:
            use = uses[0] if uses else others[key]
            problems.append(f"{key} = {shown(value)} has no effect: it applies only to {use}; remove it")
    if problems:
        raise CotextError("\n".join(problems))


def _of_other_document_layers(config: Config) -> dict[str, str]:
    """Return the settings of document layers that the chosen one does not have, each with its layer."""
    chosen = config.model.document_layer
    taken = () if chosen == "none" else document_layer(chosen).settings
    return {
        f"model.document.{key}": f"model.document_layer = {name}"
        for name in DOCUMENT_LAYERS
        for key in document_layer(name).settings
        if key not in taken
    }


def _holds(use: str, config: Config) -> bool:
    """Return whether an alternative of a condition holds, such as `view.kind = window or cumulative`."""
    views = (config.view, *config.view.mixed_with)
    if use == TARGET_CONTEXT:
        return any(view.kind == "window" and view.target_context > 0 for view in views)
    for section, name, relation, values in re.findall(r"(\w+)\.(\S+) (=|other than) ([^,]+)", use):
        for place in views if section == "view" and name == "kind" else [getattr(config, section)]:
            value = str(attrgetter(name)(place)).lower() or "''"
            if (value in values.split(" or ")) == (relation == "="):
                return True
    return False


Kind = TypeVar("Kind")


def document_layer(name: str) -> type[DocumentLayer]:
    """Return the class named in `model.document_layer`; raise the same errors as `own_part`."""
    if name not in DOCUMENT_LAYERS:
        return own_part(name, DocumentLayer)  # type: ignore[type-abstract]
    path, _, kind = DOCUMENT_LAYERS[name].partition(":")
    layer: type[DocumentLayer] = getattr(import_module(path), kind)
    return layer


def own_part(name: str, base: type[Kind]) -> type[Kind]:
    """Return the class of a user's file, such as `idea.py:MyScore@0123456789abcdef`.

    Raises CotextError if its code is unavailable, is not trusted or fails; or the file has no such class, or
    one of another kind or with missing methods.
    """
    match = OWN.fullmatch(name)
    if match is None or match["digest"] is None:
        raise CotextError(f"{name}: not the name of a part; write it as in idea.py:MyScore")
    where = f"{match['name']}:{match['kind']}"
    part: Any = getattr(module(match["digest"], match["name"]), match["kind"], None)
    if not isinstance(part, type) or not issubclass(part, base):
        raise CotextError(
            f"{where}: no class with this name is a subclass of {base.__module__}.{base.__name__}"
        )
    if missing := sorted(getattr(part, "__abstractmethods__", ())):
        raise CotextError(
            f"{where}: does not define {', '.join(missing)}; see {base.__module__}.{base.__name__}"
        )
    return part
