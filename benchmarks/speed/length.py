"""What a token costs by the length of its document, from 512 to 32,768 tokens a side, on the CPU.

    python -m benchmarks.speed.length training [--size small] [--lengths 512 4096 32768]
    python -m benchmarks.speed.length translation [--size small]      greedy, as many tokens as the source has
    python -m benchmarks.speed.length memory [--size small]           of training, a process for every cell

Systems as their recipes cut documents, and `whole`: the document as one piece. `flat`: where nothing grows
with the piece, time a token should not either; where attention sees the whole piece, it should lie on the
line through the two shortest lengths. Processor time of one thread; short documents are repeated.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from benchmarks.speed.batches import lengths
from benchmarks.speed.harness import added_mebibytes, apply, number_in_child, parser, table
from benchmarks.speed.systems import SIZES, Numerals, Trainee, config_of, random_model, translated
from cotext.config.recipe import Config
from cotext.data.batch import Batch, Instance, SpecialSymbols
from cotext.data.build import build_view, special_symbols
from cotext.data.collate import make_batch, pack
from cotext.data.documents import Document
from cotext.runtime.timing import Way, in_turn, spread
from cotext.translation.translator import DocumentTranslator

LENGTHS = (512, 4096, 32_768)
BATCH_TOKENS = 4096
LEAST_TOKENS = 2048  # of a measurement; shorter documents are repeated
PIECE = 100_000


@dataclass(frozen=True, slots=True)
class System:
    """A line of the table; `whole`: documents are one piece, `grows`: attention sees all of it."""

    name: str
    recipe: str
    whole: bool = False
    grows: bool = False


SYSTEMS = (
    System("sentence", "p-transformer/transformer-sent"),
    System("window", "focused-concatenation/s4to4-shift-cd"),
    System("DocFlat", "docflat/docflat-c"),
    System("MCN", "mcn/final"),
    System("G-Transformer", "g-transformer/randinit"),
    System("CASA", "casa/casa"),
    System("CASA, whole", "casa/casa", whole=True, grows=True),
    System("MCN, whole", "mcn/final", whole=True, grows=True),
    System("G-Transformer, whole", "g-transformer/randinit", whole=True, grows=True),
)


def configured(system: System, size: str, layers: int) -> Config:
    """Greedy search for as many tokens as the source has."""
    more = [f"model.encoder_layers={layers}", f"model.decoder_layers={layers}"]
    more += ["decode.beam=1", "decode.max_ratio=1", "decode.max_extra=0"]
    if system.whole:
        more.append(f"view.max_tokens={PIECE}")
        more.append(f"decode.max_tokens={4 * PIECE}")
        if system.recipe.startswith("mcn/"):
            more.append("view.max_sentences=0")
    if system.recipe.endswith("shift-cd"):
        more.append("model.shift=25")
    if system.recipe.startswith("docflat/"):
        more.append("view.numbers=100")
    return config_of(system.recipe, size, *more)


def document(tokens: int) -> Document:
    """A document of about so many source tokens, a symbol a sentence counted, of sentences of all lengths."""
    random = np.random.default_rng(tokens)
    sentences: list[str] = []
    left = tokens
    while left > 2:
        words = min(lengths(random)[0], left - 1)
        sentences.append(" ".join(map(str, random.integers(1, Numerals.pieces, words))))
        left -= words + 1
    return Document(str(tokens), tuple(sentences))


def batches(config: Config, tokens: int) -> list[Batch]:
    """The batches of a document that is its own translation, as training makes them of the view."""
    tokenizer = Numerals()
    symbols = special_symbols(tokenizer, config.view)
    text = [np.array(tokenizer.encode(s), dtype=np.int32) for s in document(tokens).sentences]
    sizes = [len(s) for s in text]
    rows = [
        Instance(0, window, [text[j] for j in window.source], [text[j] for j in window.target])
        for window in build_view(config.view).split(sizes, sizes)
    ]
    return list(in_batches(rows, symbols, keep_order=config.model.batch_context != "none"))


def in_batches(rows: Sequence[Instance], symbols: SpecialSymbols, keep_order: bool) -> Iterator[Batch]:
    """Rows of like length together, or in their order; a row that is longer than a batch is one."""
    order = sorted(range(len(rows)), key=lambda n: rows[n].row_tokens(symbols))
    if keep_order:
        order = list(range(len(rows)))
    for members in pack([[rows[n].row_tokens(symbols)] for n in order], BATCH_TOKENS):
        yield make_batch([rows[order[n]] for n in members], symbols)


def trained(trainee: Trainee, made: Sequence[Batch], times: int) -> float:
    """Gradients of a document, again and again; give the number of labels it answers for."""
    count = 0.0
    for _ in range(times):
        for batch in made:
            count += trainee.gradients(batch)
        trainee.optimizer.zero_grad()
    return count


def training(systems: Sequence[System], options: argparse.Namespace) -> None:
    """Microseconds a label, forward and backward."""
    rows = []
    for system in systems:
        config = configured(system, options.size, options.layers)
        trainee = Trainee(config, Numerals.vocabulary_size)
        ways: dict[int, Way] = {
            tokens: partial(trained, trainee, batches(config, tokens), max(1, LEAST_TOKENS // tokens))
            for tokens in options.lengths
        }
        rows.append(row(system, ways, options.rounds))
    report("training, microseconds a label", rows, options)


def translation(systems: Sequence[System], options: argparse.Namespace) -> None:
    """Microseconds a source token."""
    rows = []
    for system in systems:
        config = configured(system, options.size, options.layers)
        translator = DocumentTranslator(random_model(config), config, Numerals(), torch.device("cpu"))
        ways: dict[int, Way] = {
            tokens: partial(written, translator, tokens, max(1, LEAST_TOKENS // tokens))
            for tokens in options.lengths
        }
        rows.append(row(system, ways, options.rounds))
    report("translation, microseconds a source token", rows, options)


def written(translator: DocumentTranslator, tokens: int, times: int) -> float:
    """Translate a document, again and again; give the number of source tokens."""
    for _ in range(times):
        translated(translator, [document(tokens)])
    return float(times * tokens)


def row(system: System, ways: dict[int, Way], rounds: int) -> tuple[str, ...]:
    """Time by length, and the longest against the shortest and against the line through the two shortest."""
    next(iter(ways.values()))()  # warms up
    times = in_turn({str(tokens): way for tokens, way in ways.items()}, rounds, warm_up=0)
    each = [spread([1e6 * s for s in times[str(tokens)]], "{:.0f}") for tokens in ways]
    first, second, *_, last = ways
    a, b, c = (times.median(str(tokens)) for tokens in (first, second, last))
    line = a + (b - a) * (last - first) / (second - first)
    found = (system.name, *each, f"{c / a:.2f}", f"{c / line:.2f}" if system.grows else "flat")
    print(*found, sep="  ", flush=True)  # the table comes when all are measured
    return found


def report(what: str, rows: Sequence[tuple[str, ...]], options: argparse.Namespace) -> None:
    """Print a table."""
    print(f"{what}: {options.size}, {options.layers} + {options.layers} layers")
    each = [f"{tokens:,}" for tokens in options.lengths]
    table(("system", *each, "longest / shortest", "longest / line"), rows)


def own_peak(name: str, tokens: int, options: argparse.Namespace) -> None:
    """Print the MiB that the gradients of a document add to a process that holds the model."""
    [system] = [system for system in SYSTEMS if system.name == name]
    config = configured(system, options.size, options.layers)
    trainee, made = Trainee(config, Numerals.vocabulary_size), batches(config, tokens)
    for parameter in trainee.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    print(added_mebibytes(lambda: trained(trainee, made, 1)))


def memory(systems: Sequence[System], options: argparse.Namespace) -> None:
    """Peak MiB beside model and gradients."""
    where = ["--size", options.size, "--layers", str(options.layers)]
    rows = []
    for system in systems:
        peaks = [
            number_in_child("length", "own-peak", "--of", system.name, str(tokens), *where)
            for tokens in options.lengths
        ]
        per = 1024 * peaks[-1] / options.lengths[-1]
        rows.append((system.name, *(f"{peak:,.0f}" for peak in peaks), f"{per:.0f}"))
    layers = f"{options.layers} + {options.layers} layers"
    print(f"training, MiB beside model and gradients: {options.size}, {layers}")
    table(("system", *(f"{tokens:,}" for tokens in options.lengths), "KiB a token of the longest"), rows)


def main() -> None:
    made = parser(__doc__, rounds=1)
    made.add_argument("what", choices=["training", "translation", "memory", "own-peak"])
    made.add_argument("--size", choices=SIZES, default="small")
    made.add_argument("--layers", type=int, default=3, help="of the encoder, and of the decoder")
    made.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS), help="of documents, in tokens")
    made.add_argument(
        "--systems", nargs="+", choices=[system.name for system in SYSTEMS], help="by name; all by default"
    )
    made.add_argument("--of", nargs=2, help=argparse.SUPPRESS)
    options = made.parse_args()
    apply(options)
    if len(options.lengths) < 3 and options.what in ("training", "translation"):
        made.error("--lengths: give three or more: the third and on are told beside the first two")
    if options.what == "own-peak":
        own_peak(options.of[0], int(options.of[1]), options)
        return
    chosen: dict[str, Callable[[Sequence[System], argparse.Namespace], None]] = {
        "training": training,
        "translation": translation,
        "memory": memory,
    }
    asked = options.systems
    chosen[options.what]([system for system in SYSTEMS if asked is None or system.name in asked], options)


if __name__ == "__main__":
    main()
