"""Faults of a translation that are found without a reference and without a model.

    untranslated   most words are those of the source, and such words are translated elsewhere in the text
    copied         the sentence repeats the translation of another, different sentence
    language       the sentence is in a third language, or in the source language but in other words
    tag            a placeholder, tag, address or conversion is missing, or added (not in the source)
    number         a number is missing, in any notation, or a small number has become another
    separator      a separator of table cells is missing
    link           a link has no text
    quote          the source has quotation marks, and the translation has none

The first three concern whole sentences; a sentence with one of them has no other faults. They are found by
comparison with the rest of the text, so no word lists are needed. If py3langid is installed, it also
identifies languages.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from textwrap import shorten
from typing import Final

from cotext.data.documents import ParallelDocument, identified, primary_language, same_language
from cotext.data.words import blanked, placeholder_spans, words_of

KINDS: Final = ("number", "separator", "link", "untranslated", "copied", "language", "tag", "quote")
SHOWN_PLACES: Final = 5
# The beginnings of messages; others begin with the kind.
_PHRASES: Final = {"number": "numbers missing in", "separator": "table separators missing in"}
_CHECKED_TOGETHER: Final = 50_000  # sentences of a corpus that are checked as one text
_LEAST_WORDS: Final = 3  # minimum length for the kinds untranslated, copied and language
_ALIKE: Final = 0.8  # minimum share of words that an untranslated sentence has in common with its source
_MOST_COMPARED: Final = 32  # maximum number of sources with the same translation that are compared
_MOST_PLACEHOLDERS: Final = 100  # different placeholders of one side of a sentence that are checked
_KEPT: Final = 0.6  # a word may stay untranslated if this share of its translations contains it
_UNLIKE: Final = 0.5  # Dice coefficient below which two source sentences are different
_UNKNOWN: Final = 0.35  # with a lower share of words that occur elsewhere, the language is in doubt
# Minimum log-likelihood ratio (nats) for the source's language; 0 if the text does not fit its source.
_SPELT: Final = 20.0
_UNFIT: Final = -4.0  # `fit` below which a translation does not belong to its source
_FOREIGN: Final = 0.3  # share of the output's words below which a script may be foreign
# A sentence is foreign if its share of words in another script exceeds `_RARE` times the share in the whole
# output, within these bounds.
_LEAST_FOREIGN: Final = 0.25
_MOST_FOREIGN: Final = 0.8
_RARE: Final = 7.0
_QUOTED: Final = 60  # characters of a sentence that a message quotes
_SAMPLE: Final = 1000  # sentences from which the script of the output is determined
_SURE: Final = 0.95  # minimum probability of an identified language
_QUOTES: Final = re.compile("[\"“”„«»「」『』《》〈〉]|(?<!\\w)['‘‚‹›](?=\\w)")
# Placeholders, and tags that close or have attributes, are never translated.
_STRICT: Final = re.compile(r"[{}$%_]|</|<.*[=/]>?$")
_SMALL: Final = re.compile(r"(?<![\w.,:/%$-])\d{1,2}(?![\w%]|[.,:/-]\w)")
_DOUBLE: Final = re.compile('["“”„«»「」『』]')
_SEPARATORS: Final = re.compile("[|\t│┃║｜]")
_NAMES: Final = {"CJK": "Chinese characters"}  # of scripts whose Unicode name is not a word


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a sentence: kind, confidence (0 to 1), and message."""

    kind: str
    confidence: float
    note: str


