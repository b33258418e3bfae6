"""The process of one checkout in `benchmarks.speed.commits`: does its work once for every line of its input.

PYTHONPATH is set to the checkout, and nothing else of the project is imported. It uses what every checkout
has: configuration, training, and `cotext.load`.
"""

import json
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import cotext
from cotext.config.recipe import load_config
from cotext.data.formats import read_parallel
from cotext.training.run import train
from cotext.training.trainer import TrainingCallbacks

DOCUMENTS = 6


def answer(content: dict[str, Any]) -> None:
    print(f"@ {json.dumps(content)}", flush=True)


def is_told_to() -> bool:
    """Wait for the next line; return whether there is one."""
    return bool(sys.stdin.readline())


def training(task: dict[str, Any]) -> None:
    """Make one update of the training loop for each line."""
    endless = ["train.max_updates=100000", "train.validate_every=100000", "train.log_every=1"]
    started = time.process_time()
    ready = False

    def on_update(figures: dict[str, float]) -> None:
        nonlocal started, ready
        seconds = time.process_time() - started
        # The first update comes before the first line.
        answer({"seconds": seconds, "result": f"{figures['loss']:.6f}"} if ready else {})
        ready = True
        if not is_told_to():
            sys.exit()
        started = time.process_time()

    callbacks = TrainingCallbacks(on_update, lambda figures: None, lambda text: None)
    config = load_config(task["recipe"], task["size"], [*task["settings"], *endless])
    train(config, Path(task["data"]), Path(task["run"]), callbacks)


def with_run(task: dict[str, Any]) -> None:
    """Translate or score with a trained run for each line."""
    # Outputs are about as long as the source, however little was learned.
    limits = {"max_ratio": 1.2, "max_extra": 2}
    translator = cotext.load(task["run"], "cpu", beam=5 if task["task"] == "beam" else 1, **limits)
    stream = read_parallel(Path(task["data"]) / "test.jsonl", None)
    documents = [document for document, _ in zip(stream, range(DOCUMENTS), strict=False)]
    sources = [cotext.Document(document.id, document.source) for document in documents]
    long = [s for document in documents for s in document.source]

    def translate() -> object:
        return [d.sentences for d in translator.translate_documents(sources)]

    def score() -> object:
        scores = (translator.score(document.source, document.target) for document in documents)
        return [[f"{score:.3f}" for score in each] for each in scores]

    work: dict[str, Callable[[], object]] = {
        "greedy": translate,
        "beam": translate,
        "document": lambda: translator.translate(long),
        "score": score,
    }
    answer({})
    while is_told_to():
        started = time.process_time()
        found = work[task["task"]]()
        seconds = time.process_time() - started
        answer({"seconds": seconds, "result": zlib.crc32(json.dumps(found).encode())})


def main() -> None:
    task = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    if task["task"] == "training":
        training(task)
    else:
        with_run(task)


if __name__ == "__main__":
    main()
