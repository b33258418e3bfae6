"""The report of a prepared folder, which is written last, with statistics and overlaps of its splits."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from cotext.data.documents import Languages, ParallelDocument
from cotext.runtime import CotextError, read_json
from cotext.runtime.files import (
    Lock,
    checksum,
    crc32,
    digests,
    discard,
    is_occupied,
    replacing,
    require_whole,
    sweep,
    write_text,
    writing,
)

if TYPE_CHECKING:  # `cotext info` imports this module, and should not wait for the import of pyarrow
    from cotext.data.store import Flat


# --- Overlap of development and test sets with the training data.
#
# Scores on sentences that occur in the training data overestimate quality. Sentences are compared by hashes
# without case and white space. Short sentences ("Thank you.") recur by chance. So pairs are counted, too.


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


# --- Statistics of a corpus in one pass, in bounded memory.

PERCENTILES: Final = (50, 90, 99)
# A pair is an outlier if the longer side has at least OUTLIER_TOKENS, and more than OUTLIER_RATIO times the
# tokens of the other side.
OUTLIER_TOKENS: Final = 10
OUTLIER_RATIO: Final = 3

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
class SplitStatistics:
    """Statistics of one split; lengths are in tokens."""

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


class Histogram:
    """Histogram of natural numbers; numbers of at least `limit` share one bin, so that memory is bounded."""

    def __init__(self, limit: int = 1 << 20) -> None:
        self._limit = limit
        self._counts: Counts = np.zeros(64, np.int64)
        self._number = 0
        self.sum = 0
        self._maximum = 0

    def add(self, values: Counts) -> None:
        if not len(values):
            return
        self._number += len(values)
        self.sum += int(values.sum())
        self._maximum = max(self._maximum, int(values.max()))
        fresh = np.bincount(np.minimum(values, self._limit))
        if len(fresh) > len(self._counts):
            self._counts = np.pad(self._counts, (0, 2 * len(fresh) - len(self._counts)))
        self._counts[: len(fresh)] += fresh

    def distribution(self) -> Distribution:
        """Return the distribution of the numbers added so far; percentiles above the limit are the limit."""
        cumulative = np.cumsum(self._counts)
        ranks = {q: -(-q * self._number // 100) for q in PERCENTILES}
        return Distribution(
            {q: int(np.searchsorted(cumulative, max(rank, 1))) if rank else 0 for q, rank in ranks.items()},
            self._maximum,
            self.sum / max(self._number, 1),
        )


class StatisticsCollector:
    """A collector of the statistics of one split, chunk by chunk."""

    def __init__(self, unk: int) -> None:
        self._unk = unk
        self._sentence_tokens = Histogram(), Histogram()
        self._document_tokens = Histogram(), Histogram()
        self._document_sentences = Histogram()
        self._documents = 0
        self._empty = [0, 0]
        self._unknown = [0, 0]
        self._outliers = 0

    def add(self, sizes: Sequence[int], source_side: "Flat", target_side: "Flat") -> None:
        """Count documents with `sizes` sentences each (at least 1); their sides are concatenated."""
        counts = np.array(sizes, np.int64)
        starts = np.cumsum(counts) - counts
        self._documents += len(counts)
        self._document_sentences.add(counts)
        sides = source_side, target_side
        source, target = (side.lengths.astype(np.int64) for side in sides)
        for side, lengths in enumerate((source, target)):
            self._sentence_tokens[side].add(lengths)
            self._document_tokens[side].add(np.add.reduceat(lengths, starts))
            self._empty[side] += int((lengths == 0).sum())
            self._unknown[side] += int((sides[side].tokens == self._unk).sum())
        longer, shorter = np.maximum(source, target), np.minimum(source, target)
        self._outliers += int(((longer >= OUTLIER_TOKENS) & (longer > OUTLIER_RATIO * shorter)).sum())

    def statistics(self) -> SplitStatistics:
        sentences, unknown = self._document_sentences.sum, self._unknown
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
            unknown_token_rate=(unknown[0] / max(source_tokens, 1), unknown[1] / max(target_tokens, 1)),
            ratio_outliers=self._outliers,
        )


# --- The report: inputs, settings, and a digest of every file.

REPORT: Final = "report.json"
TRAIN: Final = "train.arrow"  # a token store
_CHECKSUM: Final = "crc32"  # the entry of the report with the checksum of all other entries


def write_report(folder: Path, content: Mapping[str, Any]) -> None:
    """Write report.json with a checksum. Its presence means that the folder is complete."""
    plain = json.loads(json.dumps(content))  # as it will be read back
    text = json.dumps({**plain, _CHECKSUM: _checksum(plain)}, indent=2, ensure_ascii=False)
    write_text(folder / REPORT, f"{text}\n")


def read_report(folder: Path) -> dict[str, Any]:
    """Return the content of report.json, or an empty dict if it does not exist.

    Raises CotextError if the report is damaged; also the errors of `read_json`.
    """
    path = folder / REPORT
    if not path.exists():
        return {}
    content = read_json(path)
    noted = content.pop(_CHECKSUM, None)
    if noted != _checksum(content) or not isinstance(content.get("files", {}), dict):
        raise CotextError(f"{path}: damaged: not as it was written; prepare the corpus again")
    return content


def _checksum(content: Mapping[str, Any]) -> str:
    return crc32(json.dumps(content, sort_keys=True))


def file_digests(folder: Path) -> dict[str, str]:
    """Return the digests of the files in a folder, except the report and hidden files."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return digests(folder, (p for p in files if p.name != REPORT and not p.name.startswith(".")))


