"""Peak memory of training against the size of the corpus: `python -m benchmarks.memory`.

Prepares two controlled corpora, one eight times as large, trains a tiny model on each for a few updates in a
process of its own, and compares the peaks of the anonymous resident set (Linux). Also gives the share of time
that training waited for data.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.data import PeakMemory
from cotext.config.recipe import load_config
from cotext.data.prepare import prepare_controlled
from cotext.training.callbacks import TrainingCallbacks
from cotext.training.run import train

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
    rows: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for factor in (1, FACTOR):
            data = Path(folder) / f"data-{factor}"
            prepare_controlled(factor * DOCUMENTS, data)
            command = [sys.executable, "-m", "benchmarks.memory", "--data", str(data)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            rows[factor] = json.loads(done.stdout)
    print(f"{'documents':>10}{'peak MiB':>10}{'waiting for data':>18}")
    for factor, row in rows.items():
        print(f"{factor * DOCUMENTS:>10,}{row['peak_mebibytes']:>10.0f}{row['waiting_share']:>18.2%}")
    print(f"peak memory, {FACTOR}x over 1x: {rows[FACTOR]['peak_mebibytes'] / rows[1]['peak_mebibytes']:.2f}")


if __name__ == "__main__":
    main()
