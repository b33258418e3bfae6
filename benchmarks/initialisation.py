"""What initial weights are worth: the same post-norm sentence system from each kind, on real text.

    python -m benchmarks.initialisation DATA FOLDER [key.path=value ...] [--size tiny] [--seeds 1 2]
        [--kinds xavier fairseq normal] [--updates 3000] [--pre-norm]

DATA is a folder made by `cotext prepare`. Every kind and seed is a run in FOLDER; an interrupted one goes on,
and a finished one is only read. The schedule is that of focused-concatenation/base at the size, batches and
their order depend on the seed alone. Prints the development loss of current sentences, nats a token, by
updates, with the spread of the seeds.
"""

import argparse
import json
from pathlib import Path
from typing import get_args

from benchmarks.documents import table
from cotext.config.recipe import load_config
from cotext.config.sizes import SIZES
from cotext.layers.initialisation import Initialisation
from cotext.training.callbacks import TrainingCallbacks
from cotext.training.run import train

POINTS = 6  # of a curve, that are shown


def losses(run: Path) -> dict[int, float]:
    """Development loss of a run by update."""
    entries = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {int(e["update"]): float(e["nll_current"]) for e in entries if e["kind"] == "validation"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--size", default="tiny", choices=list(SIZES))
    parser.add_argument("--kinds", nargs="+", default=list(get_args(Initialisation)))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--updates", type=int, default=3000)
    parser.add_argument("--pre-norm", action="store_true")
    chosen = parser.parse_intermixed_args()
    every = chosen.updates // 10
    curves: dict[str, list[dict[int, float]]] = {}
    for seed in chosen.seeds:
        for kind in chosen.kinds:
            settings = [f"model.initialisation={kind}", f"model.pre_norm={str(chosen.pre_norm).lower()}"]
            settings += [f"train.seed={seed}", f"train.max_updates={chosen.updates}", "train.patience=0"]
            settings += [f"train.validate_every={every}", "train.validate_bleu=false", "train.keep=1"]
            config = load_config("focused-concatenation/base", chosen.size, [*settings, *chosen.overrides])
            run = chosen.folder / f"{chosen.size}-{kind}-{seed}"
            train(config, chosen.data, run, TrainingCallbacks(lambda f: None, lambda f: None, print))
            curves.setdefault(kind, []).append(losses(run))
    updates = sorted(curves[chosen.kinds[0]][0])
    shown = sorted({*updates[:: -(len(updates) // -POINTS)], updates[-1]})
    table(["updates", *map(str, shown)], [[kind, *_row(curves[kind], shown)] for kind in curves])


def _row(curves: list[dict[int, float]], updates: list[int]) -> list[str]:
    """Lowest to highest loss of the seeds."""
    found = []
    for update in updates:
        values = sorted(curve[update] for curve in curves)
        found.append(f"{values[0]:.2f}" if len(values) == 1 else f"{values[0]:.2f} - {values[-1]:.2f}")
    return found


if __name__ == "__main__":
    main()
