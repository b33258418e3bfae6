"""What writing a document in one step costs: CASA beside what writes token by token.

    python -m benchmarks.speed.non_autoregressive speed [--size base] [--settings one many] [--tokens 512]
    python -m benchmarks.speed.non_autoregressive length [--size base] [--lengths 512 1024 ...]

`speed` has random weights and, for all that write token by token, outputs as long as the source; sentences
are equally long, which suits batches. `one`: a document at a time; `many`: as many side by side as
decode.max_tokens takes. Dimensions are those of the size, layers those of the recipes (6 + 6, CASA 6 + 4).
Rows of int8 are quantised as a run is; shortlists are random ones of `benchmarks.speed.shortlist`.
`length` has sentences of all lengths, and takes the clock's time where there is a GPU. Ratios are those of
one round, tables show medians with the smallest and the largest.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.speed.batches import lengths
from benchmarks.speed.harness import apply, parser, table
from benchmarks.speed.shortlist import CANDIDATES, random_shortlist
from benchmarks.speed.systems import (
    SIZES,
    Numerals,
    config_of,
    random_documents,
    random_model,
    translated,
)
from cotext.config.recipe import Config
from cotext.data.documents import Document
from cotext.interchange.ctranslate2 import write_weights
from cotext.models.checkpoint import LoadedModel
from cotext.models.engine_folder import INSTALL
from cotext.models.interface import Model
from cotext.models.precision import LEAST, quantised
from cotext.runtime.devices import choose_device
from cotext.runtime.timing import Way, in_turn, spread
from cotext.translation.translator import DocumentTranslator

WORDS = 24  # tokens of a sentence, which has two brackets beside
SENTENCE = "p-transformer/transformer-sent"
PIECE = 20_000  # tokens a side: every document is one piece

Translate = Callable[[Sequence[Document]], float]  # gives sentences written
LENGTHS = (512, 1024, 2048, 4096, 8192)
# What the others are compared with: greedy, with beam 5, and sentences.
BASELINES = (
    "G-Transformer, greedy",
    "G-Transformer, beam 5",
    "Sent2Sent, greedy, one batch",
    "Sent2Sent int8, greedy, one batch",
)


@dataclass(frozen=True, slots=True)
class System:
    """A line of the table; `one_by_one` makes no sense where memory is to be used."""

    name: str
    recipe: str
    beam: int = 1
    one_by_one: bool = False
    int8: bool = False
    shortlist: bool = False
    scored: bool = True


SYSTEMS = (
    System(BASELINES[0], "g-transformer/randinit"),
    System(BASELINES[1], "g-transformer/randinit", 5),
    System("Shadow 10+2, greedy", "casa/shadow-10-2"),
    System("Shadow 10+2, beam 5", "casa/shadow-10-2", 5),
    System("Shadow 8+4, greedy", "casa/shadow-8-4"),
    System("Shadow 8+4, beam 5", "casa/shadow-8-4", 5),
    System("2to2, greedy", "casa/2to2"),
    System("2to2, beam 5", "casa/2to2", 5),
    System("Sent2Sent, greedy, one by one", SENTENCE, one_by_one=True),
    System("Sent2Sent, beam 5, one by one", SENTENCE, 5, one_by_one=True),
    System(BASELINES[2], SENTENCE),
    System("Sent2Sent, beam 5, one batch", SENTENCE, 5),
    System(BASELINES[3], SENTENCE, int8=True),
    System("Sent2Sent int8, greedy, one batch, unscored", SENTENCE, int8=True, scored=False),
    System("Sent2Sent int8, greedy, one batch, shortlist", SENTENCE, int8=True, shortlist=True),
    System("CASA", "casa/casa"),
    System("CASA int8", "casa/casa", int8=True),
    System("CASA int8, unscored", "casa/casa", int8=True, scored=False),
    System("CASA int8, shortlist", "casa/casa", int8=True, shortlist=True),
    System("CASA int8, shortlist, unscored", "casa/casa", int8=True, shortlist=True, scored=False),
    System("CASA-Latent", "casa/latent"),
)


# ---------------------------------------------------------------------------------------------- systems


def decoding_config(
    recipe: str, size: str, beam: int, max_tokens: int, shortlist: int = 0, scored: bool = True
) -> Config:
    """Sentences may be as long as their source, and what writes token by token makes them so."""
    decode = [f"decode.beam={beam}", "decode.max_ratio=1", "decode.max_extra=0"]
    decode += [f"decode.max_tokens={max_tokens}", f"decode.shortlist={shortlist}"]
    decode.append(f"decode.scores={str(scored).lower()}")
    return config_of(recipe, size, *decode, f"view.max_tokens={PIECE}")


def systems(
    size: str, max_tokens: int, many: bool, chosen: Sequence[str], folder: Path
) -> dict[str, Translate]:
    """The lines of the table by name, all or those that begin as one of `chosen`; search shares models."""
    start = tuple(chosen) or ("",)
    models: dict[tuple[str, bool], Model] = {}
    found: dict[str, Translate] = {}
    for system in SYSTEMS:
        if (system.one_by_one and many) or not system.name.startswith(start):
            continue
        batch = 1 if system.one_by_one else max_tokens
        candidates = CANDIDATES if system.shortlist else 0
        config = decoding_config(system.recipe, size, system.beam, batch, candidates, system.scored)
        if (model := models.get((system.recipe, system.int8))) is None:
            model = random_model(config)
            model = models[system.recipe, system.int8] = quantised(model, LEAST) if system.int8 else model
        lists = random_shortlist() if system.shortlist else None
        translator = DocumentTranslator(model, config, Numerals(), torch.device("cpu"), shortlist=lists)
        found[system.name] = partial(translated, translator)
    if (SENTENCE, False) in models:
        engines = ctranslate(models[SENTENCE, False], size, many, folder)
        found |= {name: engine for name, engine in engines.items() if name.startswith(start)}
    return found


def ctranslate(model: Model, size: str, many: bool, folder: Path) -> dict[str, Translate]:
    """The weights of the sentence model in int8, run by CTranslate2, if that is there."""
    try:
        import ctranslate2
    except ImportError:
        print(f"no rows of CTranslate2: {INSTALL}")
        return {}
    loaded = LoadedModel(model, decoding_config(SENTENCE, size, 1, 8000), Numerals(), [0])
    engines: dict[str, Any] = {}
    for kind in ("float32", "int8"):
        write_weights(loaded, kind, folder / kind)
        engines[kind] = ctranslate2.Translator(
            str(folder / kind), device="cpu", compute_type=kind, intra_threads=1, inter_threads=1
        )
    check_equal(model, size, engines["float32"])

    def whole(beam: int) -> Translate:
        def translate(documents: Sequence[Document]) -> int:
            sentences = [sentence for document in documents for sentence in document.sentences]
            return len(engine_output(engines["int8"], sentences, beam))

        return translate

    def one_by_one(documents: Sequence[Document]) -> int:
        sentences = [sentence for document in documents for sentence in document.sentences]
        return sum(len(engine_output(engines["int8"], [sentence], 1)) for sentence in sentences)

    found = {
        f"CTranslate2 int8 Sent2Sent, {n}, one batch": whole(b) for n, b in (("greedy", 1), ("beam 5", 5))
    }
    return found if many else {"CTranslate2 int8 Sent2Sent, greedy, one by one": one_by_one, **found}


def engine_output(engine: Any, sentences: Sequence[str], beam: int) -> list[list[str]]:
    """As many tokens for every sentence as our search writes, the last of which is `eos`."""
    found = engine.translate_batch(
        [[*sentence.split(), str(Numerals.eos)] for sentence in sentences],
        beam_size=beam,
        length_penalty=0.6,
        max_decoding_length=WORDS,
        min_decoding_length=WORDS,
        disable_unk=True,
        max_input_length=0,
    )
    return [result.hypotheses[0] for result in found]


def check_equal(model: Model, size: str, engine: Any) -> None:
    """Stop unless the engine writes greedily what we do."""
    document = random_documents(1, 4, WORDS)[0]
    config = decoding_config(SENTENCE, size, 1, 8000)
    translator = DocumentTranslator(model, config, Numerals(), torch.device("cpu"))
    [(_, found)] = translator.translate([document])
    expected = [sentence.split() for sentence in found.document.sentences]
    answer = [tokens[: WORDS - 1] for tokens in engine_output(engine, document.sentences, 1)]
    if answer != expected:
        raise SystemExit(f"the systems disagree on greedy outputs: {expected} and {answer}")


# ------------------------------------------------------------------------------------------------ speed


def speed(
    size: str, rounds: int, tokens: int, max_tokens: int, many: bool, count: int, chosen: Sequence[str]
) -> None:
    """Seconds a document: one at a time, or as many side by side as a batch takes (`count`: so many)."""
    sentences = max(1, round(tokens / (WORDS + 2)))
    if many and not count:
        # What a row counts for in a batch: the source, and half of what may be written.
        count = max(1, max_tokens // (sentences * (WORDS + 2) + sentences * WORDS // 2))
    documents = random_documents(count if many else 1, sentences, WORDS)
    with tempfile.TemporaryDirectory() as folder:
        translate = systems(size, max_tokens, many, chosen, Path(folder))
        short = [Document("short", document.sentences[:2]) for document in documents[:2]]
        for each in translate.values():  # warms up
            each(short)
        ways = {name: partial(a_document, each, documents) for name, each in translate.items()}
        times = in_turn(ways, rounds, warm_up=0)
    what = f"{len(documents)} documents side by side, batches of {max_tokens:,}" if many else "one document"
    print(f"\ndecoding, {size}: {what}, of {len(documents[0])} sentences, {tokens} source tokens")
    bases = [name for name in BASELINES if name in translate]
    rows = [
        (n, times.took(n, "{:.3f}"), *(spread(times.ratios(base, n), "{:.1f}") for base in bases))
        for n in translate
    ]
    table(("system", "seconds a document", *(f"against {name}" for name in bases)), rows)


def a_document(translate: Translate, documents: Sequence[Document]) -> float:
    """Translate documents; give their number."""
    assert translate(documents) == sum(len(document) for document in documents)
    return len(documents)


# ----------------------------------------------------------------------------------------------- length


def uneven_document(tokens: int) -> Document:
    """A document of so many source tokens, brackets counted, whose sentences are of all lengths."""
    random = np.random.default_rng(tokens)
    sentences: list[str] = []
    left = tokens
    while left > 2:
        words = min(lengths(random)[0], left - 2)
        sentences.append(" ".join(map(str, random.integers(1, 31_000, words))))
        left -= words + 2
    return Document(str(tokens), tuple(sentences))


def length(size: str, rounds: int, tokens: Sequence[int], device: str | None) -> None:
    """Seconds a document, one piece each, by its length: processor time, on a GPU the clock's."""
    place = choose_device(device)
    on_gpu = place.type == "cuda"

    def clock() -> float:
        if not on_gpu:
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()

    documents = {count: uneven_document(count) for count in tokens}
    rows = []
    for name, recipe in (("CASA", "casa/casa"), ("CASA-Latent", "casa/latent")):
        config = decoding_config(recipe, size, 1, 10 * max(tokens))
        translate = partial(
            translated, DocumentTranslator(random_model(config).to(place), config, Numerals(), place)
        )
        for document in documents.values() if on_gpu else [documents[min(tokens)]]:  # warms up
            translate([document])
        ways: dict[str, Way] = {
            str(count): partial(a_document, translate, [document]) for count, document in documents.items()
        }
        times = in_turn(ways, rounds, clock, warm_up=0)
        shortest = times.median(str(min(tokens)))
        for count in tokens:
            middle = times.median(str(count))
            per = f"{middle / shortest:.1f}", f"{1000 * middle / count:.3f}"
            sentences = str(len(documents[count]))
            rows.append((name, f"{count:,}", sentences, times.took(str(count), "{:.3f}"), *per))
    print(
        f"\ndecoding, {size}, {torch.cuda.get_device_name(place) if on_gpu else 'one thread'}: one document"
    )
    head = ("system", "source tokens", "sentences", "seconds", f"against {min(tokens)}", "seconds per 1,000")
    table(head, rows)


def main() -> None:
    made = parser(__doc__, rounds=3)
    made.add_argument("what", choices=["speed", "length"])
    made.add_argument("--size", choices=SIZES, default="base")
    made.add_argument("--settings", nargs="*", choices=["one", "many"], default=["one", "many"])
    made.add_argument("--tokens", type=int, default=512, help="of the source, brackets counted")
    made.add_argument("--lengths", type=int, nargs="*", default=list(LENGTHS), help="of documents, in tokens")
    made.add_argument("--max-tokens", type=int, default=8000, help="of a batch, as decode.max_tokens")
    made.add_argument(
        "--documents", type=int, default=0, help="of `many`, where not as many as a batch takes"
    )
    made.add_argument("--systems", nargs="*", default=[], help="those whose names begin so, as CASA")
    made.add_argument("--device", default=None, help="of `length`: cpu or cuda; the GPU where there is one")
    given = made.parse_args()
    apply(given)
    if given.what == "length":
        length(given.size, given.rounds, given.lengths, given.device)
        return
    for setting in given.settings:
        many = setting == "many", given.documents, given.systems
        speed(given.size, given.rounds, given.tokens, given.max_tokens, *many)


if __name__ == "__main__":
    main()
