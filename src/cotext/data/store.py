"""A tokenised corpus on disk: one Arrow file or, of a large corpus, a folder of such files with a manifest.

Whoever reads sees documents, numbered through all files: see `store_file.py` for what a file holds, and
`store_manifest.py` for the folder.
"""

import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cotext.data.store_file import FileWriter, Flat, StoreFile, Tokens, Totals, damaged
from cotext.data.store_manifest import (
    Shard,
    ends_of,
    read_manifest,
    require_shard,
    shard_name,
    write_manifest,
)
from cotext.data.tokenizer import Tokenizer
from cotext.runtime.errors import CotextError
from cotext.runtime.files import remove

MAX_SHARD_TOKENS: Final = 1 << 26  # of both sides: 256 MiB
OPEN_SHARDS: Final = 64


@dataclass(frozen=True, slots=True)
class TokenDocument:
    """A tokenised document: one array of piece ids per sentence, read-only views of the file."""

    id: str
    index: int
    source: list[Tokens]
    target: list[Tokens]

    def without_empty_pairs(self) -> "TokenDocument":
        """The document as models read it: translation, too, leaves out sentences without a token."""
        pairs = enumerate(zip(self.source, self.target, strict=True))
        kept = [j for j, (source, target) in pairs if len(source) or len(target)]
        if len(kept) == len(self.source):
            return self
        source, target = ([side[j] for j in kept] for side in (self.source, self.target))
        return replace(self, source=source, target=target)


class StoreWriter:
    """Writes a store in bounded memory; it appears, whole, when the `with` block ends without error.

    A corpus of more than `MAX_SHARD_TOKENS` becomes a folder of shards, a smaller one a file.
    """

    def __init__(self, path: Path, tokenizer_fingerprint: str) -> None:
        """Open a temporary folder beside `path`, whose own folder must exist."""
        self._path = path
        self._fingerprint = tokenizer_fingerprint
        self._partial = path.with_name(f"{path.name}.partial")
        remove(self._partial)  # of a process that was killed
        self._partial.mkdir()
        self._shards: list[Shard] = []
        self._file: FileWriter | None = None
        self.totals = Totals()

    def add(self, document_id: str, source: Sequence[Sequence[int]], target: Sequence[Sequence[int]]) -> None:
        """Append a document, given as the piece ids of each sentence; a sentence may be empty.

        Raises CotextError when the sides differ in their number of sentences, or have none.
        """
        self.add_flat(document_id, Flat.of(source), Flat.of(target))

    def add_flat(self, document_id: str, source: Flat, target: Flat) -> None:
        """As `add`, of a document whose sides are laid end to end."""
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
        if self._file is None and not self._shards:  # of no document
            self._file = FileWriter(self._partial / shard_name(0), self._fingerprint)
        if not self._shards and self._file is not None:
            self._file.close()
            made = self._file.path
        else:
            self._end_shard()
            write_manifest(self._partial, self._fingerprint, tuple(self._shards))
            made = self._partial
        if self._path.is_dir() or made.is_dir():
            remove(self._path)  # which a file cannot replace, nor a folder where it holds something
        os.replace(made, self._path)

    def _end_shard(self) -> None:
        if self._file is not None:
            self._file.close()
            self._shards.append(Shard.of(self._file.path, self._file.totals))
            self._file = None


class TokenStore:
    """Random access to the documents of a store, in bounded memory.

    A shard is checked against the digest of the manifest when it is first read.
    """

    def __init__(self, path: Path) -> None:
        """Open a file or a folder; raises CotextError when it is absent, damaged, or of another version."""
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
            # Whoever knows the digest of a single file has checked it.
            self.shards = (Shard(path.name, path.stat().st_size, "", **asdict(file.totals)),)
        self._ends = ends_of(self.shards)
        self.totals = sum((shard.totals for shard in self.shards), Totals())

    def __len__(self) -> int:
        """Count the documents."""
        return self.totals.documents

    def __getitem__(self, index: int) -> TokenDocument:
        """Return a document; raises IndexError beyond the end."""
        file, row = self._locate(index)
        name, source, target = file.document(row)
        return TokenDocument(name, index, source, target)

    def __iter__(self) -> Iterator[TokenDocument]:
        return (self[i] for i in range(len(self)))

    def lengths(self, index: int) -> tuple[Tokens, Tokens]:
        """Return the tokens per source and per target sentence, without touching the tokens."""
        file, row = self._locate(index)
        return file.lengths(row)

    def id(self, index: int) -> str:
        """The id of a document, without touching its tokens."""
        file, row = self._locate(index)
        return file.id(row)

    def ranges(self) -> list[range]:
        """The documents of each shard, by their indices: those that lie in one file."""
        return [range(end - shard.documents, end) for shard, end in zip(self.shards, self._ends, strict=True)]

    def require_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raise CotextError unless the store was made with this very tokenizer."""
        if self.tokenizer_fingerprint != tokenizer.fingerprint:
            raise CotextError(
                f"{self.path}: made with another tokenizer ({self.tokenizer_fingerprint[:12]}, not "
                f"{tokenizer.fingerprint[:12]}); use the tokenizer beside it, or prepare the corpus again"
            )

    def _locate(self, index: int) -> tuple[StoreFile, int]:
        """The file in which a document lies, and its row there."""
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
