"""Training speed and memory of our Transformer beside Hugging Face Marian, on the CPU in fp32.

    python -m benchmarks.speed.training [--quick] [--threads 1] [--clock cpu|wall]

Both sides: the same dimensions and random weights, the same token batches, ReLU, dropout 0.1, label
smoothing 0.1 over real labels, one fused Adam. Steps alternate, and the ratio of a round is that of two
neighbouring steps; the table shows medians. Only real tokens count, never padding.

share     multiply-adds of the matrix products on real tokens (forward + backward, a causal score counted once
          for every pair that may attend), over time, over the ceiling
ceiling   the fastest torch.mm among the sizes named, measured anew in every round
peak      VmHWM of a child process that does two steps, weights, optimiser and libraries included

Processor time of one thread, for a machine that others use too; `--threads 2 --clock wall` on a quiet one.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from benchmarks.speed.batches import SYMBOLS, VOCABULARY, document_batches, sentence_batches
from benchmarks.speed.harness import apply, number_in_child, parser
from benchmarks.speed.systems import plain_model
from cotext.data.batch import Batch
from cotext.layers.blocks import Size
from cotext.losses.cross_entropy import CrossEntropy
from cotext.runtime.timing import Clock

SIZES = {"base": (512, 2048, 8, 6), "small": (256, 1024, 4, 4)}
SMOOTHING = 0.1
CEILING_SHAPES = ((1024, 1024, 1024), (2048, 2048, 2048), (4096, 512, 2048), (3072, 3072, 3072))

Step = Callable[[Batch], None]


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    size: str
    data: str
    attention_dropout: float = 0.0

    def dimensions(self) -> Size:
        dimension, feed_forward, heads, layers = SIZES[self.size]
        return Size(dimension, feed_forward, heads, layers, layers, 0.1, self.attention_dropout, 0.1)


CASES = (
    Case("base", "sentences"),
    Case("base", "documents"),
    Case("base", "documents", 0.1),
    Case("small", "sentences"),
    Case("small", "documents"),
    Case("small", "documents", 0.1),
)


def batches(case: Case, tokens: int) -> Iterator[Batch]:
    random = np.random.default_rng(7)
    return (
        sentence_batches(tokens, random)
        if case.data == "sentences"
        else document_batches(tokens // 512, random)
    )


def ours(case: Case) -> Step:
    size = case.dimensions()
    model = plain_model(size)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    criterion = CrossEntropy(SMOOTHING, 1.0)

    def step(batch: Batch) -> None:
        loss = criterion(model, batch)
        (loss.loss / loss.count).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def marian(case: Case) -> Step:
    from transformers import MarianConfig, MarianMTModel

    size = case.dimensions()
    config = MarianConfig(
        vocab_size=VOCABULARY,
        d_model=size.dimension,
        encoder_layers=size.encoder_layers,
        decoder_layers=size.decoder_layers,
        encoder_attention_heads=size.heads,
        decoder_attention_heads=size.heads,
        encoder_ffn_dim=size.feed_forward,
        decoder_ffn_dim=size.feed_forward,
        activation_function="relu",
        dropout=size.dropout,
        activation_dropout=size.activation_dropout,
        attention_dropout=size.attention_dropout,
        scale_embedding=True,
        use_cache=False,
        pad_token_id=SYMBOLS.pad,
        eos_token_id=SYMBOLS.eos,
        decoder_start_token_id=SYMBOLS.bos,
        forced_eos_token_id=SYMBOLS.eos,
        attn_implementation="sdpa",
    )
    model = MarianMTModel(config).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

    def step(batch: Batch) -> None:
        mask = batch.source.sentence >= 0
        logits = model(
            input_ids=batch.source.tokens,
            # Without padding no mask is passed, so that its attention, too, may take the fastest path.
            attention_mask=None if bool(mask.all()) else mask.long(),
            decoder_input_ids=batch.target_input,
        ).logits
        label = batch.target_label.flatten()
        cross_entropy(
            logits.flatten(0, 1), label, ignore_index=SYMBOLS.pad, label_smoothing=SMOOTHING
        ).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def product_flops(size: Size, batch: Batch) -> float:
    """Floating-point operations of the matrix products of one step on the real tokens of a batch."""
    d, f = size.dimension, size.feed_forward
    source = (batch.source.sentence >= 0).sum(dim=1).double()
    target = batch.is_label.sum(dim=1).double()
    encoder = (4 * d * d + 2 * d * f) * source + 2 * d * source * source
    decoder = (6 * d * d + 2 * d * f) * target + 2 * d * d * source
    decoder += d * target * (target + 1) + 2 * d * source * target
    every = size.encoder_layers * encoder + size.decoder_layers * decoder + VOCABULARY * d * target
    # Two operations per multiply-add; the backward pass is two products for each product.
    return 6 * float(every.sum())


def ceiling(clock: Clock) -> tuple[float, str]:
    """Operations per second of the fastest matrix product, and its shape."""
    best, name = 0.0, ""
    for m, k, n in CEILING_SHAPES:
        a, b, out = torch.randn(m, k), torch.randn(k, n), torch.empty(m, n)
        for _ in range(3):
            start = clock()
            torch.mm(a, b, out=out)
            rate = 2 * m * k * n / (clock() - start)
            if rate > best:
                best, name = rate, f"{m}x{k}x{n}"
    return best, name


def seconds(step: Step, batch: Batch, clock: Clock) -> float:
    start = clock()
    step(batch)
    return clock() - start


@dataclass(frozen=True)
class Round:
    """One batch on both sides."""

    tokens: int
    flops: float
    ours: float  # seconds
    marian: float
    ceiling: float
    shape: str


def compare(case: Case, tokens: int, budget_seconds: float, min_rounds: int, clock: Clock) -> list[Round]:
    """Alternate the two sides on the same batches until the time is spent."""
    torch.manual_seed(1)
    size, sides = case.dimensions(), (ours(case), marian(case))
    source = batches(case, tokens)
    warm = next(source)
    for side in sides:
        side(warm)
    rounds: list[Round] = []
    start = time.perf_counter()
    for first in cycle((0, 1)):
        batch = next(source)
        taken = {side: seconds(sides[side], batch, clock) for side in (first, 1 - first)}
        labels, flops = int(batch.is_label.sum()), product_flops(size, batch)
        rounds.append(Round(labels, flops, taken[0], taken[1], *ceiling(clock)))
        if len(rounds) >= min_rounds and time.perf_counter() - start > budget_seconds:
            break
    return rounds


def peak_gigabytes(case: Case, side: str, threads: int) -> float:
    """Peak resident memory of a fresh process that takes two steps."""
    where = ["--case", str(CASES.index(case)), "--tokens", "4096", "--threads", str(threads)]
    return number_in_child("training", "--peak", side, *where)


def own_peak_gigabytes() -> float:
    status = Path("/proc/self/status").read_text()
    kibibytes = next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]
    return int(kibibytes) * 1024 / 1e9


def main() -> None:
    made = parser(__doc__, rounds=3)
    made.add_argument("--quick", action="store_true", help="fewer rounds and cases, smaller batches")
    made.add_argument("--no-memory", action="store_true", help="leave the peaks out")
    made.add_argument("--tokens", type=int, help="padded target tokens of a batch")
    made.add_argument("--case", type=int, help="only this line of the table, counted from 0")
    made.add_argument("--peak", choices=("ours", "marian"), help="of a process that does two steps, in GB")
    options = made.parse_args()
    clock = apply(options)
    cases = CASES if options.case is None else CASES[options.case : options.case + 1]
    if options.peak:
        step = ours(cases[0]) if options.peak == "ours" else marian(cases[0])
        source = batches(cases[0], options.tokens)
        for _ in range(2):
            step(next(source))
        print(own_peak_gigabytes())
        return
    report(options, cases, clock)


def report(options: argparse.Namespace, cases: tuple[Case, ...], clock: Clock) -> None:
    tokens = options.tokens or (1024 if options.quick else 4096)
    print(f"torch {torch.__version__}, {options.threads} threads, fp32, {options.clock} clock,", end=" ")
    print(f"batches of {tokens} padded target tokens; memory with batches of 4096")
    print("size  data      att.drop  tokens/s (Marian)  ratio  share (Marian)  peak GB (Marian)  ceiling")
    for case in cases:
        if options.quick and case.attention_dropout:
            continue
        budget = 1.0 if options.quick else (30.0 if case.size == "base" else 15.0)
        rounds = compare(case, tokens, budget, 2 if options.quick else options.rounds, clock)
        top = max(rounds, key=lambda r: r.ceiling)
        numbers = [
            statistics.median(r.tokens / r.ours for r in rounds),
            statistics.median(r.tokens / r.marian for r in rounds),
            statistics.median(r.marian / r.ours for r in rounds),
            statistics.median(r.flops / r.ours / r.ceiling for r in rounds),
            statistics.median(r.flops / r.marian / r.ceiling for r in rounds),
        ]
        peaks = ["-", "-"]
        if case.data == "documents" and not options.no_memory:
            for i, side in enumerate(("ours",) if options.quick else ("ours", "marian")):
                peaks[i] = f"{peak_gigabytes(case, side, options.threads):.2f}"
        print(
            f"{case.size:5} {case.data:9} {case.attention_dropout:8.1f}"
            "  {:8.0f} {:8.0f} {:6.2f}x {:6.0%} {:8.0%}".format(*numbers),
            f" {peaks[0]:>7} {peaks[1]:>8}   {top.ceiling / 1e9:.0f} GFLOP/s ({top.shape})",
            flush=True,
        )


if __name__ == "__main__":
    main()
