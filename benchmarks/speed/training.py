"""Speed and memory of training: systems with random weights in turn on the same random documents.

    python -m benchmarks.speed.training [--systems GROUP | 'RECIPE key=value ...' | marian ...] [--size base]
        [--shapes 4x20 ...] [--tokens 4096] [--precisions fp32 bf16] [--device cuda]
    python -m benchmarks.speed.training --memory ...

A shape is documents x sentences: 4x20 are four documents of 20 sentences. They are cut as the recipe says,
and packed into batches of at most so many tokens, padding counted. The table has labels a second, the speed
over that of the first system in the same round (above 1: faster), and the share of the ceiling, as medians
with the smallest and the largest. `marian` is Hugging Face's model on the batches of the first system.

share    operations of the matrix products of a plain Transformer on the tokens a second, over the ceiling
ceiling  operations a second of the fastest matrix product, measured here
--memory MiB that the gradients of a batch add to a process that holds the model (Linux, on the CPU)
"""

import argparse
from collections.abc import Sequence

import torch

from benchmarks.speed.harness import Way, added_mebibytes, apply, in_own_process, parser, table, timed
from benchmarks.speed.systems import (
    MARIAN,
    VOCABULARY,
    Trained,
    Trainee,
    add_options,
    config_of,
    named,
    numbers,
    random_batches,
)
from cotext.config.model import ModelConfig
from cotext.data.batch import Batch
from cotext.runtime.progress import Clock, spread

CEILING_SHAPES = {
    "cpu": ((1024, 1024, 1024), (2048, 2048, 2048), (4096, 512, 2048), (3072, 3072, 3072)),
    "cuda": ((8192, 8192, 8192),),
}
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def trainee(name: str, first: str, size: str, device: torch.device, precision: str) -> Trained:
    """Return a system to train; Marian with the sizes and dropout of the first system."""
    if name != MARIAN:
        return Trainee(config_of(name, size), device, precision)
    from benchmarks.speed.rivals import MarianTrainee

    return MarianTrainee(config_of(first, size), device, precision)


def on_all(pupil: Trained, batches: Sequence[Batch]) -> Way:
    """Return a function that trains on all batches and returns the number of labels."""
    ahead = pupil.device.type == "cuda"  # where another thread lays out beside the GPU
    given = [pupil.laid_out(batch) for batch in batches] if ahead else batches

    def way() -> float:
        return sum(pupil.update(batch if ahead else pupil.laid_out(batch)) for batch in given)

    return way


def product_operations(model: ModelConfig, batch: Batch) -> float:
    """Return the operations of the matrix products of an update on the real tokens of a batch.

    A score is counted once for every pair of tokens that may attend to each other. A multiply-add is two
    operations, and the backward pass has two products for each one of the forward pass.
    """
    d, f = model.dimension, model.feed_forward
    source = (batch.source.sentence >= 0).sum(dim=1).double()
    target = batch.is_label.sum(dim=1).double()
    encoder = (4 * d * d + 2 * d * f) * source + 2 * d * source * source
    decoder = (6 * d * d + 2 * d * f) * target + 2 * d * d * source
    decoder += d * target * (target + 1) + 2 * d * source * target
    every = model.encoder_layers * encoder + model.decoder_layers * decoder + VOCABULARY * d * target
    return 6 * float(every.sum())


def ceiling(device: torch.device, precision: str, clock: Clock) -> float:
    """Return the operations a second of the fastest matrix product."""
    best = 0.0
    for m, k, n in CEILING_SHAPES[device.type]:
        a, b = (torch.randn(*s, device=device, dtype=TYPES[precision]) for s in ((m, k), (k, n)))
        for _ in range(3):
            start = clock()
            a @ b
            best = max(best, 2 * m * k * n / (clock() - start))
    return best


def rows(
    options: argparse.Namespace, device: torch.device, clock: Clock, shape: str
) -> list[tuple[str, ...]]:
    """Time the systems on the documents of a shape; return rows of the table."""
    names, (documents, sentences) = named(options.systems), numbers(shape)
    first, ways, least, gigabytes = names[0], dict[str, Way](), dict[str, float](), dict[str, str]()
    ceilings = {precision: ceiling(device, precision, clock) for precision in options.precisions}
    for name in names:
        config = config_of(first if name == MARIAN else name, options.size)
        batches = random_batches(config, documents, sentences, options.tokens)
        labels = sum(batch.labels.count for batch in batches)
        operations = sum(product_operations(config.model, batch) for batch in batches) / labels
        for precision in options.precisions:
            title = f"{name}, {precision}"
            before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
            ways[title] = on_all(trainee(name, first, options.size, device, precision), batches)
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(device)
                ways[title]()
                gigabytes[title] = f"{(torch.cuda.max_memory_allocated(device) - before) / 2**30:.1f}"
            least[title] = operations / ceilings[precision]
    times = timed(ways, options.rounds, clock)
    base = next(iter(ways))
    return [
        (
            title,
            spread([1.0 / seconds for seconds in times[title]], "{:,.0f}"),
            spread(times.ratios(base, title)),
            spread([least[title] / seconds for seconds in times[title]], "{:.0%}"),
            gigabytes.get(title, "-"),
        )
        for title in ways
    ]


def own_peak(name: str, size: str, tokens: int, precision: str, threads: int, shape: list[int]) -> float:
    """Return the MiB that the gradients of some documents add to this process."""
    torch.set_num_threads(threads)
    config = config_of(name, size)
    pupil, batches = Trainee(config, torch.device("cpu"), precision), random_batches(config, *shape, tokens)
    for parameter in pupil.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return added_mebibytes(lambda: [pupil.gradients(batch) for batch in batches])


def main() -> None:
    """Print a table for each shape, or one of memory."""
    made = parser(__doc__, rounds=3)
    add_options(made, ("4x20",), "DOCUMENTSxSENTENCES")
    made.add_argument("--tokens", type=int, default=4096, help="of a batch, padding counted")
    made.add_argument("--precisions", nargs="+", choices=list(TYPES), default=["fp32"])
    made.add_argument("--memory", action="store_true", help="peak memory, a process for each cell")
    options = made.parse_args()
    device, clock = apply(options)
    if options.memory:
        peaks = []
        for name in named(options.systems):
            what = name, options.size, options.tokens, options.precisions[0], options.threads
            each = [in_own_process(own_peak, *what, numbers(shape)) for shape in options.shapes]
            peaks.append((name, *(f"{peak:,.0f}" for peak in each)))
        table(("MiB", *options.shapes), peaks)
        return
    for shape in options.shapes:
        print(f"\n{options.size}, {shape}, batches of {options.tokens:,} tokens")
        found = rows(options, device, clock, shape)
        table(("system", "labels a second", "to the first", "of the ceiling", "GiB of the GPU"), found)


if __name__ == "__main__":
    main()
