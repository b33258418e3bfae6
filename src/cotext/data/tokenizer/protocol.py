"""The base class of tokenizers, and tokenizers that are trained here, with sentencepiece or Moses BPE."""

import contextlib
import hashlib
import io
import json
import logging
import math
import re
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, Self

import sentencepiece

from cotext.runtime import CotextError, optional_module, parse_json
from cotext.runtime.files import replacing

SPECIAL_SYMBOLS = 4
Side = Literal["source", "target"]
MAX_VOCABULARY = 1_000_000
# ▁ represents a space in sentencepiece, which cannot distinguish the two.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029▁]")
# Zero-width space and joiner, soft hyphen, byte order mark, lone surrogates, replacement character.
_INVISIBLE = re.compile(r"[\u00ad\u200b\u2060\ufeff\ud800-\udfff\ufffd]")


def clean(text: str) -> str:
    """Return the text as one line in Unicode normal form C.

    Control characters and line separators become spaces, invisible characters are removed, and white space is
    collapsed and trimmed. All other characters, such as full-width forms, are kept. This is idempotent.
    """
    if not text.isprintable() or "▁" in text or "\ufffd" in text:
        text = _INVISIBLE.sub("", _CONTROL.sub(" ", text))
    return " ".join(unicodedata.normalize("NFC", text).split())


@dataclass(frozen=True, slots=True)
class TokenizerSettings:
    """Settings for training a tokenizer.

    `vocabulary`: number of subwords or, for `moses-bpe`, of merges. If it is None: `usual_vocabulary` or
    32,000 merges, fewer if the text is too small. `byte_fallback`: whether unknown characters are encoded as
    bytes, so that outputs have no unknown tokens. If it is None, it is on unless fewer than 4,000 subwords
    are requested. `character_coverage`: if it is None, 0.9995 with byte fallback, otherwise 1. `num_threads`
    changes the result slightly (order of summation). Its default is therefore the same on all machines.
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

    It grows with the square root of the corpus: 5,500 for 60,000 sentences, and 32,000, the maximum, from two
    million. It is at least 1,000 and, up to the maximum, twice the number of distinct characters.
    """
    by_size = 32_000 * math.sqrt(sentences / 2_000_000)
    return min(32_000, 100 * round(max(by_size, 2 * characters, 1_000) / 100))


# --- tokenizer.json describes the model files in the same folder.

FORMAT_VERSION = 1


def fingerprint_of(kind: str, files: Mapping[str, bytes]) -> str:
    """Return the SHA-256 of the kind and all model files; it does not depend on the chosen languages."""
    digest = hashlib.sha256(f"{FORMAT_VERSION} {kind}\n".encode())
    for name, content in sorted(files.items()):
        digest.update(f"{name} {len(content)}\n".encode() * (len(files) > 1) + content)
    return digest.hexdigest()


