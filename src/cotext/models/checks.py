"""Checks, before work begins, of combinations of settings that have no kernel, no meaning or no effect."""

import re
from collections.abc import Iterable
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from cotext.config.model import ModelConfig
from cotext.config.parts import DOCUMENT_LAYERS, OWN, is_own, module
from cotext.config.recipe import Config, differences, is_file
from cotext.layers.multi_head import Score
from cotext.models.interface import DocumentLayer
from cotext.runtime import CotextError, leaves, parse_yaml, read_text, shown

Side = Literal["encoder", "decoder", "cross"]
SIDES: tuple[Side, ...] = ("encoder", "decoder", "cross")

NODES = ("content", "absolute", "rotary")
SELF = ("content", "absolute", "relative", "positions", "rotary", "alibi")
# Kind of attention -> span -> scores that have a kernel.
KERNELS: dict[Side, dict[str, tuple[str, ...]]] = {
    "encoder": {"row": (*SELF, "segment_distance"), "sentence": SELF, "current": SELF, "nodes": NODES},
    "decoder": {"row": SELF, "sentence": SELF, "memory": ("transformer_xl",), "nodes": NODES},
    # In cross-attention, `positions` are absolute, and `relative` and `rotary` positions have no effect.
    "cross": {"row": SELF, "sentence": SELF, "current": SELF, "nodes": NODES},
}


def check(config: Config) -> None:
    """Raise CotextError for a configuration that cannot be built, trained or used in search."""
    model = config.model
    if model.dimension % model.heads:
        raise CotextError(
            f"model.dimension = {model.dimension} is not divisible by model.heads = {model.heads}"
        )
    # Search would reject this too, but only at the first validation.
    check_align(config.decode.align, config.view.bracketed)
    _check_training(config)
    if not model.reads_source:
        _check_language_model(model)
    _check_attention(model)
    _check_positions(model)
    _check_segments(config)
    _check_offset(config)
    _check_parts(model)
    if (model.writes == "non_autoregressive") != (config.loss.name == "glancing"):
        needed = "glancing" if model.writes == "non_autoregressive" else "cross_entropy"
        raise CotextError(
            f"loss.name = {config.loss.name}: model.writes = {model.writes} requires loss.name = {needed}"
        )
    if model.writes == "non_autoregressive":
        _check_non_autoregressive(config)


def check_align(align: str, bracket: bool) -> None:
    """Raise CotextError for free search with brackets.

    There, `eos` ends every sentence, so free search cannot recognise the end of the row.
    """
    if align == "free" and bracket:
        raise CotextError(
            "decode.align = free does not support view.separators = bracket or numbered, where `eos` ends "
            "every sentence and does not show the end of the document; choose decode.align = constrained"
        )


def _check_training(config: Config) -> None:
    """Reject orders and contexts of training that are impossible for its view or its loss.

    `train.order` and `train.context` fit any model: table 5 of Wu et al. 2023 varies whether rows attend to
    each other, and whether the rows of a batch are from one document.
    """
    view, train = config.view, config.train
    if train.order == "documents" and view.mixed_with:
        raise CotextError(
            "train.order = documents: the windows of several views have no common order; remove "
            "view.mixed_with, or choose train.order = shuffled"
        )
    if train.best_by == "undiscounted" and config.loss.name == "glancing":
        raise CotextError(
            "train.best_by = undiscounted: loss.name = glancing has no discount; choose objective"
        )
    needs = config.loss.name, config.model.batch_context, train.context
    if config.loss.foreign_weight and needs != ("cross_entropy", "none", "own"):
        raise CotextError(
            f"loss.foreign_weight = {config.loss.foreign_weight} replaces context inside a row: it requires "
            "loss.name = cross_entropy, model.batch_context = none and train.context = own"
        )
    # Only windows define which sentences the context of another document replaces.
    if train.context == "foreign" and (view.kind != "window" or view.mixed_with):
        raise CotextError(
            "train.context = foreign replaces the sentences around the current one: it requires view.kind = "
            "window, without view.mixed_with"
        )


def _check_language_model(model: ModelConfig) -> None:
    """Reject parts that read the source in a model without one."""
    _require(
        "model.reads_source = false",
        ("writes", model.writes, "left_to_right"),
        ("batch_context", model.batch_context, "none"),
        ("context_encoder", model.context_encoder, "none"),
        ("document_layer", model.document_layer, "none"),
        ("separate_embeddings", model.separate_embeddings, False),
        ("decoder.span", model.stack("decoder").span, "row"),
    )
    if model.positions == "shifted" and model.shift == "sequence":
        raise CotextError(
            "model.shift = sequence: a language model (model.reads_source = false) does not read source "
            "sentences; choose corpus or a number"
        )


