"""Whole systems in int8 and bfloat16: alone as in a batch, reported as scored, written, read and refused."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from cotext import load
from cotext.config.recipe import Config, load_config
from cotext.data.documents import Document, ParallelDocument
from cotext.data.tokenizer import Tokenizer, load_tokenizer
from cotext.interchange.export import export_int8
from cotext.layers.linear import HalfLinear, Int8Linear
from cotext.models import checkpoint
from cotext.models.build import build_model, count_parameters
from cotext.models.checkpoint import (
    halved,
    in_precision,
    int8_weights,
    large_matrices,
    load_run,
    load_weights,
    quantised,
    save_model,
)
from cotext.models.interface import Engine, EngineHypothesis, Model
from cotext.models.run_folder import read_shapes
from cotext.runtime import devices
from cotext.training.warm_start import start_from
from cotext.translation.open import open_run, scoring_entries
from cotext.translation.translator import DocumentTranslator
from tests.golden import SETTINGS
from tests.refusals import must_raise
from tests.tiny import PlainWordTokenizer, shake, translations
from tests.tiny_runs import prepare_toy, run_config, training_is_refused, write_run

TOKENIZER = PlainWordTokenizer([f"w{i}" for i in range(4, 40)])
CPU = torch.device("cpu")
DOCUMENTS = [
    Document("a", ("w4 w9 w5", "w17 w6", "w7 w8 w21 w30")),
    Document("b", ("w12", "w5 w4 w33 w9 w6 w6")),
    Document("c", ("w30 w31 w32",)),
]
OTHERS = "model.attention.others=gated model.positions=reset view.separators=bracket"
SYSTEMS = (
    "focused-concatenation/s4to4-shift-cd",
    "p-transformer/doc",
    "g-transformer/randinit",
    "flat-transformer/flat",
    "docflat/docflat-c",
    "docflat/abd-both",
    "docflat/mbe",
    "mcn/final-tl",
    "han/joint",
    "modern/rotary",
    "modern/alibi-shift",
    "mixtures/docflat-p-transformer",
    "mixtures/mcn-p-transformer",
    "casa/casa",
    "casa/latent",
    "mixtures/casa-p-transformer",
    f"focused-concatenation/s4to4 {OTHERS}",
    f"focused-concatenation/s4to4 {OTHERS} view.kind=document view.before=0",
    f"g-transformer/finetune {OTHERS}",
)


def system(
    recipe: str, decode: Sequence[str] = ("decode.beam=1", "decode.max_extra=1")
) -> tuple[Model, Config]:
    """A tiny model of a recipe in float32, of which no part is neutral."""
    recipe, *overrides = recipe.split()
    config = load_config(recipe, None, [*SETTINGS, *overrides, *decode])
    torch.manual_seed(1)
    model = build_model(config, TOKENIZER.vocabulary_size)
    shake(model)
    return model.eval(), config


def translator(model: Model, config: Config) -> DocumentTranslator:
    return DocumentTranslator(model, config, TOKENIZER, CPU)


@pytest.mark.parametrize("recipe", SYSTEMS)
def test_a_document_alone_decides_its_translation_and_its_scores(recipe: str) -> None:
    """Batches of other sizes round sums in float32 otherwise on some processors.

    Then, now and then, a state half-way between two whole numbers is rounded to the other one, and two
    translations that are as probable as each other change places. The same holds for scores that search
    reports, token by token with caches, and those of teacher forcing.
    """
    model, config = system(recipe)
    in_int8 = quantised(model, least=0)
    assert in_int8.int8_output is not None
    assert not any(type(layer) is nn.Linear for layer in in_int8.modules())
    assert count_parameters(in_int8) == count_parameters(model)
    made = translator(in_int8, config)
    together = [t.document.sentences for t in translations(made, DOCUMENTS)]
    alone = [translations(made, [d])[0].document.sentences for d in DOCUMENTS]
    assert [len(text) for text in together] == [len(document) for document in DOCUMENTS]
    # The model that it was made of is as it was.
    assert model.precision == "float32"
    assert not any(isinstance(layer, Int8Linear) for layer in model.modules())
    differing = [n for n, (a, b) in enumerate(zip(together, alone, strict=True)) if a != b]
    assert len(differing) <= 1
    for n in differing:
        pairs = [ParallelDocument("a", DOCUMENTS[n].sentences, text) for text in (together[n], alone[n])]
        scores = [sum(s.log_probability for s in made.score([pair])[0]) for pair in pairs]
        assert abs(scores[0] - scores[1]) < 0.2
    if made.plan.kind.path is not None:
        return  # a path is reported, and all paths of a text are scored
    [(_, found)] = made.translate(DOCUMENTS[:1])
    pair = ParallelDocument("a", DOCUMENTS[0].sentences, found.document.sentences)
    scored = [s.log_probability for s in made.score([pair])[0]]
    off = sorted(abs(a - b) for a, b in zip(found.log_probabilities, scored, strict=True))
    assert off[1] < 1e-4
    assert off[2] < 0.2


@pytest.fixture
def everything_in_int8(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny matrices, too."""
    monkeypatch.setattr(checkpoint, "LEAST", 0)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tokenizer]:
    data = prepare_toy(tmp_path_factory.mktemp("data"))
    return data, load_tokenizer(data / "tokenizer")


