"""Files to translate: read once into memory, and once for a checksum."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

from cotext.data.documents import Document
from cotext.data.formats import detect_format, located_documents, read_documents
from cotext.data.formats.docids import find_side_file
from cotext.data.formats.streams import check_readable, is_regular
from cotext.data.formats.table import find_format
from cotext.runtime.errors import CotextError
from cotext.runtime.files import checksum
from cotext.runtime.shards import Shard
from cotext.translation.prose import Prose


def checksums_of(paths: Iterable[Path], format: str | None) -> list[str]:
    """SHA-256 of corpus files that are read more than once, and of their side files where they have such.

    Raises:
        CotextError: no such file, or no regular one.
    """
    found = []
    for path in paths:
        check_readable(path)
        if not is_regular(path):
            raise CotextError(f"{path}: is no regular file, and it is read more than once; copy it to one")
        side_file = find_side_file(path) if format in (None, "docids") else None
        found += [checksum(each) for each in (path, side_file) if each is not None]
    return found


class SourceFile:
    """The documents of a corpus file, in order, once they are read; with a shard, those of it alone.

    `sizes`: with a shard, the sentences of all documents of the file. `first_prose`: where the first line
    stands that looks like several sentences; empty where none does.

    Raises:
        CotextError: no such file, or no regular one; a format in which no translation is written.
    """

    def __init__(self, path: Path, format: str | None, shard: Shard | None = None) -> None:
        check_readable(path)
        if format is None:
            format = detect_format(path)
        find_format(format).require_written()
        if not is_regular(path):
            raise CotextError(
                f"{path}: is no regular file, and translating reads it more than once; copy it to one"
            )
        self.path = path
        self.format = format
        self.documents: list[Document] = []
        self.sizes: list[int] = []
        self._shard = shard
        self.first_prose = ""
        self._checksums = checksums_of([path], format)

    def checksums(self) -> list[str]:
        """SHA-256 of the file, and of its side file where it has one."""
        return self._checksums

    def read(self, prose: Prose, check_id: Callable[[str], None] | None = None) -> Iterator[Document]:
        """The documents as `prose` splits them; keeps them as they are.

        Raises:
            CotextError: what the reader of the format, or `check_id`, refuses.
        """
        documents = located_documents(self.path, self.format)
        if self._shard is not None:
            self.sizes = list(map(len, read_documents(self.path, self.format)))
            chosen = self._shard.units(self.sizes)
            documents = islice(documents, chosen.start, chosen.stop)
        for document, place_of in documents:
            if check_id is not None:
                check_id(document.id)
            self.documents.append(document)
            split = prose.count(document)
            if not self.first_prose and prose.first is not None:
                self.first_prose = place_of(prose.first)
            yield split
