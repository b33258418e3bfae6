"""Content that a translation drops, by comparison with its source: numbers, table separators, link texts.

A number counts as dropped if the translation has it in no notation. The notations of one number are: other
separators (1,000.5 as 1.000,5 or 1 000,5), other digits, words for thousands and more (1,500,000 as 1.5
million or 150万), two digits of a year, and the parts of a date in another order. Numbers that are often
written as words (to 20, and round ones) count only where the source is nothing but numbers, and the
translation has none.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

# A space divides thousands only.
_NUMBER: Final = re.compile(r"\d+(?:[.,'’٫٬]\d+|[ \u00a0\u2009\u202f]\d{3}(?!\d))*")
_SEPARATORS: Final = re.compile("[|\t│┃║｜]")
_CHINESE: Final = str.maketrans("〇零一二三四五六七八九", "00123456789")
_TENS: Final = re.compile(r"(\d?)十(\d?)")
_ROMAN: Final = {"21": "XXI"}  # a century; those to the 20th are not asked for
SHOWN_PLACES: Final = 5
_WORDED: Final = 20  # numbers to this one are written as words, too


@dataclass(frozen=True, slots=True)
class Dropped:
    """What the translation of a sentence lacks: numbers as in the source, separators, texts of links."""

    numbers: tuple[str, ...] = ()
    separators: int = 0
    links: int = 0

    def __bool__(self) -> bool:
        return bool(self.numbers or self.separators or self.links)

    def notes(self) -> list[str]:
        """Short notes for a reader of the sentence."""
        return [
            *(f"missing: {number}" for number in self.numbers),
            *(["missing: table separator"] if self.separators else ()),
            *(["link without text"] if self.links else ()),
        ]


NOTHING: Final = Dropped()


@dataclass(slots=True)
class DroppedContent:
    """The places of the sentences of a file whose translations lack something; of each link, its place."""

    numbers: list[str] = field(default_factory=list)
    separators: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)

    def add(self, place: str, found: Dropped) -> None:
        """Count what the translation of the sentence at a place lacks."""
        self.numbers += [place] if found.numbers else []
        self.separators += [place] if found.separators else []
        self.links += [place] * found.links

    def __str__(self) -> str:
        """As in "numbers missing in 2 sentences (line 3, line 8); 1 link has no text (line 9)"; or empty."""
        said = []
        for what, places in (("numbers", self.numbers), ("table separators", self.separators)):
            if places:
                said.append(f"{what} missing in {counted_places(places)}")
        if self.links:
            have = "links have" if self.links[1:] else "link has"
            said.append(f"{len(self.links):,} {have} no text ({_shown(self.links)})")
        return "; ".join(said)


def counted_places(places: Sequence[str]) -> str:
    """As in "2 sentences (line 3, line 8)"."""
    return f"{len(places):,} sentence{'s' if places[1:] else ''} ({_shown(places)})"


def _shown(places: Sequence[str]) -> str:
    different = list(dict.fromkeys(places))
    return f"{', '.join(different[:SHOWN_PLACES])}{' ...' if different[SHOWN_PLACES:] else ''}"


def dropped(source: str, target: str, links: int = 0) -> Dropped:
    """What a translation lacks; `links`: see `empty_links`."""
    separators = len(_SEPARATORS.findall(source)) - len(_SEPARATORS.findall(target))
    return Dropped(tuple(dropped_numbers(source, target)), max(separators, 0), links)


def dropped_numbers(source: str, target: str) -> list[str]:
    """The numbers of a source that its translation lacks, as they are written there."""
    wanted = list(_NUMBER.finditer(source))
    if not wanted:
        return []
    target = _TENS.sub(lambda found: (found[1] or "1") + (found[2] or "0"), target.translate(_CHINESE))
    numbers = _NUMBER.findall(target)
    there = {_digits(part) for number in numbers for part in (number, *_parts(number))}
    there |= {arabic for arabic, roman in _ROMAN.items() if roman in target}
    exact = not numbers and not any(map(str.isalpha, source))
    return [found[0] for found in wanted if not _has(there, found[0], exact)]


def _has(there: set[str], number: str, exact: bool) -> bool:
    """Whether a number is among those of a translation; `exact`: it may not have become a word."""
    whole, parts = _digits(number), [_digits(part) for part in _parts(number)]
    if whole in there or any(_same(whole, other, len(parts) > 1) for other in there):
        return True
    if len(parts) == 1:
        return not exact and _is_worded(whole)
    # A date may name its month.
    is_date = len(parts) == 3 and not all(map(_is_worded, parts)) and not re.search(r"\D\d{3}(?!\d)", number)
    return all(part in there or (is_date and _is_worded(part)) for part in parts)


def _parts(number: str) -> list[str]:
    return re.findall(r"\d+", number)


def _digits(number: str) -> str:
    """The digits of a number, without zeros before them and with nothing between them."""
    digits = "".join(str(unicodedata.decimal(each)) for each in number if each.isdecimal())
    return digits.lstrip("0") or "0"


def _same(one: str, other: str, divided: bool) -> bool:
    """Whether the digits of two numbers may mean one: with zeros as a word, or a year by its last two."""
    short, long = sorted((one, other), key=len)
    zeros = len(long) - len(short)
    if len(short) == 2 and len(long) == 4 and long.endswith(short):
        return True
    return zeros >= (1 if divided else 2) and short != "0" and long == short + "0" * zeros


def _is_worded(digits: str) -> bool:
    return (int(digits[:4]) <= _WORDED and len(digits) < 4) or not digits[1:].strip("0")
