"""Constraints on the translations of sentences: phrases that they must contain, avoid, or copy."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from cotext.data.words import occurrences

Phrases = tuple[str, ...]  # alternatives of a term


class Defects(NamedTuple):
    """The constraints that a translation does not meet.

    `missing`: alternatives of a phrase, and its span in the source. `surplus`: copied texts, once for every
    occurrence that is one too many. `forbidden`: phrases and their offsets.
    """

    missing: list[tuple[Phrases, tuple[int, int]]]
    surplus: list[str]
    forbidden: list[tuple[int, str]]

    @property
    def total(self) -> int:
        return len(self.missing) + len(self.surplus) + len(self.forbidden)


@dataclass(frozen=True, slots=True)
class SentenceConstraints:
    """What the translation of one sentence must contain; empty: no constraints.

    `required`: for each occurrence of a term in the source, alternatives of which one must appear; a term
    that occurs twice is listed twice. `forbidden` phrases must not appear, except within a required one.
    `copied` texts must appear exactly as often as they are listed. `places`: for each entry of `required`,
    then of `copied`, the span of characters in the source that it translates.

    Phrases are exact strings and whole words.
    """

    required: tuple[Phrases, ...] = ()
    forbidden: Phrases = ()
    copied: Phrases = ()
    places: tuple[tuple[int, int], ...] = field(default=(), compare=False)

    def spelled(self, spell: Callable[[str], str]) -> "SentenceConstraints":
        """Return the constraints in another spelling, without the phrases for which it is empty."""
        wanted = [*self.required, *((copy,) for copy in self.copied)]
        spelled = [tuple(filter(None, map(spell, phrases))) for phrases in wanted]
        kept = [i for i, phrases in enumerate(spelled) if phrases]
        return SentenceConstraints(
            tuple(spelled[i] for i in kept if i < len(self.required)),
            tuple(filter(None, map(spell, self.forbidden))),
            tuple(spelled[i][0] for i in kept if i >= len(self.required)),
            tuple(self.places[i] for i in kept),
        )

    def defects(self, text: str) -> Defects:
        """Compare a translation with the constraints."""
        wanted = [*self.required, *((copy,) for copy in self.copied)]
        counts = {phrases: sum(1 for _ in occurrences(text, phrases)) for phrases in set(wanted)}
        missing = []
        for phrases, span in zip(wanted, self.places, strict=True):
            counts[phrases] -= 1
            if counts[phrases] < 0:
                missing.append((phrases, span))
        surplus = [copy for copy in dict.fromkeys(self.copied) for _ in range(counts[copy,])]
        within = [*self.forbidden, *(phrase for phrases in self.required for phrase in phrases)]
        found = occurrences(text, within) if self.forbidden else ()
        return Defects(missing, surplus, [place for place in found if place[1] in self.forbidden])


class Guide(Protocol):
    """The constraints of all sentences of documents that are translated together."""

    def constraints(self, document: int, sentence: int) -> SentenceConstraints:
        """Return the constraints of a sentence, both indices from 0 in input order."""