def _require(setting: str, *values: tuple[str, object, object]) -> None:
    """Raise CotextError if a key of the section `model` does not have the value that `setting` requires."""
    for key, value, needed in values:
        if value != needed:
            raise CotextError(
                f"model.{key} = {str(value).lower()} cannot be combined with {setting}; choose "
                f"{str(needed).lower()}"
            )


def _check_attention(model: ModelConfig) -> None:
    for side in SIDES:
        config = model.stack(side)
        depth = model.encoder_layers if side == "encoder" else model.decoder_layers
        if config.top.layers > depth:
            raise CotextError(
                f"{_key(model, side, 'top')}.layers = {config.top.layers}, but this stack has "
                f"{depth} layers; choose fewer"
            )
        _check_kernel(model, side, "span", config.span, config.score)
        if config.top.layers:
            _check_kernel(model, side, "top.span", config.top.span, config.score)

    layers = [set(model.layer_spans("encoder", layer)) for layer in range(model.encoder_layers)]
    first = next((layer for layer, spans in enumerate(layers) if "current" in spans), len(layers))
    if inside := set().union(*layers[first:]) - {"row", "current"}:
        raise CotextError(
            f"span {inside.pop()} in the encoder: from the first layer with the span current on, only "
            "current tokens are left; choose row or current for this layer and all layers above"
        )
    crosses = model.stack("cross")
    inside = crosses.spans - {"row", "current"}
    if inside and keeps_current(model):
        raise CotextError(
            f"{_key(model, 'cross', 'span')} = {inside.pop()}: where cross-attention reads only current "
            "sentences (current, or model.context_encoder), target sentences of the context have no source; "
            "choose row"
        )


def keeps_current(model: ModelConfig) -> bool:
    """Whether the decoder attends to the states of current sentences only, apart from a context encoder."""
    spans = model.stack("encoder").spans | model.stack("cross").spans
    return model.context_encoder != "none" or "current" in spans


def _check_kernel(model: ModelConfig, side: Side, key: str, span: str, score: str) -> None:
    scores = KERNELS[side].get(span)
    if is_own(score):
        own = own_part(score, Score)
        scores = (*(scores or ()), score) if side in own.sides and span in own.spans else scores
    where = {"encoder": "the encoder", "decoder": "the decoder", "cross": "cross-attention"}[side]
    if scores is None:
        spans = ", ".join(KERNELS[side])
        raise CotextError(f"{_key(model, side, key)} = {span}: {where} supports only {spans}")
    if score not in scores:
        raise CotextError(
            f"{_key(model, side, 'score')} = {score}: there is no kernel for it with the span "
            f"{span} in {where}; choose {' or '.join(scores)}"
        )
    # Nodes of later target sentences are not known while decoding from left to right.
    if span == "nodes" and side != "encoder" and model.writes == "left_to_right":
        raise CotextError(
            f"{_key(model, side, key)} = {span}: no kernel decodes with it step by step; it requires "
            "model.writes = non_autoregressive"
        )


def _key(model: ModelConfig, side: Side, key: str) -> str:
    is_set = key.partition(".")[0] in getattr(model, side).model_dump(exclude_none=True)
    return f"model.{side}.{key}" if is_set else f"model.attention.{key}"


def _check_positions(model: ModelConfig) -> None:
    aware = any(model.stack(side).score in ("absolute", "positions") for side in SIDES[:2])
    if aware and model.positions == "reset" and not model.neutral_start:
        raise CotextError(
            "model.positions = reset: the positions that every layer adds are absolute with scores absolute "
            "and positions; choose model.positions = absolute, shifted or none, or another score"
        )
    if (model.target_positions or model.positions) == "shifted" and model.positions != "shifted":
        raise CotextError("model.target_positions = shifted requires model.positions = shifted")
    learned = model.position_encoding == "learned"
    if learned and "none" in (model.positions, model.target_positions):
        raise CotextError(
            "model.position_encoding = learned: a side without positions (none) has no use for its table; "
            "choose absolute, reset or shifted on both sides"
        )
    if learned and model.first_position >= model.learned_positions:
        raise CotextError(
            f"model.first_position = {model.first_position}: there are {model.learned_positions} learned "
            "positions (model.learned_positions), counted from 0"
        )


def _check_segments(config: Config) -> None:
    """Reject segments counted from the current sentence unless it is the last and only one of its row."""
    if config.model.segments_from == "first":
        return
    for cut in (config.view, *config.view.mixed_with):
        if cut.kind == "document" or cut.after:
            key = f"view.after = {cut.after}" if cut.after else f"view.kind = {cut.kind}"
            raise CotextError(
                f"model.segments_from = current: {key} has rows in which the last sentence is not the only "
                "current one; choose view.kind = window without view.after, or model.segments_from = first"
            )