@pytest.fixture
def run(toy: tuple[Path, Tokenizer], tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", run_config(), toy[1])


TEXT = ["the cat sees a dog", "and the red bird sings"]


@pytest.mark.usefixtures("everything_in_int8")
class TestRuns:
    def test_written_in_int8_it_is_what_was_quantised_when_opened(self, run: Path, tmp_path: Path) -> None:
        out = tmp_path / "int8"
        export_int8(run, out)
        opened, written = load(run, precision="int8"), load(out)
        assert opened.translate(TEXT) == written.translate(TEXT)
        assert opened.score(TEXT, TEXT) == written.score(TEXT, TEXT)
        assert opened.score(TEXT, TEXT) != load(run).score(TEXT, TEXT)
        assert written.signature == opened.signature
        assert "|precision:int8" in written.signature
        assert read_shapes(out / "model.safetensors") == read_shapes(run / "model.safetensors")
        # Written once more, from what was read, it is the same file.
        export_int8(out, tmp_path / "again")
        assert (tmp_path / "again/model.safetensors").read_bytes() == (out / "model.safetensors").read_bytes()

    def test_other_settings_keep_the_model(self, run: Path) -> None:
        opened = open_run(run)
        quantised_later = opened.with_decode({"precision": "int8"})
        assert opened.loaded.precision == "float32"
        assert quantised_later.loaded.precision == scoring_entries(quantised_later)["precision"] == "int8"
        assert "precision" not in scoring_entries(opened)
        assert quantised_later.with_decode({"precision": "int8", "beam": 1}).loaded is quantised_later.loaded
        must_raise("load it again", quantised_later.with_decode, {"precision": "float32"})

    def test_it_is_not_trained_but_training_starts_from_the_numbers_that_it_stands_for(
        self, toy: tuple[Path, Tokenizer], run: Path, tmp_path: Path
    ) -> None:
        out = tmp_path / "int8"
        export_int8(run, out)
        training_is_refused(run_config(), toy[0], out, "cannot be trained")
        model = build_model(run_config(), toy[1].vocabulary_size)
        start_from(out, model, run_config(), toy[1])
        started, stood_for = model.state_dict(), load_weights(out / "model.safetensors")
        exact = load_weights(run / "model.safetensors")
        assert all(torch.equal(started[name], stood_for[name]) for name in started)
        assert not all(torch.equal(started[name], exact[name]) for name in started)

    def test_damaged_scales(self, run: Path) -> None:
        loaded = load_run(run)
        weights = int8_weights(loaded.with_states("test"))
        del weights["embedding.weight.int8_scale"]
        path = run / "model.safetensors"
        save_model(path, weights, loaded.config, loaded.tokenizer.fingerprint, [1])
        must_raise(r"'embedding\.weight' is int8 but does not have a scale for every row", load_run, run)


def test_small_matrices_stay() -> None:
    model = build_model(load_config("focused-concatenation/base", "small", []), 8000)
    names = large_matrices(model, checkpoint.LEAST)
    assert "encoder.0.attention.qkv.weight" in names
    assert "encoder.0.attention.out.weight" not in names
    assert all(model.get_parameter(name).numel() >= checkpoint.LEAST for name in names)


def test_refused_on_a_gpu_of_engines_and_unknown(run: Path) -> None:
    loaded = load_run(run)
    must_raise("int8 needs a CPU", in_precision, loaded, "int8", torch.device("cuda"))
    engine = replace(loaded, model=NoEngine())
    must_raise("engines have the precision of the export", in_precision, engine, "int8", CPU)
    must_raise("precision", load, run, precision="int4")


class NoEngine(Engine):
    """An engine that only names itself."""

    name = "test"

    def search(self, *given: object) -> list[list[EngineHypothesis]]:
        raise NotImplementedError

    def score(self, *given: object) -> list[list[float]]:
        raise NotImplementedError


@pytest.mark.parametrize("recipe", SYSTEMS[::2])
def test_systems_translate_and_report_what_they_score(recipe: str) -> None:
    """Sums are rounded otherwise in batches of other shapes, and then now and then to the next bfloat16."""
    model, config = system(recipe)
    half = halved(model, "bfloat16", least=0)
    assert not any(type(layer) is nn.Linear for layer in half.modules())
    assert count_parameters(half) == count_parameters(model)
    assert not any(isinstance(layer, HalfLinear) for layer in model.modules())
    assert model.precision == "float32"
    made = translator(half, config)
    [(_, found)] = made.translate(DOCUMENTS[:1])
    assert translations(made, DOCUMENTS)[0].document == found.document
    if made.plan.kind.path is not None:
        return  # a path is reported, and all paths of a text are scored
    pair = ParallelDocument("a", DOCUMENTS[0].sentences, found.document.sentences)
    scores = [s.log_probability for s in made.score([pair])[0]]
    assert scores == pytest.approx(found.log_probabilities, abs=0.1)


def test_a_run_is_told_and_not_mixed_up(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "LEAST", 0)
    opened = load(run, precision="bfloat16")
    assert "|precision:bfloat16" in opened.signature
    assert opened.score(TEXT, TEXT) != load(run).score(TEXT, TEXT)
    half = open_run(run, decode={"precision": "bfloat16"})
    for other in ("float32", "int8"):
        must_raise(f"loaded in bfloat16; load it again in {other}", half.with_decode, {"precision": other})
    must_raise("float16 needs a GPU, but this is a CPU", in_precision, load_run(run), "float16", CPU)
    for fast, told in ((True, ""), (False, "decode.precision = bfloat16: this CPU has no instructions")):
        monkeypatch.setattr(devices, "multiplies_bfloat16", lambda fast=fast: fast)
        assert half.slow.startswith(told)
        assert bool(half.slow) == bool(told)
        assert open_run(run).slow == ""
    assert devices.slow_precision("", torch.device("cuda")) == ""
