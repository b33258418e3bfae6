"""Word order of the target: as German main clauses have it, or unlike the source.

The source, the words of the target and every choice are the same in all orders; only the places of the target
words differ. So what a system loses from one order to another, it loses to re-ordering alone.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Final, Literal

WordOrder = Literal["verb-second", "verb-final", "reversed"]

# Finite verbs of the German templates: words, and attributes of slots.
_WORDS: Final = "war waren hatte ist kann suchte betrifft spricht reist sitzt trinkt"
_SLOTS: Final = (
    "f.de d.de v.aux w.aux w.aux_plural y.bist y.hast y.hattest y.kannst y.musst y.kennst y.kommst "
    "y.arbeitest y.wohnst y.sprichst y.lachst y.hältst"
)
_FINITE: Final = frozenset((*_WORDS.split(), *(f"{{{slot}}}" for slot in _SLOTS.split())))


@cache
def ordered(template: str, order: WordOrder) -> str:
    """A German sentence template in another order; capital letters at the beginning are the caller's.

    ``verb-final``: the finite verb ends its clause, as in German subordinate clauses ("Später Peter sie
    verlor."). ``reversed``: clauses, and words or slots within each, stand in reverse order ("Sie Peter
    verlor später."), the farthest that words of a sentence can be moved.
    """
    if order == "verb-second":
        return template
    text, mark = template[:-1], template[-1]
    # No template begins with a noun of its own, so that a first word may lose its capital.
    clauses = [clause.split() for clause in (text[0].lower() + text[1:]).split(", ")]
    return ", ".join(" ".join(clause) for clause in _ORDERS[order](clauses)) + mark


def _verb_final(clauses: list[list[str]]) -> list[list[str]]:
    return [sorted(clause, key=_FINITE.__contains__) for clause in clauses]


def _reversed(clauses: list[list[str]]) -> list[list[str]]:
    return [clause[::-1] for clause in reversed(clauses)]


_ORDERS: Final[Mapping[str, Callable[[list[list[str]]], list[list[str]]]]] = {
    "verb-final": _verb_final,
    "reversed": _reversed,
}
