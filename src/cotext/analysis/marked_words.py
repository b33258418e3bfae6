"""Lists of words that a user marks, such as pronouns, and where they stand in a text."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from unicodedata import normalize

from cotext.data.formats.streams import numbered_lines
from cotext.files.words import words_of
from cotext.runtime.errors import CotextError


class MarkedWords:
    """Words and phrases, found as whole words whatever their case; `digest` tells lists apart in signatures.

    In scripts without spaces a word is found wherever its characters stand.
    """

    def __init__(self, phrases: Iterable[str]) -> None:
        plain = sorted({tuple(_plain(word.text) for word in words_of(phrase)) for phrase in phrases})
        self._by_first: dict[str, list[list[str]]] = defaultdict(list)
        for words in sorted(plain, key=len, reverse=True):
            self._by_first[words[0]].append(list(words))
        self.digest = hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:12]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where they stand, as first character and the one behind the last: the longest, none in another."""
        words = words_of(text)
        plain = [_plain(word.text) for word in words]
        found, place = [], 0
        while place < len(words):
            length = self._length_at(plain, place)
            if length:
                found.append((words[place].start, words[place + length - 1].stop))
            place += max(1, length)
        return found

    def _length_at(self, plain: Sequence[str], place: int) -> int:
        for words in self._by_first.get(plain[place], ()):
            if plain[place : place + len(words)] == words:
                return len(words)
        return 0


def _plain(word: str) -> str:
    """A word whatever its case, and however its accents are encoded."""
    return normalize("NFC", normalize("NFC", word).casefold())


def read_marked_words(path: Path) -> MarkedWords:
    """The words or phrases of a file, one a line; empty lines count for nothing.

    Raises:
        CotextError: the file cannot be read, or has no word.
    """
    phrases = [line.strip() for _, line in numbered_lines(path) if line.strip()]
    if not phrases:
        raise CotextError(f"{path}: holds no word; write one a line, as in: it")
    return MarkedWords(phrases)
