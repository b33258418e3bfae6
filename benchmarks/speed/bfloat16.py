"""Updates in bfloat16 beside fp32, for a system of each kind, on the CPU.

    python -m benchmarks.speed.bfloat16 [--size base] [--systems sentence p ...] [--tokens 2048]
    python -m benchmarks.speed.bfloat16 --marian [--size base]       ours beside Hugging Face's Marian

Random batches of documents of 512 tokens in sentences of about 25, random weights, 8,000 subwords (with
`--marian` sentences and 32,000), dropout 0.1 but for attention. An update is forward and backward pass and
Adam; ways take turns, ratios are those of one round, and tables show medians with the smallest and the
largest. The processor's features and the load come first.
"""

import argparse
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch

from benchmarks.speed.batches import instance, lengths, sentence_batches
from benchmarks.speed.harness import apply, parser, table
from benchmarks.speed.int8 import SYSTEMS
from benchmarks.speed.systems import Trainee, config_of
from cotext.data.batch import Batch, SpecialSymbols
from cotext.data.collate import make_batch
from cotext.runtime.devices import multiplies_bfloat16
from cotext.runtime.timing import Clock, Way, in_turn

VOCABULARY = 8000
BRACKETS = SpecialSymbols(VOCABULARY - 3, VOCABULARY - 2, VOCABULARY - 1, (VOCABULARY - 1,), bracket=True)
ROW_TOKENS = 512


def batch_of(tokens: int, random: np.random.Generator) -> Batch:
    """Documents of brackets and random words."""
    rows = []
    for _ in range(max(1, tokens // ROW_TOKENS)):
        pairs, longest = [], 0
        while longest < ROW_TOKENS - 64:
            pairs.append(lengths(random))
            longest += max(pairs[-1]) + 2
        made = instance(pairs, random)
        sides = [[s % BRACKETS.pad for s in side] for side in (made.source, made.target)]
        rows.append(type(made)(0, made.window, *sides))
    return make_batch(rows, BRACKETS)


def update(trainee: Trainee, batch: Batch, precision: str) -> None:
    """One update; in bfloat16 as `train.precision = bf16` has it."""
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        outcome = trainee.loss(trainee.model, batch)
    (outcome.loss / outcome.count).backward()
    trainee.optimizer.step()
    trainee.optimizer.zero_grad()


def systems(options: argparse.Namespace, clock: Clock) -> None:
    """A row for each system: seconds of an update in fp32, and how many times as long that takes as bf16."""
    rows = []
    for name in options.systems:
        config = config_of(SYSTEMS[name], options.size, "model.dropout=0.1", "train.init=''")
        config = config.model_copy(update={"view": config.view.model_copy(update={"separators": "bracket"})})
        torch.manual_seed(0)
        trainee = Trainee(config, VOCABULARY)
        batch = batch_of(options.tokens, np.random.default_rng(3))
        ways: dict[str, Way] = {
            precision: partial(update, trainee, batch, precision) for precision in ("fp32", "bf16")
        }
        times = in_turn(ways, options.rounds, clock)
        rows.append([name, times.took("fp32"), times.took("bf16"), times.ratio("fp32", "bf16")])
        print(*rows[-1], sep="  ", flush=True)
    table([f"{options.size}", "fp32 [s]", "bf16 [s]", "fp32 / bf16"], rows)


def beside_marian(options: argparse.Namespace, clock: Clock) -> None:
    """Sentences: ours and Marian in fp32 and under torch's autocast in bfloat16, on the same batches."""
    from benchmarks.speed.training import CASES, marian, ours

    case = next(case for case in CASES if (case.size, case.data) == (options.size, "sentences"))
    torch.manual_seed(1)
    source: Iterator[Batch] = sentence_batches(options.tokens, np.random.default_rng(7))
    sides = {"ours": ours(case), "Marian": marian(case)}

    def ways(number: int) -> dict[str, Way]:
        batch = next(source)

        def step(side: str, half: bool) -> float:
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                sides[side](batch)
            return float(batch.is_label.sum())

        return {
            f"{side}, {'bf16' if half else 'fp32'}": partial(step, side, half)
            for side in sides
            for half in (False, True)
        }

    times = in_turn(ways, options.rounds, clock)
    base = "Marian, fp32"
    rows = [[name, times.rate(name, "{:.0f}"), times.ratio(base, name)] for name in times.seconds]
    table([f"{options.size}, sentences", "target tokens/s", "times Marian in fp32"], rows)


def main() -> None:
    made = parser(__doc__, rounds=3)
    made.add_argument("--size", choices=["base", "small"], default="base")
    made.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    made.add_argument("--tokens", type=int, default=2048, help="target tokens of a batch")
    made.add_argument("--marian", action="store_true", help="ours beside Marian")
    options = made.parse_args()
    clock = apply(options)
    fast = "with" if multiplies_bfloat16() else "without"
    print(f"a CPU {fast} bfloat16, torch {torch.__version__}")
    (beside_marian if options.marian else systems)(options, clock)


if __name__ == "__main__":
    main()
