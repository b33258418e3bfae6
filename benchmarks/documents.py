"""What whole documents cost: time, memory and length, on the CPU in fp32.

    python -m benchmarks.documents epoch [--size base] [--rounds 5]     systems against sentences alone
    python -m benchmarks.documents relative                             peak memory of relative attention
    python -m benchmarks.documents length                               G-Transformer by document length
    python -m benchmarks.documents training [--size small]              G-Transformer: seconds and peak memory
    python -m benchmarks.documents align                                constrained against free decoding

All times are processor time of one thread: the machine is shared. Within a round the systems take turns;
ratios are those of one round, and the table shows medians with the smallest and the largest.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch

from benchmarks.data import PeakMemory
from benchmarks.training import SYMBOLS, VOCABULARY, document_batches, instance, lengths, sentence_batches
from cotext.config.recipe import Config, load_config
from cotext.data.batch import Batch
from cotext.data.collate import make_batch
from cotext.decoding.beam_search import SearchOptions, SearchRequest, SearchSymbols, search
from cotext.layers.buckets import LocalSelfAttention, Sentences
from cotext.layers.kernels.relative import attend_relative
from cotext.layers.kernels.sdpa import attend
from cotext.layers.multi_head import SelfAttention
from cotext.layers.state import SelfReach
from cotext.losses.build import build_loss
from cotext.models.build import build_model
from cotext.models.interface import TranslationModel
from cotext.runtime.tables import render_rows

SIZES = {"base": (512, 2048, 8), "small": (256, 1024, 4)}
LENGTHS = (512, 1024, 2048, 4096, 8192)
BATCH_TOKENS = 2100


def config_of(recipe: str, size: str, *overrides: str) -> Config:
    """A recipe at 6 + 6 layers of a size, without dropout."""
    dimension, feed_forward, heads = SIZES[size]
    numbers = [f"model.dimension={dimension}", f"model.feed_forward={feed_forward}", f"model.heads={heads}"]
    return load_config(recipe, None, [*numbers, "model.dropout=0", *overrides])


def model_of(config: Config) -> TranslationModel:
    """With the separators of the benchmark's batches, which are within the vocabulary."""
    torch.manual_seed(0)
    view = config.view.model_copy(update={"separators": "plain"})
    return build_model(config.model_copy(update={"view": view}), VOCABULARY)


class Trainee:
    """A model with its optimiser: trains on a batch and tells what that took."""

    def __init__(self, config: Config) -> None:
        self.model, self.loss = model_of(config), build_loss(config.loss)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)

    def seconds_per_label(self, batch: Batch) -> float:
        """One update."""
        before = time.process_time()
        outcome = self.loss(self.model, batch)
        (outcome.loss / outcome.count).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return (time.process_time() - before) / float(outcome.count)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns."""
    print(render_rows([head, *rows], left=1))


def spread(values: Sequence[float], form: str = "{:.2f}") -> str:
    """Median, smallest and largest."""
    return f"{form.format(statistics.median(values))} ({form.format(min(values))}-{form.format(max(values))})"


def epoch(size: str, rounds: int) -> None:
    """Time per label on sentences and on documents; an epoch has as many labels either way."""
    cases = {
        "Transformer (sent)": ("p-transformer/transformer-sent", ()),
        "Transformer (doc)": ("p-transformer/transformer-doc", ()),
        "P-Transformer (sent)": ("p-transformer/sent", ()),
        "P-Transformer (sent) -rel": ("p-transformer/sent", ("model.p_transformer.relative=false",)),
        "P-Transformer (doc)": ("p-transformer/doc", ()),
        "P-Transformer (doc) -rel": ("p-transformer/doc", ("model.p_transformer.relative=false",)),
        "G-Transformer (doc)": ("g-transformer/randinit", ()),
    }
    trainees = {name: Trainee(config_of(recipe, size, *more)) for name, (recipe, more) in cases.items()}
    random = np.random.default_rng(7)
    streams = {"sent": sentence_batches(BATCH_TOKENS, random), "doc": document_batches(4, random)}
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds + 1):
        drawn = {kind: [next(stream)] for kind, stream in streams.items()}
        for name, trainee in trainees.items():
            of_kind = drawn["doc" if "(doc)" in name else "sent"]
            took = statistics.mean(trainee.seconds_per_label(batch) for batch in of_kind)
            if number:  # the first round warms up
                seconds[name].append(took)
    baseline = seconds["Transformer (sent)"]
    table(
        ("system", "labels a second", "time against Transformer (sent)"),
        [
            (
                name,
                f"{1 / statistics.median(s):,.0f}",
                spread([a / b for a, b in zip(s, baseline, strict=True)]),
            )
            for name, s in seconds.items()
        ],
    )


def in_child(*arguments: str) -> float:
    """What this module prints last when called with `arguments` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.documents", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def attention_peak(kind: str, tokens: int) -> None:
    """MiB that one attention, forward and backward, adds to the process: 8 heads of 64."""
    heads = [torch.randn(1, 8, tokens, 64).requires_grad_() for _ in range(3)]
    relative = torch.zeros(1025, 64, requires_grad=True)
    before = PeakMemory().stop() or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    memory = PeakMemory()
    time.sleep(0.05)
    resting = memory.kibibytes
    for _ in range(3):
        plain = kind == "plain"
        mixed = (
            attend(*heads, None, False, 0.0) if plain else attend_relative(*heads, relative, None, False, 0.0)
        )
        mixed.sum().backward()
    print(json.dumps(max(0, memory.stop() - (resting or before)) / 1024))


