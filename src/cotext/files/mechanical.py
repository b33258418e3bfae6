"""Mechanical checks of a translation, which need no reference and no model.

    untranslated   most words are those of the source, and such words are translated elsewhere in the text
    copied         the sentence repeats the translation of another, different sentence
    language       the sentence is in a third language, or in the source language but in other words
    tag            a placeholder, tag, address or conversion is missing, or added (not in the source)
    number         a number is missing, or added (not in the source), in any notation
    quote          the source has quotation marks, and the translation has none

Words are compared only with words of the same text, so that no word lists are needed. If py3langid is
installed, it also identifies languages.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from textwrap import shorten
from typing import Final

from cotext.data.formats import read_documents
from cotext.data.languages import language_identifier, primary_language
from cotext.data.words import words_of
from cotext.files.block_sentences import placeholder_spans
from cotext.translation.dropped import counted_places, dropped_numbers

_REPORTED: Final = ("untranslated", "copied", "language", "tag", "quote")  # numbers: see `DroppedContent`
_MOST_CHECKED: Final = 50_000  # sentences of a corpus that are checked after its translation
_LEAST_WORDS: Final = 3  # minimum length for the kinds untranslated, copied and language
_ALIKE: Final = 0.8  # minimum share of words that an untranslated sentence has in common with its source
_MOST_COMPARED: Final = 32  # maximum number of sources with the same translation that are compared
_MOST_PLACEHOLDERS: Final = 100  # different placeholders of one side of a sentence that are checked
_KEPT: Final = 0.6  # a word may be kept if this share of its translations contains it
_UNLIKE: Final = 0.5  # Dice coefficient below which two source sentences are different
_UNKNOWN: Final = 0.35  # share of words known from elsewhere in the output; below, the language is in doubt
# Minimum log-likelihood ratio (nats) for the source's language; 0 if the text does not fit its source.
_SPELT: Final = 20.0
_UNFIT: Final = -4.0  # `fit` below which a translation does not belong to its source
_FOREIGN: Final = 0.3  # share of the output's words below which a script may be foreign
# A sentence is foreign if its share of words in another script is above `_RARE` times the share of that
# script in the whole output, within these bounds.
_LEAST_FOREIGN: Final = 0.25
_MOST_FOREIGN: Final = 0.8
_RARE: Final = 7.0
_QUOTED: Final = 60  # characters of a sentence that a message quotes
_SAMPLE: Final = 1000  # sentences from which the script of the output is determined
_SURE: Final = 0.95  # minimum probability of an identified language
_QUOTES: Final = re.compile("[\"“”„«»「」『』《》〈〉]|(?<!\\w)['‘‚‹›](?=\\w)")
# Never translated: placeholders, and tags that close or have attributes.
_STRICT: Final = re.compile(r"[{}$%_]|</|<.*[=/]>?$")
_SMALL: Final = re.compile(r"(?<![\w.,:/%$-])\d{1,2}(?![\w%]|[.,:/-]\w)")
_DOUBLE: Final = re.compile('["“”„«»「」『』]')


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a sentence: kind, confidence (0 to 1), and message."""

    kind: str
    confidence: float
    note: str


