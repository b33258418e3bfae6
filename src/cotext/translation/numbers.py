"""Numbers that a translation lacks, compared with its source.

A number is missing if the translation has it in no notation. Notations differ in separators (1,000.5 as
1.000,5 or 1 000,5), digits, or words for thousands and more (1,500,000 as 1.5 million or 150万). Years may
have two digits, and the parts of a date may be in another order. Numbers up to 20 and round numbers are often
written as words. They count only if the source contains nothing but numbers and the translation contains
none.
"""

import re
import unicodedata
from typing import Final

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
        """Whether a number may be there: also with zeros as a word, or a year by its last two digits."""
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
