"""Constraints on the translations of sentences: phrases that they must contain, avoid, or copy."""

from collections import Counter
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
    def miscounted(self) -> int:
        """The number of missing and surplus phrases."""
        return len(self.missing) + len(self.surplus)

    @property
    def total(self) -> int:
        return self.miscounted + len(self.forbidden)


@dataclass(frozen=True, slots=True)
class SentenceConstraints:
    """What the translation of one sentence must contain; empty: no constraints.

    `required`: for each occurrence of a term in the source, alternatives of which one must appear; a term
    that occurs twice is listed twice. `forbidden` phrases must not appear, except within a required or copied
    one. `copied` texts must appear exactly as often as they are listed. `places`: for each entry of
    `required`, then of `copied`, the span of characters in the source that it translates.

    Phrases are exact strings and whole words.
    """

    required: tuple[Phrases, ...] = ()
    forbidden: Phrases = ()
    copied: Phrases = ()
    places: tuple[tuple[int, int], ...] = field(default=(), compare=False)

    def spelled(self, spell: Callable[[str], str]) -> "SentenceConstraints":
        """Return the constraints in another spelling, without the phrases for which it is empty."""
        spelled = [tuple(filter(None, map(spell, phrases))) for phrases, _ in self.wanted]
        kept = [i for i, phrases in enumerate(spelled) if phrases]
        return SentenceConstraints(
            tuple(spelled[i] for i in kept if i < len(self.required)),
            tuple(filter(None, map(spell, self.forbidden))),
            tuple(spelled[i][0] for i in kept if i >= len(self.required)),
            tuple(self.places[i] for i in kept),
        )

    @property
    def wanted(self) -> list[tuple[Phrases, tuple[int, int]]]:
        """The phrases that must appear, and their spans in the source."""
        return list(zip([*self.required, *((copy,) for copy in self.copied)], self.places, strict=True))

    def defects(self, text: str) -> Defects:
        """Compare a translation with the constraints."""
        counts = {phrases: sum(1 for _ in occurrences(text, phrases)) for phrases in set(self.required)}
        # A copied text may be part of another one: the longest counts.
        copies = Counter(copy for _, copy in occurrences(text, self.copied))
        counts |= {(copy,): copies[copy] for copy in self.copied}
        missing = []
        for phrases, span in self.wanted:
            counts[phrases] -= 1
            if counts[phrases] < 0:
                missing.append((phrases, span))
        surplus = [copy for copy in dict.fromkeys(self.copied) for _ in range(counts[copy,])]
        allowed = {phrase for phrases, _ in self.wanted for phrase in phrases}
        found = occurrences(text, [*self.forbidden, *allowed]) if self.forbidden else ()
        forbidden = [place for place in found if place[1] not in allowed]
        return Defects(missing, surplus, forbidden)


class Guide(Protocol):
    """The constraints of all sentences of documents that are translated together."""

    def constraints(self, document: int, sentence: int) -> SentenceConstraints:
        """Return the constraints of a sentence, both indices from 0 in input order."""
