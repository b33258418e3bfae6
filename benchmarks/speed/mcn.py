"""What MCN costs beside the sentence model that it is built on.

    python -m benchmarks.speed.mcn training [--size ted]
    python -m benchmarks.speed.mcn decoding [--size ted] [--documents 1 8] [--beams 1 5]
    python -m benchmarks.speed.mcn memory [--size ted]            of training, by document length

Processor time of one thread; ratios are those of one round, tables show medians with the smallest and the
largest.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch

from benchmarks.speed.batches import SYMBOLS, VOCABULARY, instance, lengths, make_batch, packed
from benchmarks.speed.harness import added_mebibytes, apply, number_in_child, parser, table
from benchmarks.speed.systems import Numerals, Trainee, random_documents, random_model, translated
from cotext.config.recipe import Config, load_config
from cotext.config.sizes import SIZES
from cotext.data.batch import Batch, SpecialSymbols
from cotext.runtime.timing import Way, in_turn
from cotext.translation.translator import DocumentTranslator

DOCUMENTS = 8  # of a round of training
SENTENCES = 20  # of a document
BATCH_TOKENS = 2048
LENGTHS = (10, 20, 50, 100, 200)  # sentences of a document whose training takes memory
TOKENS = 25  # of their sentences
BRACKETS = SpecialSymbols(SYMBOLS.pad, SYMBOLS.bos, SYMBOLS.eos, (SYMBOLS.eos,), bracket=True)


def config_of(recipe: str, size: str, *overrides: str) -> Config:
    """A recipe of a size, without dropout; documents of any number of sentences."""
    return load_config(recipe, size, ["model.dropout=0", *overrides])


def trained(trainee: Trainee, batches: Sequence[Batch]) -> float:
    """One update a batch; gives the number of labels."""
    return sum(trainee.update(batch) for batch in batches)


def training(size: str, rounds: int) -> None:
    """Labels a second on the same sentences: as documents, and as batches of sentences of like length."""
    without = "model.decoder.memory_sentences=0"
    configs = {
        "Transformer (sent)": config_of("mcn/sent", size),
        "MCN": config_of("mcn/final", size),
        "MCN, no memory": config_of("mcn/final", size, without),
    }
    trainees = {name: Trainee(config, VOCABULARY) for name, config in configs.items()}
    random = np.random.default_rng(7)

    def ways(number: int) -> dict[str, Way]:
        documents = [[lengths(random) for _ in range(SENTENCES)] for _ in range(DOCUMENTS)]
        whole_ones, sentences = document_batches(documents, random), sentence_batches(documents, random)
        return {
            name: partial(trained, trainee, sentences if "sent)" in name else whole_ones)
            for name, trainee in trainees.items()
        }

    times = in_turn(ways, rounds)
    print(
        f"training, {size}: {DOCUMENTS} documents of {SENTENCES} sentences a round, {BATCH_TOKENS:,} a batch"
    )
    table(("system", "labels a second", "against Transformer (sent)"), times.speed_rows("{:,.0f}"))


def document_batches(documents: Sequence[list[tuple[int, int]]], random: np.random.Generator) -> list[Batch]:
    """Rows that are documents, as many as the budget takes, longest last."""
    rows = sorted(
        (instance(document, random) for document in documents), key=lambda r: r.row_tokens(BRACKETS)
    )
    return packed(rows, BRACKETS, BATCH_TOKENS)


def sentence_batches(documents: Sequence[list[tuple[int, int]]], random: np.random.Generator) -> list[Batch]:
    """Rows that are the sentences of the documents, those of like length together."""
    rows = [instance([pair], random) for document in documents for pair in document]
    rows.sort(key=lambda row: row.row_tokens(SYMBOLS))
    return packed(rows, SYMBOLS, BATCH_TOKENS)


# ----------------------------------------------------------------------------------------------- decoding


def translator_of(recipe: str, size: str, beam: int, rows: int) -> DocumentTranslator:
    """Random weights; special symbols are never among the candidates, so that the limit closes a sentence.

    A batch takes so many sentences in rows of their own, 26 tokens of the source and half of those written.
    """
    tokens = rows * beam * (TOKENS + 1 + TOKENS // 2)
    decode = [
        f"decode.beam={beam}",
        "decode.max_ratio=1",
        "decode.max_extra=0",
        f"decode.max_tokens={tokens}",
    ]
    config = config_of(recipe, size, *decode)
    model = random_model(config)
    return DocumentTranslator(model, config, Numerals(), torch.device("cpu"))


def decoding(size: str, rounds: int, counts: Sequence[int], beams: Sequence[int]) -> None:
    """Sentences a second, so many documents side by side in one batch, all their sentences of one length.

    The sentence model writes all sentences of these documents at once; or, to tell what small batches cost,
    at most as many as MCN, which writes one of each document.
    """
    for beam in beams:
        for count in counts:
            documents = random_documents(count, SENTENCES, TOKENS)
            everything = 2 * count * SENTENCES
            cases = {
                "Transformer (sent)": ("mcn/sent", everything),
                "as many sentences as documents side by side": ("mcn/sent", count),
                "MCN": ("mcn/final", everything),
                "DocNMT": ("mcn/docnmt", everything),
            }
            ways = {
                name: partial(translated, translator_of(recipe, size, beam, rows), documents)
                for name, (recipe, rows) in cases.items()
            }
            times = in_turn(ways, rounds)
            print(f"\ndecoding, {size}, beam {beam}, {count} documents of {SENTENCES} sentences side by side")
            head = ("system", "sentences a second", "against Transformer (sent)")
            table(head, times.speed_rows("{:.1f}"))


# ------------------------------------------------------------------------------------------------- memory


def own_peak(recipe: str, size: str, sentences: int) -> None:
    """Print the MiB that three updates on one document add to a process that holds the model."""
    pupil = Trainee(config_of(recipe, size, *of_any_length(recipe, sentences)), VOCABULARY)
    random = np.random.default_rng(0)
    document = [(TOKENS, TOKENS)] * sentences
    kinds: dict[bool, Callable[..., list[Batch]]] = {True: sentence_batches, False: whole}
    batches = kinds[recipe == "mcn/sent"]([document], random)
    for parameter in pupil.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    pupil.optimizer.step()  # what the optimiser keeps is not counted

    def three_updates() -> None:
        for _ in range(3):
            trained(pupil, batches)

    print(added_mebibytes(three_updates))


def of_any_length(recipe: str, sentences: int) -> list[str]:
    return [] if recipe == "mcn/sent" else [f"view.max_sentences={sentences}", "view.max_tokens=20000"]


def whole(documents: Sequence[list[tuple[int, int]]], random: np.random.Generator) -> list[Batch]:
    return [make_batch([instance(document, random)], BRACKETS) for document in documents]


def memory(size: str) -> None:
    """Peak by sentences of a document, a row of its own."""
    recipes = {
        "sentences, 2,048 tokens": "mcn/sent",
        "MCN": "mcn/final",
        "Doc2Sent": "mcn/doc2sent",
        "DocNMT": "mcn/docnmt",
    }
    rows = []
    for sentences in LENGTHS:
        peaks = []
        for recipe in recipes.values():
            peaks.append(f"{number_in_child('mcn', 'own-peak', '--of', recipe, size, str(sentences)):,.0f}")
        rows.append((str(sentences), f"{sentences * (TOKENS + 2):,}", *peaks))
    print(f"training, {size}: MiB beside model, gradients and optimiser, one document of so many sentences")
    table(("sentences", "source tokens", *recipes), rows)


def main() -> None:
    made = parser(__doc__, rounds=5)
    made.add_argument("what", choices=["training", "decoding", "memory", "own-peak"])
    made.add_argument("--size", choices=SIZES, default="ted")
    made.add_argument("--documents", type=int, nargs="*", default=[1, 8], help="side by side")
    made.add_argument("--beams", type=int, nargs="*", default=[1, 5])
    made.add_argument("--of", nargs=3, help=argparse.SUPPRESS)
    given = made.parse_args()
    apply(given)
    if given.what == "own-peak":
        own_peak(given.of[0], given.of[1], int(given.of[2]))
        return
    chosen: dict[str, Callable[[], None]] = {
        "training": lambda: training(given.size, given.rounds),
        "decoding": lambda: decoding(given.size, given.rounds, given.documents, given.beams),
        "memory": lambda: memory(given.size),
    }
    chosen[given.what]()


if __name__ == "__main__":
    main()
