"""What other sentences behind gates cost beside one softmax over the row (`model.attention.others`).

    python -m benchmarks.speed.others training [--size small] [--precision bf16]
    python -m benchmarks.speed.others decoding [--size small]

Training: rows of so many sentences of a mean of 25 tokens. Decoding: windows of four sentences.
Processor time of one thread; ratios are those of one round.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from benchmarks.speed.batches import SYMBOLS, VOCABULARY, instance, lengths, packed
from benchmarks.speed.harness import apply, parser, table
from benchmarks.speed.systems import Numerals, Trainee, config_of, random_documents, random_model, translated
from cotext.data.batch import Batch, SpecialSymbols
from cotext.layers.others import GatedOthersSpan
from cotext.runtime.timing import in_turn
from cotext.translation.translator import DocumentTranslator

BATCH_TOKENS = 2500
BRACKETS = SpecialSymbols(
    SYMBOLS.pad, SYMBOLS.bos, SYMBOLS.eos, (SYMBOLS.eos,), bracket=True, source_begins=False
)
ROWS = ("view.separators=bracket", "view.open_source=false", "model.positions=reset")
WAYS = {"joint": ROWS, "gated": (*ROWS, "model.attention.others=gated")}


def opened(model: torch.nn.Module) -> None:
    """Open all gates a little, as after some updates."""
    for module in model.modules():
        if isinstance(module, GatedOthersSpan):
            torch.nn.init.constant_(module.gate, 0.1)


def trained(trainee: Trainee, batches: Sequence[Batch], precision: str) -> float:
    """One update a batch; gives the number of labels."""
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
        return sum(trainee.update(batch) for batch in batches)


def training(size: str, rounds: int, precision: str) -> None:
    """Labels a second for rows of 4, 8 and 20 sentences."""
    for sentences in (4, 8, 20):
        random = np.random.default_rng(7)
        rows = [instance([lengths(random) for _ in range(sentences)], random) for _ in range(80 // sentences)]
        batches = packed(sorted(rows, key=lambda row: row.row_tokens(BRACKETS)), BRACKETS, BATCH_TOKENS)
        ways = {}
        for name, overrides in WAYS.items():
            trainee = Trainee(config_of("focused-concatenation/s4to4", size, *overrides), VOCABULARY)
            opened(trainee.model)
            ways[name] = partial(trained, trainee, batches, precision)
        times = in_turn(ways, rounds)
        print(f"training, {size}, {precision}, rows of {sentences} sentences")
        table(("others", "labels a second", "against joint"), times.speed_rows("{:,.0f}"))


def decoding(size: str, rounds: int) -> None:
    """Sentences a second of two documents of ten sentences in windows of four."""
    documents = random_documents(2, 10, 25)
    for beam in (1, 4):
        ways = {}
        for name, overrides in WAYS.items():
            decode = (f"decode.beam={beam}", "decode.max_ratio=1", "decode.max_extra=0")
            config = config_of("focused-concatenation/s4to4", size, *overrides, *decode)
            model = random_model(config)
            opened(model)
            translator = DocumentTranslator(model, config, Numerals(), torch.device("cpu"))
            ways[name] = partial(translated, translator, documents)
        times = in_turn(ways, rounds)
        print(f"decoding, {size}, beam {beam}, windows of four sentences")
        table(("others", "sentences a second", "against joint"), times.speed_rows("{:.1f}"))


def main() -> None:
    """Time what was asked for."""
    made = parser(__doc__, rounds=7)
    made.add_argument("what", choices=["training", "decoding"])
    made.add_argument("--size", choices=["small", "base"], default="small")
    made.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    given = made.parse_args()
    apply(given)
    if given.what == "training":
        training(given.size, given.rounds, given.precision)
    else:
        decoding(given.size, given.rounds)


if __name__ == "__main__":
    main()
