"""The words of a text with their positions, and the tokens of each word."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cotext.data.tokenizer import Side, Tokenizer
from cotext.data.words import token_spans, words_of


@dataclass(frozen=True, slots=True)
class TokenWord:
    """A word or punctuation mark: `start` and `stop` are character positions, `tokens` token indices."""

    text: str
    start: int
    stop: int
    tokens: range

    def total(self, of_tokens: Sequence[float]) -> float:
        return sum(of_tokens[i] for i in self.tokens)


def token_words(tokenizer: Tokenizer, text: str, side: Side) -> list[TokenWord]:
    """Return the words and punctuation marks of a text in order; together they have all tokens.

    In scripts without spaces, a character is a word. Words that share a token are merged. A token without
    visible text, such as the first byte of a character, belongs to the following word.
    """
    ids, words = tokenizer.encode(text, side), words_of(text)
    starts = [word.start for word in words]
    merged: list[TokenWord] = []
    first = 0
    for number, (start, stop) in enumerate(token_spans(tokenizer, ids, text, side)):
        if start == stop:
            continue
        last = words[bisect_right(starts, stop - 1) - 1]
        if merged and start < merged[-1].stop:
            begin, tokens = merged[-1].start, range(merged[-1].tokens.start, number + 1)
            merged[-1] = TokenWord(text[begin : last.stop], begin, last.stop, tokens)
        else:
            begin = words[bisect_right(starts, start) - 1].start
            merged.append(TokenWord(text[begin : last.stop], begin, last.stop, range(first, number + 1)))
        first = number + 1
    if merged:
        merged[-1] = replace(merged[-1], tokens=range(merged[-1].tokens.start, len(ids)))
    return merged
