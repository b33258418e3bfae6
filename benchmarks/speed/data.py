"""How fast a corpus is prepared, and in how much memory: `python -m benchmarks.speed.data`.

Each corpus is prepared in a process of its own. The rate, by the clock, counts everything but the training of
the tokenizer: reading the text twice, encoding, statistics, writing. CPU seconds count all of it, in all
processes. Memory is the peak of the anonymous resident set (Linux) of the first process, sampled every 10 ms,
so that pages of mapped files do not count. The first table compares settings on one corpus: the tokenizer
trained on all sentences or on the usual sample, one process or several.
"""

import argparse
import json
import os
import random
import resource
import tempfile
import time
from pathlib import Path

from benchmarks.speed.harness import PeakMemory, in_child, load, table
from cotext.data.documents import ParallelDocument
from cotext.data.formats import write_parallel
from cotext.data.prepare import prepare
from cotext.data.requests import PreparationRequest

REAL_DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "mix-ende"
VOCABULARY = 8_000
SMALL_PAIRS = 30_000
FACTOR = 8
COMPARED_PAIRS = 100_000
SAMPLES = {"all": "all", "usual": None, "small": "20000"}


def generated(pairs: int, seed: int) -> list[ParallelDocument]:
    """Documents of 24 sentences on average, 18 words each, with words as unequally frequent as real ones."""
    generator = random.Random(seed)
    syllables = [
        first + second for first in "bdfgklmnprstvz" for second in ("a", "e", "i", "o", "u", "ein", "er")
    ]
    vocabularies = [
        ["".join(generator.choices(syllables, k=generator.randint(1, 4))) for _ in range(20_000)]
        for _ in range(2)
    ]
    cumulative, total = [], 0.0
    for rank in range(1, 20_001):
        total += 1 / rank
        cumulative.append(total)

    def sentence(words: list[str], length: int) -> str:
        return " ".join(generator.choices(words, cum_weights=cumulative, k=length)).capitalize() + "."

    documents: list[ParallelDocument] = []
    left = pairs
    while left:
        sentences = min(left, generator.randint(4, 44))
        lengths = [generator.randint(4, 32) for _ in range(sentences)]
        source, target = (tuple(sentence(words, n) for n in lengths) for words in vocabularies)
        documents.append(ParallelDocument(str(len(documents)), source, target))
        left -= sentences
    return documents


def measure(
    source: Path, target: Path, dev_source: Path, dev_target: Path, sample: str, workers: int
) -> dict[str, float]:
    """Prepare a corpus from this process; give its size, seconds of both clocks, and peak MiB."""
    moments: dict[str, float] = {}

    def progress(stage: str, documents: int) -> None:
        moments.setdefault(stage, time.perf_counter())

    memory = PeakMemory()
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        out = Path(folder) / "out"
        request = PreparationRequest(
            source=source,
            target=target,
            dev_source=dev_source,
            dev_target=dev_target,
            out=out,
            vocabulary=VOCABULARY,
            tokenizer_sample=SAMPLES[sample],
            workers=workers,
        )
        report = prepare(request, progress)
        whole = time.perf_counter() - start
    training = moments["encoding train"] - moments["training the tokenizer"]
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    pairs = sum(split.sentences for split in report.splits.values())
    return {
        "pairs": pairs,
        "pairs_per_second": pairs / (whole - training),
        "tokens": report.splits["train"].source_tokens + report.splits["train"].target_tokens,
        "seconds": whole,
        "cpu_seconds": time.process_time() + children.ru_utime + children.ru_stime,
        "training_seconds": training,
        "peak_mebibytes": memory.stop() / 1024,
    }


def measure_apart(*paths: Path, sample: str = "small", workers: int = 1) -> dict[str, float]:
    """Run `measure` in a child process."""
    settings = ("--sample", sample, "--workers", str(workers))
    found = in_child("data", "--corpus", *map(str, paths), *settings)
    assert isinstance(found, dict)
    return found


def compare_settings(workers: int) -> None:
    """Prepare one corpus with each setting, and print seconds and tokens beside those of the first."""
    settings = [("all", 1), ("usual", 1), ("usual", workers)]
    with tempfile.TemporaryDirectory() as folder:
        names = [Path(folder) / name for name in ("train.source", "train.target", "dev.source", "dev.target")]
        write_parallel(*names[:2], generated(COMPARED_PAIRS, seed=1), "text")
        write_parallel(*names[2:], generated(500, seed=0), "text")
        rows = [measure_apart(*names, sample=sample, workers=count) for sample, count in settings]
    cells = [
        (
            f"tokenizer of {sample} sentences, processes: {count}",
            *(f"{row[key]:.1f}" for key in ("seconds", "cpu_seconds", "training_seconds", "peak_mebibytes")),
            f"{row['tokens'] / rows[0]['tokens']:.3f}",
        )
        for (sample, count), row in zip(settings, rows, strict=True)
    ]
    print(f"{COMPARED_PAIRS:,} pairs")
    table(("setting", "s", "CPU s", "tokenizer, s", "peak MiB", "tokens"), cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", nargs=4, type=Path, help="measure these four files in this process")
    parser.add_argument("--sample", choices=SAMPLES, default="small")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    if arguments.corpus:
        print(json.dumps(measure(*arguments.corpus, arguments.sample, arguments.workers)))
        return
    print(load())
    compare_settings(arguments.workers)
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        dev = Path(folder) / "dev.source", Path(folder) / "dev.target"
        write_parallel(*dev, generated(500, seed=0), "text")
        for factor in (1, FACTOR):
            train = Path(folder) / f"{factor}.source", Path(folder) / f"{factor}.target"
            write_parallel(*train, generated(factor * SMALL_PAIRS, seed=1), "text")
            rows[f"generated, {factor}x"] = measure_apart(*train, *dev)
    if REAL_DATA.is_dir():
        names = ("train.en.xz", "train.de.xz", "dev.en.xz", "dev.de.xz")
        rows["mix-ende"] = measure_apart(*(REAL_DATA / name for name in names))
    forms = {
        "pairs": "{:,.0f}",
        "pairs_per_second": "{:,.0f}",
        "training_seconds": "{:.1f}",
        "peak_mebibytes": "{:.0f}",
    }
    cells = [(name, *(form.format(row[key]) for key, form in forms.items())) for name, row in rows.items()]
    table(("corpus", "pairs", "pairs/s", "tokenizer, s", "peak MiB"), cells)
    small, large = (rows[f"generated, {factor}x"]["peak_mebibytes"] for factor in (1, FACTOR))
    print(f"peak memory, {FACTOR}x over 1x: {large / small:.2f}")


if __name__ == "__main__":
    main()
