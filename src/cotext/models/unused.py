"""Settings that change nothing, because what they are for is not chosen.

Whoever writes one means something by it, and the run would look as if that held: in its configuration, in its
signature, beside its scores. One that a recipe has for a part that was left out on purpose is nobody's
mistake. What a kind of view does not take is refused where views are built.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from cotext.config.parts import DOCUMENT_LAYERS
from cotext.config.recipe import Config, differences, is_file, leaves
from cotext.models.parts import document_layer
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.reading import parse_yaml, read_text


class Use(NamedTuple):
    """What settings are for, and whether that is chosen."""

    keys: tuple[str, ...]  # with a dot at its end, all of a section
    purpose: str
    chosen: Callable[[Config], bool]

    def covers(self, key: str) -> bool:
        """Whether a setting is one of these."""
        return any(key.startswith(each) if each.endswith(".") else key == each for each in self.keys)


def refuse_unused(config: Config, recipe: str, overrides: Iterable[str]) -> None:
    """Refuse settings of view, model and loss that have no effect beside the others.

    Args:
        config: what came of recipe and overrides.
        recipe: a shipped one, of which nothing is refused, or a file, of which only what it writes itself is.
        overrides: as `key.path=value`.

    Raises:
        CotextError: each of them, with what it is for.
    """
    written = {override.partition("=")[0] for override in overrides}
    if is_file(recipe):
        written.update(key for key, _ in leaves(parse_yaml(read_text(Path(recipe)), recipe) or {}))
    found, uses = [], (*USES, *_of_document_layers(config))
    for key, _, value in differences(Config(), config):
        if not any(key == each or key.startswith(f"{each}.") for each in written):
            continue
        unmet = next((use for use in uses if use.covers(key) and not use.chosen(config)), None)
        if unmet is not None:
            found.append(f"{key} = {shown(value)} changes nothing: it is for {unmet.purpose}; leave it out")
    if found:
        raise CotextError("\n".join(found))


def _of_document_layers(config: Config) -> Iterator[Use]:
    """Settings that another layer takes, and the chosen one does not."""
    chosen = config.model.document_layer
    taken = () if chosen == "none" else document_layer(chosen).settings
    for name in DOCUMENT_LAYERS:
        for key in document_layer(name).settings:
            if key not in taken:
                yield Use((f"model.document.{key}",), f"model.document_layer = {name}", lambda c: False)


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
    Use(("view.indexed_separators",), "view.separators = indexed", lambda c: c.view.separators == "indexed"),
    Use(("view.numbers",), "view.separators = numbered", lambda c: c.view.separators == "numbered"),
    Use(
        ("model.attention.top.",),
        "top layers (model.attention.top.layers above 0)",
        lambda c: c.model.attention.top.layers > 0,
    ),
    Use(
        ("model.attention.gate_rate",),
        "model.attention.others = gated",
        lambda c: c.model.attention.others == "gated",
    ),
    Use(("model.batch.",), "model.batch_context other than none", lambda c: c.model.batch_context != "none"),
    Use(("model.batch.gate",), "model.batch_context = flat", lambda c: c.model.batch_context == "flat"),
    Use(
        ("model.batch.threshold",), "model.batch.gate = discrete", lambda c: c.model.batch.gate == "discrete"
    ),
    Use(
        ("model.document.",),
        "model.document_layer other than none",
        lambda c: c.model.document_layer != "none",
    ),
    Use(
        ("model.nat.",),
        "model.writes = non_autoregressive",
        lambda c: c.model.writes == "non_autoregressive",
    ),
    Use(
        ("model.nat.codes", "model.nat.code_mixing", "model.nat.code_weight"),
        "model.nat.latent = true",
        lambda c: c.model.nat.latent,
    ),
    Use(("model.nat.length_offsets",), "model.nat.path = length", lambda c: c.model.nat.path == "length"),
    Use(
        ("model.learned_positions",),
        "model.position_encoding = learned",
        lambda c: c.model.position_encoding == "learned",
    ),
    Use(
        ("model.relative_span",),
        "model.attention.score = relative or positions",
        lambda c: bool({c.model.stack(s).score for s in ("encoder", "decoder")} & {"relative", "positions"}),
    ),
    Use(("model.shift",), "model.positions = shifted", lambda c: c.model.positions == "shifted"),
    Use(("model.from_first",), "shifted positions or sinusoidal segments", _has_sentence_offsets),
    Use(("model.segments_from",), "learned or sinusoidal segments", _counts_segments),
    Use(
        ("loss.context_discount",),
        "windows with target sentences before the current one",
        _has_target_context,
    ),
    Use(("loss.glancing",), "loss.name = glancing", lambda c: c.loss.name == "glancing"),
)
