"""The format docids: one sentence per line, and a side file with the ids of documents.

The side file of `train.en` is `train.docids`. It contains either one id per line of text, or one line per
document with the id, a tab and the number of sentences.
"""

import re
from collections.abc import Iterator
from itertools import groupby, zip_longest
from operator import itemgetter
from pathlib import Path

from cotext.data.formats.streams import (
    COMPRESSIONS,
    OUTER_SPACE,
    Gathered,
    Record,
    id_to_write,
    numbered_lines,
    same_file,
    sentences_to_write,
    without_compression,
)
from cotext.runtime.errors import CotextError

COUNT_LINE = re.compile(r"([^\t]+)\t([0-9]{1,9})")


def side_file_to_write(path: Path) -> Path:
    """Return the path of the side file, with .docids instead of the last suffix.

    A compression suffix such as .gz is kept.
    """
    plain = without_compression(path)
    compression = path.suffix if plain != path else ""
    return plain.with_name(plain.with_suffix("").name + ".docids" + compression)


def find_side_file(path: Path) -> Path | None:
    """Find the side file of a text file, with the same or another compression; None if there is none."""
    named = side_file_to_write(path)
    plain = without_compression(named)
    for candidate in (named, plain, *(plain.with_name(plain.name + ending) for ending in COMPRESSIONS)):
        if candidate.is_file() and not same_file(candidate, path):
            return candidate
    return None


def read_docids(path: Path) -> Iterator[Record]:
    """Read a text file with its side file; raise CotextError if they do not match."""
    side_path = find_side_file(path)
    if side_path is None:
        raise CotextError(
            f"{path}: the format docids needs the side file {side_file_to_write(path)}, which does not exist"
        )
    if _counts_sentences(side_path):
        return _read_by_counts(path, side_path)
    return _read_by_lines(path, side_path)


def encode_docids(record: Record) -> str:
    """Return the sentences, one per line; a sentence may be empty."""
    return "\n".join(sentences_to_write(record)) + "\n"


def encode_side_line(record: Record) -> str:
    """Return the line of a document in the side file: the id, a tab and the number of sentences."""
    return f"{id_to_write(record)}\t{len(record.sentences or ())}\n"


def read_side_file(side_path: Path) -> Iterator[tuple[str, int]]:
    """Read (document id, number of sentences) from either kind of side file."""
    if _counts_sentences(side_path):
        for _, document_id, count in _count_lines(side_path):
            yield document_id, count
    else:
        for document_id, lines in groupby(_stripped_lines(side_path), key=itemgetter(1)):
            if document_id:
                yield document_id, sum(1 for _ in lines)


def empty_lines_between(side_path: Path) -> bool:
    """Return whether a text with this side file may have empty lines between documents.

    True if the side file contains counts. If it contains one id per line, True if the line after the first
    document is empty.
    """
    if _counts_sentences(side_path):
        return True
    first: str | None = None
    for _, document_id in _stripped_lines(side_path):
        if first is not None and document_id != first:
            return document_id == ""
        first = first or document_id or None
    return False


def _counts_sentences(side_path: Path) -> bool:
    first = next((line for _, line in _stripped_lines(side_path) if line), "")
    if not first:
        raise CotextError(f"{side_path}: is empty; it must contain the document ids of the text file")
    return COUNT_LINE.fullmatch(first) is not None


def _count_lines(side_path: Path) -> Iterator[tuple[int, str, int]]:
    for number, text in _stripped_lines(side_path):
        match = COUNT_LINE.fullmatch(text)
        if match:
            yield number, match[1].strip(OUTER_SPACE), int(match[2])
        elif text:
            raise CotextError(
                f"{side_path}:{number}: expected a document id, a tab and the number of sentences, as in the "
                f"lines before, but found {text[:80]!r}"
            )


def _stripped_lines(path: Path) -> Iterator[tuple[int, str]]:
    return ((number, line.strip(OUTER_SPACE)) for number, line in numbered_lines(path))


def _read_by_counts(path: Path, side_path: Path) -> Iterator[Record]:
    lines = _stripped_lines(path)
    empty_line_between: bool | None = None
    line_number = 0
    waiting: tuple[int, str] | None = None
    for order, (side_line, document_id, count) in enumerate(_count_lines(side_path)):
        if order > 0:
            waiting = waiting or next(lines, None)
            if empty_line_between is None and waiting is not None:
                # If the first boundary has an empty line, all must have one. If that line was an empty
                # sentence instead, the line count is wrong at the end of the file, which raises an error.
                empty_line_between = waiting[1] == ""
            if empty_line_between and waiting is not None:
                if waiting[1]:
                    raise CotextError(
                        f"{path}:{waiting[0]}: expected the empty line before document {document_id!r} "
                        f"({side_path}:{side_line}) but found {waiting[1][:60]!r}; the count of the "
                        "previous document in the side file is too small"
                    )
                waiting = None
                line_number += 1
        first = line_number + 1
        sentences = Gathered(path)
        while len(sentences) < count:
            pair = waiting or next(lines, None)
            waiting = None
            if pair is None:
                raise CotextError(
                    f"{path}: ends after line {line_number}; document {document_id!r} "
                    f"({side_path}:{side_line}) should have {count} sentences, but has {len(sentences)}"
                )
            line_number = pair[0]
            sentences.append(pair[1])
        yield Record(document_id, first, 1, sentences=tuple(sentences))
    if waiting := waiting or next((line for line in lines if line[1]), None):
        number, sentence = waiting
        raise CotextError(
            f"{path}:{number}: {sentence[:60]!r} comes after the last document of {side_path}; a document or "
            "a sentence is missing in the side file"
        )


def _read_by_lines(path: Path, side_path: Path) -> Iterator[Record]:
    def named_sentences() -> Iterator[tuple[int, str, str]]:
        for text, side in zip_longest(_stripped_lines(path), _stripped_lines(side_path)):
            if text is None or side is None:
                number, content = text or side
                if not content:
                    continue
                ended, longer = (path, side_path) if text is None else (side_path, path)
                raise CotextError(
                    f"{ended}: has fewer lines than {longer}, which has a line {number}; the side file needs "
                    "exactly one document id for every line of text"
                )
            (number, document_id), sentence = side, text[1]
            if sentence and not document_id:
                raise CotextError(f"{side_path}:{number}: no document id for the sentence {path}:{number}")
            yield number, document_id, sentence

    for document_id, group in groupby(named_sentences(), key=itemgetter(1)):
        if document_id:
            sentences = Gathered(path)
            first = 0
            for number, _, sentence in group:
                first = first or number
                sentences.append(sentence)
            yield Record(document_id, first, 1, sentences=tuple(sentences))
