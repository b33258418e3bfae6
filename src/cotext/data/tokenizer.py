"""Subwords and special symbols: text to ids and back, one joint vocabulary for both languages.

Ids 0 .. P-1 belong to the subword model; pad = P, bos = P+1, eos = P+2 and sep = P+3 follow, so that no text,
whatever it contains, can ever be encoded as a special symbol.
"""

import contextlib
import hashlib
import io
import json
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, Self

import sentencepiece

from cotext.runtime.errors import CotextError, shown
from cotext.runtime.files import replacing
from cotext.runtime.reading import parse_json, read_bytes, read_json

FORMAT_VERSION = 1
SPECIAL_SYMBOLS = 4
MAX_VOCABULARY = 1_000_000
MAX_MODEL_BYTES = 1 << 28  # about 10 for each character of a vocabulary of a million subwords
# Below this size the 256 byte pieces would be a sizeable part of the vocabulary.
BYTE_FALLBACK_FROM = 4000

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
    """How a tokenizer is trained.

    `vocabulary` counts the pieces (for `moses-bpe`, the merges). None asks for 32,000, or as many as the text
    supports. `byte_fallback` None: on from 4,000 pieces, so that no output shows an unknown symbol.
    `character_coverage` None: 0.9995 with byte fallback, else 1. `num_threads` changes the pieces a little
    (sums in another order), hence it is a setting and not taken from the machine. `language` steers the Moses
    rules alone, for both sides; the outputs are detokenised with it, so name the target language.
    """

    kind: str = "sentencepiece"
    vocabulary: int | None = None
    byte_fallback: bool | None = None
    character_coverage: float | None = None
    sample_sentences: int = 500_000
    seed: int = 1
    num_threads: int = 4
    language: str = "en"

    @property
    def requested_vocabulary(self) -> int:
        """Return the size to aim at."""
        return 32_000 if self.vocabulary is None else self.vocabulary


class Tokenizer(Protocol):
    """Turns sentences into piece ids and back.

    `fingerprint` is a SHA-256 over everything that decides how text is encoded.
    """

    kind: str
    pieces: int
    vocabulary_size: int
    pad: int
    bos: int
    eos: int
    sep: int
    unk: int
    fingerprint: str

    def encode(self, sentence: str) -> list[int]:
        """Return the piece ids of a sentence, without special symbols."""

    def encode_batch(self, sentences: Sequence[str]) -> list[list[int]]:
        """Encode many sentences at once."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text as one line, white space folded; special symbols show nothing."""

    def blank(self) -> list[int]:
        """Return the pieces that show nothing wherever they stand, in rising order."""

    def save(self, folder: Path) -> None:
        """Write tokenizer.json and the model file into the folder, which is made if absent."""


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
        elif (place := generator.randrange(seen)) < size:
            sample[place] = sentence
    return sample


