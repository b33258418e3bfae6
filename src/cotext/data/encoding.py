"""Encoding of chunks of documents to token ids, with the data for corpus statistics."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
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
    """Consecutive documents as token ids.

    `sizes`: sentences per document. `found`: the requested hashes of `cotext.data.overlap` that occur in the
    documents.
    """

    names: tuple[str, ...]
    sizes: NDArray[np.int64]
    source: Flat
    target: Flat
    found: frozenset[int] = frozenset()

    @classmethod
    def of(
        cls, names: Iterable[str], sizes: Iterable[int], source: Flat, target: Flat, found: Iterable[int] = ()
    ) -> "EncodedChunk":
        """Create a chunk from names, numbers of sentences, and concatenated ids."""
        counts = np.array(list(sizes), np.int64)
        return cls(tuple(names), counts, source, target, frozenset(found))

    def documents(self) -> Iterator[tuple[str, Flat, Flat]]:
        """Yield name, source and target of each document, in the form for `StoreWriter.add_flat`."""
        bounds = [0, *np.cumsum(self.sizes).tolist()]
        both = self.source, self.target
        sides = [(side, [0, *np.cumsum(side.lengths, dtype=np.int64).tolist()]) for side in both]
        for name, low, high in zip(self.names, bounds, bounds[1:], strict=False):
            source, target = (
                Flat(side.tokens[ends[low] : ends[high]], side.lengths[low:high]) for side, ends in sides
            )
            yield name, source, target


def location_of(files: Sequence[Path], side: int, sentence: str) -> str:
    """Return file and line of a sentence, to begin a message; empty if there are no files."""
    if not files:
        return ""
    path = files[min(side, len(files) - 1)]
    # The file is searched again, because line numbers are needed only for messages.
    line = next((number for number, line in numbered_lines(path) if sentence in line), None)
    return f"{path}: " if line is None else f"{path}:{line}: "


class ChunkEncoder:
    """Encodes chunks of documents. `wanted`: hashes to look for; `files`: source files, for messages."""

    def __init__(self, tokenizer: Tokenizer, wanted: frozenset[int], files: tuple[Path, ...]) -> None:
        self._tokenizer = tokenizer
        self._wanted = wanted
        self._files = files

    @classmethod
    def opened(cls, folder: Path, wanted: frozenset[int], files: tuple[Path, ...]) -> "ChunkEncoder":
        """Load the tokenizer from a folder; called in each worker process."""
        return cls(load_tokenizer(folder), wanted, files)

    def __call__(self, documents: Sequence[ParallelDocument]) -> EncodedChunk:
        """Encode a chunk; raises CotextError with file and line if a sentence cannot be encoded."""
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
        """Return an error for the first sentence that cannot be encoded, or None if each can."""
        for document in documents:
            for side, sentences in zip(SIDES, (document.source, document.target), strict=True):
                for number, sentence in enumerate(sentences, 1):
                    try:
                        self._tokenizer.encode(sentence, side)
                    except Exception as error:  # tokenizer libraries raise various errors
                        where = location_of(self._files, SIDES.index(side), sentence)
                        return CotextError(
                            f"{where}document {document.id!r}, sentence {number}: cannot be encoded: {error}"
                        )
        return None
