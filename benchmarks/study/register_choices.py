"""Choices in real text between Sie and du, after a sentence that shows the register.

The register of a sentence of the reference whose source has a form of `you`:

    polite      Sie, Ihr, Ihre ..., Ihnen with a capital letter inside the sentence, or at its beginning if
                the source has no other pronoun (she, they, it) that they could translate
    familiar    du, dich, dir, dein, deine ...
    mixed       both

A sentence has a choice if its forms can be exchanged without changing another word: Ihr and dein with the
same ending, Ihnen and dir. With Sie or du the verb would change, and dich could become Sie or sich: such
sentences are clues, never choices. The clue is the nearest earlier sentence that shows a register; without
one there is no choice. Documents with both registers are left out. The tag `register` has the register of
the reference: a familiar one may have an imperative, which is a clue in the sentence itself.
"""

import re
from collections.abc import Iterator
from typing import Final

from benchmarks.study.choice import Choice
from cotext.data.documents import ParallelDocument

PHENOMENON: Final = "register"
_YOU: Final = re.compile(r"\byou(?:rs?|rself|rselves)?\b", re.IGNORECASE)
_OTHER_SOURCE: Final = re.compile(r"\b(?:she|her|hers|they|them|their|theirs|its?)\b", re.IGNORECASE)
_POLITE: Final = re.compile(r"\b(?:Sie|Ihr(?:e[mnrs]?)?|Ihnen)\b")
_FAMILIAR: Final = re.compile(r"\b(?:[Dd]u|[Dd]ich|[Dd]ir|[Dd]ein(?:e[mnrs]?)?)\b")
_POLITE_FREE: Final = re.compile(r"\b(?:Ihr(?P<ending>e[mnrs]?)?|(?P<dative>Ihnen))\b")
_FAMILIAR_FREE: Final = re.compile(r"\b(?:[Dd]ein(?P<ending>e[mnrs]?)?|(?P<dative>[Dd]ir))\b")
_VERBAL: Final = re.compile(r"\b(?:Sie|[Dd]u|[Dd]ich|[Ss]ich)\b")


def register_of(source: str, target: str) -> str | None:
    """Return `polite`, `familiar`, `mixed`, or None if the target has no form of address."""
    if not _YOU.search(source):
        return None
    polite = [
        m for m in _POLITE.finditer(target) if not _first(target, m) or not _OTHER_SOURCE.search(source)
    ]
    familiar = _FAMILIAR.search(target) is not None
    if polite and familiar:
        return "mixed"
    if polite or familiar:
        return "polite" if polite else "familiar"
    return None


def register_choices(document: ParallelDocument) -> Iterator[Choice]:
    """Yield the choices of a document in order."""
    registers = [register_of(s, t) for s, t in zip(document.source, document.target, strict=True)]
    if len({each for each in registers if each}) != 1 or "mixed" in registers:
        return
    last: int | None = None
    for number, (source, target) in enumerate(zip(document.source, document.target, strict=True)):
        register = registers[number]
        if register is None:
            continue
        other = exchanged(source, target, register)
        if last is not None and other is not None:
            yield Choice(PHENOMENON, number, target, (other,), number - last, {"register": register})
        last = number


def exchanged(source: str, target: str, register: str) -> str | None:
    """Return the target in the other register; None if other words would have to change, too."""
    if _VERBAL.search(target):
        return None
    pattern = _POLITE_FREE if register == "polite" else _FAMILIAR_FREE
    forms = list(pattern.finditer(target))
    ambiguous = register == "polite" and any(_first(target, form) for form in forms)
    if not forms or (ambiguous and _OTHER_SOURCE.search(source)):
        return None
    return pattern.sub(lambda found: _other(found, register, _first(target, found)), target)


def _other(found: re.Match[str], register: str, first: bool) -> str:
    if register == "familiar":
        return "Ihnen" if found["dative"] else f"Ihr{found['ending'] or ''}"
    form = "dir" if found["dative"] else f"dein{found['ending'] or ''}"
    return form.capitalize() if first else form


def _first(text: str, found: re.Match[str]) -> bool:
    """Return whether a word begins a sentence or follows a colon, where a capital letter says nothing."""
    before = text[: found.start()].rstrip(" \t\"'»«„“”([")
    return not before or before[-1] in ".!?:"
