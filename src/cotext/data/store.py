"""Token stores: tokenised corpora on disk, in one Arrow file or in a folder of shards with a manifest.

Readers access documents by number, independently of the files.
"""

import json
import os
import re
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, chain
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter, ValidationError

from cotext.data.prepared import MANIFEST
from cotext.data.tokenizer import Tokenizer
from cotext.runtime.errors import CotextError
from cotext.runtime.files import checksum, remove, replacing
from cotext.runtime.integrity import sealed, unsealed
from cotext.runtime.reading import parse_json, read_text

# --- One file of a token store: Arrow IPC, one row per document, read through a memory map.
#
# The columns are the document id and, for each side, the concatenated tokens of all sentences, and their
# lengths. Rows are stored in record batches of bounded size. The metadata of a last batch without rows has
# the totals and the row at which each batch ends, because both are known only after writing.

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


class FileWriter:
    """A writer of one file of a store, in bounded memory; `close` completes the file."""

    def __init__(self, path: Path, tokenizer_fingerprint: str) -> None:
        list_type = pa.list_(pa.field("item", pa.int32(), nullable=False))
        types = (pa.string(), list_type, list_type, list_type, list_type)
        fields = [pa.field(name, kind, nullable=False) for name, kind in zip(_COLUMNS, types, strict=True)]
        metadata = {"cotext_store": str(FORMAT_VERSION), "tokenizer": tokenizer_fingerprint}
        self._schema = pa.schema(fields, metadata=metadata)
        self._file = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._file, self._schema)
        self._rows: list[tuple[str, Tokens, Tokens, Tokens, Tokens]] = []
        self._pending_tokens = 0
        self._ends: list[int] = []
        self.path = path
        self.totals = Totals()

    def add(self, document_id: str, source: Flat, target: Flat) -> None:
        self._rows.append((document_id, source.tokens, source.lengths, target.tokens, target.lengths))
        added = Totals(1, len(source.lengths), len(source.tokens), len(target.tokens))
        self.totals += added
        self._pending_tokens += added.tokens
        if len(self._rows) >= MAX_BATCH_DOCUMENTS or self._pending_tokens >= MAX_BATCH_TOKENS:
            self._write_batch()

    def close(self) -> None:
        """Write pending documents, the totals and the end of the file."""
        self._write_batch()
        closing = {"totals": json.dumps(asdict(self.totals)), "ends": json.dumps(self._ends)}
        empty = pa.RecordBatch.from_pylist([], schema=self._schema)
        self._writer.write_batch(empty, custom_metadata=closing)
        self.abandon()

    def abandon(self) -> None:
        """Close the incomplete file after an error."""
        self._writer.close()
        self._file.close()  # which its writer leaves open

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
            raise damaged(path) from error
        if not self._is_consistent(last):
            raise damaged(path)
        self._batches: OrderedDict[int, _Batch] = OrderedDict()

    def document(self, index: int) -> tuple[str, list[Tokens], list[Tokens]]:
        """Return the id of a document and the sentences of each side, as read-only views of the file."""
        batch, row = self._locate(index)
        try:
            return batch.ids[row].as_py(), batch.sentences("source", row), batch.sentences("target", row)
        except (ValueError, pa.ArrowException) as error:
            raise damaged(self.path) from error

    def lengths(self, index: int) -> tuple[Tokens, Tokens]:
        """Return the numbers of tokens of source and target sentences, without reading the tokens."""
        batch, row = self._locate(index)
        return batch.row("source_lengths", row), batch.row("target_lengths", row)

    def id(self, index: int) -> str:
        """Return the id of a document, without reading its tokens."""
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
                batch.validate(full=True)  # checks that offsets are within bounds
                self._batches[number] = _Batch(batch)
            except (pa.ArrowException, OSError, KeyError, AttributeError, ValueError) as error:
                raise damaged(self.path) from error
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


def damaged(path: Path) -> CotextError:
    return CotextError(f"{path}: the token store is damaged; prepare the corpus again")


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


