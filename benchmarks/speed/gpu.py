"""A GPU: training and decoding by system, shares of its peak, and who waits for whom.

    python -m benchmarks.speed.gpu training [--recipes ...] [--size base] [--tokens 16000] [--precision bf16]
    python -m benchmarks.speed.gpu decoding [--recipes ...] [--size base] [--documents 16] [--beam 5]
    python -m benchmarks.speed.gpu waiting  [--recipes ...]

`training` tells real target tokens a second, the share of the peak, the memory that updates add, and how much
of an update the CPU spends on indices, which a thread of its own does beside it. The peak is that of the
fastest matrix product of the precision, measured here; what an update computes is counted as for a plain
Transformer on the same tokens, so that systems compare. `decoding` translates documents, one at a time and
all at once: sentences a second, and how many times as fast as the first recipe (table 3 of Yu et al. 2024
with g-transformer/randinit first, --documents 1). `waiting` makes one update while CUDA is told to fail
wherever the CPU waits for it.

Without a GPU everything runs on the CPU, in miniature: --size small --tokens 600 --rounds 1; `waiting` then
counts values that the CPU reads of tensors. Weights and tokens are random; the clock is the wall's.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.speed.batches import instance_of, lengths, packed
from benchmarks.speed.harness import parser, table
from benchmarks.speed.systems import (
    SIZES,
    Numerals,
    config_of,
    random_documents,
    random_model,
    translated,
)
from benchmarks.speed.training import CEILING_SHAPES, product_flops
from cotext.data.batch import Batch, Instance
from cotext.data.build import build_view, special_symbols
from cotext.layers.blocks import Size
from cotext.layers.moving import pinned
from cotext.losses.build import build_loss
from cotext.runtime.devices import choose_device
from cotext.runtime.timing import in_turn, spread
from cotext.translation.translator import DocumentTranslator

RECIPES = (
    "focused-concatenation/base",
    "focused-concatenation/s4to4-shift-cd",
    "g-transformer/randinit",
    "p-transformer/doc",
    "docflat/docflat-c",
    "mcn/final",
    "casa/casa",
)
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}
# What recipes leave to the data, or to a run that they start from.
NUMBERS = ("model.shift=25", "view.numbers=100", "train.init=''", "view.max_tokens=512")
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
def failing_where_the_cpu_waits() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


class Trained:
    """A system on the device, with its optimiser, and batches to train it on."""

    def __init__(self, recipe: str, size: str, tokens: int, device: torch.device, precision: str) -> None:
        self.config = config_of(recipe, size, *NUMBERS)
        self.tokens, self.device, self.precision = tokens, device, precision
        self.model = random_model(self.config).train().to(device)
        self.loss = build_loss(self.config.loss)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)

    def batches(self) -> Iterator[Batch]:
        """Documents of up to 20 sentences of random tokens, as the view of the recipe cuts them."""
        random, symbols = np.random.default_rng(7), special_symbols(Numerals(), self.config.view)
        view = build_view(self.config.view)
        while True:
            rows: list[Instance] = []
            for number in range(max(1, self.tokens // 1000)):
                pairs = [lengths(random) for _ in range(min(20, 1 + self.tokens // 50))]
                source, target = ([random.integers(1, 31_000, p[side]) for p in pairs] for side in (0, 1))
                for window in view.split(*([len(s) for s in texts] for texts in (source, target))):
                    rows.append(replace(instance_of(window, source, target), document=number))
            yield from packed(rows, symbols, self.tokens)

    def laid_out(self, batch: Batch) -> Batch:
        found = self.loss.laid_out(self.model, batch, training=True)
        return pinned(found) if self.device.type == "cuda" else found

    def update(self, batch: Batch) -> None:
        kind = self.device.type
        with torch.autocast(kind, PRECISIONS[self.precision], enabled=self.precision != "fp32"):
            outcome = self.loss(self.model, batch.to(self.device))
        (outcome.loss / outcome.count).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def finished(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak(device: torch.device, precision: str) -> float:
    """Operations a second of the fastest matrix product."""
    best = 0.0
    for m, k, n in CEILING_SHAPES if device.type == "cpu" else ((8192, 8192, 8192),):
        a, b = (torch.randn(*s, device=device, dtype=PRECISIONS[precision]) for s in ((m, k), (k, n)))
        for _ in range(3):
            finished(device)
            start = time.perf_counter()
            a @ b
            finished(device)
            best = max(best, 2 * m * k * n / (time.perf_counter() - start))
    return best


def seconds(work: Callable[[], object], device: torch.device) -> float:
    finished(device)
    start = time.perf_counter()
    work()
    finished(device)
    return time.perf_counter() - start


def training(
    recipes: Sequence[str], size: str, tokens: int, precision: str, rounds: int, device: torch.device
) -> list[tuple[str, ...]]:
    """Rows of the table: system, tokens a second, share of the peak, indices' share, GiB."""
    ceiling, rows = peak(device, precision), []
    for recipe in recipes:
        trained = Trained(recipe, size, tokens, device, precision)
        source = trained.batches()
        trained.update(trained.laid_out(next(source)))
        rates, shares, ahead = [], [], []
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        for _ in range(rounds):
            batch = next(source)
            start = time.perf_counter()
            laid_out = trained.laid_out(batch)
            before = time.perf_counter() - start
            taken = seconds(partial(trained.update, laid_out), device)
            rates.append(batch.labels.count / taken)
            d, f, heads = SIZES[size]
            shares.append(product_flops(Size(d, f, heads, 6, 6), batch) / taken / ceiling)
            ahead.append(before / taken)
        memory = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else float("nan")
        told = spread(rates, "{:,.0f}"), spread(shares, "{:.0%}"), spread(ahead, "{:.0%}"), f"{memory:.1f}"
        rows.append((recipe, *told))
    return rows


