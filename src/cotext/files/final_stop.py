"""The full stop that a model writes behind a heading, an entry of a list or a cell that has none."""

import re
from typing import Final

from cotext.data.abbreviations import LEADING, NUMBERED, OFTEN, words_of

# Not behind a second one, a number (an ordinal in German) or a letter alone (an initial). Of a text read
# backwards, so that its letters are looked at once.
_STOP: Final = re.compile(r"\. ?(?P<word>[^\W\d_]{2,}(?:\.[^\W\d_]+)*)|[。।።։۔]")
_ROMAN: Final = re.compile(r"[IVXLC]+")


def without_added_stop(source: str, target: str, language: str) -> str:
    """A translation without its full stop where its source ends in a letter or a digit.

    Models that were trained on sentences alone end everything with one. An abbreviation of the target
    `language` keeps its own, and nothing is left without a letter.
    """
    found = _STOP.match(target[::-1])
    if found is None or not source.rstrip()[-1:].isalnum():
        return target
    word = (found["word"] or "")[::-1]
    if "." in word or _ROMAN.fullmatch(word) or _is_abbreviation(word.lower(), language):
        return target
    shortened = target[:-1].rstrip()
    return shortened if any(map(str.isalpha, shortened)) else target


def _is_abbreviation(word: str, language: str) -> bool:
    return any(word in words_of(table, language) for table in (LEADING, NUMBERED, OFTEN))
