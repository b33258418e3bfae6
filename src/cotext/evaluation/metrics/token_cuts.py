"""Lines of a document as one text, its tokens as sacrebleu makes them, and where it may be cut."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Final

import numpy as np
from sacrebleu.metrics.bleu import BLEU

from cotext.data.languages import primary_language
from cotext.evaluation.metrics.bleu import PROTOCOLS, build_metric
from cotext.evaluation.metrics.error_alignment import Flags
from cotext.runtime.errors import CotextError

# Languages that are written without spaces, and that sacrebleu divides: cut between any two tokens.
_UNSPACED: Final = ("zh", "ja")
# Chinese characters, kana, Thai, Lao, Burmese, Khmer.
_WITHOUT_SPACES: Final = re.compile("[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")


@dataclass(frozen=True, slots=True)
class CutText:
    """A text and its tokens, in lower case.

    For each of the places before, between and behind tokens: `ends`, where the text is cut there;
    `may_cut`, whether it may be; `line_ends`, whether a line ends there (and at the first). `lines` numbers,
    from 0, the lines that have tokens.
    """

    text: str
    tokens: tuple[str, ...]
    ends: tuple[int, ...]
    may_cut: Flags
    line_ends: Flags
    lines: tuple[int, ...]

    def pieces(self, cuts: Sequence[int]) -> list[str]:
        """The texts between cuts, of which the last is at the end; every visible character is in one."""
        ends = [0, *(self.ends[cut] for cut in cuts[1:-1]), len(self.text)]
        return [self.text[start:end].strip() for start, end in pairwise(ends)]


class Cutter:
    """Divides texts in a language into tokens: those of BLEU in that language."""

    def __init__(self, target_language: str | None = None) -> None:
        metric = build_metric(PROTOCOLS["s-bleu"], target_language)
        assert isinstance(metric, BLEU)
        self.name = str(metric.tokenizer.signature())
        self._tokenize = metric.tokenizer
        self._divided = cache(self._divide)
        self._unspaced = primary_language(target_language or "") in _UNSPACED

    def tokens(self, sentence: str) -> tuple[str, ...]:
        """The tokens of a sentence, in lower case."""
        return tuple(token for word in sentence.split() for token, _ in self._divided(word))

    def text(self, lines: Sequence[str]) -> CutText:
        """The lines as one text.

        Raises CotextError where it is written without spaces, and the language not told.
        """
        text = ""
        tokens: list[str] = []
        ends, may_cut, line_ends = [0], [True], [True]
        filled: list[int] = []
        for number, line in enumerate(map(str.strip, lines)):
            if not line:
                continue
            before = len(tokens)
            start = len(text) + len(self._between(text, line))
            text += self._between(text, line) + line
            for word, at in _words(line):
                for token, end in self._divided(word):
                    tokens.append(token)
                    ends.append(start + at + end)
                    may_cut.append(self._unspaced or end == len(word))
                    line_ends.append(False)
            if len(tokens) > before:
                line_ends[-1] = True
                filled.append(number)
        self._require_words(text)
        may_cut[-1] = True
        return CutText(
            text, tuple(tokens), tuple(ends), np.array(may_cut), np.array(line_ends), tuple(filled)
        )

    def _require_words(self, text: str) -> None:
        if not self._unspaced and 2 * len(_WITHOUT_SPACES.findall(text)) > len(text):
            raise CotextError(
                f"is written without spaces, where tokens ({self.name}) are whole sentences; give "
                "--target-language zh or ja, if it is one of these (there are no tokens for others)"
            )

    def _between(self, text: str, line: str) -> str:
        """What joins a line to the text before it."""
        return "" if not text or (self._unspaced and not (text[-1].isascii() and line[0].isascii())) else " "

    def _divide(self, word: str) -> list[tuple[str, int]]:
        """The tokens of what stands between spaces, and where each ends; the last at its end.

        Where the tokenizer has changed characters (`&quot;`), nobody can say where its tokens end: they end
        with the word.
        """
        found = self._tokenize(word).split()
        if "".join(found) != word:
            return [(token.casefold(), len(word)) for token in found]
        ends = np.cumsum([len(token) for token in found])
        return [(token.casefold(), int(end)) for token, end in zip(found, ends, strict=True)]


def _words(line: str) -> Iterator[tuple[str, int]]:
    """What stands between white space in a line, and where it begins."""
    at = 0
    for word in line.split():
        at = line.index(word, at)
        yield word, at
        at += len(word)
