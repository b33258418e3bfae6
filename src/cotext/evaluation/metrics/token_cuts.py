"""Tokens of a document, the positions where its text may be cut, and omissions and additions.

    omitted   a reference sentence whose piece of the translation has fewer than half as many words, and fewer
              than a quarter of its words
    added     a line with fewer than a quarter of its words in the sentences that it is aligned with. Their
              pieces are longer than these sentences, by at least half the number of words in the line

Words are tokens with a letter or a digit, in lower case. Repeated words are matched one to one. With several
references, this must hold for each of them.
"""

import re
from collections import Counter
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

# Languages without spaces that sacrebleu tokenises; their text may be cut between any two tokens.
_UNSPACED: Final = ("zh", "ja")
# Chinese characters, kana, Thai, Lao, Burmese, Khmer.
_WITHOUT_SPACES: Final = re.compile("[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")


@dataclass(frozen=True, slots=True)
class CutText:
    """A text and its tokens, in lower case.

    The text has a position before, between and after tokens, with the index of its character (`ends`).
    `may_cut`: the text may be cut there. `line_ends`: a line ends there; True at the first position. `lines`:
    numbers of the lines that have tokens, from 0.
    """

    text: str
    tokens: tuple[str, ...]
    ends: tuple[int, ...]
    may_cut: Flags
    line_ends: Flags
    lines: tuple[int, ...]

    def pieces(self, cuts: Sequence[int]) -> list[str]:
        """Return the texts between cuts, with all visible characters. The last cut is the end of the text."""
        ends = [0, *(self.ends[cut] for cut in cuts[1:-1]), len(self.text)]
        return [self.text[start:end].strip() for start, end in pairwise(ends)]


class Cutter:
    """Splits texts in a language into the tokens of BLEU for that language."""

    def __init__(self, target_language: str | None = None) -> None:
        metric = build_metric(PROTOCOLS["s-bleu"], target_language)
        assert isinstance(metric, BLEU)
        self.name = str(metric.tokenizer.signature())
        self._tokenize = metric.tokenizer
        self._divided = cache(self._divide)
        self._unspaced = primary_language(target_language or "") in _UNSPACED

    def tokens(self, sentence: str) -> tuple[str, ...]:
        """Return the tokens of a sentence, in lower case."""
        return tuple(token for word in sentence.split() for token, _ in self._divided(word))

    def text(self, lines: Sequence[str]) -> CutText:
        """Join lines into one text; raise CotextError if it has no spaces and no language is given."""
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
        if not self._unspaced and 2 * len(_WITHOUT_SPACES.findall(text)) > len(text):
            raise CotextError(
                f"is written without spaces, so tokens ({self.name}) would be whole sentences; give "
                "--target-language zh or ja (other languages without spaces are not supported)"
            )
        may_cut[-1] = True
        return CutText(
            text, tuple(tokens), tuple(ends), np.array(may_cut), np.array(line_ends), tuple(filled)
        )

    def _between(self, text: str, line: str) -> str:
        """Return the text that joins a line to the text before it."""
        return "" if not text or (self._unspaced and not (text[-1].isascii() and line[0].isascii())) else " "

    def _divide(self, word: str) -> list[tuple[str, int]]:
        """Return the tokens of a word (text between spaces), and the position where each ends.

        If the tokenizer has changed characters (`&quot;`), all tokens get the end position of the word.
        """
        tokens_of_word = self._tokenize(word).split()
        if "".join(tokens_of_word) != word:
            return [(token.casefold(), len(word)) for token in tokens_of_word]
        ends = np.cumsum([len(token) for token in tokens_of_word])
        return [(token.casefold(), int(end)) for token, end in zip(tokens_of_word, ends, strict=True)]


def _words(line: str) -> Iterator[tuple[str, int]]:
    """Yield the words of a line, separated by white space, and the position where each begins."""
    at = 0
    for word in line.split():
        at = line.index(word, at)
        yield word, at
        at += len(word)


Tokens = Sequence[str]
MOST_SHARED: Final = 0.25  # share of the words of an omitted sentence or added line that may be shared
LEAST_GAP: Final = 0.5  # minimum difference in words, as a share of the words of the sentence or line


def omitted_sentences(
    text: CutText, cuts: Sequence[int], references: Sequence[Sequence[Tokens]]
) -> tuple[int, ...]:
    """Return the numbers, from 0, of omitted sentences; `references`: their tokens, by reference."""
    omitted = []
    for sentence, (start, end) in enumerate(pairwise(cuts)):
        piece = words(text.tokens[start:end])
        sides = [words(reference[sentence]) for reference in references]
        if all(
            len(piece) < (1 - LEAST_GAP) * len(side) and _shared(side, piece) < MOST_SHARED * len(side)
            for side in sides
        ):
            omitted.append(sentence)
    return tuple(omitted)


def added_lines(
    text: CutText, cuts: Sequence[int], references: Sequence[Sequence[Tokens]]
) -> tuple[int, ...]:
    """Return the numbers, from 0, of the lines that a text adds."""
    added = []
    ends = np.flatnonzero(text.line_ends)
    for line, (first, last) in enumerate(pairwise(ends.tolist())):
        parts = list(_parts(cuts, first, last))
        if all(_adds(text, parts, cuts, reference) for reference in references):
            added.append(text.lines[line])
    return tuple(added)


def shared_words(text: CutText, cuts: Sequence[int], reference: Sequence[Tokens]) -> int:
    """Return how many words the pieces of a text share with the sentences that they are aligned with."""
    return sum(
        _shared(words(text.tokens[start:end]), words(sentence))
        for (start, end), sentence in zip(pairwise(cuts), reference, strict=True)
    )


def words(tokens: Tokens) -> list[str]:
    """Return the tokens that have a letter or a digit."""
    return [token for token in tokens if any(map(str.isalnum, token))]


def _parts(cuts: Sequence[int], first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Yield the parts of the line from `first` to `last` by sentence: its number, the start and the end."""
    sentence = int(np.searchsorted(cuts, first, side="right")) - 1
    while sentence + 1 < len(cuts) and cuts[sentence] < last:
        start, end = max(first, cuts[sentence]), min(last, cuts[sentence + 1])
        if start < end:
            yield sentence, start, end
        sentence += 1


def _adds(
    text: CutText, parts: Sequence[tuple[int, int, int]], cuts: Sequence[int], reference: Sequence[Tokens]
) -> bool:
    size = shared = gap = 0
    for sentence, start, end in parts:
        ours, theirs = words(text.tokens[start:end]), words(reference[sentence])
        size += len(ours)
        shared += _shared(ours, theirs)
        gap += len(words(text.tokens[cuts[sentence] : cuts[sentence + 1]])) - len(theirs)
    return size > 0 and gap >= LEAST_GAP * size and shared < MOST_SHARED * size


def _shared(one: Tokens, other: Tokens) -> int:
    return (Counter(one) & Counter(other)).total()
