"""Token stores: tokenised corpora on disk, as Arrow files that are read through a memory map.

A file has one row per document. The columns are the document id and, for each side, the concatenated tokens
of all sentences, and their lengths. Rows are stored in record batches of bounded size. The metadata of a last
batch without rows has the totals and the row at which each batch ends, because both are known only after
writing.

The report of a prepared folder (inputs, settings, a digest of every file) is written last.
"""

import json
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from cotext.data.documents import Languages
from cotext.data.overlap import Overlap
from cotext.data.statistics import OUTLIER_RATIO, Distribution, SplitStatistics
from cotext.data.tokenizer import Tokenizer
from cotext.runtime import CotextError
from cotext.runtime.files import checksum, crc32, digests, replacing, require_whole, write_text
from cotext.runtime.reading import parse_json, read_json

FORMAT_VERSION = 1
MAX_BATCH_DOCUMENTS = 256
MAX_BATCH_TOKENS = 1_000_000
OPEN_BATCHES = 64

_COLUMNS = ("id", "source_tokens", "source_lengths", "target_tokens", "target_lengths")

Tokens = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals of a store; both sides have the same number of sentences."""

    documents: int = 0
    sentences: int = 0
    source_tokens: int = 0
    target_tokens: int = 0

    def __add__(self, other: "Totals") -> "Totals":
        return Totals(
            self.documents + other.documents,
            self.sentences + other.sentences,
            self.source_tokens + other.source_tokens,
            self.target_tokens + other.target_tokens,
        )

    @property
    def tokens(self) -> int:
        return self.source_tokens + self.target_tokens


@dataclass(frozen=True, slots=True)
class Flat:
    """Concatenated token ids of several sentences, and the length of each."""

    tokens: Tokens
    lengths: Tokens

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]]) -> "Flat":
        lengths = np.fromiter(map(len, sentences), np.int32, len(sentences))
        return cls(np.fromiter(chain.from_iterable(sentences), np.int32, int(lengths.sum())), lengths)


@dataclass(frozen=True, slots=True)
class TokenDocument:
    """A tokenised document: one array of token ids per sentence, as read-only views of the file."""

    id: str
    index: int
    source: list[Tokens]
    target: list[Tokens]

    def without_empty_pairs(self) -> "TokenDocument":
        """Remove sentence pairs without tokens, which neither training nor translation uses."""
        pairs = enumerate(zip(self.source, self.target, strict=True))
        kept = [j for j, (source, target) in pairs if len(source) or len(target)]
        if len(kept) == len(self.source):
            return self
        source, target = ([side[j] for j in kept] for side in (self.source, self.target))
        return replace(self, source=source, target=target)


class StoreWriter:
    """A writer of a store, in bounded memory. The store appears when the `with` block ends without error."""

    def __init__(self, path: Path, tokenizer_fingerprint: str) -> None:
        """Prepare a temporary file next to `path`; the parent folder must exist."""
        list_type = pa.list_(pa.field("item", pa.int32(), nullable=False))
        types = (pa.string(), list_type, list_type, list_type, list_type)
        fields = [pa.field(name, kind, nullable=False) for name, kind in zip(_COLUMNS, types, strict=True)]
        metadata = {"cotext_store": str(FORMAT_VERSION), "tokenizer": tokenizer_fingerprint}
        self._path = path
        self._schema = pa.schema(fields, metadata=metadata)
        self._rows: list[tuple[str, Tokens, Tokens, Tokens, Tokens]] = []
        self._pending_tokens = 0
        self._ends: list[int] = []
        self.totals = Totals()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            temporary = stack.enter_context(replacing(self._path, pa.ArrowException))
            self._writer = pa.ipc.new_file(stack.enter_context(pa.OSFile(str(temporary), "wb")), self._schema)
            stack.enter_context(self._writer)
            self._open = stack.pop_all()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._open:  # closes the file, and replaces `path` or deletes the temporary file
            if error is not None:
                raise error
            self._write_batch()
            closing = {"totals": json.dumps(asdict(self.totals)), "ends": json.dumps(self._ends)}
            empty = pa.RecordBatch.from_pylist([], schema=self._schema)
            self._writer.write_batch(empty, custom_metadata=closing)

    def add(self, document_id: str, source: Sequence[Sequence[int]], target: Sequence[Sequence[int]]) -> None:
        """Append a document, given as the token ids of each sentence; sentences may be empty.

        Raises CotextError if the sides differ in their number of sentences, or have none.
        """
        self.add_flat(document_id, Flat.of(source), Flat.of(target))

    def add_flat(self, document_id: str, source: Flat, target: Flat) -> None:
        """Append a document with concatenated sides, as `add`."""
        sentences = len(source.lengths)
        if sentences != len(target.lengths) or not sentences:
            raise CotextError(
                f"document {document_id!r}: {sentences} source and {len(target.lengths)} target sentences; a "
                "stored document needs at least one, and equally many on both sides"
            )
        self._rows.append((document_id, source.tokens, source.lengths, target.tokens, target.lengths))
        added = Totals(1, sentences, len(source.tokens), len(target.tokens))
        self.totals += added
        self._pending_tokens += added.tokens
        if len(self._rows) >= MAX_BATCH_DOCUMENTS or self._pending_tokens >= MAX_BATCH_TOKENS:
            self._write_batch()

    def _write_batch(self) -> None:
        if not self._rows:
            return
        ids, *lists = zip(*self._rows, strict=True)
        columns = [pa.array(ids, pa.string()), *(_list_array(arrays) for arrays in lists)]
        self._writer.write_batch(pa.record_batch(columns, schema=self._schema))
        self._ends.append(self.totals.documents)
        self._rows.clear()
        self._pending_tokens = 0


class TokenStore:
    """Random access to the documents of a store, without reading the file into memory."""

    def __init__(self, path: Path) -> None:
        """Map the file; raises CotextError if it is missing, damaged, not a store, or of another version."""
        self.path = path
        if path.exists() and not path.is_file():
            raise CotextError(f"{path}: can't be read: no regular file")
        try:
            self._map = pa.memory_map(str(path), "r")
            self._reader = pa.ipc.open_file(self._map)
            metadata = self._reader.schema.metadata or {}
        except OSError as error:
            raise CotextError(f"{path}: can't be read: {error}") from error
        except pa.ArrowException as error:
            raise CotextError(f"{path}: not a token store, or cut off; prepare the corpus again") from error
        version = metadata.get(b"cotext_store", b"").decode(errors="replace")
        if version != str(FORMAT_VERSION):
            kind = f"a token store of format {version}" if version else "an Arrow file, but not a token store"
            raise CotextError(
                f"{path}: {kind}; this version reads format {FORMAT_VERSION}: prepare the corpus again"
            )
        try:
            self.tokenizer_fingerprint: str = metadata[b"tokenizer"].decode()
            last = self._reader.num_record_batches - 1
            closing = self._reader.get_batch_with_custom_metadata(last)[1]
            self.totals = Totals(**parse_json(closing[b"totals"].decode(), "its totals"))
            self._ends: list[int] = parse_json(closing[b"ends"].decode(), "its batches")
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError, CotextError) as error:
            raise self._damaged() from error
        if not self._is_consistent(last):
            raise self._damaged()
        self._batches: OrderedDict[int, _Batch] = OrderedDict()

    def __len__(self) -> int:
        return self.totals.documents

    def __getitem__(self, index: int) -> TokenDocument:
        """Return a document; raises IndexError beyond the end."""
        batch, row = self._locate(index)
        try:
            name = batch.ids[row].as_py()
            return TokenDocument(name, index, batch.sentences("source", row), batch.sentences("target", row))
        except (ValueError, pa.ArrowException) as error:
            raise self._damaged() from error

    def __iter__(self) -> Iterator[TokenDocument]:
        return (self[i] for i in range(len(self)))

    def lengths(self, index: int) -> tuple[Tokens, Tokens]:
        """Return the numbers of tokens of source and target sentences, without reading the tokens."""
        batch, row = self._locate(index)
        return batch.row("source_lengths", row), batch.row("target_lengths", row)

    def require_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raise CotextError unless the store was made with this tokenizer."""
        if self.tokenizer_fingerprint != tokenizer.fingerprint:
            raise CotextError(
                f"{self.path}: made with another tokenizer ({self.tokenizer_fingerprint[:12]}, not "
                f"{tokenizer.fingerprint[:12]}); use the tokenizer beside it, or prepare the corpus again"
            )

    def _locate(self, index: int) -> tuple["_Batch", int]:
        """Return the batch that contains a document, and its row there."""
        if not 0 <= index < len(self):
            raise IndexError(f"document {index} of {len(self)}")
        number = bisect_right(self._ends, index)
        first_row = self._ends[number - 1] if number else 0
        if number in self._batches:
            self._batches.move_to_end(number)
        else:
            try:
                batch = self._reader.get_batch(number)
                batch.validate(full=True)  # checks that offsets are within bounds
                self._batches[number] = _Batch(batch)
            except (pa.ArrowException, OSError, KeyError, AttributeError, ValueError) as error:
                raise self._damaged() from error
            if len(self._batches) > OPEN_BATCHES:
                self._batches.popitem(last=False)
        return self._batches[number], index - first_row

    def _is_consistent(self, batches: int) -> bool:
        """Return whether the totals are possible for the file size and equal the sums over the batches."""
        largest = self._map.size()
        totals = list(asdict(self.totals).values())
        if not isinstance(self._ends, list) or len(self._ends) != batches:
            return False
        numbers = [*totals, *self._ends]
        if not all(type(number) is int and 0 <= number <= largest for number in numbers):
            return False
        return self._ends == sorted(self._ends) and [0, *self._ends][-1] == self.totals.documents

    def _damaged(self) -> CotextError:
        return CotextError(f"{self.path}: the token store is damaged; prepare the corpus again")