class SentencePieceTokenizer:
    """Unigram subwords (Kudo 2018) over text in normal form C.

    With byte fallback, `decode(encode(x)) == clean(x)` for every text. Without, a character that training
    did not see decodes to " ⁇ ".
    """

    kind = "sentencepiece"
    model_type = "unigram"
    model_name = "sentencepiece.model"

    def __init__(self, model: bytes, num_threads: int = 1) -> None:
        """Wrap a trained model; raises CotextError when the bytes are no sentencepiece model."""
        if not model:  # which sentencepiece would take for a model without pieces
            raise CotextError("not a sentencepiece model: it is empty")
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise CotextError(f"not a sentencepiece model: {error}") from error
        self._model = model
        self.fingerprint = _fingerprint(self.kind, model)
        self._num_threads = num_threads
        self.pieces: int = self._processor.get_piece_size()
        self.pad, self.bos, self.eos, self.sep = range(self.pieces, self.pieces + SPECIAL_SYMBOLS)
        self.vocabulary_size = self.pieces + SPECIAL_SYMBOLS
        self.unk: int = self._processor.unk_id()

    @classmethod
    def train(cls, sample: Sequence[str], settings: TokenizerSettings) -> Self:
        """Train on clean, non-empty sentences; raises CotextError as `train_tokenizer` does."""
        requested = settings.requested_vocabulary
        byte_fallback = settings.byte_fallback
        if byte_fallback is None:
            byte_fallback = requested >= BYTE_FALLBACK_FROM
        coverage = settings.character_coverage
        if coverage is None:
            coverage = 0.9995 if byte_fallback else 1.0
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(sample),
                model_writer=model,
                model_type=cls.model_type,
                vocab_size=requested,
                # Soft: the largest possible vocabulary where the text can't fill the one asked for.
                hard_vocab_limit=False,
                character_coverage=coverage,
                byte_fallback=byte_fallback,
                normalization_rule_name="identity",  # `clean` normalises, and loses less than NFKC
                unk_id=0,
                pad_id=-1,
                bos_id=-1,
                eos_id=-1,
                num_threads=settings.num_threads,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise CotextError(_training_problem(str(error), requested)) from error
        tokenizer = cls(model.getvalue())
        if settings.vocabulary is not None and tokenizer.pieces < settings.vocabulary:
            raise CotextError(
                f"the text can't fill a vocabulary of {settings.vocabulary} pieces; the largest possible is "
                f"{tokenizer.pieces}: ask for at most that, or for no size to get the largest possible"
            )
        return tokenizer

    def with_threads(self, num_threads: int) -> Self:
        """Return the same tokenizer with so many threads for `encode_batch`; the ids stay the same."""
        return type(self)(self._model, num_threads)

    def encode(self, sentence: str) -> list[int]:
        """Return the piece ids of a sentence, without special symbols."""
        ids: list[int] = self._processor.encode(clean(sentence))
        return ids

    def encode_batch(self, sentences: Sequence[str]) -> list[list[int]]:
        """Encode many sentences at once."""
        cleaned = [clean(sentence) for sentence in sentences]
        ids: list[list[int]] = self._processor.encode(cleaned, num_threads=self._num_threads)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text as one line; special symbols and bytes that form no character show nothing."""
        return clean(self._processor.decode([int(i) for i in ids if i < self.pieces]))

    def blank(self) -> list[int]:
        """Return the pieces that show nothing wherever they stand, in rising order.

        Bytes from 0x80 on show nothing alone but form characters together, so they are not among them.
        """
        processor = self._processor
        return [
            i
            for i in range(self.pieces)
            if not self.decode([i])
            and not (processor.is_byte(i) and int(processor.id_to_piece(i)[1:-1], 16) >= 0x80)
        ]

    def save(self, folder: Path) -> None:
        """Write tokenizer.json and the model file into the folder, which is made if absent."""
        _save(folder, self, self.kind, self.model_name, self._model)


class SentencePieceBPETokenizer(SentencePieceTokenizer):
    """Subwords by byte pair encoding (Sennrich et al. 2016), otherwise the same.

    Merging makes whole words of frequent ones, where the unigram model may keep cutting them.
    """

    kind = "sentencepiece-bpe"
    model_type = "bpe"


class MosesBPETokenizer:
    """Moses tokenisation, then byte-pair encoding (Sennrich et al. 2016), as the papers of the field used.

    For replication: slower than sentencepiece, and the Moses rules do not give every text back exactly.
    """

    kind = "moses-bpe"
    model_name = "bpe.json"

    def __init__(self, model: bytes) -> None:
        """Wrap a trained model; raises CotextError when it is damaged or the extra is not installed."""
        sacremoses, apply_bpe, _ = _replication_extra()
        try:
            content = parse_json(model.decode(), "the model")
            language, codes = str(content["language"]), str(content["codes"])
            self._pieces = [str(piece) for piece in content["pieces"]]
        except (ValueError, KeyError, TypeError, CotextError) as error:
            raise CotextError(f"not a moses-bpe model: {error}") from error
        self._model = model
        self.fingerprint = _fingerprint(self.kind, model)
        self._splitter = sacremoses.MosesTokenizer(lang=language)
        self._joiner = sacremoses.MosesDetokenizer(lang=language)
        self._bpe = apply_bpe.BPE(io.StringIO(codes))
        self._ids = {piece: i for i, piece in enumerate(self._pieces)}
        self.pieces = len(self._pieces)
        self.pad, self.bos, self.eos, self.sep = range(self.pieces, self.pieces + SPECIAL_SYMBOLS)
        self.vocabulary_size = self.pieces + SPECIAL_SYMBOLS
        self.unk = 0

    @classmethod
    def train(cls, sample: Sequence[str], settings: TokenizerSettings) -> Self:
        """Learn `vocabulary` merges from clean, non-empty sentences."""
        sacremoses, apply_bpe, learn_bpe = _replication_extra()
        splitter = sacremoses.MosesTokenizer(lang=settings.language)
        words = Counter(word for line in sample for word in splitter.tokenize(line, escape=False))
        counts = [f"{word} {count}" for word, count in words.items()]
        merged = io.StringIO()
        try:
            with contextlib.redirect_stderr(io.StringIO()):  # it writes a progress bar there
                learn_bpe.learn_bpe(counts, merged, settings.requested_vocabulary, is_dict=True)
        except ValueError as error:  # its maximum over no pairs
            raise CotextError("the text has no pair of characters to merge") from error
        codes = merged.getvalue()
        merges = codes.count("\n") - 1  # the first line is a version
        if settings.vocabulary is not None and merges < settings.vocabulary:
            raise CotextError(
                f"the text supports {merges} merges, fewer than the {settings.vocabulary} asked for: ask for "
                "at most that, or for no size to get the largest possible"
            )
        segmenter = apply_bpe.BPE(io.StringIO(codes))
        frequencies: Counter[str] = Counter()
        for word, count in words.items():
            for piece in segmenter.segment_tokens([word]):
                frequencies[piece] += count
        # Every character, with and without a continuation, so that an unseen word still has pieces.
        for character in {character for word in words for character in word}:
            frequencies[character] += 0
            frequencies[character + "@@"] += 0
        pieces = ["<unk>", *sorted(frequencies, key=lambda piece: (-frequencies[piece], piece))]
        content = {"language": settings.language, "codes": codes, "pieces": pieces}
        return cls(json.dumps(content, ensure_ascii=False).encode())

    def encode(self, sentence: str) -> list[int]:
        """Return the piece ids of a sentence, without special symbols."""
        words = self._splitter.tokenize(clean(sentence), escape=False)
        return [self._ids.get(piece, self.unk) for piece in self._bpe.segment_tokens(words)]

    def encode_batch(self, sentences: Sequence[str]) -> list[list[int]]:
        """Encode many sentences at once."""
        return [self.encode(sentence) for sentence in sentences]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the detokenised text as one line; an unknown piece shows as "⁇"."""
        pieces = ("⁇" if i == self.unk else self._pieces[i] for i in ids if i < self.pieces)
        words = f"{' '.join(pieces)} ".replace("@@ ", "").split()
        return clean(self._joiner.detokenize(words, unescape=False))

    def blank(self) -> list[int]:
        """Return the pieces that show nothing wherever they stand, in rising order."""
        return [i for i in range(self.pieces) if not self.decode([i])]

    def save(self, folder: Path) -> None:
        """Write tokenizer.json and the model file into the folder, which is made if absent."""
        _save(folder, self, self.kind, self.model_name, self._model)


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
    if _fingerprint(kind, model) != fingerprint:
        raise CotextError(
            f"{model_path}: not the model that {description_path.name} beside it describes (cut off, or "
            "copied from elsewhere); copy the whole folder again"
        )
    tokenizer = KINDS[kind](model)
    if description != _description(tokenizer, kind, model_path.name):
        raise CotextError(
            f"{description_path}: damaged: says something else than what is true of the model beside it; "
            "copy the whole folder again"
        )
    return tokenizer


