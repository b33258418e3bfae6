"""A language model of word pairs and of words met before, small enough to be computed by hand."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

# A word with the blank before it, a mark with the blank before it, or one character of white space.
PIECES = re.compile(r" ?\w+| ?[^\w\s]|\s")


def pieces(text: str) -> list[str]:
    """The tokens of a text, as those of byte-pair encodings: words have the blank before them."""
    return PIECES.findall(text)


class NGram:
    """Log-probabilities of tokens by the token before, and by all tokens that were met before in the text.

        p(token | before) = 1/2 (pairs(last, token) + 1) / (firsts(last) + `words`)
                          + 1/2 count(token in before) / len(before)

    The first token has none. The second term lets whatever stands in a prompt change what follows it.
    """

    def __init__(self, texts: Iterable[str] = (), words: int = 1000) -> None:
        self.words = words
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.firsts: Counter[str] = Counter()
        for text in texts:
            found = pieces(text)
            self.pairs.update(pairwise(found))
            self.firsts.update(found[:-1])

    def log_probability(self, token: str, before: Sequence[str]) -> float:
        """The natural logarithm of a token's probability after others."""
        last = before[-1]
        pair = (self.pairs[last, token] + 1) / (self.firsts[last] + self.words)
        met = sum(each == token for each in before) / len(before)
        return math.log((pair + met) / 2)

    def log_probabilities(self, tokens: Sequence[str]) -> list[float | None]:
        """Those of all tokens of a text, None for the first."""
        found: list[float | None] = []
        for index, token in enumerate(tokens):
            found.append(self.log_probability(token, tokens[:index]) if index else None)
        return found
