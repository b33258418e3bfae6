"""Token stores: tokenised corpora on disk, as Arrow files that are read through a memory map.

A file has one row per document. The columns are the document id and, for each side, the concatenated tokens
of all sentences, and their lengths. Rows are stored in record batches of bounded size. A last batch has no
rows; its metadata has the totals and the row at which each batch ends, which are known only after writing.
"""

import json
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, replace
from itertools import chain
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cotext.data.documents import ParallelDocument
from cotext.data.tokenizer import Tokenizer
from cotext.runtime import CotextError, parse_json
from cotext.runtime.files import replacing

FORMAT_VERSION = 1
MAX_BATCH_DOCUMENTS = 256
MAX_BATCH_TOKENS = 1_000_000
OPEN_BATCHES = 64

_COLUMNS = ("source_tokens", "source_lengths", "target_tokens", "target_lengths")  # besides the id

Tokens = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals of a store; both sides have the same number of sentences."""

    documents: int = 0
    sentences: int = 0
    source_tokens: int = 0
    target_tokens: int = 0

    def __add__(self, other: "Totals") -> "Totals":
        return Totals(*map(add, astuple(self), astuple(other)))

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

    def decoded(self, tokenizer: Tokenizer) -> ParallelDocument:
        """Return the document as text."""
        source = tuple(tokenizer.decode(tokens.tolist(), "source") for tokens in self.source)
        target = tuple(tokenizer.decode(tokens.tolist(), "target") for tokens in self.target)
        return ParallelDocument(self.id, source, target)


@contextmanager
def store_writer(path: Path, tokenizer_fingerprint: str) -> Iterator["StoreWriter"]:
    """Write a store, in bounded memory. It appears when the `with` block ends without error.

    The parent folder must exist.
    """
    ids = pa.field("id", pa.string(), nullable=False)
    of_ints = pa.list_(pa.field("item", pa.int32(), nullable=False))
    lists = [pa.field(name, of_ints, nullable=False) for name in _COLUMNS]
    metadata = {"cotext_store": str(FORMAT_VERSION), "tokenizer": tokenizer_fingerprint}
    schema = pa.schema([ids, *lists], metadata=metadata)
    with (
        replacing(path, pa.ArrowException) as temporary,
        pa.OSFile(str(temporary), "wb") as file,
        pa.ipc.new_file(file, schema) as stream,
    ):
        writer = StoreWriter(stream, schema)
        yield writer
        writer.finish()


class StoreWriter:
    """Writes documents to an open store; see `store_writer`."""

    def __init__(self, stream: Any, schema: Any) -> None:
        self._stream, self._schema = stream, schema
        self._rows: list[tuple[str, Tokens, Tokens, Tokens, Tokens]] = []
        self._pending_tokens = 0
        self._ends: list[int] = []
        self.totals = Totals()

    def finish(self) -> None:
        """Write the remaining documents and the totals."""
        self._write_batch()
        closing = {"totals": json.dumps(asdict(self.totals)), "ends": json.dumps(self._ends)}
        empty = pa.RecordBatch.from_pylist([], schema=self._schema)
        self._stream.write_batch(empty, custom_metadata=closing)

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
                "stored document needs at least one, and the same number on both sides"
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
        columns = zip(self._schema, zip(*self._rows, strict=True), strict=True)
        arrays = [pa.array(values, field.type) for field, values in columns]
        self._stream.write_batch(pa.record_batch(arrays, schema=self._schema))
        self._ends.append(self.totals.documents)
        self._rows.clear()
        self._pending_tokens = 0


class TokenStore:
    """Random access to the documents of a store, without reading the file into memory."""

    def __init__(self, path: Path) -> None:
        """Map the file; raises CotextError if it is missing, damaged, not a store, or of another version."""
        self.path = path
        if path.exists() and not path.is_file():
            raise CotextError(f"{path}: can't be read: not a regular file")
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
                f"{tokenizer.fingerprint[:12]}); use the tokenizer next to it, or prepare the corpus again"
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
        """Return whether all numbers are possible for the file size, and batches end at the last document."""
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
        columns = {name: batch.column(name) for name in _COLUMNS}
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
