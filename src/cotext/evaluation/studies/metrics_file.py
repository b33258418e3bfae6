"""The metrics of a run, as training has written them."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from cotext.runtime.integrity import sealed_lines, unsealed


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl that are whole; none if the run hasn't reported yet."""
    found: list[dict[str, Any]] = []
    for line in sealed_lines(run / "metrics.jsonl"):
        with suppress(ValueError):
            found.append(unsealed(line))
    return [entry for entry in found if entry.keys() >= {"kind", "update"}]