class Checks:
    """Checks of the sentence pairs of one text.

    `languages`: codes of source and target, empty if unknown; if they are the same, whole sentences are not
    checked. `fit`: how well each translation fits its source (log-likelihood ratio of words and lengths, in
    nats; higher is better). Of two equal translations, the one with the lower `fit` is the copy (default:
    the later one). A pair that does not fit needs less evidence to be reported as copied or in another
    language.
    """

    def __init__(
        self,
        pairs: Sequence[tuple[str, str]],
        languages: tuple[str, str] = ("", ""),
        fit: Sequence[float] = (),
    ) -> None:
        self._pairs, self._language = pairs, primary_language(languages[1])
        self._is_rewritten = same_language(*languages)
        self._fit = fit or [-float(number) for number in range(len(pairs))]
        self._unfit = [score < _UNFIT for score in fit] or [False] * len(pairs)
        self._words = [(_words(source), _words(target)) for source, target in pairs]
        self._in_source: Counter[str] = Counter()  # source word: number of its sentences that are translated
        self._in_target: Counter[str] = Counter()
        self._kept: Counter[str] = Counter()  # source word: number of translations that contain it
        # The sources of each translation, each with the number of the pair that fits best.
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

    def faults(self, number: int, own_source: str | None = None, links: int = 0) -> list[Fault]:
        """Return the faults of a pair.

        `own_source`: the source without text that is copied in any case. `links`: the number of links that
        have text in the source only.
        """
        source, target = self._pairs[number]
        if target.strip() and not self._is_rewritten:
            whole = self._untranslated(number) or self._copied(number) or self._foreign(number)
            if whole:
                return [whole]
        own = blanked(source if own_source is None else own_source)
        faults = [*_of_numbers(own, blanked(target)), *[Fault("link", 0.95, "has no text")] * links]
        if len(_SEPARATORS.findall(own)) > len(_SEPARATORS.findall(target)):
            faults.append(Fault("separator", 0.8, "missing: separator of table cells"))
        if target.strip():
            faults += tag_faults(source, target)
            if len(_DOUBLE.findall(own)) > 1 and not _QUOTES.search(target):
                faults.append(Fault("quote", 0.7, "quotation marks are missing"))
        return faults

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
                return Fault("language", 0.98, f"is written in {_NAMES.get(script, script.title())}")
        if (score := self._spelt_as_source(number)) > (0 if unfit else _SPELT):
            return Fault("language", round(1 / (1 + math.exp(-score)), 2), "is in the source's language")
        known = sum(self._in_target[word] > 1 for word in words) / len(words)
        found = identified(self._pairs[number][1]) if self._language and (unfit or known < _UNKNOWN) else None
        if found and found[0] != self._language and found[1] > _SURE:
            return Fault("language", round(found[1] * (1 - known), 2), f"seems to be in {found[0]!r}")
        return None


