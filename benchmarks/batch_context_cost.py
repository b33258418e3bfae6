"""What rows cost that see each other: the parts `speed` and `memory` of `benchmarks.batch_context`."""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from benchmarks.data import PeakMemory
from benchmarks.documents import Trainee, config_of, model_of, spread, table
from benchmarks.training import SYMBOLS, VOCABULARY, lengths
from cotext.data.batch import Batch, Instance, SpecialSymbols
from cotext.data.collate import make_batch
from cotext.data.documents import Document
from cotext.data.views import WindowView
from cotext.decoding.translator import DocumentTranslator, Translation
from cotext.layers.flat_batch import FlatBatchAttention, FlatContext, RowOrder
from cotext.models.build import build_model

ROWS = 16  # windows of a batch
LOCAL = 3  # sentences of context in them
NUMBERED = SpecialSymbols(
    SYMBOLS.pad, SYMBOLS.bos, SYMBOLS.eos, (SYMBOLS.eos,), True, tuple(range(31_000, 31_100))
)


def windows(random: np.random.Generator, symbols: SpecialSymbols) -> Batch:
    """Consecutive full windows of one document, a batch of them."""
    pairs = [lengths(random) for _ in range(ROWS + LOCAL)]
    source, target = ([random.integers(0, 31_000, pair[side]) for pair in pairs] for side in (0, 1))
    split = WindowView(LOCAL).split([len(s) for s in source], [len(t) for t in target])
    rows = [
        Instance(0, w, [source[j] for j in w.source], [target[j] for j in w.target]) for w in split[LOCAL:]
    ]
    return make_batch(rows, symbols)


def training_speed(size: str, rounds: int) -> None:
    """Updates a second on the same documents; numbered rows have one more source token a sentence."""
    cases = {
        "Doc2Doc": ("docflat/doc2doc", SYMBOLS),
        "Doc2Doc, numbered rows": ("docflat/doc2doc", NUMBERED),
        "DocFlat_C": ("docflat/docflat-c", NUMBERED),
        "DocFlat_D": ("docflat/docflat-d", NUMBERED),
        "MBE": ("docflat/mbe", NUMBERED),
        "ABD": ("docflat/abd", NUMBERED),
    }
    trainees = {name: Trainee(config_of(recipe, size)) for name, (recipe, _) in cases.items()}
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds + 1):
        for name, (_, symbols) in cases.items():
            batch = windows(np.random.default_rng(number), symbols)
            took = trainees[name].seconds_per_label(batch) * float(batch.is_label.sum())
            if number:  # the first round warms up
                seconds[name].append(took)
    print(f"training, {size}: batches of {ROWS} consecutive windows of {LOCAL + 1} sentences")
    table(("system", "updates a second", "against Doc2Doc"), speed_rows(seconds, 1, "{:.3f}"))


def speed_rows(seconds: dict[str, list[float]], done: float, form: str) -> list[tuple[str, ...]]:
    """What is done a second, and that against the first system."""
    baseline = next(iter(seconds.values()))
    return [
        (
            name,
            spread([done / s for s in took], form),
            spread([b / s for b, s in zip(baseline, took, strict=True)]),
        )
        for name, took in seconds.items()
    ]


class Numerals:
    """A tokenizer of texts that are token ids."""

    pieces = 31_000
    pad, bos, eos, sep = SYMBOLS.pad, SYMBOLS.bos, SYMBOLS.eos, SYMBOLS.separators[0]
    # Behind the special symbols come those of a recipe.
    vocabulary_size = VOCABULARY
    unk = 0
    fingerprint = "numerals"

    def encode(self, sentence: str) -> list[int]:
        return [int(word) for word in sentence.split()]

    def encode_batch(self, sentences: Sequence[str]) -> list[list[int]]:
        return [self.encode(sentence) for sentence in sentences]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(str(i) for i in ids if i < self.pieces)

    def blank(self) -> list[int]:
        return []

    def save(self, folder: Path) -> None:
        raise NotImplementedError


class Known(DocumentTranslator):
    """A first pass that costs nothing: every document is its own translation."""

    def translate(
        self, documents: Iterable[Document], on_sentences: Callable[[int], None] = lambda count: None
    ) -> Iterator[tuple[int, Translation]]:
        for i, document in enumerate(documents):
            yield i, Translation(document, (0.0,) * len(document))


