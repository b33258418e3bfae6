"""The version of Cotext; `CotextError`, the error that a user can correct, and helpers for its messages."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from reprlib import Repr

__version__ = "0.1.0"
SHOWN_CHARACTERS = 100

_REPR = Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = SHOWN_CHARACTERS


class CotextError(Exception):
    """An error that the user can correct. The message states what is wrong, where, and what to do.

    The command line prints only the message, without a traceback, and exits with code 2.
    """


@contextmanager
def naming(*places: object) -> Iterator[None]:
    """Add the first place, such as a file, to errors of the block that begin with none of the places."""
    try:
        yield
    except CotextError as error:
        place = "" if str(error).startswith(tuple(map(str, places))) else f"{places[0]}: "
        raise CotextError(f"{place}{error}") from None


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out. On a CPU, torch reports this only in the text of a RuntimeError."""
    text = str(error)
    return isinstance(error, MemoryError) or "can't allocate memory" in text or "out of memory" in text


def shown(value: object) -> str:
    """Return the `repr` of a value for a message, with the middle of long values left out.

    Lone surrogates, which a terminal may be unable to print, are escaped.
    """
    try:
        text = _REPR.repr(value)
    except ValueError:  # an integer with more digits than Python converts to text
        return f"a number of more than {SHOWN_CHARACTERS} digits"
    half = SHOWN_CHARACTERS
    return text if len(text) <= 2 * half else f"{text[:half]}...{text[-half:]}"


def visible(line: str) -> str:
    """Escape control characters, lone surrogates and characters that change the direction of text."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


def nearest(word: str, known: Iterable[str], count: int = 1) -> list[str]:
    """Return the known words most similar to `word`, best first; an empty list if none is similar.

    `word` may lack the sections of a key, or the folder of a recipe.
    """
    words = list(known)
    spellings = {re.split("[./]", name)[-1]: name for name in reversed(words)}
    spellings |= {name: name for name in words}
    # The time of the comparison grows with the length, and such a long word is unlike all known words.
    matches = get_close_matches(word[:SHOWN_CHARACTERS], spellings, count)
    return list(dict.fromkeys(spellings[match] for match in matches))


def nearest_known(word: str, known: Iterable[str]) -> str:
    """Return a hint with the nearest known word, to append to a message; empty if no word is similar."""
    near = nearest(word, known)
    return f"; the nearest known one is '{near[0]}'" if near else ""