def _fingerprint(kind: str, model: bytes) -> str:
    return hashlib.sha256(f"{FORMAT_VERSION} {kind}\n".encode() + model).hexdigest()


def _description(tokenizer: Tokenizer, kind: str, model_name: str) -> dict[str, Any]:
    """What stands in tokenizer.json."""
    return {
        "version": FORMAT_VERSION,
        "kind": kind,
        "model": model_name,
        "fingerprint": tokenizer.fingerprint,
        "pieces": tokenizer.pieces,
        "special": {"pad": tokenizer.pad, "bos": tokenizer.bos, "eos": tokenizer.eos, "sep": tokenizer.sep},
    }


def _save(folder: Path, tokenizer: Tokenizer, kind: str, model_name: str, model: bytes) -> None:
    description = _description(tokenizer, kind, model_name)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (
        (model_name, model),
        ("tokenizer.json", json.dumps(description, indent=2).encode()),
    ):
        with replacing(folder / name) as temporary:
            temporary.write_bytes(content)


def _training_problem(error: str, requested: int) -> str:
    too_small = re.search(r"smaller than required_chars\. \d+ vs (\d+)", error)
    if too_small:
        return (
            f"a vocabulary of {requested} pieces can't hold the characters of the text; ask for at least "
            f"{too_small[1]}, or lower the character coverage"
        )
    return f"sentencepiece can't train on this text with {requested} pieces: {error}"


def _replication_extra() -> tuple[Any, Any, Any]:
    try:
        import sacremoses
        from subword_nmt import apply_bpe, learn_bpe
    except ImportError as error:
        raise CotextError(
            f"the moses-bpe tokenizer needs {error.name}: pip install cotext[replication]"
        ) from error
    return sacremoses, apply_bpe, learn_bpe
