"""Line-based formats: text, d-lines, tsv, jsonl and docids.

The first two have no document ids; documents are numbered from 1.
"""

import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from pathlib import Path

from cotext.data.formats.streams import (
    COMPRESSIONS,
    OUTER_SPACE,
    Gathered,
    Record,
    id_to_write,
    numbered_lines,
    one_line,
    same_file,
    sentences_to_write,
    without_compression,
)
from cotext.runtime import CotextError, naming, parse_json, shown

DOCUMENT_LINE = "<d>"


def _stripped_lines(path: Path) -> Iterator[tuple[int, str]]:
    return ((number, line.strip(OUTER_SPACE)) for number, line in numbered_lines(path))


def read_text(path: Path) -> Iterator[Record]:
    """Read one sentence per line, with an empty line between documents.

    Empty lines at the end are ignored. Raises CotextError for an empty line that does not end a document.
    """
    sentences, number, first = Gathered(path), 0, 1
    for line_number, sentence in _stripped_lines(path):
        if sentence:
            if not sentences and line_number != first:
                raise CotextError(
                    f"{path}:{first}: an empty line where a sentence should begin; in the format text, leave "
                    "one empty line between documents, and none at the start"
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
    for line_number, sentence in _stripped_lines(path):
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
    """Return a line for every sentence; raise CotextError for a tab, or a line like the header."""
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
        raise CotextError(f"{where}: {shown(kind)} is a file that Cotext wrote, but not a corpus")
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
    """Return a line with a JSON object; raise CotextError for an empty id or a sentence with line breaks."""
    if not record.id:
        raise CotextError("a document has an empty id, which cannot be written")
    value: dict[str, object] = {"id": record.id}
    for key, side in zip(LISTS, (record.sentences, record.source, record.target), strict=True):
        if side is not None:
            value[key] = [one_line(record.id, index, sentence) for index, sentence in enumerate(side)]
    return json.dumps(value, ensure_ascii=False) + "\n"


# --- The format docids: one sentence per line, and a side file with the ids of documents.
#
# The side file of `train.en` is `train.docids`. It has one line per document: the id, a tab and the number of
# sentences.

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


def read_side_file(side_path: Path) -> Iterator[tuple[int, str, int]]:
    """Yield line number, document id and number of sentences; raises CotextError for other lines."""
    number = 0
    for number, text in _stripped_lines(side_path):
        if match := COUNT_LINE.fullmatch(text):
            yield number, match[1].strip(OUTER_SPACE), int(match[2])
        elif text:
            raise CotextError(
                f"{side_path}:{number}: expected a document id, a tab and the number of sentences, but found "
                f"{text[:80]!r}; if it has one id per sentence, make a tsv file: paste IDS TEXT > FILE.tsv"
            )
    if not number:
        raise CotextError(f"{side_path}: is empty; it must contain the document ids of the text file")


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
                # If the first boundary has an empty line, all must have one. If this line is really an empty
                # sentence, later lines are shifted by one, which raises an error at the end of the file.
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
