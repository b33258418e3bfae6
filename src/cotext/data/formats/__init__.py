"""Corpus files of twelve formats, read and written a document at a time; .xz and .gz are transparent."""

from cotext.data.formats.corpus import (
    located_documents,
    place_of_sentence,
    read_documents,
    read_parallel,
    second_file,
    write_documents,
    write_parallel,
    write_translations,
)
from cotext.data.formats.table import FORMATS, detect_format

__all__ = [
    "FORMATS",
    "detect_format",
    "located_documents",
    "place_of_sentence",
    "read_documents",
    "read_parallel",
    "second_file",
    "write_documents",
    "write_parallel",
    "write_translations",
]
