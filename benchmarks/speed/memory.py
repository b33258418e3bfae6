"""Peak memory of training against the size of the corpus: `python -m benchmarks.speed.memory`.

Prepares two controlled corpora, one eight times as large, trains a tiny model on each for a few updates in a
process of its own, and compares the peaks of the anonymous resident set (Linux). Also gives the share of time
that training waited for data.
"""

import argparse
import json
import tempfile
from pathlib import Path

from benchmarks.speed.harness import PeakMemory, in_child, load, table
from cotext.config.recipe import load_config
from cotext.data.prepare import prepare_controlled
from cotext.data.requests import ControlledRequest
from cotext.training.run import train
from cotext.training.trainer import TrainingCallbacks

DOCUMENTS = 10_000
FACTOR = 8
UPDATES = 60


def measure(data: Path) -> dict[str, float]:
    """Train in this process; give peak MiB and the share of time spent waiting for batches."""
    waiting: list[float] = []
    overrides = [
        f"train.max_updates={UPDATES}",
        f"train.validate_every={UPDATES}",
        "train.log_every=20",
        "train.validate_bleu=false",
        # Smaller than the smaller corpus, so that both fill it.
        "train.pool_tokens=500000",
    ]
    reports = TrainingCallbacks(
        on_update=lambda figures: waiting.append(figures["waiting_share"]),
        on_validation=lambda figures: None,
        on_message=lambda text: None,
    )
    memory = PeakMemory()
    with tempfile.TemporaryDirectory() as folder:
        config = load_config("focused-concatenation/s4to4", "tiny", overrides)
        train(config, data, Path(folder) / "run", reports)
    # The first report holds the start: the first pool is read while nothing can be trained on yet.
    return {"peak_mebibytes": memory.stop() / 1024, "waiting_share": max(waiting[1:])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="measure this prepared folder in this process")
    arguments = parser.parse_args()
    if arguments.data:
        print(json.dumps(measure(arguments.data)))
        return
    print(load())
    rows: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for factor in (1, FACTOR):
            data = Path(folder) / f"data-{factor}"
            prepare_controlled(ControlledRequest(size=str(factor * DOCUMENTS), out=data))
            found = in_child("memory", "--data", str(data))
            assert isinstance(found, dict)
            rows[factor] = found
    cells = [
        (f"{factor * DOCUMENTS:,}", f"{row['peak_mebibytes']:.0f}", f"{row['waiting_share']:.2%}")
        for factor, row in rows.items()
    ]
    table(("documents", "peak MiB", "waiting for data"), cells)
    print(f"peak memory, {FACTOR}x over 1x: {rows[FACTOR]['peak_mebibytes'] / rows[1]['peak_mebibytes']:.2f}")


if __name__ == "__main__":
    main()
