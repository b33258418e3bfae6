"""Settings that change nothing are refused: those that do so, and no others."""

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from cotext.config.recipe import Config, keys, load_config, recipe_names
from cotext.data.documents import ParallelDocument
from cotext.models.build import build_model
from cotext.models.checks import USES, refuse_unused
from cotext.runtime import CotextError
from cotext.translation.translator import DocumentTranslator
from tests.command_line import cotext
from tests.loops import loop_over
from tests.tiny import WordTokenizer, shake, tiny_config

TOKENIZER = WordTokenizer(["a", "cat", "sat", "it", "saw", "mat"])
SENTENCES = ("a cat sat", "it saw a mat", "it sat", "a mat")
PAIRS = [ParallelDocument("d", SENTENCES, SENTENCES)]

S4TO4 = ["view.kind=window", "view.before=3"]
DOCUMENT = ["view.kind=document", "view.separators=bracket"]
AT_ONCE = [*DOCUMENT, "model.writes=non_autoregressive", "loss.name=glancing"]
IN_ORDER = ["model.writes=left_to_right", "loss.name=cross_entropy"]
HAN, MCN, SAN = (
    [*DOCUMENT, f"model.document_layer={name}"] for name in ("hierarchical", "segment_gate", "selective")
)
# A setting, what it is written beside, and what lets it change something.
SETTINGS: dict[str, tuple[list[str], list[str]]] = {
    "view.open_source=false": (["view.kind=window", "view.before=3"], ["view.separators=bracket"]),
    "view.indexed_separators=2": (S4TO4, ["view.separators=indexed"]),
    "model.attention.top.span=sentence": (DOCUMENT, ["model.attention.top.layers=1"]),
    "model.attention.memory_sentences=2": (DOCUMENT, ["model.decoder={span: memory, score: transformer_xl}"]),
    **{
        f"model.{side}.top={{span: sentence}}": (DOCUMENT, ["model.attention.top.layers=1"])
        for side in ("encoder", "decoder", "cross")
    },
    **{
        f"model.{stack}.others=projected": (
            [*DOCUMENT, "model.attention={span: sentence, top: {layers: 1, mix: gated}}"],
            ["model.attention.span=row"],
        )
        for stack in ("attention", "encoder", "decoder", "cross")
    },
    **{f"model.{side}.span=current": (DOCUMENT, S4TO4) for side in ("encoder", "cross")},
    "model.positions=shifted": (AT_ONCE, IN_ORDER),
    "model.source_sentences=0": (AT_ONCE, IN_ORDER),
    "model.batch.source=false": (S4TO4, ["model.batch_context=mean"]),
    "model.batch.gate=identity": ([*S4TO4, "model.batch_context=mean"], ["model.batch_context=flat"]),
    "model.batch.threshold=0.1": ([*S4TO4, "model.batch_context=flat"], ["model.batch.gate=discrete"]),
    "model.document.target=true": (DOCUMENT, HAN),
    "model.document.sentences=1": (MCN, HAN),
    **{f"model.document.{key}=false": (HAN, MCN) for key in ("relative", "gate", "feed_forward")},
    "model.document.level=words": (HAN, SAN),
    "model.document.word_weights=sparsemax": (
        [*SAN, "model.document.level=sentences"],
        ["model.document.level=both"],
    ),
    "model.document.later=false": (
        [*SAN, "model.document={source: false, target: true}"],
        ["model.document.source=true"],
    ),
    "model.context_layers=2": (S4TO4, ["model.context_encoder=separate"]),
    **{
        f"model.{setting}": ([*S4TO4, "model.reads_source=false"], ["model.reads_source=true"])
        for setting in (
            "encoder.score=relative",
            "cross.score=alibi",
            "encoder_layers=2",
            "source_sentences=1",
        )
    },
    "model.nat.path=row": (DOCUMENT, ["model.writes=non_autoregressive", "loss.name=glancing"]),
    "model.nat.codes=7": (AT_ONCE, ["model.nat.latent=true"]),
    "model.nat.length_offsets=1": (AT_ONCE, ["model.nat={path: length, soft_copy: row}"]),
    "model.shift=3": (S4TO4, ["model.positions=shifted"]),
    "model.relative_span=1": (S4TO4, ["model.attention.score=relative"]),
    "model.from_first=false": (S4TO4, ["model.segments=sinusoidal"]),
    "model.segments_from=current": (S4TO4, ["model.segments=sinusoidal"]),
    "model.wavelengths=half": (["model.position_encoding=learned"], ["model.position_encoding=sinusoidal"]),
    "model.learned_positions=3": (S4TO4, ["model.position_encoding=learned"]),
}
# What only training can show, or the data that else decides.
OF_TRAINING: dict[str, tuple[list[str], list[str]]] = {
    "view.numbers=2": (S4TO4, ["view.separators=numbered"]),
    **{f"model.nat.code_{key}": (AT_ONCE, ["model.nat.latent=true"]) for key in ("mixing=all", "weight=0.2")},
    "model.attention.gate_rate=3": (S4TO4, ["model.neutral_start=true"]),
    "model.attention.gate_rate=4": (S4TO4, ["model.decoder.others=gated"]),
    "loss.label_smoothing=0.2": (AT_ONCE, ["model.nat.path=length"]),
    "model.decoder.memory_sentences=2": (DOCUMENT, ["model.attention.span=memory"]),
    "loss.context_discount=0.5": ([], S4TO4),
    "model.context_encoder=separate": (DOCUMENT, S4TO4),  # it has weights, which are not used
    **{f"train.{key}": ([], ["train.init=run"]) for key in ("freeze=init", "fresh_rate=2")},
    **{
        f"train.{key}": ([], ["train.init=run"])
        for key in ("init_parts=encoder", "init_copies=false", "init_architecture=run", "blend_updates=9")
    },
    "train.blend=[mean]": ([], ["train.init=run"]),
    "train.word_dropout_epochs=2": ([], ["train.word_dropout=0.1"]),
    "loss.foreign_weight=0.5": ([], S4TO4),
    "loss.glancing=[0.1,0.1]": (DOCUMENT, ["model.writes=non_autoregressive", "loss.name=glancing"]),
}


