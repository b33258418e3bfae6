"""Chunks of documents encoded: ids, and what the statistics of a corpus need to know of them."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotext.data.documents import ParallelDocument
from cotext.data.formats.streams import numbered_lines
from cotext.data.store import Flat
from cotext.data.tokenizer import Side, Tokenizer, load_tokenizer
from cotext.runtime.errors import CotextError

if TYPE_CHECKING:  # `cotext info` reads no store, and need not wait for its library
    
# --- Overlap of development and test sets with the training data.
#
# A system has seen their translations: scores on them say less. Compared are hashes of sentences without
# case and white space; short ones ("Thank you.") come again by chance, so that pairs are counted too.


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


# --- Statistics of a corpus in one pass, in bounded memory.

PERCENTILES: Final = (50, 90, 99)
# A pair is an outlier when its longer side has at least so many tokens and so many times those of the other.
OUTLIER_TOKENS: Final = 10
OUTLIER_RATIO: Final = 3
RATIO_EXAMPLES: Final = 5

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Distribution:
    """Percentiles (nearest rank), maximum and mean of a count."""

    percentiles: dict[int, int]
    maximum: int
    mean: float


@dataclass(frozen=True, slots=True)
class BothSides:
    """A distribution for each side."""

    source: Distribution
    target: Distribution


@dataclass(frozen=True, slots=True)
class RatioExample:
    """A sentence pair whose lengths hardly fit; `sentence` counts from 1."""

    document: str
    sentence: int
    source_tokens: int
    target_tokens: int


@dataclass(frozen=True, slots=True)
class SplitStatistics:
    """The figures of one split; lengths in tokens unless named otherwise.

    `duplicate_pairs`: pairs whose tokens an earlier pair has, by a Bloom filter: each new pair is wrongly
    counted as a duplicate with a probability of at most `duplicate_false_positive_rate`.
    """

    documents: int
    sentences: int
    source_tokens: int
    target_tokens: int
    mean_sentence_tokens: float
    sentence_tokens: BothSides
    document_tokens: BothSides
    document_sentences: Distribution
    empty_sentences: tuple[int, int]
    unknown_token_rate: tuple[float, float]
    ratio_outliers: int
    ratio_examples: tuple[RatioExample, ...]
    duplicate_pairs: int
    duplicate_false_positive_rate: float


class Histogram:
    """Counts of natural numbers; those from `limit` on share a bin, so that memory is bounded."""

    def __init__(self, limit: int = 1 << 20) -> None:
        self._limit = limit
        self._counts: Counts = np.zeros(64, np.int64)
        self._number = 0
        self._sum = 0
        self._maximum = 0

    def add(self, values: Counts) -> None:
        """Count the values."""
        if not len(values):
            return
        self._number += len(values)
        self._sum += int(values.sum())
        self._maximum = max(self._maximum, int(values.max()))
        fresh = np.bincount(np.minimum(values, self._limit))
        if len(fresh) > len(self._counts):
            self._counts = np.pad(self._counts, (0, 2 * len(fresh) - len(self._counts)))
        self._counts[: len(fresh)] += fresh

    @property
    def sum(self) -> int:
        """Return the sum of all values."""
        return self._sum

    def distribution(self) -> Distribution:
        """Return the percentiles so far; those beyond the limit are the limit."""
        cumulative = np.cumsum(self._counts)
        ranks = {q: -(-q * self._number // 100) for q in PERCENTILES}
        return Distribution(
            {q: int(np.searchsorted(cumulative, max(rank, 1))) if rank else 0 for q, rank in ranks.items()},
            self._maximum,
            self._sum / max(self._number, 1),
        )


class SeenPairs:
    """A Bloom filter (Bloom 1970) over sentence pairs: 32 MiB, four bits a pair."""

    def __init__(self, bits_log2: int = 28, hashes: int = 4) -> None:
        self._mask = np.uint64((1 << bits_log2) - 1)
        self._bits: NDArray[np.uint8] = np.zeros(1 << (bits_log2 - 3), np.uint8)
        self._steps = np.arange(hashes, dtype=np.uint64)[:, None]

    def add(self, digests: bytes) -> int:
        """Remember pairs by digests of 16 bytes; return how many were there, or came before in this call."""
        each = [digests[at : at + 16] for at in range(0, len(digests), 16)]
        unique = dict.fromkeys(each)
        return int(self._remember(unique).sum()) + len(each) - len(unique)

    def add_each(self, pairs: Iterable[tuple[str, str]]) -> list[bool]:
        """Remember the pairs; return of each whether it was there before this call."""
        digests = [_digest(pair) for pair in pairs]
        return [bool(known) for known in self._remember(digests)] if digests else []

    def _remember(self, digests: Iterable[bytes]) -> NDArray[np.bool_]:
        """Whether each digest was there before, by a filter that then holds them all."""
        words = np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2)
        # Two hashes make as many as needed (Kirsch and Mitzenmacher 2006).
        slots = (words[:, 0] + self._steps * words[:, 1]) & self._mask
        byte, bit = slots >> np.uint64(3), (1 << (slots & np.uint64(7))).astype(np.uint8)
        known: NDArray[np.bool_] = (self._bits[byte] & bit).astype(bool).all(axis=0)
        np.bitwise_or.at(self._bits, byte, bit)
        return known

    def false_positive_rate(self) -> float:
        """Return the probability that a new pair would now be taken for a known one."""
        # In pieces: the counts of the whole would take as much memory again.
        ones = sum(int(np.bitwise_count(piece).sum()) for piece in np.array_split(self._bits, 64))
        return float((ones / (8 * len(self._bits))) ** len(self._steps))


def _digest(pair: tuple[str, str]) -> bytes:
    return hashlib.blake2b(f"{pair[0]}\0{pair[1]}".encode(), digest_size=16).digest()


class StatisticsCollector:
    """Gathers the figures of one split, chunk by chunk."""

    def __init__(self, unk: int) -> None:
        self._unk = unk
        self._sentence_tokens = Histogram(), Histogram()
        self._document_tokens = Histogram(), Histogram()
        self._document_sentences = Histogram()
        self._documents = 0
        self._empty = [0, 0]
        self._unknown = [0, 0]
        self._outliers = 0
        self._examples: list[RatioExample] = []
        self._seen = SeenPairs()
        self._duplicates = 0

    def add(self, chunk: "EncodedChunk") -> None:
        """Count the documents of a chunk, none of which may be without a sentence."""
        starts = np.cumsum(chunk.sizes) - chunk.sizes
        self._documents += len(chunk.sizes)
        self._document_sentences.add(chunk.sizes)
        sides = chunk.source, chunk.target
        source, target = (side.lengths.astype(np.int64) for side in sides)
        for side, lengths in enumerate((source, target)):
            self._sentence_tokens[side].add(lengths)
            self._document_tokens[side].add(np.add.reduceat(lengths, starts))
            self._empty[side] += int((lengths == 0).sum())
            self._unknown[side] += int((sides[side].tokens == self._unk).sum())
        self._add_outliers(chunk.names, starts, source, target)
        self._duplicates += self._seen.add(chunk.digests)

    def _add_outliers(self, names: tuple[str, ...], starts: Counts, source: Counts, target: Counts) -> None:
        longer, shorter = np.maximum(source, target), np.minimum(source, target)
        outliers = np.flatnonzero((longer >= OUTLIER_TOKENS) & (longer > OUTLIER_RATIO * shorter))
        self._outliers += len(outliers)
        for at in outliers[: RATIO_EXAMPLES - len(self._examples)].tolist():
            number = int(np.searchsorted(starts, at, "right")) - 1
            sentence = at - int(starts[number]) + 1
            example = RatioExample(names[number], sentence, int(source[at]), int(target[at]))
            self._examples.append(example)

    def statistics(self) -> SplitStatistics:
        """Return the figures so far."""
        sentences = self._document_sentences.sum
        source_tokens, target_tokens = (histogram.sum for histogram in self._sentence_tokens)
        return SplitStatistics(
            documents=self._documents,
            sentences=sentences,
            source_tokens=source_tokens,
            target_tokens=target_tokens,
            mean_sentence_tokens=(source_tokens + target_tokens) / max(2 * sentences, 1),
            sentence_tokens=BothSides(*(histogram.distribution() for histogram in self._sentence_tokens)),
            document_tokens=BothSides(*(histogram.distribution() for histogram in self._document_tokens)),
            document_sentences=self._document_sentences.distribution(),
            empty_sentences=(self._empty[0], self._empty[1]),
            unknown_token_rate=(
                self._unknown[0] / max(source_tokens, 1),
                self._unknown[1] / max(target_tokens, 1),
            ),
            ratio_outliers=self._outliers,
            ratio_examples=tuple(self._examples),
            duplicate_pairs=self._duplicates,
            duplicate_false_positive_rate=self._seen.false_positive_rate(),
        )
