"""The language of a text, among those that the systems of a server know."""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cotext.data.languages import language_identifier

MOST_CHARACTERS: Final = 4_096  # that are looked at
# Of languages, the first word of the names of their letters in Unicode; of all others it is LATIN.
_SCRIPTS: Final = {
    **dict.fromkeys(("be", "bg", "ky", "kk", "mk", "mn", "ru", "sr", "tg", "tt", "uk"), "CYRILLIC"),
    **dict.fromkeys(("ar", "fa", "ps", "sd", "ug", "ur"), "ARABIC"),
    **dict.fromkeys(("hi", "mr", "ne", "sa"), "DEVANAGARI"),
    **dict.fromkeys(("as", "bn"), "BENGALI"),
    **dict.fromkeys(("he", "yi"), "HEBREW"),
    **{"am": "ETHIOPIC", "ti": "ETHIOPIC", "el": "GREEK", "gu": "GUJARATI", "hy": "ARMENIAN"},
    **{"ja": "HIRAGANA", "ka": "GEORGIAN", "km": "KHMER", "kn": "KANNADA", "ko": "HANGUL", "lo": "LAO"},
    **{"ml": "MALAYALAM", "my": "MYANMAR", "or": "ORIYA", "pa": "GURMUKHI", "si": "SINHALA", "ta": "TAMIL"},
    **{"te": "TELUGU", "th": "THAI", "zh": "CJK"},
}


@dataclass(frozen=True, slots=True)
class Detected:
    """A language by its code, and how sure that is: a probability among all languages, not those asked for.

    0: nothing was measured, and the language is the likeliest by its script, or the first.
    """

    language: str
    confidence: float


def detect(text: str, candidates: Sequence[str]) -> Detected:
    """The likeliest of some languages; the first of them for a text without letters.

    By py3langid where it is installed and knows the language, else by script.
    """
    text = text[:MOST_CHARACTERS]
    letters = Counter(unicodedata.name(each, "?").split()[0] for each in text if each.isalpha())
    if not letters:
        return Detected(candidates[0], 0.0)
    try:
        ranked = language_identifier().rank(text)
    except ImportError:
        ranked = []
    known = [(language, float(probability)) for language, probability in ranked if language in candidates]
    if known:
        return Detected(*max(known, key=lambda pair: pair[1]))
    return Detected(_by_script(letters, candidates), 0.0)


def _by_script(letters: Counter[str], candidates: Sequence[str]) -> str:
    # Japanese has more letters of Chinese than its own.
    if letters["HIRAGANA"] or letters["KATAKANA"]:
        letters["HIRAGANA"] += letters["KATAKANA"] + letters["CJK"]
    [(script, _)] = letters.most_common(1)
    return next((each for each in candidates if _SCRIPTS.get(each, "LATIN") == script), candidates[0])
