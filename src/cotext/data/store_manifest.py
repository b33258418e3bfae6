"""The manifest of a token store in several files: the shards in order, each with its size and digest.

train.arrow/manifest.json     written last: it says that the store is whole
train.arrow/00000.arrow       the first shard, a file as `cotext.data.store_file` has it
train.arrow/00001.arrow       ...
"""

import re
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, TypeAdapter, ValidationError

from cotext.data.prepared import MANIFEST
from cotext.data.store_file import Totals, damaged
from cotext.runtime.errors import CotextError
from cotext.runtime.files import checksum, replacing
from cotext.runtime.integrity import sealed, unsealed
from cotext.runtime.reading import read_text

MANIFEST_VERSION: Final = 1
MAX_MANIFEST_BYTES: Final = 1 << 26  # of some 200,000 shards
_NAME = re.compile(r"[0-9]{5,9}\.arrow")

Count = Annotated[int, Field(ge=0, lt=2**50)]


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of a store: its name in the folder, size in bytes, SHA-256, and what it holds."""

    name: str
    bytes: Count
    sha256: str
    documents: Count
    sentences: Count
    source_tokens: Count
    target_tokens: Count

    @property
    def totals(self) -> Totals:
        """What it holds."""
        return Totals(self.documents, self.sentences, self.source_tokens, self.target_tokens)

    @classmethod
    def of(cls, path: Path, totals: Totals) -> "Shard":
        """A file that is whole, with its digest."""
        return cls(path.name, path.stat().st_size, checksum(path), **asdict(totals))


@dataclass(frozen=True, slots=True)
class Manifest:
    """The shards of a store, in order; `tokenizer`: the fingerprint of the one that all are made with."""

    version: int
    tokenizer: str
    shards: tuple[Shard, ...]


def shard_name(number: int) -> str:
    """The name of a shard by its number from 0, of which the order of names is that of numbers."""
    return f"{number:05}.arrow"


def ends_of(shards: tuple[Shard, ...]) -> list[int]:
    """For each shard, one behind the index of its last document in the whole store."""
    return list(accumulate(shard.documents for shard in shards))


def write_manifest(folder: Path, tokenizer_fingerprint: str, shards: tuple[Shard, ...]) -> None:
    """Write the manifest of a folder whose shards are whole."""
    content = asdict(Manifest(MANIFEST_VERSION, tokenizer_fingerprint, shards))
    with replacing(folder / MANIFEST) as temporary:
        temporary.write_text(f"{sealed(content)}\n", encoding="utf-8")


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder.

    Raises:
        CotextError: it is missing, damaged, or of another version.
    """
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
        CotextError: it is missing, cannot be read, or is not what the manifest says.
    """
    try:
        whole = path.stat().st_size == shard.bytes and checksum(path) == shard.sha256
    except OSError as error:
        raise CotextError(f"{path}: can't be read: {error.strerror or error}") from None
    if not whole:
        raise CotextError(
            f"{path}: not the shard that {MANIFEST} beside it describes; prepare the corpus again"
        )
