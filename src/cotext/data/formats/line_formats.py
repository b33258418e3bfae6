"""Line-based formats: text, d-lines, tsv and jsonl.

The first two have no document ids; documents are numbered from 1.
"""

import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from cotext.data.formats.streams import (
    OUTER_SPACE,
    Gathered,
    Record,
    id_to_write,
    numbered_lines,
    one_line,
    sentences_to_write,
)
from cotext.runtime import CotextError, naming, parse_json, shown

DOCUMENT_LINE = "<d>"


def read_text(path: Path) -> Iterator[Record]:
    """Read one sentence per line, with an empty line between documents.

    Empty lines at the end are ignored. Raises CotextError for an empty line that does not end a document.
    """
    sentences, number, first = Gathered(path), 0, 1
    for line_number, line in numbered_lines(path):
        sentence = line.strip(OUTER_SPACE)
        if sentence:
            if not sentences and line_number != first:
                raise CotextError(
                    f"{path}:{first}: an empty line where a sentence should begin. The format text has no "
                    "empty sentences or documents; leave one empty line between documents, none at the start"
                )
            sentences.append(sentence)
        elif sentences:
            number += 1
            yield Record(str(number), first, 1, tuple(sentences))
            sentences, first = Gathered(path), line_number + 1
    if sentences:
        yield Record(str(number + 1), first, 1, tuple(sentences))


def encode_text(record: Record) -> str:
    """Return one sentence per line; raise CotextError for an empty sentence, which would end the document."""
    sentences = sentences_to_write(record)
    for index, sentence in enumerate(sentences):
        if not sentence:
            raise CotextError(
                f"document {record.id!r}, sentence {index + 1} is empty, and an empty line ends a document "
                "in the format text; write jsonl or docids instead"
            )
    return "\n".join(sentences) + "\n"


def read_d_lines(path: Path) -> Iterator[Record]:
    """Read documents that begin with a line `<d>`; an empty line is an empty sentence."""
    sentences: Gathered | None = None
    number, first = 0, 1
    for line_number, line in numbered_lines(path):
        sentence = line.strip(OUTER_SPACE)
        if sentence == DOCUMENT_LINE:
            if sentences is not None:
                number += 1
                yield Record(str(number), first, 1, tuple(sentences))
            sentences, first = Gathered(path), line_number + 1
        elif sentences is not None:
            sentences.append(sentence)
        elif sentence:
            raise CotextError(
                f"{path}:{line_number}: text before the first line {DOCUMENT_LINE}; every document of the "
                f"format d-lines begins with such a line"
            )
    if sentences is not None:
        yield Record(str(number + 1), first, 1, tuple(sentences))


def encode_d_lines(record: Record) -> str:
    """Return a line `<d>`, then one sentence per line; raise CotextError for a sentence `<d>`."""
    sentences = sentences_to_write(record)
    if DOCUMENT_LINE in sentences:
        index = sentences.index(DOCUMENT_LINE)
        raise CotextError(
            f"document {record.id!r}, sentence {index + 1} is {DOCUMENT_LINE!r}, which opens a document in "
            "the format d-lines; write jsonl instead"
        )
    return "\n".join((DOCUMENT_LINE, *sentences)) + "\n"


# --- The format tsv: lines of document id, source and target or, for one language, document id and sentence.

HEADER = ["docid", "source", "target"]


def read_tsv(path: Path) -> Iterator[Record]:
    """Read consecutive lines with the same id as a document; a header `docid source target` is skipped."""
    for document_id, rows in groupby(_tsv_rows(path), key=lambda row: row[1][0]):
        first, sides = 0, list[Gathered]()
        for number, (_, *sentences) in rows:
            first = first or number
            sides = sides or [Gathered(path) for _ in sentences]
            for side, sentence in zip(sides, sentences, strict=True):
                side.append(sentence)
        no_sentences = [None] * (len(sides) - 1)  # if there are two languages
        yield Record(document_id, first, 1, *no_sentences, *map(tuple, sides))


