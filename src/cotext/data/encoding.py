"""Chunks of documents encoded: ids, and what the statistics of a corpus need to know of them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotext.data.documents import ParallelDocument
from cotext.data.formats.streams import numbered_lines
from cotext.data.overlap import found_in
from cotext.data.store import Flat
from cotext.data.tokenizer import Side, Tokenizer, load_tokenizer
from cotext.runtime.errors import CotextError

SIDES: Final[tuple[Side, Side]] = ("source", "target")


@dataclass(frozen=True, slots=True)
class EncodedChunk:
    """Consecutive documents as ids.

    `sizes`: sentences of each. `digests`: 16 bytes for each pair with a token, equal where the tokens are.
    `found`: hashes of `cotext.data.encoding` that were asked for.
    """

    names: tuple[str, ...]
    sizes: NDArray[np.int64]
    source: Flat
    target: Flat
    digests: bytes
    found: frozenset[int] = frozenset()

    @classmethod
    def of(
        cls, names: Iterable[str], sizes: Iterable[int], source: Flat, target: Flat, found: Iterable[int] = ()
    ) -> "EncodedChunk":
        """Documents given by their names, numbers of sentences, and ids end to end."""
        counts = np.array(list(sizes), np.int64)
        return cls(tuple(names), counts, source, target, _digests(source, target), frozenset(found))

    def documents(self) -> Iterator[tuple[str, Flat, Flat]]:
        """Each document as a store takes it."""
        ends = np.cumsum(self.sizes)
        bounds = [0, *ends.tolist()]
        sides = [(side, [0, *np.cumsum(side.lengths, dtype=np.int64).tolist()]) for side in self._sides()]
        for name, low, high in zip(self.names, bounds, bounds[1:], strict=False):
            source, target = (
                Flat(side.tokens[ends[low] : ends[high]], side.lengths[low:high]) for side, ends in sides
            )
            yield name, source, target

    def _sides(self) -> tuple[Flat, Flat]:
        return self.source, self.target


def _digests(source: Flat, target: Flat) -> bytes:
    found = []
    sides = [
        (side.tokens.tobytes(), np.cumsum(4 * side.lengths.astype(np.int64)).tolist())
        for side in (source, target)
    ]
    (sources, source_ends), (targets, target_ends) = sides
    low_source = low_target = 0
    for high_source, high_target in zip(source_ends, target_ends, strict=True):
        if high_source > low_source or high_target > low_target:
            # The length tells where one side ends and the other begins.
            digest = blake2b(sources[low_source:high_source], digest_size=16)
            digest.update((high_source - low_source).to_bytes(8, "little"))
            digest.update(targets[low_target:high_target])
            found.append(digest.digest())
        low_source, low_target = high_source, high_target
    return b"".join(found)


def location_of(files: Sequence[Path], side: int, sentence: str) -> str:
    """File and line of a sentence, as messages begin; empty where there is no file."""
    if not files:
        return ""
    path = files[min(side, len(files) - 1)]
    # Only for a message is the file searched for the line.
    line = next((number for number, line in numbered_lines(path) if sentence in line), None)
    return f"{path}: " if line is None else f"{path}:{line}: "


class ChunkEncoder:
    """Encodes chunks of documents; `wanted`: hashes of sentences to find, `files`: those that are read."""

    def __init__(self, tokenizer: Tokenizer, wanted: frozenset[int], files: tuple[Path, ...]) -> None:
        self._tokenizer = tokenizer
        self._wanted = wanted
        self._files = files

    @classmethod
    def opened(cls, folder: Path, wanted: frozenset[int], files: tuple[Path, ...]) -> "ChunkEncoder":
        """With the tokenizer of a folder, as each worker process opens it."""
        return cls(load_tokenizer(folder), wanted, files)

    def __call__(self, documents: Sequence[ParallelDocument]) -> EncodedChunk:
        """Encode a chunk.

        Raises:
            CotextError: the tokenizer cannot encode a sentence; with its file and line.
        """
        texts = ([s for d in documents for s in d.source], [t for d in documents for t in d.target])
        try:
            source, target = (
                Flat.of(self._tokenizer.encode_batch(sentences, side))
                for side, sentences in zip(SIDES, texts, strict=True)
            )
        except Exception as error:
            raise self._located(documents) or error from error
        return EncodedChunk.of(
            (document.id for document in documents),
            map(len, documents),
            source,
            target,
            found_in(documents, self._wanted) if self._wanted else (),
        )

    def _located(self, documents: Sequence[ParallelDocument]) -> CotextError | None:
        """The error of the first sentence that cannot be encoded, if one alone cannot."""
        for document in documents:
            for side, sentences in zip(SIDES, (document.source, document.target), strict=True):
                for number, sentence in enumerate(sentences, 1):
                    try:
                        self._tokenizer.encode(sentence, side)
                    except Exception as error:  # whatever a tokenizer of somebody else's raises
                        where = location_of(self._files, SIDES.index(side), sentence)
                        return CotextError(
                            f"{where}document {document.id!r}, sentence {number}: cannot be encoded: {error}"
                        )
        return None
