"""The format docids: one sentence per line, and a side file with the ids of documents.

The side file of `train.en` is `train.docids`. It has one line per document: the id, a tab and the number of
sentences.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import chain
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
from cotext.runtime import CotextError

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


def other_text(side_path: Path, texts: Iterable[Path]) -> Path | None:
    """Return a file other than `texts` that uses a side file; None if there is none."""
    for path in sorted(side_path.parent.iterdir()):
        if path.is_file() and not path.name.startswith(".") and without_compression(path).suffix != ".docids":
            used = find_side_file(path)
            if used and same_file(used, side_path) and not any(same_file(path, text) for text in texts):
                return path
    return None


def encode_docids(record: Record) -> str:
    """Return the sentences, one per line; a sentence may be empty."""
    return "\n".join(sentences_to_write(record)) + "\n"


def encode_side_line(record: Record) -> str:
    """Return the line of a document in the side file: the id, a tab and the number of sentences."""
    return f"{id_to_write(record)}\t{len(record.sentences or ())}\n"


def read_side_file(side_path: Path) -> Iterator[tuple[int, str, int]]:
    """Yield line number, document id and number of sentences; raises CotextError for other lines."""
    number = 0
    for number, text in _stripped_lines(side_path):
        if match := COUNT_LINE.fullmatch(text):
            yield number, match[1].strip(OUTER_SPACE), int(match[2])
        elif text:
            raise CotextError(
                f"{side_path}:{number}: expected a document id, a tab and the number of sentences, but found "
                f"{text[:80]!r}; with an id for every line, make a file of the format tsv: paste IDS TEXT"
            )
    if not number:
        raise CotextError(f"{side_path}: is empty; it must contain the document ids of the text file")


def _stripped_lines(path: Path) -> Iterator[tuple[int, str]]:
    return ((number, line.strip(OUTER_SPACE)) for number, line in numbered_lines(path))


def read_docids(path: Path) -> Iterator[Record]:
    """Read a text file with its side file; raise CotextError if they do not match."""
    side_path = find_side_file(path)
    if side_path is None:
        raise CotextError(
            f"{path}: the format docids needs the side file {side_file_to_write(path)}, which does not exist"
        )
    lines = _stripped_lines(path)
    line = next(lines, None)
    line_number = 0
    empty_line_between: bool | None = None
    for order, (side_line, document_id, count) in enumerate(read_side_file(side_path)):
        if order > 0 and line is not None:
            if empty_line_between is None:
                # If the first boundary has an empty line, all must have one. If that line was an empty
                # sentence instead, the line count is wrong at the end of the file, which raises an error.
                empty_line_between = line[1] == ""
            if empty_line_between:
                if line[1]:
                    raise CotextError(
                        f"{path}:{line[0]}: expected the empty line before document {document_id!r} "
                        f"({side_path}:{side_line}) but found {line[1][:60]!r}; the count of the previous "
                        "document in the side file is too small"
                    )
                line_number = line[0]
                line = next(lines, None)
        first = line_number + 1
        sentences = Gathered(path)
        while len(sentences) < count:
            if line is None:
                raise CotextError(
                    f"{path}: ends after line {line_number}; document {document_id!r} "
                    f"({side_path}:{side_line}) should have {count} sentences, but has {len(sentences)}"
                )
            line_number = line[0]
            sentences.append(line[1])
            line = next(lines, None)
        yield Record(document_id, first, 1, sentences=tuple(sentences))
    if extra := next((rest for rest in chain([line], lines) if rest and rest[1]), None):
        raise CotextError(
            f"{path}:{extra[0]}: {extra[1][:60]!r} comes after the last document of {side_path}; a document "
            "or a sentence is missing in the side file"
        )
