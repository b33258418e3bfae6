"""One file of a token store: Arrow IPC, one row per document, read through a memory map.

The columns are the document id and, for each side, the tokens of all sentences end to end and, in another
column, the length of each. Rows lie in record batches of bounded size; a last batch without rows carries the
totals and the row at which each batch ends, since both are known only after writing.
"""

import json
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cotext.runtime.errors import CotextError
from cotext.runtime.reading import parse_json

FORMAT_VERSION = 1
MAX_BATCH_DOCUMENTS = 256
MAX_BATCH_TOKENS = 1_000_000
OPEN_BATCHES = 64

_COLUMNS = ("id", "source_tokens", "source_lengths", "target_tokens", "target_lengths")

Tokens = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals of documents in a store; the two sides have equally many sentences."""

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
        """The tokens of both sides."""
        return self.source_tokens + self.target_tokens


@dataclass(frozen=True, slots=True)
class Flat:
    """The piece ids of the sentences of a text, end to end, and the length of each."""

    tokens: Tokens
    lengths: Tokens

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]]) -> "Flat":
        """Sentences of ids, laid end to end."""
        lengths = np.fromiter(map(len, sentences), np.int32, len(sentences))
        return cls(np.fromiter(chain.from_iterable(sentences), np.int32, int(lengths.sum())), lengths)


class FileWriter:
    """Writes one file of a store in bounded memory; `close` makes it whole."""

    def __init__(self, path: Path, tokenizer_fingerprint: str) -> None:
        list_type = pa.list_(pa.field("item", pa.int32(), nullable=False))
        types = (pa.string(), list_type, list_type, list_type, list_type)
        fields = [pa.field(name, kind, nullable=False) for name, kind in zip(_COLUMNS, types, strict=True)]
        metadata = {"cotext_store": str(FORMAT_VERSION), "tokenizer": tokenizer_fingerprint}
        self._schema = pa.schema(fields, metadata=metadata)
        self._writer = pa.ipc.new_file(str(path), self._schema)
        self._rows: list[tuple[str, Tokens, Tokens, Tokens, Tokens]] = []
        self._pending_tokens = 0
        self._ends: list[int] = []
        self.path = path
        self.totals = Totals()

    def add(self, document_id: str, source: Flat, target: Flat) -> None:
        """Append a document."""
        self._rows.append((document_id, source.tokens, source.lengths, target.tokens, target.lengths))
        added = Totals(1, len(source.lengths), len(source.tokens), len(target.tokens))
        self.totals += added
        self._pending_tokens += added.tokens
        if len(self._rows) >= MAX_BATCH_DOCUMENTS or self._pending_tokens >= MAX_BATCH_TOKENS:
            self._write_batch()

    def close(self) -> None:
        """Write what is pending, the totals and the end."""
        self._write_batch()
        closing = {"totals": json.dumps(asdict(self.totals)), "ends": json.dumps(self._ends)}
        empty = pa.RecordBatch.from_pylist([], schema=self._schema)
        self._writer.write_batch(empty, custom_metadata=closing)
        self._writer.close()

    def abandon(self) -> None:
        """Close the file as it is, which nobody will read."""
        self._writer.close()

    def _write_batch(self) -> None:
        if not self._rows:
            return
        ids, *lists = zip(*self._rows, strict=True)
        columns = [pa.array(ids, pa.string()), *(_list_array(arrays) for arrays in lists)]
        self._writer.write_batch(pa.record_batch(columns, schema=self._schema))
        self._ends.append(self.totals.documents)
        self._rows.clear()
        self._pending_tokens = 0


class StoreFile:
    """Random access to the documents of one file, without reading it into memory."""

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
            raise damaged(path) from error
        if not self._is_consistent(last):
            raise damaged(path)
        self._batches: OrderedDict[int, _Batch] = OrderedDict()

    def document(self, index: int) -> tuple[str, list[Tokens], list[Tokens]]:
        """The id of a document and, for each side, its sentences, read-only views of the file."""
        batch, row = self._locate(index)
        try:
            return batch.ids[row].as_py(), batch.source.row(row), batch.target.row(row)
        except (ValueError, pa.ArrowException) as error:
            raise damaged(self.path) from error

    def lengths(self, index: int) -> tuple[Tokens, Tokens]:
        """The tokens per source and per target sentence, without touching the tokens."""
        batch, row = self._locate(index)
        return batch.source.lengths.row(row), batch.target.lengths.row(row)

    def id(self, index: int) -> str:
        """The id of a document, without touching its tokens."""
        batch, row = self._locate(index)
        name: str = batch.ids[row].as_py()
        return name

    def _locate(self, index: int) -> tuple["_Batch", int]:
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
                raise damaged(self.path) from error
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


def damaged(path: Path) -> CotextError:
    """The error of a store that is not as it was written."""
    return CotextError(f"{path}: the token store is damaged; prepare the corpus again")


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


def _list_array(arrays: Sequence[Tokens]) -> Any:
    offsets = np.zeros(len(arrays) + 1, np.int32)
    np.cumsum([len(array) for array in arrays], out=offsets[1:])
    list_type = pa.list_(pa.field("item", pa.int32(), nullable=False))
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate(arrays)), type=list_type)
