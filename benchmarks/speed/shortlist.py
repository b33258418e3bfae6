"""What a lexical shortlist gains in time, and what it loses.

    python -m benchmarks.speed.shortlist RUN ... --data FOLDER [--counts 25 100] [--precision int8]

Runs that have a shortlist (`cotext shortlist`) translate the test set of prepared data with and without, in
turn: processor time without over that with, BLEU and chrF of both, and the share of equal sentences.

    python -m benchmarks.speed.shortlist --random [--size base] [--systems casa ...] [--cells one batch]

Random weights and 32,000 subwords as in `benchmarks.speed.int8`, in int8, with and without a table of random
candidates: 20 of each source token, so that a sentence of 24 tokens has 1,450 (of real text: `--data`).
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.speed.harness import apply, parser, table
from benchmarks.speed.int8 import CELLS, SYSTEMS, WORDS
from benchmarks.speed.precision_quality import METRICS, shares, written
from benchmarks.speed.systems import Numerals, config_of, random_documents, random_model, translated
from cotext.data.documents import Document
from cotext.data.formats import read_parallel
from cotext.data.shortlist import FREQUENT, Shortlist
from cotext.evaluation.metrics.interface import evaluate
from cotext.models.precision import LEAST, quantised
from cotext.runtime.timing import Clock, in_turn
from cotext.translation.open import open_run
from cotext.translation.translator import DocumentTranslator

CANDIDATES = 20


def random_shortlist() -> Shortlist:
    """Candidates drawn evenly, and any tokens as the frequent ones."""
    random = np.random.default_rng(3)
    drawn = random.integers(0, Numerals.pieces, (Numerals.source_vocabulary_size, CANDIDATES))
    frequent = random.permutation(Numerals.pieces)[:FREQUENT]
    return Shortlist(Numerals.fingerprint, drawn.astype(np.int32), frequent.astype(np.int32))


def systems(options: argparse.Namespace, clock: Clock) -> None:
    """A row for each system: seconds in int8, and how many times as long that takes as with a shortlist."""
    rows = []
    for name in options.systems:
        settings = ["decode.max_ratio=1", "decode.max_extra=0", "decode.first_pass=''", "view.numbers=100"]
        plain = config_of(SYSTEMS[name], options.size, *settings)
        short = config_of(SYSTEMS[name], options.size, *settings, f"decode.shortlist={CANDIDATES}")
        model = quantised(random_model(plain), LEAST)
        cpu, tokens = torch.device("cpu"), Numerals()
        translators = {
            "whole": DocumentTranslator(model, plain, tokens, cpu),
            "short": DocumentTranslator(model, short, tokens, cpu, shortlist=random_shortlist()),
        }
        row = [name]
        for cell in options.cells:
            ways = {
                key: partial(translated, each, random_documents(*CELLS[cell], WORDS))
                for key, each in translators.items()
            }
            times = in_turn(ways, options.rounds, clock)
            row += [f"{times.median('whole'):.2f}", times.ratio("whole", "short")]
        print(*row, sep="  ", flush=True)
        rows.append(row)
    table(["", *(head for cell in options.cells for head in (f"{cell} [s]", "whole / short"))], rows)


def runs(options: argparse.Namespace, clock: Clock) -> None:
    """A row for each run and number of candidates."""
    pairs = list(read_parallel(options.data / "test.jsonl", None))[: options.documents]
    sources = [Document(d.id, d.source) for d in pairs]
    references = [Document(d.id, d.target) for d in pairs]
    rows = []
    for run in options.runs:
        decode: dict[str, Any] = {} if options.precision is None else {"precision": options.precision}
        opened = open_run(run, "cpu", decode, threads=options.threads)
        found: dict[int, Sequence[Document]] = {}

        def once(count: int, translator: DocumentTranslator, found: dict = found) -> float:
            found[count] = written(translator, sources)
            return len(found[count])

        ways = {
            str(count): partial(once, count, opened.with_decode({**decode, "shortlist": count}).translator)
            for count in (0, *options.counts)
        }
        times = in_turn(ways, options.rounds, clock)
        for count in options.counts:
            pair = [[s.value for s in evaluate(found[n], references, METRICS)] for n in (0, count)]
            rows.append(
                [
                    run.name,
                    str(count),
                    times.ratio("0", str(count)),
                    *(f"{a:.2f} / {b:.2f}" for a, b in zip(*pair, strict=True)),
                    *(f"{share:.1f}" for share in shares(found[0], found[count])),
                ]
            )
            print(*rows[-1], sep="  ", flush=True)
    heads = ["run", "shortlist", "whole / short", *METRICS, "equal sentences %", "equal words %"]
    table(heads, rows)


def main() -> None:
    made = parser(__doc__, rounds=2)
    made.add_argument("runs", nargs="*", type=Path)
    made.add_argument("--data", type=Path)
    made.add_argument("--documents", type=int, help="so many of the test set alone")
    made.add_argument("--counts", nargs="+", type=int, default=[25, 100])
    made.add_argument("--precision")
    made.add_argument("--random", action="store_true", help="systems with random weights")
    made.add_argument("--size", choices=["base", "small"], default="base")
    made.add_argument(
        "--systems", nargs="+", choices=list(SYSTEMS), default=["sentence", "s4to4", "g", "casa"]
    )
    made.add_argument("--cells", nargs="+", choices=list(CELLS), default=list(CELLS))
    options = made.parse_args()
    clock = apply(options)
    if options.random:
        systems(options, clock)
    else:
        runs(options, clock)


if __name__ == "__main__":
    main()
