"""Moses tokenisation with byte pair encoding by subword-nmt, for the replication of papers."""

import contextlib
import io
import json
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final, Self

from cotext.data.tokenizer.protocol import Side, Tokenizer, TokenizerSettings, clean
from cotext.runtime import CotextError, parse_json

# --- Words as in the scripts of the papers: Moses tokenisation, Jieba for Chinese, truecasing.
#
# Truecasing (Koehn et al. 2007, `truecase.perl`) writes the first word of a sentence in its most frequent
# form inside of sentences; other known words are unchanged. Both languages share one model. A sentence with
# Chinese characters is split by Jieba, any other by Moses.

_CHINESE = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
TRUECASE, CHINESE = "truecase", "chinese"  # optional keys of a model


class WordSplitter:
    """A splitter of sentences into words, which also joins words to sentences.

    `language`: language of the Moses rules. `chinese`: version of Jieba for Chinese, or empty for Moses only.
    `truecase`: a truecasing model. `best` has the most frequent form of a word inside of sentences, by its
    lower case; `known` has all forms.

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
        # As text, so that words that look like tags are kept.
        text: str = self._truecaser.truecase(" ".join(words), return_str=True, use_known=True)
        return text.split()

    def join(self, words: Sequence[str], as_written: bool = True) -> str:
        """Join words to a sentence; `as_written`: restore the capital that truecasing removed."""
        if self._truecaser is not None and as_written:
            words = self._detruecaser.detruecase(" ".join(words))
        return clean(self._joiner.detokenize(list(words), unescape=False))


def _jieba(version: str) -> Any:
    try:
        import jieba
    except ImportError:
        raise CotextError("Chinese words need jieba: pip install cotext[jieba]") from None
    jieba.setLogLevel(logging.WARNING)  # suppresses messages about its dictionary
    if version and jieba.__version__ != version:
        raise CotextError(
            f"the tokenizer was made with jieba {version}, whose dictionary defines the words, and here "
            f"is {jieba.__version__}: pip install jieba=={version}"
        )
    return jieba


def moses_detokenizer(language: str) -> Any:
    """Return the detokenizer of a language; raises CotextError if sacremoses is not installed."""
    # The Czech rules of sacremoses are not used, because they check the wrong word: `roce 1990 .` is joined.
    rules = "xx" if language == "cs" else language
    return _package("sacremoses", "joining words").MosesDetokenizer(lang=rules)


def _package(name: str, what: str = "the moses-bpe tokenizer") -> Any:
    """Return a module of the extra `replication`; raises CotextError if its package is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        missing = str(error.name).partition(".")[0]
        raise CotextError(f"{what} needs {missing}: pip install cotext[replication]") from error


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
            with contextlib.redirect_stderr(io.StringIO()):  # hides its progress bar
                learning.learn_bpe(counts, merged, settings.vocabulary or MERGES, is_dict=True)
        except ValueError as error:  # from `max` of an empty sequence
            raise CotextError("the text has no pair of characters to merge") from error
        codes = merged.getvalue()
        merges = codes.count("\n") - 1  # the first line is a version
        if settings.vocabulary is not None and merges < settings.vocabulary:
            raise CotextError(
                f"the text supports {merges} merges, fewer than the requested {settings.vocabulary}: request "
                "at most that, or for no size to get the largest possible"
            )
        segmenter = _package("subword_nmt.apply_bpe").BPE(io.StringIO(codes))
        frequencies: Counter[str] = Counter()
        for word, count in words.items():
            for piece in segmenter.segment_tokens([word]):
                frequencies[piece] += count
        # Every character, with and without continuation, so that unseen words can be encoded.
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
