"""Moses tokenisation with byte pair encoding by subword-nmt, for replication."""

import contextlib
import io
import json
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from cotext.data.tokenizer.protocol import (
    SPECIAL_SYMBOLS,
    Side,
    TokenizerSettings,
    clean,
    fingerprint_of,
    save,
)
from cotext.runtime.errors import CotextError
from cotext.runtime.reading import parse_json

# --- Words as the scripts of the papers have them: Moses tokenisation, Jieba for Chinese, truecasing.
#
# Truecasing (Koehn et al. 2007, `truecase.perl`) writes the first word of a sentence as it mostly stands in
# the midst of one, and leaves known words elsewhere alone. One model serves both sides, as a tokenizer does
# not know whose sentence it is given. A sentence with Chinese characters is split by Jieba, any other by
# Moses.

_CHINESE = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
TRUECASE, CHINESE = "truecase", "chinese"  # keys of a model, where it has them


@dataclass(frozen=True, slots=True)
class TruecaseModel:
    """`best`: the form of a word in the midst of sentences, by its lower case; `known`: all forms there."""

    best: Mapping[str, str]
    known: Sequence[str]

    @classmethod
    def learn(cls, sentences: Sequence[Sequence[str]]) -> Self:
        """Count the words of tokenised sentences; the first of each says nothing of its case."""
        found = _sacremoses().MosesTruecaser().train(sentences)
        return cls(dict(sorted(found["best"].items())), sorted(found["known"]))

    @classmethod
    def of(cls, content: Any) -> Self:
        """Read what a model file holds; raises TypeError, ValueError or KeyError."""
        best = {str(word): str(form) for word, form in content["best"].items()}
        return cls(best, [str(form) for form in content["known"]])

    def as_dict(self) -> dict[str, Any]:
        """For a model file."""
        return {"best": dict(self.best), "known": list(self.known)}


@dataclass(slots=True)
class WordSplitter:
    """Splits sentences into words, and joins words to sentences.

    `language` steers the Moses rules. `chinese`: the version of Jieba, or empty: Moses splits all.

    Raises:
        CotextError: a package that it needs is not installed, or of another version.
    """

    language: str
    chinese: str = ""
    truecase: TruecaseModel | None = None
    _moses: Any = field(init=False)
    _joiner: Any = field(init=False)
    _jieba: Any = field(init=False, default=None)
    _truecaser: Any = field(init=False, default=None)
    _detruecaser: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        package = _sacremoses()
        self._moses = package.MosesTokenizer(lang=self.language)
        self._joiner = moses_detokenizer(self.language)
        if self.chinese:
            self._jieba = _jieba(self.chinese).Tokenizer()
        if self.truecase is not None:
            self._truecaser, self._detruecaser = package.MosesTruecaser(), package.MosesDetruecaser()
            self._truecaser.model = {"best": self.truecase.best, "known": frozenset(self.truecase.known)}

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """Read what a model file holds; raises TypeError, ValueError, KeyError or CotextError."""
        truecase = TruecaseModel.of(content[TRUECASE]) if TRUECASE in content else None
        return cls(str(content["language"]), str(content.get(CHINESE, "")), truecase)

    def as_dict(self) -> dict[str, Any]:
        """For a model file: what is off leaves no trace."""
        content: dict[str, Any] = {"language": self.language}
        if self.chinese:
            content[CHINESE] = self.chinese
        if self.truecase is not None:
            content[TRUECASE] = self.truecase.as_dict()
        return content

    def split(self, sentence: str) -> list[str]:
        """The words of a clean sentence."""
        words: list[str]
        if self._jieba is not None and _CHINESE.search(sentence):
            words = [word for word in self._jieba.lcut(sentence, HMM=True) if word.strip()]
        else:
            words = self._moses.tokenize(sentence, escape=False)
        if self._truecaser is None:
            return words
        # As text: what it takes for a tag is one of its words.
        text: str = self._truecaser.truecase(" ".join(words), return_str=True, use_known=True)
        return text.split()

    def join(self, words: Sequence[str], as_written: bool = True) -> str:
        """The sentence of words; `as_written`: with the capital that truecasing took away."""
        if self._detruecaser is not None and as_written:
            words = self._detruecaser.detruecase(" ".join(words))
        return clean(self._joiner.detokenize(list(words), unescape=False))


def jieba_version() -> str:
    """The version of Jieba that is installed.

    Raises:
        CotextError: none is.
    """
    return str(_jieba("").__version__)


def _jieba(version: str) -> Any:
    try:
        import jieba
    except ImportError:
        raise CotextError("Chinese words need jieba: pip install cotext[jieba]") from None
    jieba.setLogLevel(logging.WARNING)  # it tells of its dictionary on standard error
    if version and jieba.__version__ != version:
        raise CotextError(
            f"the tokenizer was made with jieba {version}, whose dictionary decides what a word is, and here "
            f"is {jieba.__version__}: pip install jieba=={version}"
        )
    return jieba


def moses_detokenizer(language: str) -> Any:
    """What joins words by the rules of a language; CotextError where sacremoses is not installed."""
    # Its Czech rules look at the end of the sentence in place of the words before, and join `roce 1990 .`.
    rules = "xx" if language == "cs" else language
    return _sacremoses("joining words").MosesDetokenizer(lang=rules)


def _sacremoses(what: str = "the moses-bpe tokenizer") -> Any:
    try:
        import sacremoses
    except ImportError:
        raise CotextError(f"{what} needs sacremoses: pip install cotext[replication]") from None
    return sacremoses