class Tokenizer(ABC):
    """Encodes sentences to subword ids, and decodes them.

    `fingerprint`: SHA-256 of everything that determines the encoding. `source_prefix` and `target_prefix`:
    language symbols at the beginning of every source and target sequence. `unwritten`: ids that must not be
    generated, ascending. `separate_vocabularies`: an id means different subwords on the source and the target
    side; `source_vocabulary_size` then counts the source ids.
    """

    kind = ""
    source_prefix: tuple[int, ...] = ()
    target_prefix: tuple[int, ...] = ()
    unwritten: tuple[int, ...] = ()
    separate_vocabularies = False

    def __init__(self, files: Mapping[str, bytes], pieces: int, unk: int, source_pieces: int = 0) -> None:
        """Number the special symbols; `files` are the model files by name."""
        self._files, self.files = dict(files), tuple(files)
        self.fingerprint = fingerprint_of(self.kind, files)
        self.pieces, self.unk = pieces, unk
        self.pad, self.bos, self.eos, self.sep = range(pieces, pieces + SPECIAL_SYMBOLS)
        self.vocabulary_size = pieces + SPECIAL_SYMBOLS
        self.source_vocabulary_size = max(pieces, source_pieces) + SPECIAL_SYMBOLS

    def encode(self, sentence: str, side: Side = "source") -> list[int]:
        """Return the subword ids of a sentence, without special symbols."""
        return self.encode_batch([sentence], side)[0]

    @abstractmethod
    def encode_batch(self, sentences: Sequence[str], side: Side = "source") -> list[list[int]]:
        """Encode many sentences at once."""

    @abstractmethod
    def decode(self, ids: Sequence[int], side: Side = "target") -> str:
        """Return the text as one line with single spaces.

        Special symbols and incomplete characters decode to nothing, the unknown token to "⁇".
        """

    def blank(self) -> list[int]:
        """Return, ascending, the ids that decode to nothing alone, and to nothing or a space in a text."""
        return [i for i in range(self.pieces) if not self.decode([i])]

    def lacks(self, text: str) -> bool:
        """Return whether a character of a source text is unknown."""
        return self.unk in self.encode(text)

    def description(self) -> dict[str, Any]:
        """Return the content of tokenizer.json."""
        return {
            "version": FORMAT_VERSION,
            "kind": self.kind,
            "model": self.files[0] if len(self.files) == 1 else list(self.files),
            **self._choice(),
            "fingerprint": self.fingerprint,
            "pieces": self.pieces,
            "special": {"pad": self.pad, "bos": self.bos, "eos": self.eos, "sep": self.sep},
        }

    def _choice(self) -> dict[str, Any]:
        """Return the entry of the description with the chosen languages."""
        return {}

    def save(self, folder: Path) -> None:
        """Write tokenizer.json and the model files into the folder, which is created if necessary.

        Files that have the same content already are not touched.
        """
        folder.mkdir(parents=True, exist_ok=True)
        description = json.dumps(self.description(), indent=2, ensure_ascii=False)
        for name, content in (*self._files.items(), ("tokenizer.json", description.encode())):
            path = folder / name
            if not path.is_file() or path.read_bytes() != content:
                with replacing(path) as temporary:
                    temporary.write_bytes(content)


# --- Tokenizers of the library sentencepiece: unigram model and byte pair encoding.

# In a smaller vocabulary, 256 byte tokens would be a large part.
BYTE_FALLBACK_FROM = 4000
# For fewer sentences, starting a thread takes longer than encoding.
TOGETHER_FROM = 64


def encode_all(
    processor: sentencepiece.SentencePieceProcessor, texts: list[str], out_type: type
) -> list[Any]:
    """Encode each text to ids (`out_type` int) or subwords (str)."""
    if len(texts) < TOGETHER_FROM:
        return [processor.encode(text, out_type=out_type) for text in texts]
    encoded: list[Any] = processor.encode(texts, out_type=out_type, num_threads=1)
    return encoded


def open_model(content: bytes, what: str = "") -> sentencepiece.SentencePieceProcessor:
    """Load a sentencepiece model; raises CotextError for other content. `what` begins the message."""
    problem = "it is empty"  # sentencepiece accepts empty models
    if content:
        try:
            return sentencepiece.SentencePieceProcessor(model_proto=content)
        except RuntimeError as error:
            problem = str(error)
    raise CotextError(f"{f'{what}: ' if what else ''}not a sentencepiece model: {problem}")


def _script(letter: str) -> str:
    return unicodedata.name(letter, "").partition(" ")[0]


def is_part_of_character(processor: sentencepiece.SentencePieceProcessor, piece: str) -> bool:
    """Return whether a subword is a byte from 0x80; several of them form a character."""
    return bool(processor.is_byte(processor.piece_to_id(piece))) and int(piece[1:-1], 16) >= 0x80


