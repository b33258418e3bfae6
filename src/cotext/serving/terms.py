"""Terms of a request: pairs of a source term and its translation."""

from collections.abc import Sequence
from typing import Final

from cotext.runtime import shown
from cotext.serving.errors import RequestError
from cotext.translation.open import Wishes
from cotext.translation.terms.terms import Glossary

MAX_TERM: Final = 1024

Entries = Sequence[tuple[str, str]]  # source terms and their translations


def wishes_of(entries: Entries) -> Wishes:
    """Return constraints with these entries; several translations of one term are alternatives.

    Raises:
        CotextError: a term or a translation is empty.
    """
    terms: dict[str, list[str]] = {}
    for source, target in entries:
        terms.setdefault(source, []).append(target)
    return Wishes(Glossary.of(terms) if terms else None)


def distinct(entries: Entries) -> Entries:
    """Return the entries without outer white space.

    Raises:
        RequestError: 400, an entry is not a valid term, or a source term occurs twice.
    """
    stripped: list[tuple[str, str]] = []
    numbers: dict[str, int] = {}
    for number, (source, target) in enumerate(entries, 1):
        source, target = source.strip(), target.strip()
        for term in (source, target):
            if not is_line(term):
                text = f"{shown(term)} is not a valid term: one line, {MAX_TERM:,} characters at most"
                raise RequestError(400, f"glossary entry {number}: {text}")
        if source in numbers:
            message = f"entry {number} has the same source term as entry {numbers[source]}"
            raise RequestError(400, f"glossary {message}")
        numbers[source] = number
        stripped.append((source, target))
    return tuple(stripped)


def is_line(text: str) -> bool:
    """Return whether a text is one line of at most MAX_TERM characters, without controls and surrogates."""
    return 0 < len(text) <= MAX_TERM and not any(
        ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u2028\u2029" or "\ud800" <= c <= "\udfff" for c in text
    )
