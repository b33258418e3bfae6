"""Operators of PyTorch per decoding step: unlike times, their number is the same on every machine.

    python -m benchmarks.speed.operators [--systems GROUP | 'RECIPE key=value ...'] [--sentences 4]
        [--beams 1 4] [--names 12]

Systems of base depth with random weights translate one document; the width does not change the number.
Every sentence reaches its length limit. The number is that of a translation with limits that are STEPS
higher, minus that of one without, divided by the additional steps. `--names`: also list the most frequent
operators.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.speed.harness import parser, table
from benchmarks.speed.systems import (
    SENTENCE,
    add_options,
    config_of,
    named,
    random_documents,
    translations,
    translator_of,
)

SYSTEMS = (SENTENCE, "focused-concatenation/s4to4-shift-cd", "p-transformer/doc", "g-transformer/randinit")
WIDTH = ("model.dimension=64", "model.feed_forward=64", "model.heads=8")
TOKENS = 25
STEPS = 32  # twice the number of steps after which slots of beams are collected


class Operators(TorchDispatchMode):
    """Counts the operators that are called in its context, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.counts[func._schema.name.removeprefix("aten::")] += 1
        return func(*args, **(kwargs or {}))


def operators(system: str, sentences: int, beam: int) -> Counter[str]:
    """Return the operators of STEPS steps of every sentence of a document."""
    documents = random_documents(1, sentences, TOKENS)

    def counted(extra: int) -> Counter[str]:
        further = (f"decode.beam={beam}", "decode.max_ratio=1", f"decode.max_extra={extra}")
        translate = translations(translator_of(config_of(system, "base", *WIDTH, *further), CPU))
        with Operators() as found:
            translate(documents)
        return found.counts

    longer, counts = counted(STEPS), counted(0)
    longer.subtract(counts)
    return longer


CPU = torch.device("cpu")


def main() -> None:
    """Print a table."""
    made = parser(__doc__, rounds=1)
    add_options(made, (), "")
    made.set_defaults(systems=SYSTEMS)
    made.add_argument("--sentences", type=int, default=4)
    made.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    made.add_argument("--names", type=int, default=0)
    options = made.parse_args()
    rows = []
    for system in named(options.systems):
        sentences = 1 if system.split()[0] == SENTENCE else options.sentences
        row = [system]
        for beam in options.beams:
            counts = operators(system, sentences, beam)
            steps = STEPS * sentences
            row.append(f"{sum(counts.values()) / steps:.0f}")
            for name, count in counts.most_common(options.names):
                print(f"{system}, beam {beam}: {name} {count / steps:.1f}")
        rows.append(row)
    table(("system", *(f"beam {beam}" for beam in options.beams)), rows)


if __name__ == "__main__":
    main()
