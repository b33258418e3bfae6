"""The one exception that is meant for the person at the keyboard, and what keeps its messages short."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from reprlib import Repr

SHOWN_CHARACTERS = 100

_REPR = Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = SHOWN_CHARACTERS


class CotextError(Exception):
    """An error that the user can correct: what is wrong, where, and what to do.

    The command line prints the message alone, without a traceback, and exits with code 2.
    """


def is_out_of_memory(error: BaseException) -> bool:
    """Whether there was not enough memory; by their words alone errors of torch on a CPU tell it."""
    said = str(error)
    return isinstance(error, MemoryError) or "can't allocate memory" in said or "out of memory" in said


def shown(value: object) -> str:
    """A value as messages show it: as Python writes it, but no more than the beginning and end of a long one.

    Half characters (lone surrogates), which a screen may not take, come as escapes.
    """
    try:
        text = _REPR.repr(value)
    except ValueError:  # a whole number of more digits than Python writes out
        return f"a number of more than {SHOWN_CHARACTERS} digits"
    half = SHOWN_CHARACTERS
    return text if len(text) <= 2 * half else f"{text[:half]}...{text[-half:]}"


def visible(line: str) -> str:
    """A line in printable characters: control and half characters, and those that turn it, are escapes."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


def nearest(word: str, known: Iterable[str], count: int = 1) -> list[str]:
    """The known words most similar to `word`, the best first; none where no word is similar.

    `word` may lack the sections of a key, or the folder of a recipe.
    """
    words = list(known)
    written = {re.split("[./]", each)[-1]: each for each in reversed(words)} | {each: each for each in words}
    # Comparing takes time by length: a word that long is like none.
    found = get_close_matches(word[:SHOWN_CHARACTERS], written, count)
    return list(dict.fromkeys(written[each] for each in found))


def nearest_known(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: the nearest known one; empty where none is near."""
    near = nearest(word, known)
    return f"; the nearest known one is '{near[0]}'" if near else ""
