"""The kinds of tokenizers by name: training one, and loading one from a folder."""

import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from cotext.data.tokenizer.moses_bpe import MosesBPETokenizer
from cotext.data.tokenizer.protocol import MAX_VOCABULARY, Tokenizer, TokenizerSettings, clean
from cotext.data.tokenizer.sentencepiece import SentencePieceBPETokenizer, SentencePieceTokenizer
from cotext.data.tokenizer.storage import FORMAT_VERSION, description_of, fingerprint_of
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.reading import read_bytes, read_json

MAX_MODEL_BYTES = 1 << 28  # about 10 for each character of a vocabulary of a million subwords


def reservoir_sample(sentences: Iterable[str], size: int, seed: int) -> list[str]:
    """Draw up to `size` of the non-empty sentences with equal chances, in one pass and bounded memory."""
    generator = random.Random(seed)
    sample: list[str] = []
    seen = 0
    for sentence in sentences:
        if not sentence:
            continue
        seen += 1
        if len(sample) < size:
            sample.append(sentence)
        elif (slot := generator.randrange(seen)) < size:
            sample[slot] = sentence
    return sample


KINDS: Final[Mapping[str, type[SentencePieceTokenizer | MosesBPETokenizer]]] = {
    SentencePieceTokenizer.kind: SentencePieceTokenizer,
    SentencePieceBPETokenizer.kind: SentencePieceBPETokenizer,
    MosesBPETokenizer.kind: MosesBPETokenizer,
}


def train_tokenizer(sentences: Iterable[str], settings: TokenizerSettings) -> Tokenizer:
    """Train a tokenizer on a random sample of the sentences (of both languages).

    Raises CotextError for an unknown kind, for text that can't fill the vocabulary asked for, and for a
    vocabulary too small to hold the characters.
    """
    if settings.kind not in KINDS:
        raise CotextError(f"unknown tokenizer {settings.kind!r}; choose one of {', '.join(KINDS)}")
    if (settings.truecase or settings.jieba) and settings.kind != MosesBPETokenizer.kind:
        raise CotextError(
            f"truecasing and Jieba are of words, which {settings.kind} has none of; choose "
            f"{MosesBPETokenizer.kind}"
        )
    if settings.requested_vocabulary < 1 or settings.sample_sentences < 1:
        raise CotextError("the vocabulary and the sample of the tokenizer need at least one element")
    if settings.requested_vocabulary > MAX_VOCABULARY:
        raise CotextError(
            f"a vocabulary has at most {MAX_VOCABULARY:,} subwords; ask for fewer (--vocabulary)"
        )
    cleaned = (clean(sentence) for sentence in sentences)
    sample = reservoir_sample(cleaned, settings.sample_sentences, settings.seed)
    if not sample:
        raise CotextError("there is no text to train a tokenizer on: every sentence is empty")
    return KINDS[settings.kind].train(sample, settings)


def load_tokenizer(folder: Path) -> Tokenizer:
    """Load what `save` wrote; raises CotextError when a file is absent, damaged or of another version."""
    description_path = folder / "tokenizer.json"
    description = read_json(description_path)
    try:
        version, kind, fingerprint = description["version"], description["kind"], description["fingerprint"]
    except KeyError as error:
        raise CotextError(
            f"{description_path}: not the description of a tokenizer, or cut off: no {error}"
        ) from error
    if version != FORMAT_VERSION:
        raise CotextError(
            f"{description_path}: tokenizer format {shown(version)}, but this version reads "
            f"{FORMAT_VERSION}; prepare the corpus again"
        )
    if not isinstance(kind, str) or kind not in KINDS:
        raise CotextError(
            f"{description_path}: unknown tokenizer {shown(kind)}; this version knows {', '.join(KINDS)}"
        )
    model_path = folder / KINDS[kind].model_name
    model = read_bytes(model_path, MAX_MODEL_BYTES)
    if fingerprint_of(kind, model) != fingerprint:
        raise CotextError(
            f"{model_path}: not the model that {description_path.name} beside it describes (cut off, or "
            "copied from elsewhere); copy the whole folder again"
        )
    tokenizer = KINDS[kind](model)
    if description != description_of(tokenizer, kind, model_path.name):
        raise CotextError(
            f"{description_path}: damaged: says something else than what is true of the model beside it; "
            "copy the whole folder again"
        )
    return tokenizer