class MechanicalChecks:
    """Checks of the sentence pairs of one text.

    `target_language`: code, or empty if unknown. `fit`: how well each translation fits its source
    (log-likelihood ratio of words and lengths, in nats; higher is better). Of two equal translations, the one
    with the lower score is the copy (default: the later one). A pair that does not fit needs less evidence to
    be reported as copied or in another language.
    """

    def __init__(
        self, pairs: Sequence[tuple[str, str]], target_language: str = "", fit: Sequence[float] = ()
    ) -> None:
        self._pairs, self._language = pairs, primary_language(target_language)
        self._fit = fit or [-float(number) for number in range(len(pairs))]
        self._unfit = [score < _UNFIT for score in fit] or [False] * len(pairs)
        self._words = [(_words(source), _words(target)) for source, target in pairs]
        self._in_source: Counter[str] = Counter()  # source words: number of sentences that are translated
        self._in_target: Counter[str] = Counter()
        self._kept: Counter[str] = Counter()  # source words: number of translations that contain them
        # For each translation, the sources that have it, each with the number of the pair that fits best.
        self._repeated: dict[str, dict[tuple[str, ...], int]] = {}
        # Words that occur without a capital letter; others may be names.
        self._lower = {
            word.text.casefold()
            for source, _ in pairs
            for word in words_of(source)
            if not word.text[0].isupper()
        }
        left = [_alike(*words) for words in self._words]
        # Lines equal to their source often need no translation. If most lines are equal, they were left
        # untranslated.
        self._is_left = 2 * sum(left) > len(left)
        for number, (source, target) in enumerate(self._words):
            self._in_target.update(set(target))
            if self._is_left or not left[number]:
                self._in_source.update(set(source))
            if not left[number]:
                self._kept.update(set(source) & set(target))
            same = self._repeated.setdefault(_folded(pairs[number][1]), {})
            best = same.setdefault(tuple(source), number)
            if self._fit[number] > self._fit[best]:
                same[tuple(source)] = number
        self._scripts = _scripts(word for _, words in self._words[:_SAMPLE] for word in words)
        self._spelt = [
            Counter(each for words in side for each in _trigrams(words))
            for side in zip(*self._words, strict=True)
        ]
        self._letters = [counts.total() for counts in self._spelt]

    def faults(self, number: int) -> list[Fault]:
        source, target = self._pairs[number]
        if not target.strip():
            return []
        if whole := self._untranslated(number) or self._copied(number) or self._foreign(number):
            return [whole]
        words = without_placeholders(source), without_placeholders(target)
        return [*tag_faults(source, target), *_of_words(*words)]

    def _untranslated(self, number: int) -> Fault | None:
        source, target = (text.split() for text in self._pairs[number])
        words = self._words[number][0]
        if sum(len(word) > 1 for word in words) < _LEAST_WORDS or not _alike(source, target):
            return None
        usual = [word for word in words if self._is_translated(word)]
        if 2 * sum(word in self._lower or word in usual for word in words) < len(words):
            return None  # Mostly names, which have nothing to translate.
        unchanged = (Counter(usual) & Counter(self._words[number][1])).total()
        met = sum(self._in_source[word] > self._is_left for word in words)
        if len(usual) > 1:
            is_left = unchanged == len(usual) and (source == target or len(usual) > _LEAST_WORDS)
            return Fault("untranslated", 0.95, "is the text of the source") if is_left else None
        is_new = met <= len(words) / 2 and len(words) >= 2 * _LEAST_WORDS and source == target
        return Fault("untranslated", 0.6, "is the text of the source") if is_new else None

    def _is_translated(self, word: str) -> bool:
        """Return whether the word occurs elsewhere in sentences whose translations mostly lack it."""
        others = self._in_source[word] - self._is_left
        return others > 0 and self._kept[word] < _KEPT * others

    def _copied(self, number: int) -> Fault | None:
        source, target = self._words[number]
        if len(target) < _LEAST_WORDS + (not self._unfit[number]):
            return None
        same = self._repeated[_folded(self._pairs[number][1])]
        for other in islice(same.values(), _MOST_COMPARED):
            other_source = self._words[other][0]
            common = (Counter(source) & Counter(other_source)).total()
            dice = 2 * common / max(1, len(source) + len(other_source))
            if self._fit[number] < self._fit[other] and dice < _UNLIKE:
                original = shorten(self._pairs[other][0], _QUOTED, placeholder=" ...")
                return Fault("copied", 0.9, f"repeats the translation of: {original}")
        return None

    def _spelt_as_source(self, number: int) -> float:
        """Return the log-likelihood ratio of the source's language and the output's, in nats.

        The models of both languages count in how many sentences each sequence of three letters occurs. Words
        that are also in the source of the sentence are skipped, and the sentence itself is not counted.
        """
        source, words = self._words[number]
        known = set(source)
        own, letters = _trigrams(words), _trigrams([word for word in words if word not in known])
        counts = [(self._spelt[0][each], self._spelt[1][each] - (each in own)) for each in letters]
        scale = math.log((self._letters[1] - len(own) + 1) / (self._letters[0] + 1))
        return sum(
            scale + math.log((ours + 0.5) / (theirs + 0.5)) for ours, theirs in counts if ours or theirs
        )

    def _foreign(self, number: int) -> Fault | None:
        source, words = self._words[number]
        known_words = set(source)
        new = [word for word in words if word not in known_words]
        unfit = self._unfit[number]
        if len(words) < _LEAST_WORDS + (not unfit) or len(new) <= len(words) / 2:
            return None
        for script, count in _scripts(new).items():
            usual = self._scripts[script] / max(1, self._scripts.total())
            least = min(_MOST_FOREIGN, max(_LEAST_FOREIGN, _RARE * usual))
            if usual < _FOREIGN and count > least * len(new):
                return Fault("language", 0.98, f"is written in {script.title()}")
        if (score := self._spelt_as_source(number)) > (0 if unfit else _SPELT):
            return Fault("language", round(1 / (1 + math.exp(-score)), 2), "is in the source's language")
        known = sum(self._in_target[word] > 1 for word in words) / len(words)
        found = identified(self._pairs[number][1]) if self._language and (unfit or known < _UNKNOWN) else None
        if found and found[0] != self._language and found[1] > _SURE:
            return Fault("language", round(found[1] * (1 - known), 2), f"seems to be in {found[0]!r}")
        return None