def _check_offset(config: Config) -> None:
    """Reject an offset of positions that are not sinusoids at the input."""
    model, offset = config.model, config.train.position_offset
    has_none = {model.positions, model.target_positions or model.positions} == {"none"}
    in_layers = any(model.stack(side).score in ("absolute", "positions") for side in SIDES)
    if offset and (has_none or in_layers or model.position_encoding == "learned"):
        raise CotextError(
            f"train.position_offset = {offset} moves only sinusoidal positions at the input: remove it, or "
            "choose other model.positions than none, other scores than absolute and positions, and "
            "model.position_encoding = sinusoidal"
        )


def _check_parts(model: ModelConfig) -> None:
    if model.writes == "non_autoregressive":
        _require(
            "model.writes = non_autoregressive",
            ("batch_context", model.batch_context, "none"),
            ("context_encoder", model.context_encoder, "none"),
            ("document_layer", model.document_layer, "none"),
            ("output_bias", model.output_bias, False),
        )
        return
    _check_context_encoder(model)
    document = model.document
    if model.document_layer == "none":
        return
    if not (document.source or document.target):
        raise CotextError(
            f"model.document_layer = {model.document_layer}: neither model.document.source nor "
            "model.document.target is true; choose at least one"
        )
    if document.target and not document_layer(model.document_layer).on_target:
        raise CotextError(
            f"model.document.target = true: model.document_layer = {model.document_layer} works only in the "
            "encoder; remove model.document.target"
        )
    if "current" in model.stack("encoder").spans:
        raise CotextError(
            f"model.document_layer = {model.document_layer} reads all sentences of a row, but "
            "model.encoder.top.span = current keeps only the current ones; choose one of the two"
        )


def _check_context_encoder(model: ModelConfig) -> None:
    """Reject parts that need current and context sentences in one sequence."""
    if model.context_encoder == "none":
        return
    setting = f"model.context_encoder = {model.context_encoder}"
    _require(setting, ("batch_context", model.batch_context, "none"))
    if model.document.source:
        _require(setting, ("document_layer", model.document_layer, "none"))
    if "current" in model.stack("encoder").spans | model.stack("cross").spans:
        raise CotextError(f"{setting} cannot be combined with the span current; choose one of the two")


def _check_non_autoregressive(config: Config) -> None:
    """Reject settings in which it is undefined to which sentence a decoder position belongs."""
    view, model = config.view, config.model
    if view.separators != "bracket":
        raise CotextError(
            f"view.separators = {view.separators}: a non-autoregressive model recognises sentences by their "
            "first and last tokens; choose bracket"
        )
    if unfit := {cut.kind for cut in (view, *view.mixed_with)} - {"sentence", "document"}:
        raise CotextError(
            f"view.kind = {unfit.pop()}: a non-autoregressive model predicts every sentence of its row at "
            "once; choose document or sentence"
        )
    inside = any(model.stack(side).spans != {"row"} for side in SIDES)
    if model.nat.path == "length" and (inside or model.nat.soft_copy == "sentences"):
        raise CotextError(
            "model.nat.path = length: which position belongs to which sentence is not known; it requires "
            "spans of whole rows (model.attention.span = row) and model.nat.soft_copy = row"
        )


# --- The classes of parts named in a configuration, and settings of parts that are not chosen.
#
# Such settings have no effect. A user who sets one expects an effect, and the configuration and signature of
# the run would suggest that there was one. Settings that a recipe contains for a part that was removed on
# purpose are accepted. Settings of views are checked where views are built.


