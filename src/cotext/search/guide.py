"""Lexical constraints of sentences, as text: what a translation must contain, avoid, or copy.

`cotext.translation.terms.terms` makes them from glossaries; `cotext.search.lexical` enforces them in search.
"""

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SentenceConstraints:
    """What the translation of one sentence must contain; empty: no constraints.

    `required`: for each occurrence of a term in the source, alternatives of which one must appear; a term
    that occurs twice is listed twice. `forbidden` phrases must not appear, except within a required one.
    `copied` texts must appear exactly as often as they are listed. `places`: for each entry of `required`,
    then of `copied`, the span of characters in the source that it renders; empty: unknown.

    Phrases are exact strings and, except for copied ones, whole words.
    """

    required: tuple[tuple[str, ...], ...] = ()
    forbidden: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()
    places: tuple[tuple[int, int], ...] = field(default=(), compare=False)

    def __bool__(self) -> bool:
        return bool(self.required or self.forbidden or self.copied)


class Guide(Protocol):
    """The constraints of all sentences of documents that are translated together."""

    def constraints(self, document: int, sentence: int) -> SentenceConstraints:
        """Return the constraints of a sentence, both indices from 0 in input order."""