def tag_faults(source: str, target: str) -> Iterator[Fault]:
    """Yield placeholders that only one side contains.

    Addresses, paths and names in angle brackets may be translated, so a replaced one is not a fault.
    """
    ours, theirs = ([text[a:b] for a, b in placeholder_spans(text)] for text in (source, target))
    before, after = Counter(ours), Counter(theirs)
    fewer, more = (islice(each, _MOST_PLACEHOLDERS) for each in (before - after, after - before))
    missing = [text for text in fewer if _count(text, target) < _count(text, source)]
    added = [text for text in more if _count(text, source) < _count(text, target)]
    for text in missing:
        others = [other for other in added if not _STRICT.match(other)]
        cut = any(text.startswith(other) or other.startswith(text) for other in others)
        # The rules for placeholders do not match <name> in other scripts.
        renamed = text[0] == "<" and target.count("<") >= source.count("<")
        if _STRICT.match(text) or cut or not (others or renamed):
            yield Fault("tag", 0.95, f"missing: {text}")
    for text in added:
        if _STRICT.match(text) or (text in ours and "://" in text):
            yield Fault("tag", 0.95, f"{'more often than' if text in ours else 'not'} in the source: {text}")


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def _count(placeholder: str, text: str) -> int:
    # Some DocBook tools write both &name; and &name-genitive; for one entity.
    return text.count(placeholder[:-1] if placeholder[0] == "&" else placeholder)


def _of_words(source: str, target: str) -> Iterator[Fault]:
    """Yield faults of numbers and quotation marks."""
    missing = dropped_numbers(source, target)
    # A source may have thousands in words.
    added = [number for number in dropped_numbers(target, source) if not number.endswith("000")]
    for number in missing:
        yield Fault("number", 0.8, f"missing: {number}")
    for number in added:
        yield Fault("number", 0.7, f"not in the source: {number}")
    # Small numbers may be written in words, but not if both sides have the same number of them.
    ours, theirs = (Counter(map(int, _SMALL.findall(text))) for text in (source, target))
    if not missing and not added and ours.total() == theirs.total():
        for before, after in zip((ours - theirs).elements(), (theirs - ours).elements(), strict=True):
            yield Fault("number", 0.8, f"{before} has become {after}")
    if len(_DOUBLE.findall(source)) > 1 and not _QUOTES.search(target):
        yield Fault("quote", 0.7, "quotation marks are missing")


def without_placeholders(text: str) -> str:
    """Replace placeholders by spaces."""
    parts: list[str] = []
    done = 0
    for start, stop in placeholder_spans(text):
        parts += [text[done:start], " " * (stop - start)]
        done = stop
    return "".join([*parts, text[done:]])


def identified(text: str) -> tuple[str, float] | None:
    """Return the language of a text and its probability; None if py3langid is not installed."""
    try:
        code, probability = language_identifier().classify(text)
    except ImportError:
        return None
    return str(code), float(probability)


def _words(text: str) -> list[str]:
    """Return the words of a text (characters in unspaced scripts) without placeholders, numbers and signs."""
    return [word.text for word in words_of(without_placeholders(text).casefold()) if word.text.isalpha()]


def _trigrams(words: Sequence[str]) -> set[str]:
    """Return all sequences of three characters, with spaces between and around words."""
    text = f" {' '.join(words)} "
    return {text[at : at + 3] for at in range(len(text) - 2)} if words else set()


def _alike(source: Sequence[str], target: Sequence[str]) -> bool:
    return (Counter(source) & Counter(target)).total() >= _ALIKE * max(len(source), len(target), 1)


def _scripts(words: Iterable[str]) -> Counter[str]:
    """Count words by the script of their first letter, as Unicode names it; kana count as Han."""
    names = (unicodedata.name(word[0], "").split(" ", 1)[0].split("-")[0] for word in words)
    return Counter("CJK" if name in ("HIRAGANA", "KATAKANA") else name for name in names)


def in_words(pairs: Sequence[tuple[str, str]], places: Sequence[str], target_language: str = "") -> str:
    """Return a summary such as "untranslated: 2 sentences (line 3, line 8); tag: 1 sentence (line 4)"."""
    checks = MechanicalChecks(pairs, target_language)
    places_of: dict[str, dict[str, None]] = {}
    for number, place in enumerate(places):
        for fault in checks.faults(number):
            places_of.setdefault(fault.kind, {})[place] = None
    return "; ".join(f"{k}: {counted_places(list(places_of[k]))}" for k in _REPORTED if k in places_of)


def corpus_in_words(source: Path, out: Path, format: str, target_language: str = "") -> str:
    """Return `in_words` for the first sentences of a translated corpus; places are `document:sentence`."""
    pairs: list[tuple[str, str]] = []
    places: list[str] = []
    sides = read_documents(source, format), read_documents(out, format, side="target")
    for source_side, target_side in zip(*sides, strict=False):
        pairs += zip(source_side.sentences, target_side.sentences, strict=False)
        places += (f"{source_side.id}:{number}" for number in range(1, 1 + len(pairs) - len(places)))
        if len(pairs) > _MOST_CHECKED:
            break
    return in_words(pairs, places, target_language)
