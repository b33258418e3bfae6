"""What whole documents cost: time, memory and length, on the CPU in fp32.

    python -m benchmarks.speed.documents epoch [--size base] [--rounds 5]    systems against sentences alone
    python -m benchmarks.speed.documents relative                   peak memory of relative attention
    python -m benchmarks.speed.documents length                     G-Transformer by document length
    python -m benchmarks.speed.documents training [--size small]    G-Transformer: seconds and peak memory
    python -m benchmarks.speed.documents align                      constrained against free decoding

All times are processor time of one thread: the machine is shared. Within a round the systems take turns;
ratios are those of one round, and the table shows medians with the smallest and the largest.
"""

import argparse
import resource
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from benchmarks.speed.batches import (
    SYMBOLS,
    document_batches,
    instance,
    lengths,
    make_batch,
    sentence_batches,
)
from benchmarks.speed.harness import added_mebibytes, apply, number_in_child, parser, table
from benchmarks.speed.systems import SIZES, Trainee, config_of, model_of
from cotext.data.batch import Batch, Source
from cotext.layers.kernels.relative import attend_relative
from cotext.layers.kernels.sdpa import attend
from cotext.models.interface import TranslationModel
from cotext.runtime.timing import Way, in_turn, spread
from cotext.search.beam_search import SearchOptions, search
from cotext.search.constraints import SearchRequest, SearchSymbols

LENGTHS = (512, 1024, 2048, 4096, 8192)
BATCH_TOKENS = 2100


def epoch(size: str, rounds: int) -> None:
    """Time per label on sentences and on documents; an epoch has as many labels either way."""
    cases = {
        "Transformer (sent)": ("p-transformer/transformer-sent", ()),
        "Transformer (doc)": ("p-transformer/transformer-doc", ()),
        "P-Transformer (sent)": ("p-transformer/sent", ()),
        "P-Transformer (sent) -rel": ("p-transformer/sent", ("model.attention.score=absolute",)),
        "P-Transformer (doc)": ("p-transformer/doc", ()),
        "P-Transformer (doc) -rel": ("p-transformer/doc", ("model.attention.score=absolute",)),
        "G-Transformer (doc)": ("g-transformer/randinit", ()),
    }
    trainees = {name: Trainee(config_of(recipe, size, *more)) for name, (recipe, more) in cases.items()}
    random = np.random.default_rng(7)
    streams = {"sent": sentence_batches(BATCH_TOKENS, random), "doc": document_batches(4, random)}

    def ways(number: int) -> dict[str, Way]:
        drawn = {kind: next(stream) for kind, stream in streams.items()}
        return {
            name: partial(trainee.update, drawn["doc" if "(doc)" in name else "sent"])
            for name, trainee in trainees.items()
        }

    times = in_turn(ways, rounds)
    baseline = next(iter(cases))
    table(
        ("system", "labels a second", f"time against {baseline}"),
        [(name, times.rate(name, "{:,.0f}"), times.ratio(name, baseline)) for name in cases],
    )


def attention_peak(kind: str, tokens: int) -> None:
    """MiB that one attention, forward and backward, adds to the process: 8 heads of 64."""
    heads = [torch.randn(1, 8, tokens, 64).requires_grad_() for _ in range(3)]
    relative = torch.zeros(1025, 64, requires_grad=True)
    plain = kind == "plain"

    def passes() -> None:
        for _ in range(3):
            mixed = (
                attend(*heads, None, False, 0.0)
                if plain
                else attend_relative(*heads, relative, None, False, 0.0)
            )
            mixed.sum().backward()

    print(added_mebibytes(passes))


def relative() -> None:
    """Peak memory by length, beside what a vector for every pair of tokens would take."""
    rows = []
    for tokens in (512, 1024, 2048):
        plain, ours = (
            number_in_child("documents", "attention-peak", "--kind", kind, "--tokens", str(tokens))
            for kind in ("plain", "relative")
        )
        weights, pairs = 8 * tokens**2 * 4 / 2**20, tokens**2 * 64 * 4 / 2**20
        rows.append((str(tokens), f"{plain:.0f}", f"{ours:.0f}", f"{weights:.0f}", f"{pairs:.0f}"))
    table(("tokens", "plain, MiB", "relative, MiB", "weights alone", "a vector for every pair"), rows)


def document(tokens: int, random: np.random.Generator) -> Batch:
    """One document of about so many tokens a side."""
    sentences = []
    while sum(max(pair) + 1 for pair in sentences) < tokens:
        sentences.append(lengths(random))
    return make_batch([instance(sentences, random)], SYMBOLS)


def read(model: TranslationModel, source: Source) -> float:
    """Encode a source, forward and backward; give its number of tokens."""
    keys_values = model.encode(source).source.keys_values
    torch.stack([side.sum() for pair in keys_values for side in pair]).sum().backward()
    return float(source.tokens.numel())