def _tsv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and fields, of which there are two or three in all lines."""
    columns = 0
    for number, line in numbered_lines(path):
        fields = [field.strip(OUTER_SPACE) for field in line.split("\t")]
        if number == 1:
            columns = len(fields)
            if [field.lower() for field in fields] == HEADER:
                continue
        if len(fields) != columns or columns not in (2, 3):
            expected = columns if columns in (2, 3) else "2 or 3"
            raise CotextError(
                f"{path}:{number}: has {len(fields)} columns, expected {expected}: document id, source, "
                "target (or document id, sentence), separated by single tabs"
            )
        if not fields[0]:
            raise CotextError(f"{path}:{number}: the first column, the document id, is empty")
        yield number, fields


def encode_tsv(record: Record) -> str:
    """Write a line for every sentence; raises CotextError for a sentence with a tab."""
    document_id = id_to_write(record)
    sides = [side for side in (record.sentences, record.source, record.target) if side is not None]
    lines = []
    for index, row in enumerate(zip(*sides, strict=True)):
        fields = [one_line(document_id, index, sentence).strip(OUTER_SPACE) for sentence in row]
        if any("\t" in field for field in fields):
            raise CotextError(
                f"document {document_id!r}, sentence {index + 1} contains a tab, which separates columns in "
                "the format tsv; write jsonl instead"
            )
        if [document_id.lower(), *(field.lower() for field in fields)] == HEADER:
            raise CotextError(
                f"document {document_id!r}, sentence {index + 1} reads like a header line of the format tsv; "
                "write jsonl instead"
            )
        lines.append("\t".join((document_id, *fields)) + "\n")
    return "".join(lines)


# --- The format jsonl, which is the native and lossless format: a JSON object per document and line.
#
# `{"id": ..., "source": [...], "target": [...]}`; for one language `{"id": ..., "sentences": [...]}`.

LISTS = ("sentences", "source", "target")


def read_jsonl(path: Path) -> Iterator[Record]:
    """Read a document from every non-blank line; sentences are not changed, and unknown keys ignored."""
    for number, line in numbered_lines(path):
        if not line.strip(OUTER_SPACE):
            continue
        yield _jsonl_record(f"{path}:{number}", number, parse_json(line, f"{path}:{number}", numbers=False))


def _jsonl_record(where: str, number: int, value: object) -> Record:
    if not isinstance(value, dict):
        raise CotextError(f"{where}: expected a JSON object with the key 'id', found {type(value).__name__}")
    document_id = value.get("id")
    if document_id is None and str(kind := value.get("format")).startswith("cotext-"):
        raise CotextError(f"{where}: {shown(kind)}, an additional output of Cotext, which is not a corpus")
    if not isinstance(document_id, str) or not document_id:
        raise CotextError(f"{where}: the key 'id' must contain a text that is not empty")
    sides = {key: _sentences(where, document_id, key, value.get(key)) for key in LISTS}
    if (sides["sentences"] is None) == (sides["source"] is None and sides["target"] is None):
        raise CotextError(
            f"{where}: document {document_id!r} needs either the key 'sentences' or the keys 'source' and "
            "'target'"
        )
    return Record(document_id, number, 0, sides["sentences"], sides["source"], sides["target"])


def _sentences(where: str, document_id: str, key: str, value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(sentence, str) for sentence in value):
        raise CotextError(f"{where}: document {document_id!r}: the key {key!r} must contain a list of texts")
    with naming(where):
        return tuple(one_line(document_id, index, sentence) for index, sentence in enumerate(value))


def encode_jsonl(record: Record) -> str:
    """Write a line with a JSON object; raises CotextError for an empty id or a sentence of several lines."""
    if not record.id:
        raise CotextError("a document has an empty id, which cannot be written")
    value: dict[str, object] = {"id": record.id}
    for key, side in zip(LISTS, (record.sentences, record.source, record.target), strict=True):
        if side is not None:
            value[key] = [one_line(record.id, index, sentence) for index, sentence in enumerate(side)]
    return json.dumps(value, ensure_ascii=False) + "\n"