def relative() -> None:
    """Peak memory by length, beside what a vector for every pair of tokens would take."""
    rows = []
    for tokens in (512, 1024, 2048):
        plain, ours = (
            in_child("attention-peak", "--kind", kind, "--tokens", str(tokens))
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


def length(rounds: int) -> None:
    """Microseconds per source token of an encoder layer, forward and backward, and of attention alone."""
    random = np.random.default_rng(3)
    local, dense = LocalSelfAttention(512, 8, 0.0), SelfAttention(512, 8, 0.0)
    rows = []
    for tokens in (*LENGTHS[:2], 2000, *LENGTHS[2:]):
        sentence = document(tokens, random).source.sentence
        sentences = Sentences(sentence)
        x = torch.randn(int((sentence >= 0).sum()), 512, requires_grad=True)
        calls: dict[str, Callable[[], torch.Tensor]] = {
            "local": partial(local, x, SelfReach(None), sentences),
            "dense": partial(dense, x[None], SelfReach(None)),
        }
        took: dict[str, list[float]] = {name: [] for name in calls}
        for number in range(rounds + 1):
            for name, call in calls.items():
                if name == "dense" and tokens > 4096 and number > 1:
                    continue
                before = time.process_time()
                call().sum().backward()
                if number:
                    took[name].append((time.process_time() - before) / x.size(0) * 1e6)
        ratio = statistics.median(took["local"]) / statistics.median(took["dense"])
        rows.append(
            (str(x.size(0)), spread(took["local"], "{:.0f}"), spread(took["dense"], "{:.0f}"), f"{ratio:.2f}")
        )
    table(("tokens", "local, us a token", "dense, us a token", "local / dense"), rows)
    rows = []
    trainees = {
        n: Trainee(config_of("g-transformer/randinit", "small", f"model.g_transformer.global_layers={n}"))
        for n in (0, 2)
    }
    for tokens in LENGTHS:
        batch = document(tokens, random)
        trainees[0].seconds_per_label(batch)
        times = {n: [t.seconds_per_label(batch) * 1e6 for _ in range(rounds)] for n, t in trainees.items()}
        rows.append((str(tokens), spread(times[0], "{:.0f}"), spread(times[2], "{:.0f}")))
    table(("tokens", "local layers alone, us a label", "with 2 global layers"), rows)


def training(size: str, rounds: int, vocabulary: int = 8000) -> None:
    """G-Transformer on 4 documents of 512 + 512 tokens in sentences of 20: an update, and peak memory."""
    random = np.random.default_rng(0)
    torch.manual_seed(0)
    view = {"separators": "bracket"}
    config = config_of("g-transformer/randinit", size)
    config = config.model_copy(update={"view": config.view.model_copy(update=view)})
    trainee = Trainee.__new__(Trainee)
    trainee.model, trainee.loss = build_model(config, vocabulary), build_loss(config.loss)
    trainee.optimizer = torch.optim.AdamW(trainee.model.parameters(), lr=1e-4, fused=True)
    brackets = type(SYMBOLS)(vocabulary - 3, vocabulary - 2, vocabulary - 1, (vocabulary - 1,), bracket=True)
    rows = []
    for _ in range(4):
        sentences = [(19, 19)] * 24 + [(6, 6)]
        made = instance(sentences, random)
        shrunk = [[s % (vocabulary - 3) for s in side] for side in (made.source, made.target)]
        rows.append(type(made)(0, made.window, *shrunk))
    batch = make_batch(rows, brackets)
    count = float(batch.is_label.sum())
    times = [trainee.seconds_per_label(batch) * count for _ in range(rounds + 1)][1:]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{size}: {tuple(batch.source.tokens.shape)} source tokens, {count:.0f} labels")
    print(f"seconds an update {spread(times)}; peak resident memory {peak:.2f} GiB")


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
        took: dict[str, list[float]] = {"free": [], "constrained": []}
        for _ in range(rounds):
            for kind in took:
                before = time.process_time()
                search(
                    model,
                    source,
                    [request],
                    symbols,
                    SearchOptions(beam=beam, length_penalty=1.0, align=kind),
                )
                took[kind].append(time.process_time() - before)
        ratios = [a / b for a, b in zip(took["constrained"], took["free"], strict=True)]
        rows.append((str(beam), spread(took["free"]), spread(took["constrained"]), spread(ratios)))
    table(("beam", "free, seconds", "constrained", "constrained / free"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what", choices=["epoch", "relative", "length", "training", "align", "attention-peak"]
    )
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kind", default="plain", help=argparse.SUPPRESS)
    parser.add_argument("--tokens", type=int, default=512, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
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
