"""Whole systems in half precision: translated as in a batch, reported as scored, named and refused."""

from pathlib import Path

import pytest
import torch
from torch import nn

from cotext import load
from cotext.data.documents import ParallelDocument
from cotext.layers.half_linear import HalfLinear
from cotext.models import precision
from cotext.models.checkpoint import load_run
from cotext.models.parameters import count_parameters
from cotext.models.precision import halved, in_precision
from cotext.runtime import devices
from cotext.translation.open import open_run
from tests.models.test_int8_systems import (
    CPU,
    DOCUMENTS,
    SYSTEMS,
    TEXT,
    run,
    system,
    toy,
    translations,
    translator,
)
from tests.refusals import must_raise

__all__ = ["run", "toy"]


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
    assert translations(made, DOCUMENTS)[0] == found.document.sentences
    if made.plan.kind.path is not None:
        return  # a path is reported, and all paths of a text are scored
    pair = ParallelDocument("a", DOCUMENTS[0].sentences, found.document.sentences)
    scores = [s.log_probability for s in made.score([pair])[0]]
    assert scores == pytest.approx(found.log_probabilities, abs=0.1)


def test_a_run_is_told_and_not_mixed_up(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "LEAST", 0)
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
