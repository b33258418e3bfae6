"""Spelling of tokens: what each token adds to the text before it, found by decoding it beside others.

    piece        spelled     joins the next
    ▁table       " table"    no
    s            "s"         no
    ▁            " "         no              shows nothing, but begins a word
    <0xC3>       private     no              shows nothing by itself
    tab@@        " tab"      yes             of tokenizers that mark where a word goes on

The spellings of a sentence's tokens, one after the other, are its text, in whatever subwords it was written.
"""

from collections.abc import Sequence
from typing import Final

from cotext.data.tokenizer import Tokenizer

# A character for each token that shows nothing by itself, so that sequences of them can be compared.
_PRIVATE: Final = 0xF0000


class Spelling:
    """The spellings of the target tokens of a tokenizer, each found when it is first asked for."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._found: dict[int, tuple[str, bool]] = {}
        self._word, self._ending = self._anchors()
        self._word_text = tokenizer.decode([self._word])

    def _anchors(self) -> tuple[int, int | None]:
        """A token that is a whole word, and one that goes on with the word before it, where there is one."""
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
        """What a token adds to a text, with a space where it begins a word; whether the next is joined."""
        found = self._found.get(token)
        if found is None:
            found = self._found[token] = self._spell(token)
        return found

    def _spell(self, token: int) -> tuple[str, bool]:
        decode, word = self.tokenizer.decode, self._word_text
        alone = decode([token]) if token < self.tokenizer.pieces else ""
        if not alone:
            begins = [] if self._ending is None else [self._word, token, self._ending]
            if begins and decode(begins) == f"{word} {decode(begins[2:])}":
                return " ", False
            blank = token >= self.tokenizer.pieces or token in self.tokenizer.blank()
            return "" if blank else chr(_PRIVATE + token), False
        joins = decode([token, self._word]) == alone + word and decode([self._word] * 2) != 2 * word
        behind = decode([self._word, token])
        if behind.startswith(word):
            added = behind[len(word) :]
            return (f" {added.strip()}" if added.startswith(" ") else added), joins
        return f" {alone}", joins

    def text(self, tokens: Sequence[int]) -> str:
        """The text of tokens, as their spellings are put together."""
        written, joined = "", False
        for token in tokens:
            added, joins = self.of(token)
            written += added[1:] if joined and added.startswith(" ") else added
            joined = joins
        return written

    def encoded(self, phrase: str) -> list[int] | None:
        """The tokens of a phrase that begins a word; None: it cannot be written."""
        tokenizer = self.tokenizer
        tokens = tokenizer.encode(phrase, side="target")
        never = {tokenizer.unk, *tokenizer.unwritten}
        return None if not tokens or never & set(tokens) else tokens

    def encoded_within(self, text: str, before: str) -> list[int] | None:
        """The tokens of text that goes on without a space after `before`; None: no way was found."""
        for opening in dict.fromkeys((before, "(", "-", "a", "1")):
            tokens = self.encoded(opening + text)
            for cut in range(1, len(tokens or ())):
                assert tokens is not None
                if self.text(tokens[:cut]).strip() == opening:
                    return tokens[cut:]
        return None
