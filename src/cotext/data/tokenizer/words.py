"""Words as the scripts of the papers have them: Moses tokenisation, Jieba for Chinese, truecasing.

Truecasing (Koehn et al. 2007, `truecase.perl`) writes the first word of a sentence as it mostly stands in the
midst of one, and leaves known words elsewhere alone. One model serves both sides, as a tokenizer does not
know whose sentence it is given. A sentence with Chinese characters is split by Jieba, any other by Moses.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from cotext.data.tokenizer.protocol import clean
from cotext.runtime.errors import CotextError

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
