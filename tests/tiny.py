"""Shared by several tests: a tokenizer of words, and very small models."""

from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cotext.config.recipe import Config, parse_config
from cotext.data.batch import Batch
from cotext.data.documents import Document
from cotext.data.tokenizer import Side, Tokenizer
from cotext.models.build import build_model
from cotext.models.interface import TranslationModel
from cotext.translation.translator import DocumentTranslator, Translation

TINY_MODEL: dict[str, Any] = {
    **{"dimension": 16, "feed_forward": 32, "heads": 2, "encoder_layers": 1, "decoder_layers": 2},
    **{"dropout": 0.0, "shift": 5},
}
# Short limits, because an untrained model seldom ends its output.
TINY_DECODE = {"beam": 2, "max_ratio": 1.0, "max_extra": 4}


class WordTokenizer:
    """One id per word. Id 0 is unknown; 1 decodes to nothing, as do 2 and 3 if they follow each other."""

    BLANK, FIRST_HALF, SECOND_HALF = 1, 2, 3
    kind, files = "words", ()
    source_prefix: tuple[int, ...] = ()
    target_prefix: tuple[int, ...] = ()
    unwritten: tuple[int, ...] = ()

    def __init__(self, words: Sequence[str]) -> None:
        self.words = ["?", "", "", "", *words]
        self.ids = {word: i for i, word in enumerate(self.words) if word}
        self.pieces = len(self.words)
        self.pad, self.bos, self.eos, self.sep = range(self.pieces, self.pieces + 4)
        self.vocabulary_size = self.source_vocabulary_size = self.pieces + 4
        self.separate_vocabularies = False
        self.unk = 0
        self.fingerprint = "words"

    def encode(self, sentence: str, side: Side = "source") -> list[int]:
        return [self.ids.get(word, self.unk) for word in sentence.split()]

    def encode_batch(self, sentences: Sequence[str], side: Side = "source") -> list[list[int]]:
        return [self.encode(sentence) for sentence in sentences]

    def decode(self, ids: Sequence[int], side: Side = "target") -> str:
        words = []
        for before, i in zip([-1, *ids], ids, strict=False):
            if i == self.SECOND_HALF and before == self.FIRST_HALF:
                words.append("½½")
            elif i < self.pieces and self.words[i]:
                words.append(self.words[i])
        return " ".join(words)

    def blank(self) -> list[int]:
        return [self.BLANK]

    def lacks(self, text: str) -> bool:
        return False  # words may be unknown, characters are not

    def save(self, folder: Path) -> None:
        raise NotImplementedError


class PlainWordTokenizer(WordTokenizer):
    """Every id except the unknown one is a word, so different outputs of a search are different texts."""

    BLANK = FIRST_HALF = SECOND_HALF = -1

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__(words)
        self.words[1:4] = ["one", "two", "three"]
        self.ids = {word: i for i, word in enumerate(self.words)}

    def blank(self) -> list[int]:
        return []


def logits(model: TranslationModel, hidden: Tensor) -> Tensor:
    """The output layer, written out: [..., D] -> [..., V]."""
    products = hidden @ model.output_weight.T
    return products if model.output_bias is None else products + model.output_bias


@torch.no_grad()
def full(model: TranslationModel, batch: Batch) -> Tensor:
    """The hidden states of all target positions, [B, T, D], from one forward pass."""
    return model.decode(batch.target_input, batch.input_sentence, model.encode(batch.source))


def split(tokens: Sequence[int], closing: Container[int]) -> list[list[int]]:
    """The sentences without the tokens that close them; the last one may be empty."""
    sentences: list[list[int]] = [[]]
    for token in tokens:
        if token in closing:
            sentences.append([])
        else:
            sentences[-1].append(token)
    return sentences


def tiny_config(**sections: dict[str, Any]) -> Config:
    """Return the configuration of a tiny system, with the given sections as overrides."""
    content: dict[str, Any] = {"model": TINY_MODEL, "decode": TINY_DECODE}
    for name, values in sections.items():
        content[name] = {**content.get(name, {}), **values}
    return parse_config(content, "test")


def window(before: int, after: int = 0, max_tokens: int = 512) -> dict[str, Any]:
    return {"kind": "window", "before": before, "after": after, "max_tokens": max_tokens}


def pieces(max_tokens: int = 512, kind: str = "document", parts: int = 1) -> dict[str, Any]:
    return {"kind": kind, "max_tokens": max_tokens, "parts": parts}


@torch.no_grad()
def shake(model: torch.nn.Module, scale: float = 0.2) -> None:
    """Add random numbers to all parameters, so that no part is neutral."""
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) * scale)


def random_model(config: Config, tokenizer: Tokenizer, seed: int = 0) -> TranslationModel:
    """A model of which no part is neutral: segments, biases and norms are random too.

    In double precision, so that hardly ever two candidates are so close that rounding decides between them.
    """
    torch.default_generator.manual_seed(seed)
    model = build_model(config, tokenizer.vocabulary_size)
    shake(model)
    assert isinstance(model, TranslationModel)
    return model.double().eval()


def random_translator(
    config: Config, tokenizer: Tokenizer, seed: int = 0, **decode: Any
) -> DocumentTranslator:
    """A translator with a `random_model`; `decode`: other settings than those of its configuration."""
    changed = config.model_copy(update={"decode": config.decode.model_copy(update=decode)})
    return DocumentTranslator(random_model(config, tokenizer, seed), changed, tokenizer, torch.device("cpu"))


def translations(translator: DocumentTranslator, documents: Sequence[Document]) -> list[Translation]:
    """The translation of each document, in their order."""
    found = dict(translator.translate(documents))
    assert sorted(found) == list(range(len(documents)))
    return [found[i] for i in range(len(documents))]