def translator_of(recipe: str, size: str, passes: int, beam: int) -> DocumentTranslator:
    """Random weights; special symbols are never among the candidates, so that the limit closes a sentence."""
    decode = [f"decode.beam={beam}", "decode.max_ratio=1", "decode.max_extra=0", "decode.max_tokens=60000"]
    if passes == 2:
        decode += ["decode.schedule=simultaneous", "decode.first_pass=known"]
    config = config_of(recipe, size, *decode)
    torch.manual_seed(0)
    model = build_model(config, VOCABULARY).eval()
    with torch.no_grad():
        model.output_weight[Numerals.pieces :] = 0
    cpu = torch.device("cpu")
    known = None
    if passes == 2:
        sentence = config_of("docflat/sent2sent", "small")
        known = Known(model_of(sentence), sentence, Numerals(), cpu, name="known")
    return DocumentTranslator(model, config, Numerals(), cpu, known)


def decoding_speed(size: str, rounds: int, beam: int, count: int) -> None:
    """Sentences a second of documents of 16 sentences, so many side by side."""
    random = np.random.default_rng(5)
    documents = [
        Document(str(i), tuple(" ".join(map(str, random.integers(1, 31_000, 25))) for _ in range(ROWS)))
        for i in range(count)
    ]
    for passes, what in (
        (1, "sequential, its own translations as context"),
        (2, "parallel, a first pass as context (which is not counted)"),
    ):
        recipes = {"Doc2Doc": "doc2doc", "DocFlat_C": "docflat-c", "MBE": "mbe", "ABD": "abd"}
        systems = {n: translator_of(f"docflat/{r}", size, passes, beam) for n, r in recipes.items()}
        seconds: dict[str, list[float]] = {name: [] for name in systems}
        for number in range(rounds + 1):
            for name, translator in systems.items():
                before = time.process_time()
                written = sum(len(t.document) for _, t in translator.translate(documents))
                assert written == ROWS * count
                if number:
                    seconds[name].append(time.process_time() - before)
        print(f"\ndecoding, {size}, beam {beam}, {count} documents of {ROWS} sentences: {what}")
        table(
            ("system", "sentences a second", "against Doc2Doc"), speed_rows(seconds, ROWS * count, "{:.2f}")
        )


def attention_peak(tokens: int, causal: bool) -> None:
    """MiB that flat-batch attention with its gate adds, forward and backward: 8 heads of 64, 16 rows."""
    attention = FlatBatchAttention(512, 8, 0.0)
    context = FlatContext(attention, 512, "continuous", 0.5)
    x = torch.randn(ROWS, tokens // ROWS, 512, requires_grad=True)
    current = torch.ones(x.shape[:2], dtype=torch.bool)
    zeros = torch.zeros(ROWS, dtype=torch.long)
    rows = RowOrder.of(zeros, torch.arange(ROWS), torch.tensor([[0, 1]] * ROWS), False)
    before = PeakMemory().stop() or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    memory = PeakMemory()
    time.sleep(0.05)
    resting = memory.kibibytes
    for _ in range(3):
        context(x, current, rows, causal=causal).sum().backward()
    print(json.dumps(max(0, memory.stop() - (resting or before)) / 1024))


def memory() -> None:
    """Peak by flat length, beside the weights that would be kept of 8 heads, and the states alone."""
    rows = []
    for tokens in (512, 1024, 2048, 4096):
        peaks = []
        for side in ([], ["--causal"]):
            command = [sys.executable, "-m", "benchmarks.batch_context", "attention-peak"]
            done = subprocess.run(
                [*command, "--tokens", str(tokens), *side], check=True, capture_output=True, text=True
            )
            peaks.append(float(json.loads(done.stdout.splitlines()[-1])))
        weights, states = 8 * tokens**2 * 4 / 2**20, tokens * 512 * 4 / 2**20
        rows.append((str(tokens), *(f"{peak:.0f}" for peak in peaks), f"{weights:.0f}", f"{states:.0f}"))
    table(("flat tokens", "source, MiB", "target, MiB", "weights of 8 heads", "one state a token"), rows)
