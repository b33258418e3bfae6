"""Operators of PyTorch that are called: unlike times, their number is the same on every machine.

    python -m benchmarks.speed.operators [--systems GROUP | 'RECIPE key=value ...'] [--sentences 4]
        [--beams 1 4] [--names 12]
    python -m benchmarks.speed.operators --updates [--systems ...] [--size base] [--device cuda]

**Per decoding step.** Systems of base depth with random weights translate one document; the width does not
change the number. Every sentence reaches its length limit. The number is that of a translation with limits
that are STEPS higher, minus that of one without, divided by the additional steps. `--names`: also list the
most frequent operators.

**In an update** (`--updates`), the values that the CPU reads from tensors. Each system makes an update with
CUDA set to raise an error wherever the CPU waits for it; on a CPU, the number is all that is tested.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.speed.harness import apply, parser, table
from benchmarks.speed.systems import (
    SENTENCE,
    Trainee,
    add_options,
    config_of,
    named,
    numbers,
    random_batches,
    random_documents,
    translations,
    translator_of,
)

SYSTEMS = (SENTENCE, "focused-concatenation/s4to4-shift-cd", "p-transformer/doc", "g-transformer/randinit")
WIDTH = ("model.dimension=64", "model.feed_forward=64", "model.heads=8")
TOKENS = 25
STEPS = 32  # twice the number of steps after which slots of beams are collected


class Operators(TorchDispatchMode):
    """Counts the operators that are called in its context, by name; subclasses count some of them."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name, kwargs = func._schema.name.removeprefix("aten::"), kwargs or {}
        if self.is_counted(name, args, kwargs):
            self.counts[name] += 1
        return func(*args, **kwargs)

    def is_counted(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Return whether this call of an operator is counted."""
        return True


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
READS = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "unique_dim", "bincount")


class HostReads(Operators):
    """Counts operations that give the CPU a value of a tensor, or a size that depends on one."""

    def is_counted(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Return whether the result of a call depends on the value of a tensor that the CPU reads."""
        if name.startswith(("index", "_index_put")) and isinstance(args[1], list | tuple):
            return any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])
        return name in READS or (name == "repeat_interleave" and kwargs.get("output_size") is None)


@contextmanager
def failing_where_the_cpu_waits(device: torch.device) -> Iterator[None]:
    """On a GPU, raise an error wherever the CPU waits for it."""
    if device.type != "cuda":
        yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def values_read(system: str, size: str, shape: str, device: torch.device) -> int:
    """Return how many values the CPU reads in an update; raise an error where it waits for a GPU."""
    config = config_of(system, size)
    pupil = Trainee(config, device)
    [batch, *_] = random_batches(config, *numbers(shape), max_tokens=4096)
    batch = pupil.laid_out(batch)
    pupil.update(batch)  # the optimiser makes its state
    with HostReads() as reads, failing_where_the_cpu_waits(device):
        pupil.update(batch)
    return reads.counts.total()


def main() -> None:
    """Print a table."""
    made = parser(__doc__, rounds=1)
    add_options(made, ("4x20",), "DOCUMENTSxSENTENCES")
    made.set_defaults(systems=None)
    made.add_argument("--updates", action="store_true", help="values that the CPU reads in an update")
    made.add_argument("--sentences", type=int, default=4)
    made.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    made.add_argument("--names", type=int, default=0)
    options = made.parse_args()
    if options.updates:
        device, _ = apply(options)
        reads = [
            (name, str(values_read(name, options.size, shape, device)))
            for name in named(options.systems or ["kinds"])
            for shape in options.shapes
        ]
        table(("system", "values read in an update"), reads)
        return
    rows = []
    for system in named(options.systems or SYSTEMS):
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
