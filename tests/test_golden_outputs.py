"""Commands print and write what they did: see `golden_outputs.py`."""

import json
from pathlib import Path

from tests.golden_outputs import GOLDEN, differences, outputs


def test_outputs_are_those_of_before(tmp_path: Path) -> None:
    kept = json.loads(GOLDEN.read_text(encoding="utf-8"))
    changed = differences(kept, outputs(tmp_path))
    assert not changed, "\n".join(changed)