TARGET_CONTEXT: Final = "windows with target sentences before the current one"
CONTEXT: Final = "view.kind = window or cumulative"
MEMORY: Final = "model.decoder.span = memory, model.decoder.top.span = memory"
TOP: Final = "model.attention.top.layers other than 0"
OF_START: Final = ("freeze", "fresh_rate", "blend", "init_parts", "init_copies", "init_architecture")
ROWS: Final = "layers whose only span is row (gated: also gated top layers)"
# Settings, or sections (with a dot at the end), and the condition under which they have an effect.
# Alternatives are separated by commas. `view.kind` may be that of any view that is mixed.
USES: Final = {
    "view.open_source": "view.separators = bracket or numbered",
    "view.indexed_separators": "view.separators = indexed",
    "view.numbers": "view.separators = numbered",
    "model.attention.top.": TOP,
    "model.attention.gate_rate": ", ".join(f"model.{side}.others = gated" for side in SIDES)
    + ", model.neutral_start = true",
    "model.attention.memory_sentences": MEMORY,
    "model.decoder.memory_sentences": MEMORY,
    "model.encoder.memory_sentences": "the decoder",
    "model.cross.memory_sentences": "the decoder",
    **{f"model.{side}.top": f"model.{side}.top.layers other than 0, {TOP}" for side in SIDES},
    **{f"model.{stack}.others": ROWS for stack in ("attention", *SIDES)},
    **{f"model.{side}.span = current": CONTEXT for side in ("encoder", "cross")},
    **{f"model.cross.score = {score}": "self-attention" for score in ("relative", "rotary")},
    "model.positions = shifted": "model.writes = left_to_right",
    "model.batch.": "model.batch_context other than none",
    "model.batch.gate": "model.batch_context = flat",
    "model.batch.threshold": "model.batch.gate = discrete",
    "model.context_encoder": CONTEXT,
    "model.context_layers": "model.context_encoder other than none",
    **{f"train.{key}": "train.init other than ''" for key in OF_START},
    "train.word_dropout_epochs": "train.word_dropout other than 0.0",
    "model.document.": "model.document_layer other than none",
    "model.document.word_weights": "model.document.level = both",
    "model.document.later": "model.document.source = true",
    "model.encoder.": "model.reads_source = true",
    "model.cross.": "model.reads_source = true",
    "model.encoder_layers": "model.reads_source = true",
    "model.source_sentences": "model.reads_source = true",
    "model.source_sentences = ": "model.writes = left_to_right",
    "model.nat.": "model.writes = non_autoregressive",
    "model.nat.codes": "model.nat.latent = true",
    "model.nat.code_mixing": "model.nat.latent = true",
    "model.nat.code_weight": "model.nat.latent = true",
    "model.nat.length_offsets": "model.nat.path = length",
    "model.wavelengths": "model.position_encoding = sinusoidal",
    "model.learned_positions": "model.position_encoding = learned",
    "model.relative_span": "model.encoder.score = relative or positions, "
    "model.decoder.score = relative or positions",
    "model.shift": "model.positions = shifted",
    "model.from_first": "model.positions = shifted, model.segments = sinusoidal, "
    "model.target_segments = sinusoidal",
    "model.segments_from": "model.segments = learned or sinusoidal, "
    "model.target_segments = learned or sinusoidal",
    "loss.label_smoothing": "loss.name = cross_entropy, model.nat.path = length",
    "loss.context_discount": TARGET_CONTEXT,
    "loss.foreign_weight": "view.kind other than sentence",
    "loss.glancing": "loss.name = glancing",
}


def refuse_unused(config: Config, recipe: str, overrides: Iterable[str]) -> None:
    """Raise CotextError that lists all settings without effect in this configuration.

    `config` is the result of the recipe and of overrides, such as `key.path=value`. Only overrides are
    checked and, if the recipe is a file, the settings in this file.
    """
    written = {override.partition("=")[0] for override in overrides}
    if is_file(recipe):
        written.update(key for key, _ in leaves(parse_yaml(read_text(Path(recipe)), recipe) or {}))
    problems, others = [], _of_other_document_layers(config)
    for key, _, value in differences(Config(), config):
        # A section such as `model.encoder.top` is optional, and therefore compared as one value.
        if not any(f"{key}.".startswith(f"{own}.") or own.startswith(f"{key}.") for own in written):
            continue
        starts = [start for start in USES if f"{key} = {value}".startswith(start)]
        uses = [USES[start] for start in starts if not _holds(USES[start], key, config)]
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


def _holds(use: str, key: str, config: Config) -> bool:
    """Return whether an alternative of a condition holds, such as `view.kind = window or cumulative`."""
    views, model = (config.view, *config.view.mixed_with), config.model
    if use == TARGET_CONTEXT:
        return any(view.kind == "window" and view.target_context > 0 for view in views)
    if use == ROWS:
        stacks = [model.stack(side) for side in SIDES if key.split(".")[1] in (side, "attention")]
        wide = [stack for stack in stacks if stack.top.mix == "one" or stack.others == "gated"]
        return any(stack.span == "row" for stack in stacks) or any("row" in stack.spans for stack in wide)
    # The settings of a stack include those of `attention`.
    sections = {f"model.{side}": model.stack(side) for side in SIDES} | dict(config)
    condition = rf"({'|'.join(sections)})\.(\S+) (=|other than) ([^,]+)"
    for section, name, relation, values in re.findall(condition, use):
        for place in views if (section, name) == ("view", "kind") else [sections[section]]:
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

    Raises CotextError if its code is unavailable, not trusted or fails; or if the class is missing, of
    another kind or incomplete.
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
