"""Content that a translation lacks, compared with its source: numbers, table separators, link texts.

A number counts as dropped if the translation has it in no notation. Notations of a number use other
separators (1,000.5 as 1.000,5 or 1 000,5), other digits, or words for thousands and more (1,500,000 as 1.5
million or 150万). Years may have two digits, and the parts of a date may be in another order. Numbers that
are often written as words (up to 20, and round numbers) count only if the source contains nothing but numbers
and the translation contains none.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

# A space can separate only thousands.
_NUMBER: Final = re.compile(r"\d+(?:[.,'’٫٬]\d+|[ \u00a0\u2009\u202f]\d{3}(?!\d))*")
_SEPARATORS: Final = re.compile("[|\t│┃║｜]")
_CHINESE: Final = str.maketrans("〇零一二三四五六七八九", "00123456789")
_TENS: Final = re.compile(r"(\d?)十(\d?)")
_ROMAN: Final = {"21": "XXI"}  # a century; earlier ones are numbers up to 20
SHOWN_PLACES: Final = 5
_WORDED: Final = 20  # numbers up to this one are often written as words


@dataclass(frozen=True, slots=True)
class Dropped:
    """Content missing in the translation of a sentence: numbers as in the source, separators, link texts."""

    numbers: tuple[str, ...] = ()
    separators: int = 0
    links: int = 0

    def __bool__(self) -> bool:
        return bool(self.numbers or self.separators or self.links)

    def notes(self) -> list[str]:
        """Return short notes for a reader of the sentence."""
        return [
            *(f"missing: {number}" for number in self.numbers),
            *(["missing: table separator"] if self.separators else ()),
            *(["link without text"] if self.links else ()),
        ]


NOTHING: Final = Dropped()


@dataclass(slots=True)
class DroppedContent:
    """The places of sentences whose translations lack something; for links, one place per link."""

    numbers: list[str] = field(default_factory=list)
    separators: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)

    def add(self, place: str, found: Dropped) -> None:
        """Count what the translation of the sentence at a place lacks."""
        self.numbers += [place] if found.numbers else []
        self.separators += [place] if found.separators else []
        self.links += [place] * found.links

    def __str__(self) -> str:
        """Format as "numbers missing in 2 sentences (line 3, line 8); 1 link has no text (line 9)"."""
        parts = []
        for what, places in (("numbers", self.numbers), ("table separators", self.separators)):
            if places:
                parts.append(f"{what} missing in {counted_places(places)}")
        if self.links:
            have = "links have" if self.links[1:] else "link has"
            parts.append(f"{len(self.links):,} {have} no text ({_shown(self.links)})")
        return "; ".join(parts)


def counted_places(places: Sequence[str]) -> str:
    """Format as "2 sentences (line 3, line 8)"."""
    return f"{len(places):,} sentence{'s' if places[1:] else ''} ({_shown(places)})"


def _shown(places: Sequence[str]) -> str:
    different = list(dict.fromkeys(places))
    return f"{', '.join(different[:SHOWN_PLACES])}{' ...' if different[SHOWN_PLACES:] else ''}"


def dropped(source: str, target: str, links: int = 0) -> Dropped:
    """Compare a translation with its source; `links`: number of links without text (`empty_links`)."""
    separators = len(_SEPARATORS.findall(source)) - len(_SEPARATORS.findall(target))
    return Dropped(tuple(dropped_numbers(source, target)), max(separators, 0), links)


class _Numbers:
    """The digits of the numbers of a translation, indexed, so that the time is linear."""

    def __init__(self, digits: set[str]) -> None:
        self.all = digits
        self._years = {number[2:] for number in digits if len(number) == 4}
        self._lengths: dict[str, list[int]] = {}  # by the digits before the last zeros
        for number in digits:
            self._lengths.setdefault(number.rstrip("0"), []).append(len(number))

    def have(self, digits: str, divided: bool) -> bool:
        """Whether a number may be there: also with zeros as a word, or a year by its last two digits."""
        if digits in self.all or (len(digits) == 4 and digits[2:] in self.all) or digits in self._years:
            return True
        lengths = self._lengths.get(digits.rstrip("0"), []) if digits != "0" else []
        return any(abs(length - len(digits)) >= (1 if divided else 2) for length in lengths)


def dropped_numbers(source: str, target: str) -> list[str]:
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
    # Only in a source without letters, a small number cannot have become a word.
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
