"""The words of a text, where they stand in it, and the tokens that each is made of."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cotext.data.tokenizer import Side, Tokenizer
from cotext.data.words import token_spans, words_of


@dataclass(frozen=True, slots=True)
class TokenWord:
    """A word or sign, its first character, the one behind its last, and its tokens by index."""

    text: str
    start: int
    stop: int
    tokens: range

    def total(self, of_tokens: Sequence[float]) -> float:
        """The sum over its tokens."""
        return sum(of_tokens[i] for i in self.tokens)


def token_words(tokenizer: Tokenizer, text: str, side: Side) -> list[TokenWord]:
    """The words and signs of a text that show in its tokens; in order, they have all tokens.

    In scripts without spaces, a character is a word. Words that share a token are one; a token that shows
    nothing by itself, as the first byte of a character, belongs to the word behind it.
    """
    ids, words = tokenizer.encode(text, side), words_of(text)
    starts = [word.start for word in words]
    found: list[TokenWord] = []
    first = 0
    for number, (start, stop) in enumerate(token_spans(tokenizer, ids, text, side)):
        if start == stop:
            continue
        last = words[bisect_right(starts, stop - 1) - 1]
        if found and start < found[-1].stop:
            begin, tokens = found[-1].start, range(found[-1].tokens.start, number + 1)
            found[-1] = TokenWord(text[begin : last.stop], begin, last.stop, tokens)
        else:
            begin = words[bisect_right(starts, start) - 1].start
            found.append(TokenWord(text[begin : last.stop], begin, last.stop, range(first, number + 1)))
        first = number + 1
    if found:
        found[-1] = replace(found[-1], tokens=range(found[-1].tokens.start, len(ids)))
    return found