MERGES: Final = 32_000  # of the papers, whatever the size of the corpus


class _Extra(NamedTuple):
    apply_bpe: Any
    learn_bpe: Any


class MosesBPETokenizer:
    """Moses tokenisation, then byte-pair encoding (Sennrich et al. 2016), as the papers of the field used.

    For replication: slower than sentencepiece, and the Moses rules do not give every text back exactly.
    `words` splits sentences before: with Jieba for Chinese, truecased, where its settings say so.
    """

    kind = "moses-bpe"
    model_name = "bpe.json"
    files = ("bpe.json",)
    source_prefix: tuple[int, ...] = ()
    target_prefix: tuple[int, ...] = ()
    unwritten: tuple[int, ...] = ()

    def __init__(self, model: bytes) -> None:
        """Wrap a trained model; raises CotextError when it is damaged or the extra is not installed."""
        extra = _replication_extra()
        try:
            content = parse_json(model.decode(), "the model")
        except (ValueError, CotextError) as error:
            raise CotextError(f"not a moses-bpe model: {error}") from error
        try:
            self.words, codes = WordSplitter.of(content), str(content["codes"])
            self._pieces = [str(piece) for piece in content["pieces"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CotextError(f"not a moses-bpe model: {error}") from error
        self._model = model
        self.fingerprint = fingerprint_of(self.kind, model)
        self._bpe = extra.apply_bpe.BPE(io.StringIO(codes))
        self._ids = {piece: i for i, piece in enumerate(self._pieces)}
        self.pieces = len(self._pieces)
        self.pad, self.bos, self.eos, self.sep = range(self.pieces, self.pieces + SPECIAL_SYMBOLS)
        self.vocabulary_size = self.source_vocabulary_size = self.pieces + SPECIAL_SYMBOLS
        self.separate_vocabularies = False
        self.unk = 0

    @classmethod
    def train(cls, sample: Sequence[str], settings: TokenizerSettings, corpus_sentences: int = 0) -> Self:
        """Learn `vocabulary` merges from clean, non-empty sentences; by default 32,000, as the papers."""
        extra = _replication_extra()
        splitter = WordSplitter(settings.language, jieba_version() if settings.jieba else "")
        if settings.truecase:
            learned = TruecaseModel.learn([splitter.split(line) for line in sample])
            splitter = replace(splitter, truecase=learned)
        words = Counter(word for line in sample for word in splitter.split(line))
        counts = [f"{word} {count}" for word, count in words.items()]
        merged = io.StringIO()
        try:
            with contextlib.redirect_stderr(io.StringIO()):  # it writes a progress bar there
                extra.learn_bpe.learn_bpe(counts, merged, settings.vocabulary or MERGES, is_dict=True)
        except ValueError as error:  # its maximum over no pairs
            raise CotextError("the text has no pair of characters to merge") from error
        codes = merged.getvalue()
        merges = codes.count("\n") - 1  # the first line is a version
        if settings.vocabulary is not None and merges < settings.vocabulary:
            raise CotextError(
                f"the text supports {merges} merges, fewer than the {settings.vocabulary} asked for: ask for "
                "at most that, or for no size to get the largest possible"
            )
        segmenter = extra.apply_bpe.BPE(io.StringIO(codes))
        frequencies: Counter[str] = Counter()
        for word, count in words.items():
            for piece in segmenter.segment_tokens([word]):
                frequencies[piece] += count
        # Every character, with and without a continuation, so that an unseen word still has pieces.
        for character in {character for word in words for character in word}:
            frequencies[character] += 0
            frequencies[character + "@@"] += 0
        pieces = ["<unk>", *sorted(frequencies, key=lambda piece: (-frequencies[piece], piece))]
        content = {**splitter.as_dict(), "codes": codes, "pieces": pieces}
        return cls(json.dumps(content, ensure_ascii=False).encode())

    def encode(self, sentence: str, side: Side = "source") -> list[int]:
        """Return the piece ids of a sentence, without special symbols."""
        words = self.words.split(clean(sentence))
        return [self._ids.get(piece, self.unk) for piece in self._bpe.segment_tokens(words)]

    def encode_batch(self, sentences: Sequence[str], side: Side = "source") -> list[list[int]]:
        """Encode many sentences at once."""
        return [self.encode(sentence) for sentence in sentences]

    def decode(self, ids: Sequence[int], side: Side = "target") -> str:
        """Return the detokenised text as one line; an unknown piece shows as "⁇"."""
        pieces = ("⁇" if i == self.unk else self._pieces[i] for i in ids if i < self.pieces)
        words = f"{' '.join(pieces)} ".replace("@@ ", "").split()
        return self.words.join(words)

    def blank(self) -> list[int]:
        """Return the pieces that show nothing wherever they stand, in rising order."""
        return [i for i in range(self.pieces) if not self.decode([i])]

    def save(self, folder: Path) -> None:
        """Write tokenizer.json and the model file into the folder, which is made if absent."""
        save(folder, self, self.kind, self.model_name, self._model)


def _replication_extra() -> _Extra:
    """The optional packages.

    Raises:
        CotextError: one is not installed.
    """
    try:
        from subword_nmt import apply_bpe, learn_bpe
    except ImportError as error:
        raise CotextError(
            f"the moses-bpe tokenizer needs {error.name}: pip install cotext[replication]"
        ) from error
    return _Extra(apply_bpe, learn_bpe)