class SentencePieceTokenizer(Tokenizer):
    """Unigram subwords (Kudo 2018) of text in normal form C.

    With byte fallback, `decode(encode(x)) == clean(x)` for every text. Without it, a character that does not
    occur in the training text decodes to " ⁇ ".
    """

    kind = "sentencepiece"
    model_type = "unigram"
    model_name = "sentencepiece.model"

    def __init__(self, model: bytes) -> None:
        """Load a trained model; raises CotextError if it is not a sentencepiece model."""
        self._processor = open_model(model)
        super().__init__({self.model_name: model}, self._processor.get_piece_size(), self._processor.unk_id())

    @classmethod
    def train(cls, sample: Sequence[str], settings: TokenizerSettings, corpus_sentences: int = 0) -> Self:
        """Train on clean, non-empty sentences of a corpus; raises the errors of `train_tokenizer`."""
        requested = settings.vocabulary
        if requested is None:
            requested = usual_vocabulary(corpus_sentences or len(sample), len(set().union(*sample)))
        byte_fallback = settings.byte_fallback
        if byte_fallback is None:
            byte_fallback = settings.vocabulary is None or requested >= BYTE_FALLBACK_FROM
        coverage = settings.character_coverage
        if coverage is None:
            coverage = 0.9995 if byte_fallback else 1.0
        longest = max((len(sentence.encode()) for sentence in sample), default=0)
        # By default, sentencepiece ignores longer sentences.
        limit: Any = {"max_sentence_length": longest} if longest > 4192 else {}
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(sample),
                **limit,
                model_writer=model,
                model_type=cls.model_type,
                vocab_size=requested,
                # A soft limit gives the largest possible vocabulary if the text is too small.
                hard_vocab_limit=False,
                character_coverage=coverage,
                byte_fallback=byte_fallback,
                normalization_rule_name="identity",  # `clean` normalises, and preserves more than NFKC
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
                f"{tokenizer.pieces}: request this size, or omit the size to get it"
            )
        return tokenizer

    def encode_batch(self, sentences: Sequence[str], side: Side = "source") -> list[list[int]]:
        return encode_all(self._processor, [clean(s) for s in sentences], int)

    def decode(self, ids: Sequence[int], side: Side = "target") -> str:
        return clean(self._processor.decode([int(i) for i in ids if i < self.pieces]))

    def lacks(self, text: str) -> bool:
        """Return whether a character of a source text is unknown, or a symbol or script known only as bytes.

        Other characters known only as bytes, such as a rare letter with an accent, are often learned.
        """
        return any(map(self._lacks_character, set(clean(text))))

    def _lacks_character(self, character: str) -> bool:
        if character not in self._lacking:
            found, kind = self.encode(character), unicodedata.category(character)[0]
            as_bytes = any(map(self._processor.is_byte, found))
            no_letter = kind in "SNC" or (kind == "L" and _script(character) not in self._scripts)
            self._lacking[character] = self.unk in found or (as_bytes and no_letter)
        return self._lacking[character]

    @cached_property
    def _lacking(self) -> dict[str, bool]:
        """Whether each character that `lacks` has examined is unknown."""
        return {}

    @cached_property
    def _scripts(self) -> frozenset[str]:
        """The scripts of the letters in the subwords."""
        pieces = map(self._processor.id_to_piece, range(self.pieces))
        return frozenset(_script(letter) for letter in set("".join(pieces)) if letter.isalpha())

    def blank(self) -> list[int]:
        piece = self._processor.id_to_piece
        return [i for i in super().blank() if not is_part_of_character(self._processor, piece(i))]


class SentencePieceBPETokenizer(SentencePieceTokenizer):
    """Subwords by byte pair encoding (Sennrich et al. 2016); otherwise like `SentencePieceTokenizer`.

    Frequent words, which the unigram model may split, become single subwords.
    """

    kind = "sentencepiece-bpe"
    model_type = "bpe"


def _training_problem(error: str, requested: int) -> str:
    too_small = re.search(r"smaller than required_chars\. \d+ vs (\d+)", error)
    if too_small:
        return (
            f"a vocabulary of {requested} pieces cannot contain the characters of the text; request at least "
            f"{too_small[1]}, or lower the character coverage"
        )
    return f"sentencepiece can't train on this text with {requested} pieces: {error}"


