"""Published recipes keep, weight for weight, the models that they had: see `golden.py`."""

import json

import pytest
from golden import GOLDEN, former, golden, golden_names


@pytest.mark.parametrize("recipe", golden_names())
def test_numbers_are_those_of_before(recipe: str) -> None:
    kept = json.loads(GOLDEN.read_text(encoding="utf-8"))[recipe]
    found = golden(recipe, former)
    for name in ("tensors", "names", "translation"):
        assert found[name] == kept[name]
    for name in ("validation", "training", "log_probabilities"):
        assert found[name] == pytest.approx(kept[name], rel=1e-9)
