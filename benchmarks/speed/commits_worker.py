"""The side of one checkout in `benchmarks.speed.commits`: does its work once for every line it is given.

Runs with PYTHONPATH set to the checkout and imports nothing else of the project. Uses what every checkout
has: the command line's configuration and training, and `cotext.load`. Where these lie has changed once.
"""

import json
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

try:
    from cotext.config.recipe import load_config
    from cotext.training.run import TrainingCallbacks as Reports
    from cotext.training.run import train
except ImportError:  # before modules had rooms
    from cotext.runs import train
    from cotext.trainer import Reports

    from cotext.config import load_config

import torch

import cotext
from cotext.data.formats import read_parallel

DOCUMENTS = 6
JOINED = 6  # of them make the long document


def tell(content: dict[str, Any]) -> None:
    print(f"@ {json.dumps(content)}", flush=True)


def told_to() -> bool:
    """Wait for the next line; whether there is one."""
    return bool(sys.stdin.readline())


def training(task: dict[str, Any]) -> None:
    """An update a line, in the training loop itself."""
    settings = [
        *task["settings"],
        "train.max_updates=100000",
        "train.validate_every=100000",
        "train.log_every=1",
    ]
    started = time.process_time()
    ready = False

    def on_update(figures: dict[str, float]) -> None:
        nonlocal started, ready
        seconds = time.process_time() - started
        # The first update is before the first line.
        tell({"seconds": seconds, "told": f"{figures['loss']:.6f}"} if ready else {})
        ready = True
        if not told_to():
            sys.exit()
        started = time.process_time()

    reports = Reports(on_update, lambda figures: None, lambda text: None)
    config = load_config(task["recipe"], task["size"], settings)
    train(config, Path(task["data"]), Path(task["run"]), reports)


def with_run(task: dict[str, Any]) -> None:
    """Translate or score a line, with what a few updates have taught."""
    # Outputs are about as long as the source, whatever little was learned.
    limits = {"max_ratio": 1.2, "max_extra": 2}
    translator = cotext.load(task["run"], "cpu", beam=5 if task["question"] == "beam" else 1, **limits)
    stream = read_parallel(Path(task["data"]) / "test.jsonl", None)
    documents = [document for document, _ in zip(stream, range(DOCUMENTS), strict=False)]
    sources = [cotext.Document(document.id, document.source) for document in documents]
    long = [s for document in documents[:JOINED] for s in document.source]
    work: dict[str, Callable[[], object]] = {
        "greedy": lambda: [d.sentences for d in translator.translate_documents(sources)],
        "beam": lambda: [d.sentences for d in translator.translate_documents(sources)],
        "document": lambda: translator.translate(long),
        "score": lambda: [
            [f"{score:.3f}" for score in translator.score(document.source, document.target)]
            for document in documents
        ],
    }
    tell({})
    while told_to():
        started = time.process_time()
        found = work[task["question"]]()
        seconds = time.process_time() - started
        tell({"seconds": seconds, "told": zlib.crc32(json.dumps(found).encode())})


def main() -> None:
    task = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    if task["question"] == "training":
        training(task)
    else:
        with_run(task)


if __name__ == "__main__":
    main()
