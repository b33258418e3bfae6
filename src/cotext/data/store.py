"""A tokenised corpus on disk: an Arrow IPC file, one row per document, read through a memory map.

The columns are the document id and, for each side, the tokens of all sentences end to end and, in another
column, the length of each. Rows lie in record batches of bounded size; a last batch without rows carries the
totals and the row at which each batch ends, since both are known only after writing.
"""

import json
import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cotext.data.tokenizer import Tokenizer
from cotext.runtime.errors import CotextError
from cotext.runtime.reading import parse_json

FORMAT_VERSION = 1
MAX_BATCH_DOCUMENTS = 256
MAX_BATCH_TOKENS = 1_000_000
OPEN_BATCHES = 64

_COLUMNS = ("id", "source_tokens", "source_lengths", "target_tokens", "target_lengths")

Tokens = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class TokenDocument:
    """A tokenised document: one array of piece ids per sentence, read-only views of the file."""

    id: str
    index: int
    source: list[Tokens]
    target: list[Tokens]

    def without_empty_pairs(self) -> "TokenDocument":
        """The document as models read it: translation, too, leaves out sentences without a token."""
        kept = [(s, t) for s, t in zip(self.source, self.target, strict=True) if len(s) or len(t)]
        if len(kept) == len(self.source):
            return self
        return replace(self, source=[s for s, _ in kept], target=[t for _, t in kept])


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals of a store; the two sides have equally many sentences."""

    documents: int = 0
    sentences: int = 0
    source_tokens: int = 0
    target_tokens: int = 0


class StoreWriter:
    """Writes a store in bounded memory; the file appears, whole, when the `with` block ends without error."""

    def __init__(self, path: Path, tokenizer_fingerprint: str) -> None:
        """Open a temporary file beside `path`, whose folder must exist."""
        self._path = path
        self._partial = path.with_name(f"{path.name}.partial")
        list_type = pa.list_(pa.field("item", pa.int32(), nullable=False))
        types = (pa.string(), list_type, list_type, list_type, list_type)
        fields = [pa.field(name, kind, nullable=False) for name, kind in zip(_COLUMNS, types, strict=True)]
        metadata = {"cotext_store": str(FORMAT_VERSION), "tokenizer": tokenizer_fingerprint}
        self._schema = pa.schema(fields, metadata=metadata)
        self._writer = pa.ipc.new_file(str(self._partial), self._schema)
        self._rows: list[tuple[str, Tokens, Tokens, Tokens, Tokens]] = []
        self._pending_tokens = 0
        self._ends: list[int] = []
        self.totals = Totals()

    def add(self, document_id: str, source: Sequence[Sequence[int]], target: Sequence[Sequence[int]]) -> None:
        """Append a document, given as the piece ids of each sentence; a sentence may be empty.

        Raises CotextError when the sides differ in their number of sentences, or have none.
        """
        if len(source) != len(target) or not source:
            raise CotextError(
                f"document {document_id!r}: {len(source)} source and {len(target)} target sentences; a "
                "stored document needs at least one, and equally many on both sides"
            )
        source_tokens, source_lengths = _flatten(source)
        target_tokens, target_lengths = _flatten(target)
        self._rows.append((document_id, source_tokens, source_lengths, target_tokens, target_lengths))
        self._pending_tokens += len(source_tokens) + len(target_tokens)
        self.totals = Totals(
            self.totals.documents + 1,
            self.totals.sentences + len(source),
            self.totals.source_tokens + len(source_tokens),
            self.totals.target_tokens + len(target_tokens),
        )
        if len(self._rows) >= MAX_BATCH_DOCUMENTS or self._pending_tokens >= MAX_BATCH_TOKENS:
            self._write_batch()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error_type is None:
                self._write_batch()
                closing = {"totals": json.dumps(asdict(self.totals)), "ends": json.dumps(self._ends)}
                empty = pa.RecordBatch.from_pylist([], schema=self._schema)
                self._writer.write_batch(empty, custom_metadata=closing)
            self._writer.close()
            if error_type is None:
                os.replace(self._partial, self._path)
        finally:
            self._partial.unlink(missing_ok=True)

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
        """Map the file; raises CotextError when it is absent, damaged, no store, or of another version."""
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
            found = (
                f"a token store of format {version}" if version else "an Arrow file, but not a token store"
            )
            raise CotextError(
                f"{path}: {found}; this version reads format {FORMAT_VERSION}: prepare the corpus again"
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
        """Count the documents."""
        return self.totals.documents

    def __getitem__(self, index: int) -> TokenDocument:
        """Return a document; raises IndexError beyond the end."""
        batch, row = self._locate(index)
        try:
            return TokenDocument(batch.ids[row].as_py(), index, batch.source.row(row), batch.target.row(row))
        except (ValueError, pa.ArrowException) as error:
            raise self._damaged() from error

    def __iter__(self) -> Iterator[TokenDocument]:
        return (self[i] for i in range(len(self)))

    def lengths(self, index: int) -> tuple[Tokens, Tokens]:
        """Return the tokens per source and per target sentence, without touching the tokens."""
        batch, row = self._locate(index)
        return batch.source.lengths.row(row), batch.target.lengths.row(row)

    def require_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raise CotextError unless the store was made with this very tokenizer."""
        if self.tokenizer_fingerprint != tokenizer.fingerprint:
            raise CotextError(
                f"{self.path}: made with another tokenizer ({self.tokenizer_fingerprint[:12]}, not "
                f"{tokenizer.fingerprint[:12]}); use the tokenizer beside it, or prepare the corpus again"
            )

    def _locate(self, index: int) -> tuple["_Batch", int]:
        if not 0 <= index < len(self):
            raise IndexError(f"document {index} of {len(self)}")
        number = bisect_right(self._ends, index)
        first_row = self._ends[number - 1] if number else 0
        if number in self._batches:
            self._batches.move_to_end(number)
        else:
            try:
                batch = self._reader.get_batch(number)
                batch.validate(full=True)  # offsets within bounds: the views below trust them
                self._batches[number] = _Batch(batch)
            except (pa.ArrowException, OSError, KeyError, AttributeError) as error:
                raise self._damaged() from error
            if len(self._batches) > OPEN_BATCHES:
                self._batches.popitem(last=False)
        return self._batches[number], index - first_row

    def _is_consistent(self, batches: int) -> bool:
        """Whether a file of this size can hold the totals, and the batches add up to them."""
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


