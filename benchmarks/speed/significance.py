"""Time of paired tests: one table, ours beside sacrebleu's, on the same counts.

    python -m benchmarks.speed.significance [--documents 500] [--sentences 20] [--samples 10000]
        [--of-sacrebleu 500]

Text is random; what a test costs does not depend on it. Counting n-grams is told apart and in neither time.
"""

import argparse
import random
import time
from collections.abc import Callable
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from cotext.data.documents import Document
from cotext.evaluation.metrics.interface import measure
from cotext.evaluation.statistics.significance import Resampling, paired_test


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=500)
    parser.add_argument("--sentences", type=int, default=20)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--of-sacrebleu", type=int, default=500, help="samples that it makes, scaled up")
    given = parser.parse_args()
    reference, one, other = (corpus(given.documents, given.sentences, rate) for rate in (0.0, 0.3, 0.31))
    systems = {"one": one, "other": other}
    protocols = {"d-bleu": BLEU(force=True), "chrf": CHRF()}
    print(
        f"{given.documents} documents of {given.sentences} sentences, 2 systems, {given.samples} samples, "
        f"seconds; sacrebleu's from {given.of_sacrebleu} samples"
    )
    print(f"{'score':8}{'test':15}{'units':>6}{'counting':>9}{'ours':>9}{'sacrebleu':>11}{'ratio':>8}")
    for protocol, metric in protocols.items():
        measured, counting = timed(lambda p=protocol: measure(systems, [reference], [p]))
        statistics = {name: found[0].statistics for name, found in measured.items()}
        rows = {name: each.counts.astype(int).tolist() for name, each in statistics.items()}
        # sacrebleu's test would count again; here it gets what was counted.
        metric.num_refs = 1
        metric._extract_corpus_statistics = lambda hypothesis, _, rows=rows: rows[hypothesis[0]]
        named = [(name, [name] * len(each)) for name, each in rows.items()]
        for test, theirs in (("randomisation", "ar"), ("bootstrap", "bs")):
            # The same unit for both: sacrebleu draws whatever its segments are.
            unit = "document" if statistics["one"].unit == "document" else "sentence"
            resampling = Resampling(test=test, unit=unit, samples=given.samples)
            _, ours = timed(lambda s=statistics, r=resampling: paired_test(s, None, r))
            samples = {"test_type": theirs, "n_samples": given.of_sacrebleu}
            _, taken = timed(lambda m=metric, n=named, s=samples: PairedTest(n, {"m": m}, None, **s)())
            scaled = taken * given.samples / given.of_sacrebleu
            print(
                f"{protocol:8}{test:15}{len(rows['one']):6}{counting:9.2f}{ours:9.2f}{scaled:11.1f}"
                f"{scaled / ours:8.1f}",
                flush=True,
            )


def corpus(documents: int, sentences: int, error_rate: float) -> list[Document]:
    """The same random text every time, with a share of its words wrong."""
    text, errors = random.Random(1), random.Random(error_rate)
    words = [f"w{number}" for number in range(2000)]
    return [
        Document(
            str(number),
            tuple(
                " ".join(
                    text.choice(words) if errors.random() >= error_rate else f"x{text.choice(words)}"
                    for _ in range(20)
                )
                for _ in range(sentences)
            ),
        )
        for number in range(documents)
    ]


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    started = time.perf_counter()
    return work(), time.perf_counter() - started


if __name__ == "__main__":
    main()
