"""Systems with random weights, and random text for them.

A system is written as a recipe with settings: `"casa/casa decode.precision=int8"`. GROUPS names lists of
them.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from cotext.config.recipe import Config, load_config
from cotext.config.sizes import SIZES
from cotext.data.batch import Batch, Instance, SpecialSymbols, make_batch, pack
from cotext.data.documents import Document
from cotext.data.shortlist import FREQUENT, Shortlist
from cotext.data.tokenizer import Side
from cotext.layers.spans import GatedOthersSpan
from cotext.models.build import build_model
from cotext.models.build_views import build_view, special_symbols
from cotext.models.checkpoint import LoadedModel, in_precision
from cotext.models.interface import Model
from cotext.runtime.devices import pinned
from cotext.training.losses import build_loss
from cotext.translation.translator import DocumentTranslator

SENTENCE = "focused-concatenation/base"
GATED = "focused-concatenation/s4to4 view.separators=bracket view.open_source=false model.positions=reset"
GROUPS = {
    "kinds": (
        SENTENCE,
        "focused-concatenation/s4to4-shift-cd",
        "p-transformer/doc",
        "g-transformer/randinit",
        "docflat/docflat-c",
        "mcn/final",
        "han/joint",
        "modern/rotary",
        "mixtures/docflat-p-transformer",
        "casa/casa",
    ),
    # Wu et al. 2023, section 5: batch-level context.
    "batch-context": (
        "docflat/doc2doc",
        "docflat/docflat-c",
        "docflat/docflat-d",
        "docflat/mbe",
        "docflat/abd",
    ),
    # Zheng et al. 2020, table 1.
    "mcn": ("mcn/sent", "mcn/final", "mcn/docnmt"),
    # Yu et al. 2024, table 3.
    "in-one-step": (
        "g-transformer/randinit",
        "casa/shadow-10-2",
        "casa/shadow-8-4",
        "casa/2to2",
        "casa/latent",
        "casa/casa",
        "casa/casa decode.precision=int8",
        "casa/casa decode.precision=int8 decode.shortlist=20",
        f"{SENTENCE} decode.precision=int8",
    ),
    # Other sentences behind gates, compared with one softmax over the row.
    "others": (GATED, f"{GATED} model.attention.others=gated"),
}
MARIAN = "marian"
RIVALS = (MARIAN, "ctranslate2", "ctranslate2-int8")  # programs of others, see rivals.py
OPEN_GATE = 0.1  # of gates that are closed at first, as after some updates
VOCABULARY = 32_000
CANDIDATES = 20  # of each source token in a random shortlist
# What recipes leave to the data, or to a run that they start from.
LEFT_OPEN = ("model.shift=25", "view.numbers=100", "train.init=''", "decode.first_pass=''")


class Numerals:
    """A tokenizer of texts that are token ids."""

    pieces = 31_000
    pad, bos, eos, sep = 31_996, 31_997, 31_998, 31_999
    vocabulary_size = source_vocabulary_size = VOCABULARY
    source_prefix = target_prefix = unwritten = ()
    unk = 0
    fingerprint = "numerals"

    def encode(self, sentence: str, side: Side = "source") -> list[int]:
        return [int(word) for word in sentence.split()]

    def encode_batch(self, sentences: Sequence[str], side: Side = "source") -> list[list[int]]:
        return [self.encode(sentence) for sentence in sentences]

    def decode(self, ids: Sequence[int], side: Side = "target") -> str:
        return " ".join(str(i) for i in ids if i < self.pieces)

    def blank(self) -> list[int]:
        return []

    def save(self, folder: Path) -> None:
        raise NotImplementedError


def add_options(parser: argparse.ArgumentParser, shapes: Sequence[str], form: str) -> None:
    """Add the options that choose systems and text."""
    groups = ", ".join(GROUPS)
    parser.add_argument(
        "--systems", nargs="+", default=["kinds"], help=f"'RECIPE key=value ...', or a group: {groups}"
    )
    parser.add_argument("--size", choices=sorted(SIZES), default="base")
    parser.add_argument("--shapes", nargs="+", default=list(shapes), metavar=form)


def named(systems: Sequence[str]) -> list[str]:
    """Return systems, each group replaced by its members."""
    return [each for system in systems for each in GROUPS.get(system, (system,))]


def numbers(shape: str) -> list[int]:
    """Return the numbers of a shape such as 8x20x25."""
    return [int(part) for part in shape.split("x")]


def config_of(system: str, size: str, *further: str) -> Config:
    """Return the configuration of a system; `further` settings may be overridden by its own."""
    recipe, *settings = system.split()
    return load_config(recipe, size, [*LEFT_OPEN, *further, *settings])


def random_model(config: Config) -> Model:
    """Build a model that never predicts special symbols, so that only the length limit ends a sentence."""
    torch.manual_seed(0)
    model = build_model(config, VOCABULARY)
    with torch.no_grad():
        model.output_weight[Numerals.pieces :] = 0
    for module in model.modules():
        if isinstance(module, GatedOthersSpan):
            torch.nn.init.constant_(module.gate, OPEN_GATE)
    return model


# --------------------------------------------------------------------------------------------- training


class Trained(Protocol):
    """What is trained: a system, or the model of another program."""

    device: torch.device

    def laid_out(self, batch: Batch) -> Batch:
        """Prepare a batch, as the thread of training does that reads ahead."""

    def update(self, batch: Batch) -> float:
        """Train on a batch; return its number of labels."""


class Trainee:
    """A system in training: model, loss and optimiser on a device, in fp32 or bf16."""

    def __init__(self, config: Config, device: torch.device, precision: str = "fp32") -> None:
        self.device, self.precision = device, precision
        self.model = random_model(config).train().to(device)
        self.loss = build_loss(config.loss)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)

    def laid_out(self, batch: Batch) -> Batch:
        """See `Trained`."""
        found = self.loss.laid_out(self.model, batch, training=True)
        return pinned(found) if self.device.type == "cuda" else found

    def gradients(self, batch: Batch) -> float:
        """Add the gradients of a batch; return its number of labels."""
        half = self.precision == "bf16"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=half):
            outcome = self.loss(self.model, batch.to(self.device))
        (outcome.loss / outcome.count).backward()
        return float(batch.labels.count)

    def update(self, batch: Batch) -> float:
        """See `Trained`."""
        count = self.gradients(batch)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return count


def random_batches(config: Config, documents: int, sentences: int, max_tokens: int) -> list[Batch]:
    """Return random documents as the view of a system cuts them, in batches of at most `max_tokens`.

    Sentences have about 25 tokens. Rows of similar length share a batch, unless the rows of a batch attend
    to each other.
    """
    random, symbols = np.random.default_rng(7), special_symbols(Numerals(), config.view)
    view, rows = build_view(config.view), list[Instance]()
    for document in range(documents):
        pairs = [_lengths(random) for _ in range(sentences)]
        source, target = ([random.integers(1, Numerals.pieces, p[side]) for p in pairs] for side in (0, 1))
        for window in view.split(*([len(s) for s in texts] for texts in (source, target))):
            sides = [source[j] for j in window.source], [target[j] for j in window.target]
            rows.append(Instance(document, window, *sides))
    if config.model.batch_context == "none":
        rows.sort(key=lambda row: row.row_tokens(symbols))
    return list(_in_batches(rows, symbols, max_tokens))


def _in_batches(rows: Sequence[Instance], symbols: SpecialSymbols, max_tokens: int) -> Iterator[Batch]:
    for members in pack([[row.row_tokens(symbols)] for row in rows], max_tokens):
        yield make_batch([rows[n] for n in members], symbols)


def _lengths(random: np.random.Generator) -> tuple[int, int]:
    """Return the source and the target length of a sentence, distributed as in real text."""
    source = int(np.clip(random.lognormal(3.05, 0.58), 2, 120))
    return source, int(np.clip(source * random.normal(1.05, 0.15), 2, 120))


# ------------------------------------------------------------------------------------------ translation


def translator_of(config: Config, device: torch.device) -> DocumentTranslator:
    """Return a translator with random weights in the precision of the configuration."""
    loaded = LoadedModel(random_model(config).eval().to(device), config, Numerals(), [0])
    model = in_precision(loaded, config.decode.precision, device).model
    shortlist = random_shortlist() if config.decode.shortlist else None
    return DocumentTranslator(model, config, Numerals(), device, shortlist=shortlist)


def random_shortlist() -> Shortlist:
    """Return a shortlist of candidates that are drawn uniformly."""
    random = np.random.default_rng(3)
    drawn = random.integers(0, Numerals.pieces, (VOCABULARY, CANDIDATES))
    frequent = random.permutation(Numerals.pieces)[:FREQUENT]
    return Shortlist(Numerals.fingerprint, drawn.astype(np.int32), frequent.astype(np.int32))


def random_documents(count: int, sentences: int, tokens: int) -> list[Document]:
    """Return documents of random tokens whose sentences all have the same length."""
    random = np.random.default_rng(5)
    drawn = random.integers(1, Numerals.pieces, (count, sentences, tokens))
    return [Document(str(i), tuple(" ".join(map(str, s)) for s in text)) for i, text in enumerate(drawn)]


Translate = Callable[[Sequence[Document]], list[list[str]]]  # documents -> sentences of the translations


def translations(translator: DocumentTranslator) -> Translate:
    """Return a function that translates documents, all sentences of which must come back."""

    def translate(documents: Sequence[Document]) -> list[list[str]]:
        found = dict(translator.translate(documents))
        assert all(len(found[i].document) == len(document) for i, document in enumerate(documents))
        return [sentence.split() for i in range(len(documents)) for sentence in found[i].document.sentences]

    return translate
