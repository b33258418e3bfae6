"""Settings that have no effect, because the part that they belong to is not chosen.

A user who sets one expects an effect. The configuration and signature of the run would suggest that there was
one. Settings that a recipe contains for a part that was removed on purpose are accepted. Settings
of views are checked where views are built.
"""

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

from cotext.config.parts import DOCUMENT_LAYERS
from cotext.config.recipe import Config, differences, is_file, leaves
from cotext.models.parts import document_layer
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.reading import parse_yaml, read_text


class Use(NamedTuple):
    """The part that settings belong to, and whether it is chosen."""

    keys: tuple[str, ...]  # beginnings of keys; with a dot at the end: all of a section
    purpose: str
    chosen: Callable[[Config], bool]


def refuse_unused(config: Config, recipe: str, overrides: Iterable[str]) -> None:
    """Raise CotextError for settings of view, model and loss that have no effect with other settings.

    Args:
        config: The result of recipe and overrides.
        recipe: A shipped recipe, which is accepted, or a file, whose own settings are checked.
        overrides: As `key.path=value`.

    Raises:
        CotextError: each such setting, with the part that it belongs to.
    """
    written = {override.partition("=")[0] for override in overrides}
    if is_file(recipe):
        written.update(key for key, _ in leaves(parse_yaml(read_text(Path(recipe)), recipe) or {}))
    problems, uses = [], (*USES, *_of_document_layers(config))
    for key, _, value in differences(Config(), config):
        if not any(key == own or key.startswith(f"{own}.") for own in written):
            continue
        unmet = next((use for use in uses if key.startswith(use.keys) and not use.chosen(config)), None)
        if unmet is not None:
            problems.append(
                f"{key} = {shown(value)} has no effect: it applies only to {unmet.purpose}; remove it"
            )
    if problems:
        raise CotextError("\n".join(problems))


def _of_document_layers(config: Config) -> Iterator[Use]:
    """Yield the settings that belong to other document layers than the chosen one."""
    chosen = config.model.document_layer
    taken = () if chosen == "none" else document_layer(chosen).settings
    for name in DOCUMENT_LAYERS:
        for key in document_layer(name).settings:
            if key not in taken:
                yield Use((f"model.document.{key}",), f"model.document_layer = {name}", lambda c: False)


def _with_value(setting: str, key: str, value: str) -> Use:
    """Return the use of a setting (or section) that has an effect only if another key has a value."""
    return Use((setting,), f"{key} = {value}", lambda config: attrgetter(key)(config) == value)


def _has_target_context(config: Config) -> bool:
    return any(
        cut.kind == "window" and cut.target_context > 0 for cut in (config.view, *config.view.mixed_with)
    )


def _has_sentence_offsets(config: Config) -> bool:
    model = config.model
    return model.positions == "shifted" or "sinusoidal" in (model.segments, model.target_segments)


def _counts_segments(config: Config) -> bool:
    kinds = {config.model.segments, config.model.target_segments}
    return not kinds.isdisjoint({"learned", "sinusoidal"})


USES: Final = (
    Use(("view.open_source",), "view.separators = bracket or numbered", lambda c: c.view.bracketed),
    _with_value("view.indexed_separators", "view.separators", "indexed"),
    _with_value("view.numbers", "view.separators", "numbered"),
    Use(
        ("model.attention.top.",),
        "top layers (model.attention.top.layers above 0)",
        lambda c: c.model.attention.top.layers > 0,
    ),
    _with_value("model.attention.gate_rate", "model.attention.others", "gated"),
    Use(("model.batch.",), "model.batch_context other than none", lambda c: c.model.batch_context != "none"),
    _with_value("model.batch.gate", "model.batch_context", "flat"),
    _with_value("model.batch.threshold", "model.batch.gate", "discrete"),
    Use(
        ("model.context_encoder",),
        "views with context sentences that are not current: view.kind = window or cumulative",
        lambda c: any(cut.kind in ("window", "cumulative") for cut in (c.view, *c.view.mixed_with)),
    ),
    Use(
        ("model.context_layers",),
        "model.context_encoder other than none",
        lambda c: c.model.context_encoder != "none",
    ),
    Use(("train.freeze",), "runs that start from another run (train.init)", lambda c: bool(c.train.init)),
    Use(
        ("model.document.",),
        "model.document_layer other than none",
        lambda c: c.model.document_layer != "none",
    ),
    _with_value("model.document.word_weights", "model.document.level", "both"),
    Use(("model.document.later",), "model.document.source = true", lambda c: c.model.document.source),
    Use(
        ("model.encoder.", "model.cross.", "model.encoder_layers", "model.source_sentences"),
        "models that read the source (model.reads_source = true)",
        lambda c: c.model.reads_source,
    ),
    _with_value("model.nat.", "model.writes", "non_autoregressive"),
    Use(
        ("model.nat.codes", "model.nat.code_mixing", "model.nat.code_weight"),
        "model.nat.latent = true",
        lambda c: c.model.nat.latent,
    ),
    _with_value("model.nat.length_offsets", "model.nat.path", "length"),
    _with_value("model.learned_positions", "model.position_encoding", "learned"),
    Use(
        ("model.relative_span",),
        "model.attention.score = relative or positions",
        lambda c: bool({c.model.stack(s).score for s in ("encoder", "decoder")} & {"relative", "positions"}),
    ),
    _with_value("model.shift", "model.positions", "shifted"),
    Use(("model.from_first",), "shifted positions or sinusoidal segments", _has_sentence_offsets),
    Use(("model.segments_from",), "learned or sinusoidal segments", _counts_segments),
    Use(
        ("loss.context_discount",),
        "windows with target sentences before the current one",
        _has_target_context,
    ),
    _with_value("loss.glancing", "loss.name", "glancing"),
)
