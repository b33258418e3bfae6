"""Files to translate: read once into memory, and once for a checksum."""

from collections.abc import Callable, Iterator
from pathlib import Path

from cotext.data.documents import Document
from cotext.data.formats import detect_format, located_documents
from cotext.data.formats.docids import find_side_file
from cotext.data.formats.streams import check_readable, is_regular
from cotext.decoding.prose import Prose
from cotext.runtime.errors import CotextError
from cotext.runtime.files import checksum


class SourceFile:
    """The documents of a corpus file, in order, once they are read.

    `first_prose`: where the first line stands that looks like several sentences; empty where none does.

    Raises:
        CotextError: no such file, or no regular one.
    """

    def __init__(self, path: Path, format: str | None) -> None:
        check_readable(path)
        if format is None:
            format = detect_format(path)
        if not is_regular(path):
            raise CotextError(
                f"{path}: is no regular file, and translating reads it more than once; copy it to one"
            )
        self.path = path
        self.format = format
        self.documents: list[Document] = []
        self.first_prose = ""
        self._checksums = [checksum(each) for each in (path, self._side_file) if each is not None]

    @property
    def _side_file(self) -> Path | None:
        return find_side_file(self.path) if self.format == "docids" else None

    def checksums(self) -> list[str]:
        """SHA-256 of the file, and of its side file where it has one."""
        return self._checksums

    def read(self, prose: Prose, check_id: Callable[[str], None] | None = None) -> Iterator[Document]:
        """The documents as `prose` splits them; keeps them as they are.

        Raises:
            CotextError: what the reader of the format, or `check_id`, refuses.
        """
        for document, place_of in located_documents(self.path, self.format):
            if check_id is not None:
                check_id(document.id)
            self.documents.append(document)
            split = prose.count(document)
            if not self.first_prose and prose.first is not None:
                self.first_prose = place_of(prose.first)
            yield split