def configured(*overrides: str) -> Config:
    content: dict[str, Any] = {}
    for override in overrides:
        *sections, key = override.partition("=")[0].split(".")
        place = content
        for section in sections:
            place = place.setdefault(section, {})
        place[key] = yaml.safe_load(override.partition("=")[2])
    return tiny_config(**content)


def outcome(config: Config) -> list[Any]:
    """Shapes of all weights, and what a random model thinks of a document."""
    torch.default_generator.manual_seed(1)
    model = build_model(config, TOKENIZER.vocabulary_size).double().eval()
    shake(model)
    shapes = {name: value.shape for name, value in model.state_dict().items()}
    return [shapes, DocumentTranslator(model, config, TOKENIZER, torch.device("cpu")).score(PAIRS)]


@loop_over("setting", [*SETTINGS, *OF_TRAINING])
def test_a_setting_is_refused_until_what_it_is_for_is_chosen(setting: str) -> None:
    beside, chosen = {**SETTINGS, **OF_TRAINING}[setting]
    with pytest.raises(CotextError, match=r"has no effect: it applies only to .*; remove it") as error:
        refuse_unused(configured(*beside, setting), "mcn/final", [*beside, setting])
    assert str(error.value).startswith(f"{setting.partition('=')[0]} = ")
    refuse_unused(configured(*beside, *chosen, setting), "mcn/final", [*beside, *chosen, setting])


@loop_over("setting", SETTINGS)
def test_it_does_change_nothing_and_then_something(setting: str) -> None:
    beside, chosen = SETTINGS[setting]
    assert outcome(configured(*beside, setting)) == outcome(configured(*beside))
    assert outcome(configured(*beside, *chosen, setting)) != outcome(configured(*beside, *chosen))


def test_every_use_is_of_a_setting_and_tried_above() -> None:
    tried = {setting.partition("=")[0] for setting in (*SETTINGS, *OF_TRAINING)}
    for each, use in USES.items():
        start = each.partition(" = ")[0]
        covered = [key for key, _ in keys(Config) if key.startswith(start)]
        assert start in covered if not start.endswith(".") else covered, each
        assert use == "the decoder" or any(key.startswith(start) for key in tried), each


@loop_over("recipe", recipe_names())
def test_shipped_recipes_have_none(recipe: str) -> None:
    config = load_config(recipe)
    refuse_unused(config, recipe, ["view", "model", "loss"])


def test_what_a_recipe_has_for_a_part_that_is_left_out_may_stay(tmp_path: Path) -> None:
    without = ["model.batch_context=none"]
    config = load_config("docflat/docflat-d", overrides=without)
    assert config.model.batch.gate == "discrete"
    refuse_unused(config, "docflat/docflat-d", without)
    own = tmp_path / "own.yaml"
    own.write_text("extends: [docflat/docflat-d]\nmodel: {batch_context: none, shift: 7}\n")
    with pytest.raises(CotextError) as error:
        refuse_unused(load_config(str(own)), str(own), [])
    assert (
        str(error.value)
        == "model.shift = 7 has no effect: it applies only to model.positions = shifted; remove it"
    )


def test_default_values_and_whole_sections(tmp_path: Path) -> None:
    same = ["model.batch.gate=continuous", "loss.context_discount=1"]
    refuse_unused(load_config("mcn/final", overrides=same), "mcn/final", same)
    memory = [f"model.{side}.memory_sentences=2" for side in ("encoder", "cross")] + [
        "model.cross.score=rotary"
    ]
    with pytest.raises(CotextError, match=r"(?s)r\.mem.*only to the decoder.*s\.score.*to self-.*s\.mem"):
        refuse_unused(load_config("mcn/final", overrides=memory), "mcn/final", memory)
    section = ["model.nat={latent: true, codes: 7}"]
    with pytest.raises(CotextError, match=r"(?s)model\.nat\.latent = True .*model\.nat\.codes = 7 "):
        refuse_unused(load_config("mcn/final", overrides=section), "mcn/final", section)


def test_training_refuses_before_it_looks_at_data(tmp_path: Path) -> None:
    folders = ("--data", tmp_path / "none", "--out", tmp_path / "run")
    done = cotext("train", "focused-concatenation/s4to4", "model.batch.gate=discrete", *folders)
    assert done.code == 2
    assert "model.batch.gate = 'discrete' has no effect: it applies only to model.batch_context" in done.err
    assert not (tmp_path / "run").exists()