def tag_faults(source: str, target: str) -> Iterator[Fault]:
    """Yield faults for placeholders that one side lacks or contains less often.

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
    # Leftover marks of a placeholder, as in "{name}}" for "{name}", make programs fail.
    if not added:
        added = [mark for mark in ("{", "}", "%(") if target.count(mark) > source.count(mark)]
    for text in added:
        if _STRICT.match(text) or (text in ours and "://" in text):
            is_more = text in source
            yield Fault("tag", 0.95, f"{'more often than' if is_more else 'not'} in the source: {text}")


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def _count(placeholder: str, text: str) -> int:
    # Some DocBook tools write both &name; and &name-genitive; for one entity.
    return text.count(placeholder[:-1] if placeholder[0] == "&" else placeholder)


def _of_numbers(source: str, target: str) -> list[Fault]:
    faults = [Fault("number", 0.8, f"missing: {number}") for number in missing_numbers(source, target)]
    # Small numbers may be written in words, but not if both sides have equally many in digits.
    ours, theirs = (Counter(map(int, _SMALL.findall(text))) for text in (source, target))
    if not faults and ours.total() == theirs.total():
        for before, after in zip((ours - theirs).elements(), (theirs - ours).elements(), strict=True):
            faults.append(Fault("number", 0.8, f"{before} has become {after}"))
    return faults


def _words(text: str) -> list[str]:
    """Return the words of a text (characters in unspaced scripts) without placeholders, numbers and signs."""
    return [word.text for word in words_of(blanked(text).casefold()) if word.text.isalpha()]


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


def checked(
    documents: Iterable[ParallelDocument], languages: tuple[str, str], places: dict[str, list[str]]
) -> Iterator[ParallelDocument]:
    """Yield documents, and add the places of their faults, `document:sentence`, to `places`."""
    waiting: list[ParallelDocument] = []
    sentences = 0

    def check() -> None:
        names = (f"{document.id}:{j + 1}" for document in waiting for j in range(len(document)))
        checks = Checks([pair for d in waiting for pair in zip(d.source, d.target, strict=True)], languages)
        for number, name in enumerate(names):
            add_faults(places, name, checks.faults(number))

    for document in documents:
        yield document
        waiting.append(document)
        sentences += len(document)
        if sentences >= _CHECKED_TOGETHER:
            check()
            waiting, sentences = [], 0
    check()


def add_faults(places: dict[str, list[str]], place: str, faults: Iterable[Fault]) -> None:
    """Add the place of a sentence to the places of its kinds of faults; for links, once per link."""
    for kind, count in Counter(fault.kind for fault in faults).items():
        places.setdefault(kind, []).extend([place] * (count if kind == "link" else 1))


def faults_in_words(places: Mapping[str, Sequence[str]]) -> str:
    """Format as "numbers missing in 2 sentences (line 3, line 8); 1 link has no text (line 9)"."""
    messages = []
    for kind in [kind for kind in KINDS if kind in places]:
        count, shown = len(places[kind]), shown_places(places[kind])
        if kind == "link":
            messages.append(f"{count:,} {'links have' if count > 1 else 'link has'} no text ({shown})")
        else:
            sentences = f"{count:,} sentence{'s' if count > 1 else ''}"
            messages.append(f"{_PHRASES.get(kind, f'{kind}:')} {sentences} ({shown})")
    return "; ".join(messages)


def shown_places(places: Sequence[str]) -> str:
    """Join the first different places."""
    different = list(dict.fromkeys(places))
    return f"{', '.join(different[:SHOWN_PLACES])}{' ...' if different[SHOWN_PLACES:] else ''}"


# --- Numbers that a translation lacks, compared with its source.
#
# A number is missing if the translation has it in no notation. Notations differ in separators (1,000.5 as
# 1.000,5 or 1 000,5), digits, or words for thousands and more (1,500,000 as 1.5 million or 150万). Years may
# have two digits, and the parts of a date may be in another order. Numbers up to 20 and round numbers are
# often written as words. They are reported only if the source has only numbers, and the translation none.


# A space can separate only thousands.
_NUMBER: Final = re.compile(r"\d+(?:[.,'’٫٬]\d+|[ \u00a0\u2009\u202f]\d{3}(?!\d))*")
_CHINESE: Final = str.maketrans("〇零一二三四五六七八九", "00123456789")
_TENS: Final = re.compile(r"(\d?)十(\d?)")
_ROMAN: Final = {"21": "XXI"}  # a century; earlier ones are numbers up to 20
_WORDED: Final = 20  # numbers up to this one are often written as words


class _Numbers:
    """The digits of the numbers of a translation, indexed, so that the time is linear."""

    def __init__(self, digits: set[str]) -> None:
        self.all = digits
        self._years = {number[2:] for number in digits if len(number) == 4}
        self._lengths: dict[str, list[int]] = {}  # by the digits before the last zeros
        for number in digits:
            self._lengths.setdefault(number.rstrip("0"), []).append(len(number))

    def have(self, digits: str, divided: bool) -> bool:
        """Whether the number may occur, also as "15 million" or a year of two digits; `divided`: as 1,500."""
        if digits in self.all or (len(digits) == 4 and digits[2:] in self.all) or digits in self._years:
            return True
        lengths = self._lengths.get(digits.rstrip("0"), []) if digits != "0" else []
        return any(abs(length - len(digits)) >= (1 if divided else 2) for length in lengths)


def missing_numbers(source: str, target: str) -> list[str]:
    """Return the numbers of a source that its translation lacks, as written in the source."""
    required = _NUMBER.findall(source)
    if not required:
        return []
    # Chinese numerals become digits, so that both texts can be compared.
    target = _TENS.sub(lambda match: (match[1] or "1") + (match[2] or "0"), target.translate(_CHINESE))
    numbers = _NUMBER.findall(target)
    available = {_digits(part) for number in numbers for part in (number, *_parts(number))}
    available |= {arabic for arabic, roman in _ROMAN.items() if roman in target}
    known = _Numbers(available)
    # In a source without letters, a small number cannot have become a word.
    exact = not numbers and not any(map(str.isalpha, source))
    return [number for number in required if not _has(known, number, exact)]


def _has(known: _Numbers, number: str, exact: bool) -> bool:
    """Whether a number is in a translation; `exact`: not as a word."""
    digits, parts = _digits(number), [_digits(part) for part in _parts(number)]
    if known.have(digits, divided=len(parts) > 1):
        return True
    if len(parts) == 1:
        return not exact and _is_worded(digits)
    # In a date, the month may be a word.
    is_date = len(parts) == 3 and not all(map(_is_worded, parts)) and not re.search(r"\D\d{3}(?!\d)", number)
    return all(part in known.all or (is_date and _is_worded(part)) for part in parts)


def _parts(number: str) -> list[str]:
    return re.findall(r"\d+", number)


def _digits(number: str) -> str:
    """Return the digits of a number, without leading zeros and without separators."""
    digits = "".join(str(unicodedata.decimal(character)) for character in number if character.isdecimal())
    return digits.lstrip("0") or "0"


def _is_worded(digits: str) -> bool:
    return (int(digits[:4]) <= _WORDED and len(digits) < 4) or not digits[1:].strip("0")
