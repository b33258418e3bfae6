"""What low-rank adaptation saves: updates with corrections of low rank, and of all weights.

    python -m benchmarks.speed.low_rank [--size small] [--rank 16] [--rounds 5]

A random Transformer; the same sentences of random pieces. Processor time of one thread; ratios are those of
one round, the table shows medians with the smallest and the largest. Memory is that of weights, gradients and
Adam's moments, counted, not measured.
"""

from functools import partial

import numpy as np
import torch
from torch.nn.utils import parametrize

from benchmarks.speed.batches import lengths
from benchmarks.speed.harness import apply, parser, table
from benchmarks.speed.systems import Trainee, config_of
from benchmarks.speed.vocabulary import ROWS, batch_of, numerals
from cotext.data.batch import Batch
from cotext.runtime.timing import Way, in_turn
from cotext.training.low_rank import Trained, adapt
from cotext.training.trainer import make_optimizer

PIECES = 32_000


def update(trainee: Trainee, batch: Batch) -> float:
    """As training does: corrected weights are added up once."""
    with parametrize.cached():
        outcome = trainee.loss(trainee.model, batch)
    (outcome.loss / outcome.count).backward()
    trainee.optimizer.step()
    trainee.optimizer.zero_grad()
    return float(outcome.count)


def main() -> None:
    """Print the tables."""
    options = parser(__doc__, rounds=5)
    options.add_argument("--size", default="small")
    options.add_argument("--rank", type=int, default=16)
    chosen = options.parse_args()
    clock = apply(chosen)
    tokenizer, trainees = numerals(PIECES), dict[str, Trainee]()
    for name, rank in (("all weights", 0), (f"rank {chosen.rank}", chosen.rank)):
        config = config_of("focused-concatenation/base", chosen.size, f"train.lora.rank={rank}")
        torch.manual_seed(0)
        trainees[name] = Trainee(config, tokenizer.vocabulary_size)
        if rank:
            adapt(trainees[name].model, config, tokenizer, [], {})
            trainees[name].optimizer = make_optimizer(trainees[name].model, config.train)[0]

    def training(number: int) -> dict[str, Way]:
        random = np.random.default_rng(number)
        batch = batch_of([lengths(random) for _ in range(ROWS)], PIECES, random)
        return {name: partial(update, trainee, batch) for name, trainee in trainees.items()}

    times = in_turn(training, chosen.rounds, clock)
    print(f"training, updates of {ROWS} sentences, {chosen.size} size")
    table(("", "labels a second", "against all weights"), times.speed_rows("{:,.0f}"))
    found = {name: Trained.of(trainee.model) for name, trainee in trainees.items()}
    rows = [(name, f"{each.learning:,}", f"{each.memory / 2**20:,.0f}") for name, each in found.items()]
    table(("", "numbers that learn", "MiB for weights, gradients, moments"), rows)


if __name__ == "__main__":
    main()