class _Batch:
    """A record batch, whose list columns are numpy views."""

    def __init__(self, batch: Any) -> None:
        self.ids = batch.column("id")
        columns = {name: batch.column(name) for name in _COLUMNS[1:]}
        self._lists = {name: (c.offsets.to_numpy(), c.values.to_numpy()) for name, c in columns.items()}

    def row(self, name: str, row: int) -> Tokens:
        offsets, values = self._lists[name]
        tokens: Tokens = values[offsets[row] : offsets[row + 1]]
        return tokens

    def sentences(self, side: str, row: int) -> list[Tokens]:
        tokens = self.row(f"{side}_tokens", row)
        ends = np.cumsum(self.row(f"{side}_lengths", row)).tolist()
        if not ends or ends[-1] != len(tokens):
            raise ValueError("sentence lengths and tokens disagree")
        return [tokens[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _list_array(arrays: Sequence[Tokens]) -> Any:
    offsets = np.zeros(len(arrays) + 1, np.int32)
    np.cumsum([len(array) for array in arrays], out=offsets[1:])
    list_type = pa.list_(pa.field("item", pa.int32(), nullable=False))
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate(arrays)), type=list_type)


REPORT: Final = "report.json"
TRAIN: Final = "train.arrow"  # a token store
_CHECKSUM: Final = "crc32"  # the entry of the report with the checksum of all others


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
    """Check files of a prepared folder and return their digests; files that never existed are skipped.

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

    Raises CotextError if it is not a report.
    """
    try:
        return TypeAdapter(Report).validate_python(content)
    except ValidationError:
        raise CotextError(f"{path}: damaged; prepare it again, with --overwrite") from None


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
