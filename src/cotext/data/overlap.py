"""Overlap of development and test sets with the training data.

A system has seen their translations: scores on them say less. Compared are hashes of sentences without case
and white space; short ones ("Thank you.") come again by chance, so that pairs are counted too.
"""

import hashlib
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass

from cotext.data.documents import ParallelDocument


@dataclass(frozen=True, slots=True)
class Overlap:
    """Of the sentences of a set: those with text on the source side, and how many of these training holds.

    `sources`: the source sentence is the source of a training pair; `pairs`: with the same target.
    """

    sentences: int
    sources: int
    pairs: int

    def render(self, split: str) -> str:
        """As one line."""
        whole = max(self.sentences, 1)
        return (
            f"{split}: of {self.sentences:,} sentences, {self.sources:,} ({self.sources / whole:.1%}) are in "
            f"the training data, {self.pairs:,} ({self.pairs / whole:.1%}) with the same translation"
        )


class HeldOut:
    """The sentences of the held-out sets by hashes: `wanted` are those to be found in training data."""

    def __init__(self, sets: dict[str, Iterable[ParallelDocument]]) -> None:
        self._sets = {
            split: [pair for document in documents for pair in _hashes(document)]
            for split, documents in sets.items()
        }
        self.wanted = frozenset(key for pairs in self._sets.values() for pair in pairs for key in pair)

    def overlaps(self, found: Set[int]) -> dict[str, Overlap]:
        """The overlap of every set, given those of `wanted` that training data hold."""
        return {
            split: Overlap(
                len(hashes),
                sum(source in found for source, _ in hashes),
                sum(pair in found for _, pair in hashes),
            )
            for split, hashes in self._sets.items()
        }


def found_in(documents: Iterable[ParallelDocument], wanted: Set[int]) -> set[int]:
    """The wanted hashes that documents hold."""
    return {key for document in documents for pair in _hashes(document) for key in pair if key in wanted}


def _hashes(document: ParallelDocument) -> Iterator[tuple[int, int]]:
    """Hashes of source and of source with target, for every pair with text on the source side."""
    for source, target in zip(document.source, document.target, strict=True):
        if key := "".join(source.casefold().split()):
            yield _hash(key), _hash(f"{key}\0{''.join(target.casefold().split())}")


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