# --- Byte pair encoding by subword-nmt, with words as in the scripts of the papers: Moses tokenisation, Jieba
# for Chinese, truecasing.
#
# Truecasing (Koehn et al. 2007, `truecase.perl`) writes the first word of a sentence in its most frequent
# form inside sentences; other known words are unchanged. Both languages share one model. A sentence with
# Chinese characters is split by Jieba, any other by Moses.

_CHINESE = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
TRUECASE, CHINESE = "truecase", "chinese"  # optional keys of a model


class WordSplitter:
    """A splitter of sentences into words, which also joins words to sentences.

    `language`: language of the Moses rules. `chinese`: version of Jieba for Chinese, or empty for Moses only.
    `truecase`: a truecasing model. `best` maps a lower-case word to its most frequent form inside
    sentences; `known` has all forms.

    Raises CotextError if a required package is not installed or has another version.
    """

    def __init__(self, language: str, chinese: str = "", truecase: Mapping[str, Any] | None = None) -> None:
        package = _package("sacremoses")
        self.language, self.chinese, self.truecase = language, chinese, truecase
        self._moses = package.MosesTokenizer(lang=language)
        self._joiner = moses_detokenizer(language)
        self._jieba = _jieba(chinese).Tokenizer() if chinese else None
        self._truecaser: Any = None
        if truecase is not None:
            self._truecaser, self._detruecaser = package.MosesTruecaser(), package.MosesDetruecaser()
            self._truecaser.model = {"best": truecase["best"], "known": frozenset(truecase["known"])}

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """Read the content of a model file; raises TypeError, ValueError, KeyError or CotextError."""
        truecase = None
        if TRUECASE in content:
            best, known = content[TRUECASE]["best"], content[TRUECASE]["known"]
            truecase = {"best": {str(w): str(form) for w, form in best.items()}, "known": [*map(str, known)]}
        return cls(str(content["language"]), str(content.get(CHINESE, "")), truecase)

    def as_dict(self) -> dict[str, Any]:
        """Return the content for a model file, with only the options that are used."""
        content = {"language": self.language, CHINESE: self.chinese, TRUECASE: self.truecase}
        return {key: value for key, value in content.items() if value}

    def split(self, sentence: str) -> list[str]:
        words: list[str]
        if self._jieba is not None and _CHINESE.search(sentence):
            words = [word for word in self._jieba.lcut(sentence, HMM=True) if word.strip()]
        else:
            words = self._moses.tokenize(sentence, escape=False)
        if self._truecaser is None:
            return words
        # The truecaser does not remove words that look like tags.
        text: str = self._truecaser.truecase(" ".join(words), return_str=True, use_known=True)
        return text.split()

    def join(self, words: Sequence[str], as_written: bool = True) -> str:
        """Join words to a sentence; `as_written`: restore the capital that truecasing removed."""
        if self._truecaser is not None and as_written:
            words = self._detruecaser.detruecase(" ".join(words))
        return clean(self._joiner.detokenize(list(words), unescape=False))


def _jieba(version: str) -> Any:
    jieba = optional_module("jieba", "jieba", "splitting Chinese into words")
    jieba.setLogLevel(logging.WARNING)  # suppresses messages about its dictionary
    if version and jieba.__version__ != version:
        raise CotextError(
            f"the tokenizer was made with jieba {version}, whose dictionary defines the words, but jieba "
            f"{jieba.__version__} is installed: pip install jieba=={version}"
        )
    return jieba


def moses_detokenizer(language: str) -> Any:
    """Return the detokenizer of a language; raises CotextError if sacremoses is not installed."""
    # The Czech rules of sacremoses are not used, because they check the wrong word: `roce 1990 .` is joined.
    rules = "xx" if language == "cs" else language
    return _package("sacremoses", "joining words").MosesDetokenizer(lang=rules)


def _package(name: str, what: str = "the moses-bpe tokenizer") -> Any:
    return optional_module(name, "replication", what)


