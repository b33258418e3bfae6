"""The interface of tokenizers, their training settings, text normalisation, and storage."""

import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from cotext.runtime.files import replacing

SPECIAL_SYMBOLS = 4
Side = Literal["source", "target"]
MAX_VOCABULARY = 1_000_000
_WORD_BOUNDARY = "▁"  # represents a space in sentencepiece, which cannot distinguish the two
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029▁]")
# Zero-width space and joiner, soft hyphen, byte order mark, lone surrogates, replacement character.
_INVISIBLE = re.compile(r"[\u00ad\u200b\u2060\ufeff\ud800-\udfff\ufffd]")
_BROKEN_BYTE = "\ufffd"


def clean(text: str) -> str:
    """Return the text as one line in Unicode normal form C.

    Control characters and line separators become spaces, invisible characters are removed, and white space is
    collapsed and trimmed. All other characters, such as full-width forms, are kept. The result is idempotent.
    """
    if not text.isprintable() or _WORD_BOUNDARY in text or _BROKEN_BYTE in text:
        text = _INVISIBLE.sub("", _CONTROL.sub(" ", text))
    return " ".join(unicodedata.normalize("NFC", text).split())


@dataclass(frozen=True, slots=True)
class TokenizerSettings:
    """Settings for training a tokenizer.

    `vocabulary`: number of subwords or, for `moses-bpe`, of merges. If it is None, `usual_vocabulary` is
    used, or the largest possible number. `byte_fallback`: whether unknown characters are encoded as bytes, so
    that outputs have no unknown tokens. If it is None, it is on unless fewer than 4,000 subwords are
    requested. `character_coverage`: if it is None, 0.9995 with byte fallback, otherwise 1. `num_threads`
    changes the result slightly (order of summation), so it does not depend on the machine.
    `sample_sentences`: number of training sentences of both languages. If it is None, all sentences are used,
    in memory. `language`: language of the Moses rules for both sides. Outputs are detokenised with these
    rules, so choose the target language. `truecase` and `jieba` (Chinese words) are for `moses-bpe`.
    """

    kind: str = "sentencepiece"
    vocabulary: int | None = None
    byte_fallback: bool | None = None
    character_coverage: float | None = None
    sample_sentences: int | None = 100_000
    seed: int = 1
    num_threads: int = 4
    language: str = "en"
    truecase: bool = False
    jieba: bool = False


def usual_vocabulary(sentences: int, characters: int) -> int:
    """Return the default number of subwords, for a corpus of `sentences` in both languages together.

    It grows with the square root of the corpus: 5,500 for 60,000 sentences, and 32,000 from two million. It
    is at least 1,000, and twice the number of distinct characters.
    """
    by_size = 32_000 * math.sqrt(sentences / 2_000_000)
    return min(32_000, 100 * round(max(by_size, 2 * characters, 1_000) / 100))


class Tokenizer(Protocol):
    """Encodes sentences to subword ids, and decodes them.

    `fingerprint`: SHA-256 of everything that determines the encoding. `source_prefix` and `target_prefix`:
    language symbols at the beginning of every source and target sequence. `separate_vocabularies`: an id
    means different subwords on the source and the target side; `source_vocabulary_size` then counts the
    source ids.
    """

    kind: str
    pieces: int
    vocabulary_size: int
    source_vocabulary_size: int
    separate_vocabularies: bool
    pad: int
    bos: int
    eos: int
    sep: int
    unk: int
    fingerprint: str
    source_prefix: tuple[int, ...]
    target_prefix: tuple[int, ...]

    @property
    def files(self) -> tuple[str, ...]:
        """Return the names of the files that contain the model."""

    @property
    def unwritten(self) -> tuple[int, ...]:
        """Return, in ascending order, the ids that must not be generated."""

    def encode(self, sentence: str, side: Side = "source") -> list[int]:
        """Return the subword ids of a sentence, without special symbols."""

    def encode_batch(self, sentences: Sequence[str], side: Side = "source") -> list[list[int]]:
        """Encode many sentences at once."""

    def decode(self, ids: Sequence[int], side: Side = "target") -> str:
        """Return the text as one line with single spaces.

        Special symbols and incomplete characters decode to nothing, the unknown token to "⁇".
        """

    def blank(self) -> list[int]:
        """Return, in ascending order, the ids that decode to nothing in any position."""

    def save(self, folder: Path) -> None:
        """Write tokenizer.json and the model files into the folder, which is created if necessary."""


# --- Storage: tokenizer.json describes the model files in the same folder.

FORMAT_VERSION = 1


def fingerprint_of(kind: str, model: bytes) -> str:
    """Return the SHA-256 of the kind and the model file of a tokenizer."""
    return hashlib.sha256(f"{FORMAT_VERSION} {kind}\n".encode() + model).hexdigest()


def fingerprint_of_files(kind: str, files: Mapping[str, bytes]) -> str:
    """Return the SHA-256 of the kind and all model files; it does not depend on the chosen languages."""
    digest = hashlib.sha256(f"{FORMAT_VERSION} {kind}\n".encode())
    for name, content in sorted(files.items()):
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def description_of(
    tokenizer: Tokenizer, files: Sequence[str], languages: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the content of tokenizer.json; `languages` are the chosen languages of an imported tokenizer."""
    return {
        "version": FORMAT_VERSION,
        "kind": tokenizer.kind,
        "model": files[0] if languages is None else list(files),
        **({} if languages is None else {"languages": dict(languages)}),
        "fingerprint": tokenizer.fingerprint,
        "pieces": tokenizer.pieces,
        "special": {"pad": tokenizer.pad, "bos": tokenizer.bos, "eos": tokenizer.eos, "sep": tokenizer.sep},
    }


class TrainedTokenizer:
    """The common part of tokenizers that are trained here: one model file, and no language symbols."""

    kind = ""
    model_name = ""
    source_prefix: tuple[int, ...] = ()
    target_prefix: tuple[int, ...] = ()
    unwritten: tuple[int, ...] = ()
    separate_vocabularies = False

    def __init__(self, model: bytes, pieces: int, unk: int) -> None:
        self._model = model
        self.fingerprint = fingerprint_of(self.kind, model)
        self.pieces, self.unk = pieces, unk
        self.pad, self.bos, self.eos, self.sep = range(pieces, pieces + SPECIAL_SYMBOLS)
        self.vocabulary_size = self.source_vocabulary_size = pieces + SPECIAL_SYMBOLS

    @property
    def files(self) -> tuple[str, ...]:
        return (self.model_name,)

    def encode(self, sentence: str, side: Side = "source") -> list[int]:
        return self.encode_batch([sentence], side)[0]

    def encode_batch(self, sentences: Sequence[str], side: Side = "source") -> list[list[int]]:
        raise NotImplementedError

    def decode(self, ids: Sequence[int], side: Side = "target") -> str:
        raise NotImplementedError

    def blank(self) -> list[int]:
        return [i for i in range(self.pieces) if not self.decode([i])]

    def save(self, folder: Path) -> None:
        save(folder, self, {self.model_name: self._model})


def save(
    folder: Path,
    tokenizer: Tokenizer,
    files: Mapping[str, bytes],
    languages: Mapping[str, str] | None = None,
) -> None:
    """Write tokenizer.json and the model files into the folder, which is created if necessary."""
    folder.mkdir(parents=True, exist_ok=True)
    description = json.dumps(description_of(tokenizer, [*files], languages), indent=2, ensure_ascii=False)
    for name, content in (*files.items(), ("tokenizer.json", description.encode())):
        with replacing(folder / name) as temporary:
            temporary.write_bytes(content)
