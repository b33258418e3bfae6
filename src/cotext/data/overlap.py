"""Overlap of development and test sets with the training data.

Scores on sentences that occur in the training data overestimate quality. Sentences are compared by hashes
without case and white space. Short sentences ("Thank you.") recur by chance. So pairs are counted, too.
"""

import hashlib
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass

from cotext.data.documents import ParallelDocument


@dataclass(frozen=True, slots=True)
class Overlap:
    """The overlap of a set with the training data.

    `sentences`: number of sentences with a non-empty source. `sources`: number of sentences whose source
    occurs in a training pair. `pairs`: number of sentences whose source and target occur as a training pair.
    """

    sentences: int
    sources: int
    pairs: int

    def render(self, split: str) -> str:
        whole = max(self.sentences, 1)
        return (
            f"{split}: of {self.sentences:,} sentences, {self.sources:,} ({self.sources / whole:.1%}) are in "
            f"the training data, {self.pairs:,} ({self.pairs / whole:.1%}) with the same translation"
        )


class HeldOut:
    """Hashes of the sentences of held-out sets; `wanted` are the hashes to look for in the training data."""

    def __init__(self, sets: dict[str, Iterable[ParallelDocument]]) -> None:
        self._sets = {
            split: [pair for document in documents for pair in _hashes(document)]
            for split, documents in sets.items()
        }
        self.wanted = frozenset(key for pairs in self._sets.values() for pair in pairs for key in pair)

    def overlaps(self, found: Set[int]) -> dict[str, Overlap]:
        """Return the overlap of every set, given the hashes of `wanted` found in the training data."""
        return {
            split: Overlap(
                len(hashes),
                sum(source in found for source, _ in hashes),
                sum(pair in found for _, pair in hashes),
            )
            for split, hashes in self._sets.items()
        }


def found_in(documents: Iterable[ParallelDocument], wanted: Set[int]) -> set[int]:
    """Return the `wanted` hashes that occur in documents."""
    return {key for document in documents for pair in _hashes(document) for key in pair if key in wanted}


def _hashes(document: ParallelDocument) -> Iterator[tuple[int, int]]:
    """Yield hashes of the source, and of source and target, for every pair with a non-empty source."""
    for source, target in zip(document.source, document.target, strict=True):
        if key := "".join(source.casefold().split()):
            yield _hash(key), _hash(f"{key}\0{''.join(target.casefold().split())}")


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