def checked_digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Check files of a prepared folder and return their digests; names of files it never had are skipped.

    Raises CotextError if a file is missing or differs from the report. Without a report, nothing is checked.
    """
    noted = read_report(folder).get("files", {})
    names = [name for name in names if name in noted or (folder / name).is_file()]
    expected = {name: noted[name] for name in names if name in noted}
    require_whole(folder, expected, "prepare the corpus again")
    return {name: expected.get(name) or checksum(folder / name) for name in names}


@dataclass(frozen=True, slots=True)
class Report:
    """The content of report.json: the prepared data, their sources and settings.

    `inputs` and `files` are SHA-256 digests of the files that were read and written. `selected`: counts of
    `cotext.data.selection`.
    """

    cotext: str
    command: dict[str, Any]
    inputs: dict[str, str]
    languages: dict[str, str]
    tokenizer: dict[str, Any]
    splits: dict[str, SplitStatistics]
    notes: tuple[str, ...]
    files: dict[str, str]
    selected: dict[str, dict[str, Any]] = field(default_factory=dict)
    overlap: dict[str, Overlap] = field(default_factory=dict)

    @property
    def pair(self) -> Languages:
        """The language pair; empty if unknown."""
        return Languages(self.languages.get("source", ""), self.languages.get("target", ""))

    def render(self) -> str:
        """Return the statistics as a table with one column per split, and the notes."""
        columns = [
            [name, *(figure(split) for figure in _ROWS.values())] for name, split in self.splits.items()
        ]
        widths = [max(map(len, column)) + 2 for column in columns]
        lines = [
            f"{label:32}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
            for label, *cells in zip(["", *_ROWS], *columns, strict=True)
        ]
        lines.append(f"languages: {str(self.pair) or 'unknown (--source-language, --target-language)'}")
        lines.append(f"tokenizer: {self.tokenizer['kind']}, {self.tokenizer['pieces']} pieces")
        lines += [overlap.render(split) for split, overlap in self.overlap.items()]
        return "\n".join([*lines, *self.notes])


def report_of(content: dict[str, Any], path: Path) -> Report:
    """Validate the content of a report; unknown keys are ignored. `path` is used in messages.

    Raises CotextError if the content is not a report.
    """
    try:
        return TypeAdapter(Report).validate_python(content)
    except ValidationError:
        raise CotextError(f"{path}: damaged; prepare the corpus again, with --overwrite") from None


def _percentiles(distribution: Distribution) -> str:
    return "/".join(str(value) for value in (*distribution.percentiles.values(), distribution.maximum))


_ROWS: Final[dict[str, Callable[[SplitStatistics], str]]] = {
    "documents": lambda s: f"{s.documents:,}",
    "sentence pairs": lambda s: f"{s.sentences:,}",
    "source tokens": lambda s: f"{s.source_tokens:,}",
    "target tokens": lambda s: f"{s.target_tokens:,}",
    "tokens a sentence, mean": lambda s: f"{s.mean_sentence_tokens:.1f}",
    "source, 50/90/99 %, longest": lambda s: _percentiles(s.sentence_tokens.source),
    "target, 50/90/99 %, longest": lambda s: _percentiles(s.sentence_tokens.target),
    "sentences a document": lambda s: _percentiles(s.document_sentences),
    "source tokens a document": lambda s: _percentiles(s.document_tokens.source),
    "target tokens a document": lambda s: _percentiles(s.document_tokens.target),
    "empty, source/target": lambda s: "/".join(map(str, s.empty_sentences)),
    "unknown tokens, source/target": lambda s: "/".join(f"{rate:.2%}" for rate in s.unknown_token_rate),
    f"lengths differ more than {OUTLIER_RATIO} times": lambda s: f"{s.ratio_outliers:,}",
}


# --- Atomic replacement of a folder of prepared data.
#
#     .OUT.replaced/    the old folder OUT, until the new one is in place
#
# The process that prepares the data holds the lock of OUT. After an interruption, it begins again.


def prepared(
    out: Path,
    overwrite: bool,
    inputs: Sequence[Path],
    job: dict[str, Any],
    build: Callable[[Path], dict[str, Any]],
) -> dict[str, Any]:
    """Call `build` with a new folder, which it fills and which then becomes `out`; return its report.

    `job` contains everything that determines the content of the folder, under the keys of the report. If
    `out` is already the result of this job, nothing is done, unless `overwrite` is set. After an error, `out`
    is unchanged.

    Raises CotextError if `out` has other content (with `overwrite`: if it is not prepared data) or contains
    an input, if another process works on it, or if files cannot be written.
    """
    out = out.resolve()
    if out.exists() and not out.is_dir():
        raise CotextError(f"{out}: is a file; pass a folder to write to")
    inside = next((path for path in inputs if path.resolve().is_relative_to(out)), None)
    if inside is not None:
        raise CotextError(f"{inside}: is inside the folder to be replaced, {out}; choose another folder")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with writing(out) as lock:
            sweep(out, alone=True)
            _recover(out)
            if is_occupied(out):
                if not (out / REPORT).is_file():
                    raise CotextError(
                        f"{out}: is not a folder of prepared data and is not replaced; choose another folder"
                    )
                if not overwrite:
                    return _same(out, job)
            with replacing(out, put=lambda temporary, path: _put(temporary, path, lock)) as folder:
                folder.mkdir()
                return build(folder)
    except OSError as error:
        raise CotextError(f"{out}: cannot be written: {error.strerror or error}") from error


def _same(out: Path, job: dict[str, Any]) -> dict[str, Any]:
    """Return the report of an existing folder; raises CotextError unless it is the result of `job`."""
    report = read_report(out)
    tokenizer = {name: report.get("tokenizer", {}).get(name) for name in job["tokenizer"]}
    if "files" not in report or not job.items() <= {**report, "tokenizer": tokenizer}.items():
        raise CotextError(
            f"{out}: exists and is not empty; choose another --out (`prepare` replaces it with --overwrite)"
        )
    require_whole(out, report["files"], "prepare the corpus again, with --overwrite")
    return report


def _replaced(out: Path) -> Path:
    return out.with_name(f".{out.name}.replaced")


def _put(folder: Path, out: Path, lock: Lock) -> None:
    """Rename a finished folder to its final name."""
    lock.require()
    try:
        if (out / REPORT).is_file():  # only prepared data are replaced, not files written meanwhile
            os.replace(out, _replaced(out))
        os.replace(folder, out)
    finally:
        _recover(out)


def _recover(out: Path) -> None:
    """Complete or undo an interrupted `_put`: the old folder is deleted, or gets its name back."""
    old = _replaced(out)
    sweep(old)
    if old.is_dir():
        if is_occupied(out):
            discard(old)
        else:
            os.replace(old, out)
