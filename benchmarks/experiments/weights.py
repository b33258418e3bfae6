"""Weights of training sentences: the same ones for other sentences, and how soon they teach context.

    python -m benchmarks.experiments.weights shuffle WEIGHTS OUT [SEED]
    python -m benchmarks.experiments.weights table SUITE... -- RUN...

`shuffle` gives the weights of `cotext select --weights` to sentences drawn at random, a control of training
with `train.weight_by`. `table` prints for every checkpoint of runs the accuracy on suites, in per cent of
the examples whose clue is one to three sentences away.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

from cotext.analysis.contrastive import run_suite
from cotext.data.suite_files import read_suite
from cotext.decoding.open import open_scorer
from cotext.models.run_folder import checkpoints
from cotext.runtime.files import replacing
from cotext.runtime.tables import render_rows

DISTANCES = (1, 2, 3)


def shuffle(path: Path, out: Path, seed: int) -> None:
    """Write the same weights, each at the place of another."""
    header, *lines = path.read_text(encoding="utf-8").splitlines()
    documents = [json.loads(line) for line in lines]
    weights = [weight for document in documents for weight in document["weights"]]
    Random(seed).shuffle(weights)
    drawn = iter(weights)
    content = json.loads(header)
    content["signature"] += f"|shuffled:{seed}"
    with replacing(out) as temporary, temporary.open("w", encoding="utf-8") as file:
        print(json.dumps(content), file=file)
        for document in documents:
            document["weights"] = [next(drawn) for _ in document["weights"]]
            print(json.dumps(document, ensure_ascii=False), file=file)


def accuracies(run: Path, suites: Sequence[Path]) -> list[list[str]]:
    """A line for every checkpoint: the accuracy on each suite."""
    rows = []
    for update in checkpoints(run):
        opened = open_scorer(run, None, {}, update)
        cells = [run.name, str(update)]
        for path in suites:
            report = run_suite(opened.translator, read_suite(path))
            near = [report.by_distance[str(distance)] for distance in DISTANCES]
            cells.append(f"{100 * sum(e.correct for e in near) / sum(e.total for e in near):.1f}")
        rows.append(cells)
    return rows


def main(arguments: Sequence[str]) -> None:
    """Shuffle weights, or print a table."""
    command, *rest = arguments
    if command == "shuffle":
        path, out, *seed = rest
        shuffle(Path(path), Path(out), int(*seed or [1]))
        return
    split = rest.index("--")
    suites, runs = ([Path(name) for name in part] for part in (rest[:split], rest[split + 1 :]))
    rows = [["run", "updates", *(path.stem for path in suites)]]
    print(render_rows(rows + [row for run in runs for row in accuracies(run, suites)], left=1))


if __name__ == "__main__":
    main(sys.argv[1:])