# --- The manifest of a sharded store: the shards in order, each with its size and digest.
#
# train.arrow/manifest.json     written last; its presence means that the store is complete
# train.arrow/00000.arrow       the first shard, a file as described above
# train.arrow/00001.arrow       ...

MANIFEST_VERSION: Final = 1
MAX_MANIFEST_BYTES: Final = 1 << 26  # about 200,000 shards
_NAME = re.compile(r"[0-9]{5,9}\.arrow")

Count = Annotated[int, Field(ge=0, lt=2**50)]


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of a store: its name in the folder, size in bytes, SHA-256, and totals."""

    name: str
    bytes: Count
    sha256: str
    documents: Count
    sentences: Count
    source_tokens: Count
    target_tokens: Count

    @property
    def totals(self) -> Totals:
        return Totals(self.documents, self.sentences, self.source_tokens, self.target_tokens)

    @classmethod
    def of(cls, path: Path, totals: Totals) -> "Shard":
        """Describe a finished file, with its digest."""
        return cls(path.name, path.stat().st_size, checksum(path), **asdict(totals))


@dataclass(frozen=True, slots=True)
class Manifest:
    """The shards of a store, in order; `tokenizer`: the fingerprint of their tokenizer."""

    version: int
    tokenizer: str
    shards: tuple[Shard, ...]


def shard_name(number: int) -> str:
    """Return the file name of shard `number`, from 0."""
    return f"{number:05}.arrow"


def write_manifest(folder: Path, tokenizer_fingerprint: str, shards: tuple[Shard, ...]) -> None:
    content = asdict(Manifest(MANIFEST_VERSION, tokenizer_fingerprint, shards))
    with replacing(folder / MANIFEST) as temporary:
        temporary.write_text(f"{sealed(content)}\n", encoding="utf-8")


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder; raises CotextError if it is missing, damaged, or of another version."""
    path = folder / MANIFEST
    if not path.exists():
        raise CotextError(f"{folder}: not a token store: has no {MANIFEST}; prepare the corpus again")
    try:
        content = unsealed(read_text(path, MAX_MANIFEST_BYTES))
    except ValueError:
        raise damaged(path) from None
    if content.get("version") != MANIFEST_VERSION:
        raise CotextError(
            f"{path}: not of format {MANIFEST_VERSION}, which this version reads; prepare the corpus again"
        )
    try:
        manifest = TypeAdapter(Manifest).validate_python(content)
    except ValidationError:
        raise damaged(path) from None
    names = [shard.name for shard in manifest.shards]
    if not names or len(set(names)) < len(names) or not all(map(_NAME.fullmatch, names)):
        raise damaged(path)
    return manifest


def require_shard(path: Path, shard: Shard) -> None:
    """Check a shard against its size and digest.

    Raises:
        CotextError: it is missing, cannot be read, or differs from the manifest.
    """
    try:
        whole = path.stat().st_size == shard.bytes and checksum(path) == shard.sha256
    except OSError as error:
        raise CotextError(f"{path}: can't be read: {error.strerror or error}") from None
    if not whole:
        raise CotextError(
            f"{path}: not the shard that {MANIFEST} beside it describes; prepare the corpus again"
        )


MAX_SHARD_TOKENS: Final = 1 << 26  # of both sides: 256 MiB
OPEN_SHARDS: Final = 64


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
    """A writer of a store, in bounded memory. The store appears when the `with` block ends without error.

    A corpus of more than `MAX_SHARD_TOKENS` becomes a folder of shards; a smaller corpus becomes a file.
    """

    def __init__(self, path: Path, tokenizer_fingerprint: str) -> None:
        """Create a temporary folder next to `path`; the parent folder must exist."""
        self._path = path
        self._fingerprint = tokenizer_fingerprint
        self._partial = path.with_name(f"{path.name}.partial")
        remove(self._partial)  # of a process that was killed
        self._partial.mkdir()
        self._shards: list[Shard] = []
        self._file: FileWriter | None = None
        self.totals = Totals()

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
        if self._file is not None and self._file.totals.tokens >= MAX_SHARD_TOKENS:
            self._end_shard()
        if self._file is None:
            self._file = FileWriter(self._partial / shard_name(len(self._shards)), self._fingerprint)
        self._file.add(document_id, source, target)
        self.totals += Totals(1, sentences, len(source.tokens), len(target.tokens))

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
                self._finish()
            elif self._file is not None:
                self._file.abandon()
        finally:
            remove(self._partial)

    def _finish(self) -> None:
        if self._file is None and not self._shards:  # a store without documents
            self._file = FileWriter(self._partial / shard_name(0), self._fingerprint)
        if not self._shards and self._file is not None:
            self._file.close()
            made = self._file.path
        else:
            self._end_shard()
            write_manifest(self._partial, self._fingerprint, tuple(self._shards))
            made = self._partial
        if self._path.is_dir() or made.is_dir():
            remove(self._path)  # a rename cannot replace a folder by a file, or replace a non-empty folder
        os.replace(made, self._path)

    def _end_shard(self) -> None:
        if self._file is not None:
            self._file.close()
            self._shards.append(Shard.of(self._file.path, self._file.totals))
            self._file = None


