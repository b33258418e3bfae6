"""Lines of a document as one text, its tokens as sacrebleu makes them, and where it may be cut.

Sentences that a translation leaves out, and lines that it adds, by the words shared with a reference.

A reference sentence counts as *omitted* where the piece of the translation that is aligned with it has fewer
than half as many words, and shares fewer than a quarter of its words. A line of the translation counts as
*added* the other way round: it shares fewer than a quarter of its words with the sentences with which they
are aligned, and the pieces of these sentences have more words than they, by half of the line's at least.
Words are tokens with a letter or a digit, in lower case; a word counts as often as it occurs on both sides.
Of several references every one has to say so.
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


Tokens = Sequence[str]
MOST_SHARED: Final = 0.25  # of the words of what is said to be left out or added
LEAST_GAP: Final = 0.5  # of these words, how many have nothing to stand against


def omitted_sentences(
    text: CutText, cuts: Sequence[int], references: Sequence[Sequence[Tokens]]
) -> tuple[int, ...]:
    """The numbers, from 0, of the sentences that a text omits, which is cut at `cuts`.

    `references`: the tokens of every sentence of each.
    """
    found = []
    for sentence, (start, end) in enumerate(pairwise(cuts)):
        piece = words(text.tokens[start:end])
        if all(_lacks(words(reference[sentence]), piece) for reference in references):
            found.append(sentence)
    return tuple(found)


def added_lines(
    text: CutText, cuts: Sequence[int], references: Sequence[Sequence[Tokens]]
) -> tuple[int, ...]:
    """The numbers, from 0, of the lines that a text adds."""
    found = []
    ends = np.flatnonzero(text.line_ends)
    for line, (first, last) in enumerate(pairwise(ends.tolist())):
        parts = list(_parts(cuts, first, last))
        if all(_adds(text, parts, cuts, reference) for reference in references):
            found.append(text.lines[line])
    return tuple(found)


def shared_words(text: CutText, cuts: Sequence[int], reference: Sequence[Tokens]) -> int:
    """How many words the pieces of a text share with the sentences in their places."""
    return sum(
        _shared(words(text.tokens[start:end]), words(sentence))
        for (start, end), sentence in zip(pairwise(cuts), reference, strict=True)
    )


def words(tokens: Tokens) -> list[str]:
    """The tokens that have a letter or a digit."""
    return [token for token in tokens if any(map(str.isalnum, token))]


def _lacks(sentence: Tokens, piece: Tokens) -> bool:
    least = (1 - LEAST_GAP) * len(sentence)
    return len(piece) < least and _shared(sentence, piece) < MOST_SHARED * len(sentence)


def _parts(cuts: Sequence[int], first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Of a line from `first` to `last`, what lies in each piece: its sentence, and from where to where."""
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
        own, theirs = words(text.tokens[start:end]), words(reference[sentence])
        size += len(own)
        shared += _shared(own, theirs)
        gap += len(words(text.tokens[cuts[sentence] : cuts[sentence + 1]])) - len(theirs)
    return size > 0 and gap >= LEAST_GAP * size and shared < MOST_SHARED * size


def _shared(one: Tokens, other: Tokens) -> int:
    return (Counter(one) & Counter(other)).total()
