"""What rows cost that see each other: DocFlat, MBE and ABD beside Doc2Doc.

    python -m benchmarks.speed.batch_context training [--size base]
    python -m benchmarks.speed.batch_context decoding [--size base] [--beam 5] [--documents 4]
    python -m benchmarks.speed.batch_context side-by-side [--size base] [--beam 5] [--documents 4]
    python -m benchmarks.speed.batch_context memory        flat-batch attention by flat length

Processor time of one thread; ratios are those of one round, tables show medians with the smallest and the
largest.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np
import torch

from benchmarks.speed.batches import SYMBOLS, instance_of, lengths, make_batch
from benchmarks.speed.harness import added_mebibytes, apply, number_in_child, parser, table
from benchmarks.speed.systems import (
    SIZES,
    Numerals,
    Trainee,
    config_of,
    model_of,
    random_documents,
    random_model,
    translated,
)
from cotext.data.batch import Batch, SpecialSymbols
from cotext.data.documents import Document
from cotext.data.views import WindowView
from cotext.layers.flat_batch import FlatBatchAttention, FlatContext, FlatLayout, RowOrder
from cotext.layers.multi_head import AttentionSize
from cotext.runtime.timing import Way, in_turn
from cotext.translation.translator import DocumentTranslator, Translation

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
    rows = [instance_of(w, source, target) for w in split[LOCAL:]]
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

    def ways(number: int) -> dict[str, Way]:
        found: dict[str, Way] = {}
        for name, (_, symbols) in cases.items():
            batch = windows(np.random.default_rng(number), symbols)
            found[name] = partial(one_update, trainees[name], batch)
        return found

    times = in_turn(ways, rounds)
    print(f"training, {size}: batches of {ROWS} consecutive windows of {LOCAL + 1} sentences")
    table(("system", "updates a second", "against Doc2Doc"), times.speed_rows("{:.3f}"))


def one_update(trainee: Trainee, batch: Batch) -> None:
    """An update, which counts as one whatever it is on."""
    trainee.update(batch)


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
    decode.append("view.numbers=100")  # which no corpus tells here
    if passes == 2:
        decode += ["decode.schedule=simultaneous", "decode.first_pass=known"]
    config = config_of(recipe, size, *decode)
    model = random_model(config)
    cpu = torch.device("cpu")
    known = None
    if passes == 2:
        sentence = config_of("docflat/sent2sent", "small")
        known = Known(model_of(sentence), sentence, Numerals(), cpu, name="known")
    return DocumentTranslator(model, config, Numerals(), cpu, known)


def decoding_speed(size: str, rounds: int, beam: int, count: int) -> None:
    """Sentences a second of documents of 16 sentences, so many side by side."""
    documents = random_documents(count, ROWS, 25)
    for passes, what in (
        (1, "sequential, its own translations as context"),
        (2, "parallel, a first pass as context (which is not counted)"),
    ):
        recipes = {"Doc2Doc": "doc2doc", "DocFlat_C": "docflat-c", "MBE": "mbe", "ABD": "abd"}
        systems = {n: translator_of(f"docflat/{r}", size, passes, beam) for n, r in recipes.items()}
        ways = {n: partial(translated, t, documents) for n, t in systems.items()}
        times = in_turn(ways, rounds)
        print(f"\ndecoding, {size}, beam {beam}, {count} documents of {ROWS} sentences: {what}")
        table(("system", "sentences a second", "against Doc2Doc"), times.speed_rows("{:.2f}"))


def translated_alone(translator: DocumentTranslator, documents: list[Document]) -> float:
    """Translate each document by itself; their sentences."""
    return sum(translated(translator, [document]) for document in documents)


def side_by_side(size: str, rounds: int, beam: int, count: int) -> None:
    """Sentences a second of documents that are translated in one call, against a call for each."""
    documents = random_documents(count, 4, 25)
    for name, recipe in {"Doc2Doc": "doc2doc", "DocFlat_C": "docflat-c"}.items():
        translator = translator_of(f"docflat/{recipe}", size, 1, beam)
        ways: dict[str, Way] = {
            "one after another": partial(translated_alone, translator, documents),
            "side by side": partial(translated, translator, documents),
        }
        times = in_turn(ways, rounds)
        print(f"\n{name}, {size}, beam {beam}, {count} documents of 4 sentences")
        table(("documents", "sentences a second", "against one by one"), times.speed_rows("{:.2f}"))


def attention_peak(tokens: int, causal: bool) -> None:
    """MiB that flat-batch attention with its gate adds, forward and backward: 8 heads of 64, 16 rows."""
    attention = FlatBatchAttention(AttentionSize(512, 8, 0.0))
    context = FlatContext(attention, 512, "continuous", 0.5)
    x = torch.randn(ROWS, tokens // ROWS, 512, requires_grad=True)
    current = torch.ones(x.shape[:2], dtype=torch.bool)
    zeros = torch.zeros(ROWS, dtype=torch.long)
    rows = RowOrder.of(zeros, torch.arange(ROWS), torch.tensor([[0, 1]] * ROWS), False)

    def passes() -> None:
        for _ in range(3):
            context(x, FlatLayout(current, rows, causal)).sum().backward()

    print(added_mebibytes(passes))


def memory() -> None:
    """Peak by flat length, beside the weights that would be kept of 8 heads, and the states alone."""
    rows = []
    for tokens in (512, 1024, 2048, 4096):
        call = ("attention-peak", "--tokens", str(tokens))
        peaks = [number_in_child("batch_context", *call, *side) for side in ([], ["--causal"])]
        weights, states = 8 * tokens**2 * 4 / 2**20, tokens * 512 * 4 / 2**20
        rows.append((str(tokens), *(f"{peak:.0f}" for peak in peaks), f"{weights:.0f}", f"{states:.0f}"))
    table(("flat tokens", "source, MiB", "target, MiB", "weights of 8 heads", "one state a token"), rows)


def main() -> None:
    made = parser(__doc__, rounds=5)
    made.add_argument("what", choices=["training", "decoding", "side-by-side", "memory", "attention-peak"])
    made.add_argument("--size", choices=SIZES, default="base")
    made.add_argument("--beam", type=int, default=5)
    made.add_argument("--documents", type=int, default=4)
    made.add_argument("--tokens", type=int, default=512, help=argparse.SUPPRESS)
    made.add_argument("--causal", action="store_true", help=argparse.SUPPRESS)
    given = made.parse_args()
    apply(given)
    chosen: dict[str, Callable[[], None]] = {
        "training": lambda: training_speed(given.size, given.rounds),
        "decoding": lambda: decoding_speed(given.size, given.rounds, given.beam, given.documents),
        "side-by-side": lambda: side_by_side(given.size, given.rounds, given.beam, given.documents),
        "memory": memory,
        "attention-peak": lambda: attention_peak(given.tokens, given.causal),
    }
    chosen[given.what]()


if __name__ == "__main__":
    main()