MERGES: Final = 32_000  # as in the papers, for every size of corpus


class MosesBPETokenizer(Tokenizer):
    """Moses tokenisation, then byte pair encoding (Sennrich et al. 2016), as in many papers.

    Use it for replications: it is slower than sentencepiece, and the Moses rules do not restore every text.
    `words` splits sentences into words, with Jieba and truecasing if selected.
    """

    kind = "moses-bpe"
    model_name = "bpe.json"

    def __init__(self, model: bytes) -> None:
        """Load a trained model; raises CotextError if it is damaged, or the extra is not installed."""
        package = _package("subword_nmt.apply_bpe")
        try:
            content = parse_json(model.decode(), "the model")
        except (ValueError, CotextError) as error:
            raise CotextError(f"not a moses-bpe model: {error}") from error
        try:
            self.words, codes = WordSplitter.of(content), str(content["codes"])
            self._pieces = [str(piece) for piece in content["pieces"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CotextError(f"not a moses-bpe model: {error}") from error
        super().__init__({self.model_name: model}, len(self._pieces), unk=0)
        self._bpe = package.BPE(io.StringIO(codes))
        self._ids = {piece: i for i, piece in enumerate(self._pieces)}

    @classmethod
    def train(cls, sample: Sequence[str], settings: TokenizerSettings, corpus_sentences: int = 0) -> Self:
        """Learn `vocabulary` merges from clean, non-empty sentences; by default 32,000, as in the papers."""
        learning = _package("subword_nmt.learn_bpe")
        chinese = str(_jieba("").__version__) if settings.jieba else ""
        splitter = WordSplitter(settings.language, chinese)
        if settings.truecase:
            model = _package("sacremoses").MosesTruecaser().train([splitter.split(line) for line in sample])
            learned = {"best": dict(sorted(model["best"].items())), "known": sorted(model["known"])}
            splitter = WordSplitter(settings.language, chinese, learned)
        words = Counter(word for line in sample for word in splitter.split(line))
        counts = [f"{word} {count}" for word, count in words.items()]
        merged = io.StringIO()
        try:
            with contextlib.redirect_stderr(io.StringIO()):  # hides the progress bar of subword-nmt
                learning.learn_bpe(counts, merged, settings.vocabulary or MERGES, is_dict=True)
        except ValueError as error:  # from `max` of an empty sequence
            raise CotextError("the text has no pair of characters to merge") from error
        codes = merged.getvalue()
        merges = codes.count("\n") - 1  # the first line is a version
        if settings.vocabulary is not None and merges < settings.vocabulary:
            raise CotextError(
                f"the text supports {merges} merges, fewer than the requested {settings.vocabulary}: request "
                f"at most {merges}, or omit the size to get the largest possible"
            )
        segmenter = _package("subword_nmt.apply_bpe").BPE(io.StringIO(codes))
        frequencies: Counter[str] = Counter()
        for word, count in words.items():
            for piece in segmenter.segment_tokens([word]):
                frequencies[piece] += count
        # Every character is added, with and without continuation, so that unseen words can be encoded.
        for character in {character for word in words for character in word}:
            frequencies[character] += 0
            frequencies[character + "@@"] += 0
        pieces = ["<unk>", *sorted(frequencies, key=lambda piece: (-frequencies[piece], piece))]
        content = {**splitter.as_dict(), "codes": codes, "pieces": pieces}
        return cls(json.dumps(content, ensure_ascii=False).encode())

    def encode_batch(self, sentences: Sequence[str], side: Side = "source") -> list[list[int]]:
        words = [self.words.split(clean(sentence)) for sentence in sentences]
        return [[self._ids.get(piece, self.unk) for piece in self._bpe.segment_tokens(w)] for w in words]

    def decode(self, ids: Sequence[int], side: Side = "target") -> str:
        pieces = ("⁇" if i == self.unk else self._pieces[i] for i in ids if i < self.pieces)
        words = f"{' '.join(pieces)} ".replace("@@ ", "").split()
        return self.words.join(words)
