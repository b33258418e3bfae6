"""Reading and writing of corpora in eight formats, document by document; .xz and .gz are decompressed."""

from cotext.data.formats.corpus import (
    languages_of_files,
    located_documents,
    read_documents,
    read_parallel,
    second_file,
    write_documents,
    write_parallel,
    write_translations,
)
from cotext.data.formats.table import FORMATS, detect_format, is_corpus

__all__ = [
    "FORMATS",
    "detect_format",
    "is_corpus",
    "languages_of_files",
    "located_documents",
    "read_documents",
    "read_parallel",
    "second_file",
    "write_documents",
    "write_parallel",
    "write_translations",
]