def decoding(
    recipes: Sequence[str], size: str, documents: int, beam: int, rounds: int, device: torch.device
) -> list[tuple[str, ...]]:
    """Rows of the table: system, sentences a second, times as fast as the first."""
    texts = random_documents(documents, 8, 24)
    ways = {}
    for recipe in recipes:
        asked = [f"decode.beam={beam}", "decode.max_ratio=1", "decode.max_extra=0"]
        config = config_of(recipe, size, *NUMBERS, *asked)
        translator = DocumentTranslator(random_model(config).to(device), config, Numerals(), device)
        ways[recipe] = lambda t=translator: translated(t, texts)
    times = in_turn(ways, rounds, time.perf_counter)
    return times.speed_rows("{:.1f}")


def waiting(recipe: str, size: str, tokens: int, device: torch.device) -> int:
    """How often the CPU reads a value in one update; on a GPU, an error where it waits."""
    trained = Trained(recipe, size, tokens, device, "fp32")
    source = trained.batches()
    trained.update(trained.laid_out(next(source)))
    laid_out = trained.laid_out(next(source))
    with HostReads() as reads:
        if device.type == "cuda":
            with failing_where_the_cpu_waits():
                trained.update(laid_out)
        else:
            trained.update(laid_out)
    return reads.found.total()


def main() -> None:
    options_of = parser(__doc__, rounds=9)
    options_of.add_argument("question", choices=("training", "decoding", "waiting"))
    options_of.add_argument("--recipes", nargs="+", default=list(RECIPES))
    options_of.add_argument("--size", choices=sorted(SIZES), default="base")
    options_of.add_argument("--tokens", type=int, default=16_000)
    options_of.add_argument("--documents", type=int, default=16)
    options_of.add_argument("--beam", type=int, default=5)
    options_of.add_argument("--precision", choices=sorted(PRECISIONS), default="bf16")
    options_of.add_argument("--device")
    options = options_of.parse_args()
    torch.set_num_threads(options.threads)
    device = choose_device(options.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU"
    print(f"torch {torch.__version__}, {name}")
    if options.question == "training":
        found = training(
            options.recipes, options.size, options.tokens, options.precision, options.rounds, device
        )
        table(("system", "tokens a second", "of the peak", "indices, beside it", "GiB"), found)
    elif options.question == "decoding":
        found = decoding(
            options.recipes, options.size, options.documents, options.beam, options.rounds, device
        )
        table(("system", "sentences a second", "times the first"), found)
    else:
        counts = [(r, str(waiting(r, options.size, options.tokens, device))) for r in options.recipes]
        table(("system", "values read in an update"), counts)


if __name__ == "__main__":
    main()
