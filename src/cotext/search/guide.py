"""Lexical constraints of sentences, as text: what a translation must hold, must not hold, and copies.

They are made by whoever knows the source (`cotext.translation.terms.terms`), and kept in search
(`cotext.search.lexical`).
"""

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SentenceConstraints:
    """What the translation of one sentence must hold; empty: anything.

    `required`: for each occurrence of a term in the source, the alternatives of which one must appear; a term
    that occurs twice stands here twice. `forbidden` phrases do not appear, unless within a required one.
    `copied` texts appear exactly as often as they stand here, and nothing but they do so. `places`: for each
    of `required`, then of `copied`, the span of characters in the source that it renders; empty: not known.

    Phrases are exact strings and, but for those copied, whole words.
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
        """The constraints of a sentence, both indices from 0 in the order of the input."""
        ...
