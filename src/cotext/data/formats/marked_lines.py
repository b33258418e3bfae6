"""Formats that mark documents inside the text itself: text, d-lines, eos-groups, line-documents.

None of them holds document ids; documents are numbered from 1.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from cotext.data.formats.records import OUTER_SPACE, Gathered, Record, sentences_to_write
from cotext.data.formats.streams import numbered_lines
from cotext.runtime.errors import CotextError

DOCUMENT_LINE = "<d>"
EOS_MARK = re.compile(r"(?<![^ ])_eos(?![^ ])")
BOUNDARY_MARK = re.compile(r"<EOS> *<BOS>")


def read_text(path: Path) -> Iterator[Record]:
    """Read one sentence a line, an empty line between documents.

    Two empty lines in a row before a sentence are an empty document; empty lines at the end are nothing.
    """
    sentences = Gathered(path)
    number = 0
    first = 1
    for line_number, line in numbered_lines(path):
        sentence = line.strip(OUTER_SPACE)
        if sentence:
            if not sentences and line_number != first:
                number += 1
                yield Record(str(number), first, 1, sentences=())
                first = line_number
            sentences.append(sentence)
        elif sentences:
            number += 1
            yield Record(str(number), first, 1, sentences=tuple(sentences))
            sentences = Gathered(path)
            first = line_number + 1
    if sentences:
        yield Record(str(number + 1), first, 1, sentences=tuple(sentences))


def encode_text(record: Record) -> str:
    """Write one sentence a line; raises CotextError for an empty sentence, which would end the document."""
    sentences = sentences_to_write(record)
    for index, sentence in enumerate(sentences):
        if not sentence:
            raise CotextError(
                f"document {record.id!r}, sentence {index + 1} is empty, and an empty line ends a document "
                "in the "
                "format text; write jsonl or docids instead, which hold empty sentences"
            )
    return "\n".join(sentences) + "\n"


def read_d_lines(path: Path) -> Iterator[Record]:
    """Read documents that a line `<d>` opens; an empty line is an empty sentence."""
    sentences: Gathered | None = None
    number = 0
    first = 1
    for line_number, line in numbered_lines(path):
        sentence = line.strip(OUTER_SPACE)
        if sentence == DOCUMENT_LINE:
            if sentences is not None:
                number += 1
                yield Record(str(number), first, 1, sentences=tuple(sentences))
            sentences = Gathered(path)
            first = line_number + 1
        elif sentences is not None:
            sentences.append(sentence)
        elif sentence:
            raise CotextError(
                f"{path}:{line_number}: text before the first line {DOCUMENT_LINE}; every document of the "
                f"format d-lines begins with such a line"
            )
    if sentences is not None:
        yield Record(str(number + 1), first, 1, sentences=tuple(sentences))


def encode_d_lines(record: Record) -> str:
    """Write a line `<d>`, then one sentence a line; raises CotextError for a sentence that is `<d>`."""
    sentences = sentences_to_write(record)
    if DOCUMENT_LINE in sentences:
        index = sentences.index(DOCUMENT_LINE)
        raise CotextError(
            f"document {record.id!r}, sentence {index + 1} is {DOCUMENT_LINE!r}, which opens a document in "
            "the "
            "format d-lines; write jsonl instead"
        )
    return "\n".join((DOCUMENT_LINE, *sentences)) + "\n"


def read_eos_groups(path: Path) -> Iterator[Record]:
    """Read one document a line, ` _eos ` between its sentences."""
    return _read_document_lines(path, EOS_MARK.split)


def read_line_documents(path: Path) -> Iterator[Record]:
    """Read one document a line, `<EOS> <BOS>` between sentences; one more mark at either end is left out."""

    def split(line: str) -> list[str]:
        return BOUNDARY_MARK.split(line.removeprefix("<BOS>").removesuffix("<EOS>"))

    return _read_document_lines(path, split)


def _read_document_lines(path: Path, split: Callable[[str], list[str]]) -> Iterator[Record]:
    number = 0
    next_line = 1  # after the document before
    for line_number, line in numbered_lines(path):
        text = line.strip(OUTER_SPACE)
        if not text:
            continue
        for empty_line in range(next_line, line_number):
            number += 1
            yield Record(str(number), empty_line, sentences=())
        next_line = line_number + 1
        number += 1
        yield Record(
            str(number), line_number, sentences=tuple(part.strip(OUTER_SPACE) for part in split(text))
        )
