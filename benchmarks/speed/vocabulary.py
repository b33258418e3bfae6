"""What a trimmed vocabulary saves: training and translation with 60,000 pieces, and with those of a corpus.

    python -m benchmarks.speed.vocabulary [--pieces 60000 12000] [--rounds 5]

A random Transformer of base size; the same sentences of pieces that all vocabularies have. Processor time of
one thread; ratios are those of one round, tables show medians with the smallest and the largest.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from benchmarks.speed.batches import lengths
from benchmarks.speed.harness import apply, parser, table
from benchmarks.speed.systems import Numerals, Trainee, config_of, translated
from cotext.data.batch import Batch, Instance, SpecialSymbols
from cotext.data.collate import make_batch
from cotext.data.documents import Document
from cotext.data.views import Window
from cotext.models.build import build_model
from cotext.runtime.timing import Way, in_turn
from cotext.translation.translator import DocumentTranslator

ROWS = 32  # sentences of an update, and of a translation
USED = 8_000  # pieces that the sentences hold
SPECIAL = 4


def batch_of(pairs: Sequence[tuple[int, int]], pieces: int, random: np.random.Generator) -> Batch:
    """Sentences of random pieces, with the special symbols of a vocabulary."""
    one = range(1)
    symbols = SpecialSymbols(pieces, pieces + 1, pieces + 2, (pieces + 3,))
    rows = [
        Instance(0, Window(one, one, one), *([random.integers(0, USED, n).astype(np.int32)] for n in pair))
        for pair in pairs
    ]
    return make_batch(rows, symbols)


def numerals(count: int) -> Numerals:
    """A tokenizer of so many pieces."""
    tokenizer = Numerals()
    tokenizer.pieces = count
    tokenizer.pad, tokenizer.bos, tokenizer.eos, tokenizer.sep = range(count, count + SPECIAL)
    tokenizer.vocabulary_size = tokenizer.source_vocabulary_size = count + SPECIAL
    return tokenizer


def translator_of(count: int) -> DocumentTranslator:
    """A random model that translates greedily, as long sentences as it may."""
    config = config_of("focused-concatenation/base", "base", "decode.beam=1", "decode.max_ratio=1.0")
    torch.manual_seed(0)
    model = build_model(config, count + SPECIAL).eval()
    with torch.no_grad():
        model.output_weight[count:] = 0
    return DocumentTranslator(model, config, numerals(count), torch.device("cpu"))


def main() -> None:
    """Print the tables."""
    options = parser(__doc__, rounds=5)
    options.add_argument("--pieces", type=int, nargs="+", default=[60_000, 12_000])
    chosen = options.parse_args()
    clock = apply(chosen)
    config = config_of("focused-concatenation/base", "base")
    trainees = {count: Trainee(config, count + SPECIAL) for count in chosen.pieces}

    def training(number: int) -> dict[str, Way]:
        pairs = [lengths(np.random.default_rng(100 * number + i)) for i in range(ROWS)]
        return {
            f"{count:,} pieces": partial(
                trainee.update, batch_of(pairs, count, np.random.default_rng(number))
            )
            for count, trainee in trainees.items()
        }

    times = in_turn(training, chosen.rounds, clock)
    print(f"training, updates of {ROWS} sentences")
    table(("", "labels a second", f"against {chosen.pieces[0]:,}"), times.speed_rows("{:,.0f}"))
    translators = {count: translator_of(count) for count in chosen.pieces}

    def translation(number: int) -> dict[str, Way]:
        random = np.random.default_rng(number)
        texts = [" ".join(map(str, random.integers(0, USED, lengths(random)[0]))) for _ in range(ROWS)]
        documents = [Document(str(i), (text,)) for i, text in enumerate(texts)]
        return {
            f"{count:,} pieces": partial(translated, translator, documents)
            for count, translator in translators.items()
        }

    times = in_turn(translation, chosen.rounds, clock)
    print(f"greedy translation of {ROWS} sentences side by side")
    table(("", "sentences a second", f"against {chosen.pieces[0]:,}"), times.speed_rows("{:,.1f}"))


if __name__ == "__main__":
    main()
