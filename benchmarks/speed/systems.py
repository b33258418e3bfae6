"""Systems of recipes with random weights, to be trained on random batches or to translate random tokens."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from benchmarks.speed.batches import SYMBOLS, VOCABULARY
from cotext.config.recipe import Config, load_config
from cotext.data.batch import Batch
from cotext.data.documents import Document
from cotext.data.tokenizer import Side
from cotext.layers.blocks import Size
from cotext.losses.build import build_loss
from cotext.models.build import build_model
from cotext.models.interface import Model, TranslationModel
from cotext.models.transformer import Transformer
from cotext.translation.translator import DocumentTranslator

SIZES = {"base": (512, 2048, 8), "small": (256, 1024, 4)}


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


def plain_model(size: Size) -> Transformer:
    """The Transformer on sentences, of given sizes, over the vocabulary of the benchmarks."""
    numbers = [f"model.{key}={value}" for key, value in asdict(size).items()]
    config = load_config("focused-concatenation/base", None, numbers)
    model = build_model(config, VOCABULARY)
    assert isinstance(model, Transformer)
    return model


class Trainee:
    """A model with its optimiser."""

    def __init__(self, config: Config, vocabulary: int | None = None) -> None:
        self.model = model_of(config) if vocabulary is None else build_model(config, vocabulary)
        self.loss = build_loss(config.loss)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)

    def update(self, batch: Batch) -> float:
        """Train on a batch; give its number of labels."""
        count = self.gradients(batch)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return count

    def gradients(self, batch: Batch) -> float:
        """Add the gradients of a batch; give its number of labels."""
        outcome = self.loss(self.model, batch)
        (outcome.loss / outcome.count).backward()
        return float(outcome.count)


def random_model(config: Config) -> Model:
    """Random weights; special symbols are never among the candidates, so that the limit closes a sentence."""
    torch.manual_seed(0)
    model = build_model(config, VOCABULARY).eval()
    with torch.no_grad():
        model.output_weight[Numerals.pieces :] = 0
    return model


def random_documents(count: int, sentences: int, tokens: int) -> list[Document]:
    """Documents of random tokens, all of their sentences of one length."""
    random = np.random.default_rng(5)
    return [
        Document(
            str(i), tuple(" ".join(map(str, random.integers(1, 31_000, tokens))) for _ in range(sentences))
        )
        for i in range(count)
    ]


def translated(translator: DocumentTranslator, documents: Sequence[Document]) -> float:
    """Translate documents; give their number of sentences, all of which must come back."""
    sentences = sum(len(translation.document) for _, translation in translator.translate(documents))
    assert sentences == sum(len(document) for document in documents)
    return sentences


class Numerals:
    """A tokenizer of texts that are token ids."""

    pieces = 31_000
    pad, bos, eos, sep = SYMBOLS.pad, SYMBOLS.bos, SYMBOLS.eos, SYMBOLS.separators[0]
    # Behind the special symbols come those of a recipe.
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
