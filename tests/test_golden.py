"""Published recipes keep, weight for weight, the models that they had: see `golden.py`."""

import json
import re

import pytest
from golden import GOLDEN, golden, golden_names

from cotext.models.former_names import renamed

LAYERS = 3  # of the encoder


def former(name: str) -> str:
    """What a weight was called."""
    before = name.replace("latent.code_predictor.", "latent.foreteller.").replace("batch_context.", "")
    before = before.replace("source_document.", f"encoder.{LAYERS}.")
    before = before.replace(".score.distance_bias", ".place_bias").replace(".score.distance.", ".place.")
    before = re.sub(r"\.score\.(content_bias|of_keys|of_values)$", r".\1", before)
    assert renamed(before) == name
    return before


@pytest.mark.parametrize("recipe", golden_names())
def test_numbers_are_those_of_before(recipe: str) -> None:
    kept = json.loads(GOLDEN.read_text(encoding="utf-8"))[recipe]
    found = golden(recipe, former)
    for name in ("tensors", "names", "translation"):
        assert found[name] == kept[name]
    for name in ("validation", "training", "log_probabilities"):
        assert found[name] == pytest.approx(kept[name], rel=1e-9)
