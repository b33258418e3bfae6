"""Where an update waits for the GPU.

    python -m benchmarks.speed.gpu [--systems GROUP | 'RECIPE key=value ...' ...] [--size base]
        [--device cuda]

Each system makes an update with CUDA set to raise an error wherever the CPU waits for it. The table counts
the values that the CPU reads from tensors during the update; on a CPU, it is all that is tested. Speed and
memory on a GPU: `benchmarks.speed.training` and `benchmarks.speed.translating` with `--device cuda`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.speed.harness import apply, parser, table
from benchmarks.speed.systems import Trainee, add_options, config_of, named, numbers, random_batches

READS = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "unique_dim", "bincount")


class HostReads(TorchDispatchMode):
    """Counts operations that give the CPU a value of a tensor, or a size that depends on one."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name, kwargs = func._schema.name.removeprefix("aten::"), kwargs or {}
        by_mask = name.startswith(("index", "_index_put")) and isinstance(args[1], list | tuple)
        if name in READS or (
            by_mask and any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])
        ):
            self.found[name] += 1
        if name == "repeat_interleave" and kwargs.get("output_size") is None:
            self.found[name] += 1
        return func(*args, **kwargs)


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
    return reads.found.total()


def main() -> None:
    """Print a table of all systems."""
    made = parser(__doc__, rounds=1)
    add_options(made, ("4x20",), "DOCUMENTSxSENTENCES")
    options = made.parse_args()
    device, _ = apply(options)
    counts = [
        (name, str(values_read(name, options.size, shape, device)))
        for name in named(options.systems)
        for shape in options.shapes
    ]
    table(("system", "values read in an update"), counts)


if __name__ == "__main__":
    main()