class _Lists:
    """A list column as numpy views."""

    def __init__(self, column: Any) -> None:
        self.offsets: Tokens = column.offsets.to_numpy()
        self.values: Tokens = column.values.to_numpy()

    def row(self, row: int) -> Tokens:
        return self.values[self.offsets[row] : self.offsets[row + 1]]


class _Side:
    def __init__(self, tokens: Any, lengths: Any) -> None:
        self.tokens = _Lists(tokens)
        self.lengths = _Lists(lengths)

    def row(self, row: int) -> list[Tokens]:
        tokens = self.tokens.row(row)
        ends = np.cumsum(self.lengths.row(row)).tolist()
        if not ends or ends[-1] != len(tokens):
            raise ValueError("sentence lengths and tokens disagree")
        return [tokens[start:end] for start, end in zip([0, *ends], ends, strict=False)]


class _Batch:
    def __init__(self, batch: Any) -> None:
        self.ids = batch.column("id")
        self.source = _Side(batch.column("source_tokens"), batch.column("source_lengths"))
        self.target = _Side(batch.column("target_tokens"), batch.column("target_lengths"))


def _flatten(sentences: Sequence[Sequence[int]]) -> tuple[Tokens, Tokens]:
    lengths = np.fromiter(map(len, sentences), np.int32, len(sentences))
    return np.fromiter(chain.from_iterable(sentences), np.int32, int(lengths.sum())), lengths


def _list_array(arrays: Sequence[Tokens]) -> Any:
    offsets = np.zeros(len(arrays) + 1, np.int32)
    np.cumsum([len(array) for array in arrays], out=offsets[1:])
    list_type = pa.list_(pa.field("item", pa.int32(), nullable=False))
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate(arrays)), type=list_type)
