"""Spelling of tokens: the text that each token adds, found by decoding it next to other tokens.

    subword      spelled     joins the next
    ▁table       " table"    no
    s            "s"         no
    ▁            " "         no              invisible, but begins a word
    <0xC3>       private     no              invisible by itself
    tab@@        " tab"      yes             with tokenizers that mark words that continue

The concatenated spellings of the tokens of a sentence are its text, for any segmentation into subwords.
"""

from collections.abc import Sequence
from typing import Final

from cotext.data.tokenizer import Tokenizer

# First of the private characters that stand for tokens without visible text, so that they can be compared.
_PRIVATE: Final = 0xF0000


class Spelling:
    """The spellings of the target tokens of a tokenizer, each computed on first use."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._found: dict[int, tuple[str, bool]] = {}
        self._word, self._ending = self._anchors()
        self._word_text = tokenizer.decode([self._word])

    def _anchors(self) -> tuple[int, int | None]:
        """Return a token that is a whole word, and one that continues the word before it, if there is one."""
        tokenizer, word, ending = self.tokenizer, None, None
        for token in range(tokenizer.pieces):
            text = tokenizer.decode([token])
            if not text.isalpha() or token in tokenizer.unwritten:
                continue
            twice = tokenizer.decode([token, token])
            if word is None and " " in twice:
                word = token
            if ending is None and twice == 2 * text:
                ending = token
            if word is not None and ending is not None:
                break
        if word is None:
            word = ending if ending is not None else tokenizer.unk
        return word, ending

    def of(self, token: int) -> tuple[str, bool]:
        """Return the text that a token adds (with a space before a word), and whether the next is joined."""
        if token not in self._found:
            self._found[token] = self._of(token)
        return self._found[token]

    def _of(self, token: int) -> tuple[str, bool]:
        decode, word = self.tokenizer.decode, self._word_text
        alone = decode([token]) if token < self.tokenizer.pieces else ""
        if not alone:
            # An invisible token begins a word if the continuation after it becomes one.
            begins = [] if self._ending is None else [self._word, token, self._ending]
            if begins and decode(begins) == f"{word} {decode(begins[2:])}":
                return " ", False
            blank = token >= self.tokenizer.pieces or token in self.tokenizer.blank()
            return "" if blank else chr(_PRIVATE + token), False
        # A word after the token without a space: the token joins it, unless words never have spaces.
        joins = decode([token, self._word]) == alone + word and decode([self._word] * 2) != 2 * word
        behind = decode([self._word, token])
        if behind.startswith(word):
            added = behind[len(word) :]
            return (f" {added.strip()}" if added.startswith(" ") else added), joins
        return f" {alone}", joins

    def text(self, tokens: Sequence[int]) -> str:
        """Concatenate the spellings of tokens."""
        written, joined = "", False
        for token in tokens:
            added, joins = self.of(token)
            written += added[1:] if joined and added.startswith(" ") else added
            joined = joins
        return written

    def encoded(self, phrase: str) -> list[int] | None:
        """Return the tokens of a phrase that begins a word, or None if the tokenizer cannot write it."""
        tokenizer = self.tokenizer
        tokens = tokenizer.encode(phrase, side="target")
        never = {tokenizer.unk, *tokenizer.unwritten}
        return None if not tokens or never & set(tokens) else tokens

    def encoded_within(self, text: str, before: str) -> list[int] | None:
        """Return the tokens of a text that follows `before` without a space; None if none are found."""
        # Encode with something in front and cut it off, if the segmentation allows this.
        for opening in dict.fromkeys((before, "(", "-", "a", "1")):
            tokens = self.encoded(opening + text)
            for cut in range(1, len(tokens or ())):
                assert tokens is not None
                if self.text(tokens[:cut]).strip() == opening:
                    return tokens[cut:]
        return None
