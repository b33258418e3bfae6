"""Words of a text and their boundaries, in scripts with and without spaces; occurrences of phrases."""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from cotext.data.tokenizer import Side, Tokenizer

# Thai, Lao, Myanmar, Khmer, kana, Han and Hangul: written without spaces, or with endings after words.
_UNSPACED: Final = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x2E80, 0x9FFF), (0xAC00, 0xD7FF))


@lru_cache(maxsize=100_000)
def is_letter(character: str) -> bool:
    """Whether a character is part of a word in a script that separates words."""
    code = ord(character)
    if code < 128:
        return character.isalnum() or character == "_"
    if any(first <= code <= last for first, last in _UNSPACED):
        return False
    return unicodedata.category(character)[0] in "LNM"


def is_boundary(before: str, after: str) -> bool:
    """Whether a word may begin or end between two characters; empty: the border of a sentence."""
    return not (before and after and is_letter(before) and is_letter(after))


class Word(NamedTuple):
    """A word, or a character of a script without spaces, or a sign, and where it begins and ends."""

    text: str
    start: int
    stop: int


def words_of(text: str) -> list[Word]:
    """The words of a text; those of names and numbers with hyphen, apostrophe or full stop are several."""
    found: list[Word] = []
    for match in _NO_SPACE.finditer(text):
        start = match.start()
        for i in range(match.start() + 1, match.end() + 1):
            if i == match.end() or is_boundary(text[i - 1], text[i]):
                found.append(Word(text[start:i], start, i))
                start = i
    return found


def occurrences(text: str, phrases: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Where phrases occur as whole words: the leftmost first, of these the longest, not overlapping."""
    known = set(phrases)
    lengths: dict[str, list[int]] = {}  # of those that begin with a character, the longest first
    for first, length in sorted({(phrase[:1], len(phrase)) for phrase in known}, reverse=True):
        lengths.setdefault(first, []).append(length)
    place = 0
    while place < len(text):
        for length in lengths.get(text[place], ()):
            phrase = text[place : place + length]
            if phrase in known and _is_whole(text, place, phrase):
                yield place, phrase
                place += len(phrase) - 1
                break
        place += 1


def covered(text: str, phrases: Iterable[str]) -> list[tuple[int, int]]:
    """The spans in which phrases stand."""
    return [(place, place + len(phrase)) for place, phrase in occurrences(text, list(phrases))]


def overlaps(spans: Sequence[tuple[int, int]], start: int, stop: int) -> bool:
    """Whether a stretch has a character in one of some spans, which are in order and apart."""
    before = bisect_left(spans, (stop,))
    return before > 0 and spans[before - 1][1] > start


def consists_of(text: str, phrases: Sequence[str]) -> bool:
    """Whether a text has no letter or digit outside of phrases that stand in it; without phrases: no."""
    if not phrases:
        return False
    spans = covered(text, phrases)
    outside = zip([0, *(stop for _, stop in spans)], [*(start for start, _ in spans), len(text)], strict=True)
    return not any(map(str.isalnum, "".join(text[start:stop] for start, stop in outside)))


def _is_whole(text: str, place: int, phrase: str) -> bool:
    stop = place + len(phrase)
    before, after = text[place - 1 : place] if place else "", text[stop : stop + 1]
    # What follows a conversion such as %d is often a unit.
    return is_boundary(before, phrase[0]) and (phrase[0] == "%" or is_boundary(phrase[-1], after))


_NO_SPACE: Final = re.compile(r"\S+")
_UNSPACED_CLASS: Final = "".join(f"{chr(first)}-{chr(last)}" for first, last in _UNSPACED)
_WORD: Final = re.compile(rf"[{_UNSPACED_CLASS}]|[^\W{_UNSPACED_CLASS}]+|[^\w\s]")


def word_texts(text: str) -> list[str]:
    """The texts of `words_of`, faster; combining marks of Indian scripts are words of their own."""
    return _WORD.findall(text)


# --- Where the tokens of a text stand in it, for every tokenizer that can decode.


def token_spans(tokenizer: Tokenizer, tokens: Sequence[int], text: str, side: Side) -> list[tuple[int, int]]:
    """The span of characters of each token of a text: first, and one behind the last; empty where none shows.

    Found by decoding longer and longer beginnings, of which the characters that are no white space count; the
    normal form that the tokenizer encodes may differ from the text in some.
    """
    decoded = "".join(tokenizer.decode(tokens, side).split())
    places = [i for i, character in enumerate(text) if not character.isspace()]
    partners = _partners(decoded, "".join(text[i] for i in places))
    ends = [0]
    for n in range(1, len(tokens) + 1):
        shown = len("".join(tokenizer.decode(tokens[:n], side).split()))
        ends.append(max(ends[-1], min(shown, len(decoded))))
    found = []
    for first, last in pairwise(ends):
        a, b = partners[first], partners[last]
        start = places[a] if a < len(places) else len(text)
        found.append((start, places[b - 1] + 1 if b > a else start))
    return found


def _partners(one: str, other: str) -> list[int]:
    """For every place in a text and its end, the place in another that is much the same."""
    if len(one) == len(other):
        return list(range(len(one) + 1))
    found = [0] * (len(one) + 1)
    for _, a, b, c, d in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        for i in range(a, b):
            found[i] = c + (i - a) * (d - c) // (b - a)
    found[-1] = len(other)
    return found