class TokenStore:
    """Random access to the documents of a store, in bounded memory.

    A shard is compared with its digest in the manifest when it is first read.
    """

    def __init__(self, path: Path) -> None:
        """Open a file or a folder; raises CotextError if it is missing, damaged, or of another version."""
        self.path = path
        self._files: OrderedDict[int, StoreFile] = OrderedDict()
        self._checked: set[int] = set()
        if path.is_dir():
            manifest = read_manifest(path)
            self.tokenizer_fingerprint = manifest.tokenizer
            self.shards = manifest.shards
        else:
            file = self._files[0] = StoreFile(path)
            self.tokenizer_fingerprint = file.tokenizer_fingerprint
            # The digest of a single file is in the report of the folder, and is checked there.
            self.shards = (Shard(path.name, path.stat().st_size, "", **asdict(file.totals)),)
        self._ends = list(accumulate(shard.documents for shard in self.shards))
        self.totals = sum((shard.totals for shard in self.shards), Totals())

    def __len__(self) -> int:
        return self.totals.documents

    def __getitem__(self, index: int) -> TokenDocument:
        """Return a document; raises IndexError beyond the end."""
        file, row = self._locate(index)
        name, source, target = file.document(row)
        return TokenDocument(name, index, source, target)

    def __iter__(self) -> Iterator[TokenDocument]:
        return (self[i] for i in range(len(self)))

    def lengths(self, index: int) -> tuple[Tokens, Tokens]:
        """Return the numbers of tokens of source and target sentences, without reading the tokens."""
        file, row = self._locate(index)
        return file.lengths(row)

    def id(self, index: int) -> str:
        """Return the id of a document, without reading its tokens."""
        file, row = self._locate(index)
        return file.id(row)

    def ranges(self) -> list[range]:
        return [range(end - shard.documents, end) for shard, end in zip(self.shards, self._ends, strict=True)]

    def require_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raise CotextError unless the store was made with this tokenizer."""
        if self.tokenizer_fingerprint != tokenizer.fingerprint:
            raise CotextError(
                f"{self.path}: made with another tokenizer ({self.tokenizer_fingerprint[:12]}, not "
                f"{tokenizer.fingerprint[:12]}); use the tokenizer beside it, or prepare the corpus again"
            )

    def _locate(self, index: int) -> tuple[StoreFile, int]:
        """Return the file that contains a document, and its row there."""
        if not 0 <= index < len(self):
            raise IndexError(f"document {index} of {len(self)}")
        number = bisect_right(self._ends, index)
        return self._file(number), index - (self._ends[number - 1] if number else 0)

    def _file(self, number: int) -> StoreFile:
        if number in self._files:
            self._files.move_to_end(number)
            return self._files[number]
        shard = self.shards[number]
        path = self.path / shard.name
        if number not in self._checked:
            require_shard(path, shard)
            self._checked.add(number)
        file = StoreFile(path)
        if (file.tokenizer_fingerprint, file.totals) != (self.tokenizer_fingerprint, shard.totals):
            raise damaged(path)
        self._files[number] = file
        if len(self._files) > OPEN_SHARDS:
            self._files.popitem(last=False)
        return file
