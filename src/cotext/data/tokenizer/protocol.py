"""The interface of tokenizers, settings for their training, and the normal form of text that they encode."""

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
_WORD_BOUNDARY = "▁"  # sentencepiece's own mark for a space; it can't be told from one
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029▁]")
# Zero-width space and joiner, soft hyphen, byte order mark, half surrogates, the mark of broken bytes.
_INVISIBLE = re.compile(r"[\u00ad\u200b\u2060\ufeff\ud800-\udfff\ufffd]")
_BROKEN_BYTE = "\ufffd"


def clean(text: str) -> str:
    """Return the text as one line in Unicode normal form C.

    White space is folded and trimmed, control characters and line separators become a space, invisible
    characters are dropped. `clean(clean(x)) == clean(x)`; everything else stays, full-width forms included.
    """
    if not text.isprintable() or _WORD_BOUNDARY in text or _BROKEN_BYTE in text:
        text = _INVISIBLE.sub("", _CONTROL.sub(" ", text))
    return " ".join(unicodedata.normalize("NFC", text).split())


@dataclass(frozen=True, slots=True)
class TokenizerSettings:
    """Settings for training a tokenizer.

    `vocabulary` counts the pieces (for `moses-bpe`, the merges). None: as `usual_vocabulary`, or as many as
    the text supports. `byte_fallback` None: on, so that no output shows an unknown symbol, unless fewer than
    4,000 pieces are asked for.
    `character_coverage` None: 0.9995 with byte fallback, else 1. `num_threads` changes the pieces a little
    (sums in another order), hence it is a setting and not taken from the machine. `sample_sentences`: of both
    languages, drawn from the whole corpus; None: all, in memory. `language` steers the Moses
    rules alone, for both sides; the outputs are detokenised with it, so name the target language. `truecase`
    and `jieba` (Chinese words) are for `moses-bpe`.
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
    """The number of pieces for a corpus of `sentences` in both languages together, in hundreds.

    It grows with the square root of the corpus: 32,000 from two million sentences on, 5,500 for 60,000. It is
    at least 1,000, and twice the number of distinct characters.
    """
    by_size = 32_000 * math.sqrt(sentences / 2_000_000)
    return min(32_000, 100 * round(max(by_size, 2 * characters, 1_000) / 100))


class Tokenizer(Protocol):
    """Turns sentences into piece ids and back.

    `fingerprint` is a SHA-256 over everything that decides how text is encoded. `source_prefix` and
    `target_prefix` are ids that stand once at the head of every source and target row: symbols of languages.
    `separate_vocabularies`: the same id means one piece on the source side and another on the target side;
    `source_vocabulary_size` then counts the ids of source text.
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
        """Return the names of the files that hold the model."""

    @property
    def unwritten(self) -> tuple[int, ...]:
        """Return the pieces that no output may hold, in rising order."""

    def encode(self, sentence: str, side: Side = "source") -> list[int]:
        """Return the piece ids of a sentence, without special symbols."""

    def encode_batch(self, sentences: Sequence[str], side: Side = "source") -> list[list[int]]:
        """Encode many sentences at once."""

    def decode(self, ids: Sequence[int], side: Side = "target") -> str:
        """Return the text as one line, white space folded; special symbols show nothing."""

    def blank(self) -> list[int]:
        """Return the pieces that show nothing wherever they stand, in rising order."""

    def save(self, folder: Path) -> None:
        """Write tokenizer.json and the model file into the folder, which is made if absent."""


# --- Storage of tokenizers: tokenizer.json, which describes the files of the model in the same folder.

FORMAT_VERSION = 1


def fingerprint_of(kind: str, model: bytes) -> str:
    """SHA-256 over everything that decides how a kind of tokenizer encodes text."""
    return hashlib.sha256(f"{FORMAT_VERSION} {kind}\n".encode() + model).hexdigest()


def fingerprint_of_files(kind: str, files: Mapping[str, bytes]) -> str:
    """As `fingerprint_of`, of a tokenizer in several files; which languages are chosen is no part of it."""
    digest = hashlib.sha256(f"{FORMAT_VERSION} {kind}\n".encode())
    for name, content in sorted(files.items()):
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def description_of(
    tokenizer: Tokenizer, kind: str, model: str | list[str], languages: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The content of tokenizer.json; `model` names the file or files, `languages` are those chosen."""
    return {
        "version": FORMAT_VERSION,
        "kind": kind,
        "model": model,
        **({} if languages is None else {"languages": dict(languages)}),
        "fingerprint": tokenizer.fingerprint,
        "pieces": tokenizer.pieces,
        "special": {"pad": tokenizer.pad, "bos": tokenizer.bos, "eos": tokenizer.eos, "sep": tokenizer.sep},
    }


def save(folder: Path, tokenizer: Tokenizer, kind: str, model_name: str, model: bytes) -> None:
    """Write tokenizer.json and the model file into the folder, which is made if absent."""
    _write(folder, {model_name: model}, description_of(tokenizer, kind, model_name))


def save_files(
    folder: Path, tokenizer: Tokenizer, kind: str, files: Mapping[str, bytes], languages: Mapping[str, str]
) -> None:
    """As `save`, of a tokenizer in several files, whose languages are chosen."""
    _write(folder, files, description_of(tokenizer, kind, list(files), languages))


def _write(folder: Path, files: Mapping[str, bytes], description: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (
        *files.items(),
        ("tokenizer.json", json.dumps(description, indent=2, ensure_ascii=False).encode()),
    ):
        with replacing(folder / name) as temporary:
            temporary.write_bytes(content)
