"""Overlap of development and test sets with the training data.

A system has seen their translations: scores on them say less. Compared are hashes of sentences without case
and white space; short ones ("Thank you.") come again by chance, so that pairs are counted too.
"""

import hashlib
from collections.abc import Iterable, Iterator
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


class OverlapCounter:
    """Remembers the sentences of the held-out sets by hashes, and finds them in training data."""

    def __init__(self) -> None:
        self._sets: dict[str, list[tuple[int, int]]] = {}
        self._wanted: set[int] = set()
        self._found: set[int] = set()

    def remember(self, split: str, documents: Iterable[ParallelDocument]) -> Iterator[ParallelDocument]:
        """Pass the documents of a held-out set on."""
        hashes = self._sets.setdefault(split, [])
        for document in documents:
            for pair in _hashes(document):
                hashes.append(pair)
                self._wanted.update(pair)
            yield document

    def compare(self, documents: Iterable[ParallelDocument]) -> Iterator[ParallelDocument]:
        """Pass the training documents on."""
        for document in documents:
            for pair in _hashes(document):
                self._found.update(self._wanted.intersection(pair))
            yield document

    def overlaps(self) -> dict[str, Overlap]:
        """The overlap of every set."""
        return {
            split: Overlap(
                len(hashes),
                sum(source in self._found for source, _ in hashes),
                sum(pair in self._found for _, pair in hashes),
            )
            for split, hashes in self._sets.items()
        }


def _hashes(document: ParallelDocument) -> Iterator[tuple[int, int]]:
    """Hashes of source and of source with target, for every pair with text on the source side."""
    for source, target in zip(document.source, document.target, strict=True):
        if key := "".join(source.casefold().split()):
            yield _hash(key), _hash(f"{key}\0{''.join(target.casefold().split())}")


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