def length(rounds: int) -> None:
    """Microseconds per source token to encode with one layer, forward and backward, by its span."""
    random = np.random.default_rng(3)
    one_layer = ["model.encoder_layers=1", "model.decoder_layers=1", "model.attention.top.layers=0"]
    encoders = {
        span: model_of(
            config_of("g-transformer/randinit", "base", f"model.attention.span={span}", *one_layer)
        )
        for span in ("sentence", "row")
    }
    rows = []
    for tokens in (*LENGTHS[:2], 2000, *LENGTHS[2:]):
        source = document(tokens, random).source
        ways = {span: partial(read, model, source) for span, model in encoders.items()}
        times = in_turn(ways, 1 if tokens > 4096 else rounds)
        each = (spread([1e6 * s for s in times[span]], "{:.0f}") for span in ways)
        rows.append((str(source.tokens.numel()), *each, times.ratio("sentence", "row")))
    table(("tokens", "sentence, us a token", "row, us a token", "sentence / row"), rows)
    rows = []
    trainees = {
        n: Trainee(config_of("g-transformer/randinit", "small", f"model.attention.top.layers={n}"))
        for n in (0, 2)
    }
    for tokens in LENGTHS:
        batch = document(tokens, random)
        updates = {str(n): partial(trainee.update, batch) for n, trainee in trainees.items()}
        times = in_turn(updates, rounds)
        rows.append((str(tokens), *(spread([1e6 * s for s in times[n]], "{:.0f}") for n in updates)))
    table(("tokens", "local layers alone, us a label", "with 2 global layers"), rows)


def training(size: str, rounds: int, vocabulary: int = 8000) -> None:
    """G-Transformer on 4 documents of 512 + 512 tokens in sentences of 20: an update, and peak memory."""
    random = np.random.default_rng(0)
    torch.manual_seed(0)
    view = {"separators": "bracket"}
    config = config_of("g-transformer/randinit", size)
    config = config.model_copy(update={"view": config.view.model_copy(update=view)})
    trainee = Trainee(config, vocabulary)
    brackets = type(SYMBOLS)(vocabulary - 3, vocabulary - 2, vocabulary - 1, (vocabulary - 1,), bracket=True)
    rows = []
    for _ in range(4):
        sentences = [(19, 19)] * 24 + [(6, 6)]
        made = instance(sentences, random)
        shrunk = [[s % (vocabulary - 3) for s in side] for side in (made.source, made.target)]
        rows.append(type(made)(0, made.window, *shrunk))
    batch = make_batch(rows, brackets)
    count = float(batch.is_label.sum())
    times = in_turn({"update": partial(trainee.update, batch)}, rounds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{size}: {tuple(batch.source.tokens.shape)} source tokens, {count:.0f} labels")
    seconds = spread([count * s for s in times["update"]])
    print(f"seconds an update {seconds}; peak resident memory {peak:.2f} GiB")


def searching(
    model: TranslationModel,
    source: Source,
    request: SearchRequest,
    symbols: SearchSymbols,
    options: SearchOptions,
) -> None:
    """One search."""
    search(model, source, [request], symbols, options)


def align(rounds: int) -> None:
    """Documents of 512 tokens in 20 sentences, both ways to the same length, beam 5 and greedy."""
    specials = {"pad": SYMBOLS.pad, "bos": SYMBOLS.bos, "eos": SYMBOLS.eos, "separators": SYMBOLS.separators}
    symbols = SearchSymbols(special=type(SYMBOLS)(**specials), unk=0, blank=())
    random = np.random.default_rng(1)
    model = model_of(config_of("p-transformer/transformer-doc", "base")).eval()
    with torch.no_grad():
        # No separator is ever among the candidates by itself: both write to their limits.
        model.output_weight[[SYMBOLS.eos, *SYMBOLS.separators]] = 0
    source = make_batch([instance([(25, 25)] * 20, random)], SYMBOLS).source
    request = SearchRequest(prefix=[], first_sentence=0, max_tokens=(26,) * 20)
    rows = []
    for beam in (1, 5):
        ways: dict[str, Way] = {}
        for kind in ("free", "constrained"):
            options = SearchOptions(beam=beam, length_penalty=1.0, align=kind)
            ways[kind] = partial(searching, model, source, request, symbols, options)
        times = in_turn(ways, rounds, warm_up=0)
        ratio = times.ratio("constrained", "free")
        rows.append((str(beam), times.took("free"), times.took("constrained"), ratio))
    table(("beam", "free, seconds", "constrained", "constrained / free"), rows)


def main() -> None:
    made = parser(__doc__, rounds=5)
    made.add_argument("what", choices=["epoch", "relative", "length", "training", "align", "attention-peak"])
    made.add_argument("--size", choices=SIZES, default="base")
    made.add_argument("--kind", default="plain", help=argparse.SUPPRESS)
    made.add_argument("--tokens", type=int, default=512, help=argparse.SUPPRESS)
    arguments = made.parse_args()
    apply(arguments)
    chosen: dict[str, Callable[[], None]] = {
        "epoch": lambda: epoch(arguments.size, arguments.rounds),
        "relative": relative,
        "length": lambda: length(arguments.rounds),
        "training": lambda: training(arguments.size, arguments.rounds),
        "align": lambda: align(arguments.rounds),
        "attention-peak": lambda: attention_peak(arguments.kind, arguments.tokens),
    }
    chosen[arguments.what]()


if __name__ == "__main__":
    main()
