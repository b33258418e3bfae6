"""Speed and memory of `cotext prepare`.

    python -m benchmarks.speed.data [--pairs 30000 240000] [--samples usual all] [--workers 1 2]
    python -m benchmarks.speed.data --corpus SOURCE TARGET DEV_SOURCE DEV_TARGET ...

Each corpus, generated or given, is prepared in a process of its own with each sample of the tokenizer and
number of workers. Seconds are elapsed time, of all work and of the training of the tokenizer; CPU seconds
are those of all processes. Memory is the peak of the anonymous resident set of the first process (Linux).
Tokens are compared with the first row of a corpus: a smaller sample gives more.
"""

import random
import resource
import tempfile
import time
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from benchmarks.speed.harness import PeakMemory, apply, in_own_process, parser, table
from cotext.data.documents import ParallelDocument
from cotext.data.formats import write_parallel
from cotext.data.prepare import prepare
from cotext.data.requests import PreparationRequest

VOCABULARY = 8_000
DEV_PAIRS = 500
SAMPLES = {"all": "all", "usual": None, "small": "20000"}
SYLLABLES = [
    first + second for first in "bdfgklmnprstvz" for second in ("a", "e", "i", "o", "u", "ein", "er")
]


def generated(pairs: int, seed: int) -> list[ParallelDocument]:
    """Return documents of 24 sentences of 18 words on average, with word frequencies as in real text."""
    generator = random.Random(seed)
    words = [
        ["".join(generator.choices(SYLLABLES, k=generator.randint(1, 4))) for _ in range(20_000)]
        for _ in ("source", "target")
    ]
    weights = list(accumulate(1 / rank for rank in range(1, 20_001)))  # Zipf's law

    def sentence(words: list[str], length: int) -> str:
        return " ".join(generator.choices(words, cum_weights=weights, k=length)).capitalize() + "."

    documents: list[ParallelDocument] = []
    left = pairs
    while left:
        lengths = [generator.randint(4, 32) for _ in range(min(left, generator.randint(4, 44)))]
        source, target = (tuple(sentence(side, n) for n in lengths) for side in words)
        documents.append(ParallelDocument(str(len(documents)), source, target))
        left -= len(lengths)
    return documents


def measure(corpus: Sequence[Path], sample: str, workers: int) -> dict[str, float]:
    """Prepare a corpus in this process; return its size, seconds of both clocks, and the peak in MiB."""
    moments: dict[str, float] = {}
    memory = PeakMemory()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        source, target, dev_source, dev_target = corpus
        request = PreparationRequest(
            source=source,
            target=target,
            dev_source=dev_source,
            dev_target=dev_target,
            out=Path(folder) / "out",
            vocabulary=VOCABULARY,
            tokenizer_sample=SAMPLES[sample],
            workers=workers,
        )
        report = prepare(request, lambda stage, _: moments.setdefault(stage, time.perf_counter()))
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "pairs": sum(split.sentences for split in report.splits.values()),
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() + children.ru_utime + children.ru_stime,
        "tokenizer_seconds": moments["encoding train"] - moments["training the tokenizer"],
        "peak_mebibytes": memory.stop() / 1024,
        "tokens": report.splits["train"].source_tokens + report.splits["train"].target_tokens,
    }


def main() -> None:
    """Print a table with a row for each corpus and setting."""
    made = parser(__doc__, rounds=1)
    made.add_argument("--corpus", nargs=4, type=Path, action="append", default=[])
    made.add_argument("--pairs", nargs="*", type=int, default=[30_000, 240_000], help="of generated corpora")
    made.add_argument("--samples", nargs="+", choices=SAMPLES, default=["usual"])
    made.add_argument("--workers", nargs="+", type=int, default=[1])
    options = made.parse_args()
    apply(options)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        corpora = {str(files[0]): files for files in options.corpus}
        for pairs in () if options.corpus else options.pairs:
            name = f"generated, {pairs:,}"
            corpora[name] = [
                Path(folder) / f"{pairs}.{part}" for part in ("source", "target", "dev", "dev-target")
            ]
            write_parallel(*corpora[name][:2], generated(pairs, seed=1), "text")
            write_parallel(*corpora[name][2:], generated(DEV_PAIRS, seed=0), "text")
        for name, files in corpora.items():
            tokens = 0.0
            for sample, workers in ((s, w) for s in options.samples for w in options.workers):
                found = in_own_process(measure, files, sample, workers)
                tokens = tokens or found["tokens"]
                rate = found["pairs"] / (found["seconds"] - found["tokenizer_seconds"])
                seconds = (f"{found[f'{which}seconds']:.1f}" for which in ("", "cpu_", "tokenizer_"))
                size = f"{found['peak_mebibytes']:.0f}", f"{found['tokens'] / tokens:.3f}"
                rows.append((name, sample, str(workers), *seconds, f"{rate:,.0f}", *size))
    head = ("corpus", "sample", "workers", "s", "CPU s", "of the tokenizer, s", "pairs/s without it")
    table((*head, "peak MiB", "tokens"), rows)


if __name__ == "__main__":
    main()
