"""Translations that cannot be right, or that somebody should look at, by their texts alone."""

import re
from collections.abc import Sequence
from typing import Final

from cotext.data.selection import align_lengths

# A translation of more than so many times the characters of its source, and some, is text run wild.
LONGEST_TIMES: Final = 8
LONGEST_MORE: Final = 200
ECHO_WORDS: Final = 4  # fewer may be a name ...
ECHO_COMMON: Final = 2  # ... but for so many words that begin with a small letter
ECHO_LETTERS: Final = 10  # of languages without spaces

MOST_ALIGNED: Final = 600  # time and memory go by the square

EMPTY: Final = "is empty"
LONG: Final = "is far longer than its source"
ECHO: Final = "is the source"
MOVED: Final = "seems to have merged some sentences and divided others, by their lengths"
# What may be right: a title, a quotation.
POSSIBLE: Final = frozenset({ECHO})

_CONTENT: Final = re.compile(r"[^\W_]")
_SPACE: Final = re.compile(r"\s+")


def has_content(text: str) -> bool:
    """Whether a text holds a letter or a digit."""
    return _CONTENT.search(text) is not None


def suspicion(source: str, translation: str) -> str:
    """What is wrong with the translation of a sentence, one of the constants above; empty if nothing is."""
    if not translation or (has_content(source) and not has_content(translation)):
        return EMPTY
    if len(translation) > LONGEST_TIMES * len(source) + LONGEST_MORE:
        return LONG
    return ECHO if is_echo([source], [translation]) else ""


def is_echo(sources: Sequence[str], translations: Sequence[str]) -> bool:
    """Whether translations are their sources again, and these are more than a name or a number."""
    text = " ".join(sources)
    letters = sum(map(str.isalpha, text))
    words = [word for word in text.split() if any(map(str.isalpha, word))]
    common = sum(word[0].islower() for word in words)  # not of a name
    unspaced = not text.isascii() and letters >= ECHO_LETTERS
    several = len(words) >= ECHO_WORDS or common >= ECHO_COMMON
    return (several or unspaced) and _folded(text) == _folded(" ".join(translations))


def moved(sources: Sequence[str], translations: Sequence[str]) -> range | None:
    """The sentences, by their indices, between one that seems merged and one that seems divided; else None.

    By lengths alone (Gale and Church 1993): translations of as many sentences as were asked for are taken for
    others where merging two and dividing another explains their lengths far better. How often that is so, and
    rightly: `python -m benchmarks.moved_sentences`.
    """
    if len(sources) > MOST_ALIGNED:
        return None
    beads = align_lengths([len(text) for text in sources], [len(text) for text in translations])
    odd = [of_source for of_source, of_target in beads if len(of_source) != len(of_target)]
    return range(odd[0][0], odd[-1][-1] + 1) if odd else None


def _folded(text: str) -> str:
    return _SPACE.sub(" ", text).strip().casefold()
