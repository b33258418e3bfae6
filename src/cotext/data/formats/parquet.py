"""The format parquet: a table with one document or one sentence per row.

The columns are `id` (or `document`, `docid`) and `source`, `target` or both, or `sentences` for one language;
other columns are ignored. If these columns contain lists of texts, a row is a document. If they contain
texts, a row is a sentence, and consecutive rows with the same id are a document. Files are read in chunks.
pyarrow is imported only when a table is read or written, because most commands import this module.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from cotext.data.formats.streams import COMPRESSIONS, Gathered, Record, one_line, opened
from cotext.runtime.errors import CotextError
from cotext.runtime.files import replacing

IDS: Final = ("id", "document", "docid")
SIDES: Final = ("sentences", "source", "target")
ROWS: Final = 1024  # read at once
WRITTEN_SENTENCES: Final = 100_000  # number of sentences that completes a row group


class _Row(NamedTuple):
    number: int
    id: Any
    sides: list[Any]


def read_parquet(path: Path) -> Iterator[Record]:
    """Read the documents; line numbers in messages are rows, counted from 1.

    Raises:
        CotextError: the file is not a Parquet file or is damaged, columns are missing or have other types, or
            there are nulls.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with opened(path) as stream:
        try:
            file = pq.ParquetFile(stream)
            id_column, sides, by_row = _columns(path, file.schema_arrow)
            tables = file.iter_batches(ROWS, columns=[id_column, *sides])
            rows = _rows(tables, id_column, sides)
            yield from _documents(path, rows, sides) if by_row else _of_sentences(path, rows, sides)
        except (pa.ArrowException, UnicodeDecodeError) as error:  # the latter: names of columns
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise CotextError(f"{path}: not a Parquet file, or damaged: {reason}") from None


def _columns(path: Path, schema: Any) -> tuple[str, list[str], bool]:
    """Return the column of ids, the columns of sides, and whether a row is a document."""
    from pyarrow import types

    names = schema.names
    id_column = next((name for name in IDS if name in names), None)
    sides = [name for name in SIDES if name in names]
    if id_column is None or not sides or ("sentences" in sides and len(sides) > 1):
        raise CotextError(
            f"{path}: the columns are {', '.join(names)}; a corpus has `id` (or `document`), and either "
            "`source`, `target` or both, or `sentences`: rename them"
        )
    kinds = [schema.field(name).type for name in sides]
    by_row = [types.is_list(kind) or types.is_large_list(kind) for kind in kinds]
    texts = [kind.value_type if is_list else kind for kind, is_list in zip(kinds, by_row, strict=True)]
    if len({*by_row}) > 1 or not all(_is_text(kind) for kind in texts):
        listed = ", ".join(f"{name}: {kind}" for name, kind in zip(sides, kinds, strict=True))
        raise CotextError(
            f"{path}: the columns contain {listed}; in each row, a side must be a text or a list of texts"
        )
    return id_column, sides, by_row[0]


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _rows(tables: Iterable[Any], id_column: str, sides: list[str]) -> Iterator[_Row]:
    """Yield row number, id and sides."""
    number = 0
    for table in tables:
        columns = [table.column(name).to_pylist() for name in (id_column, *sides)]
        for name, *values in zip(*columns, strict=True):
            number += 1
            yield _Row(number, name, values)


def _documents(path: Path, rows: Iterable[_Row], sides: list[str]) -> Iterator[Record]:
    for number, name, values in rows:
        document_id = _checked_id(path, number, name)
        given = {
            side: tuple(_checked(path, number, document_id, side, i, text) for i, text in enumerate(value))
            for side, value in zip(sides, values, strict=True)
            if value is not None
        }
        yield _record(document_id, number, 0, given)


def _of_sentences(path: Path, rows: Iterable[_Row], sides: list[str]) -> Iterator[Record]:
    for name, group in groupby(rows, key=lambda row: row.id):
        gathered = [Gathered(path) for _ in sides]
        first, document_id = 0, ""
        for number, _, values in group:
            first = first or number
            document_id = document_id or _checked_id(path, number, name)
            for side, texts, text in zip(sides, gathered, values, strict=True):
                texts.append(_checked(path, number, document_id, side, len(texts), text))
        given = {side: tuple(texts) for side, texts in zip(sides, gathered, strict=True)}
        yield _record(document_id, first, 1, given)


def _record(document_id: str, row: int, rows_per_sentence: int, given: dict[str, tuple[str, ...]]) -> Record:
    sides = given.get("sentences"), given.get("source"), given.get("target")
    return Record(document_id, row, rows_per_sentence, *sides)


def _checked_id(path: Path, number: int, name: Any) -> str:
    if name is None or name == "":
        raise CotextError(f"{path}:{number}: the id of the document is null or empty")
    return str(name)


def _checked(path: Path, number: int, document_id: str, side: str, index: int, text: Any) -> str:
    if text is None:
        raise CotextError(
            f"{path}:{number}: document {document_id!r}, sentence {index + 1}: `{side}` is null; an empty "
            "sentence is an empty text"
        )
    try:
        return one_line(document_id, index, text)
    except CotextError as error:
        raise CotextError(f"{path}:{number}: {error}") from None


def write_parquet(path: Path, records: Iterable[Record]) -> None:
    """Write one document per row; the file appears when all rows are written.

    Raises:
        CotextError: there are no documents, a document is empty, the path has the suffix of a compression, or
            the file cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.suffix in COMPRESSIONS:
        raise CotextError(
            f"{path}: Parquet tables have internal compression; remove the suffix {path.suffix}"
        )
    with replacing(path, pa.ArrowException) as temporary:
        writer: Any = None
        sides: list[str] = []
        try:
            for rows in _groups(path, records):
                if writer is None:
                    sides = [side for side in SIDES if getattr(rows[0], side) is not None]
                    listed = pa.list_(pa.string())
                    schema = pa.schema([("id", pa.string()), *((side, listed) for side in sides)])
                    writer = pq.ParquetWriter(temporary, schema, compression="zstd")
                columns = {
                    "id": [row.id for row in rows],
                    **{s: [getattr(r, s) for r in rows] for s in sides},
                }
                writer.write_table(pa.table(columns, schema=writer.schema))
        except UnicodeEncodeError:
            raise CotextError(
                f"{path}: half a character (a lone surrogate), which UTF-8 cannot write"
            ) from None
        finally:
            if writer is not None:
                writer.close()
        if writer is None:
            raise CotextError(f"{path}: there are no documents to write; the file is unchanged")


def _groups(path: Path, records: Iterable[Record]) -> Iterator[list[Record]]:
    rows: list[Record] = []
    held = 0
    for record in records:
        texts = record.sentences or record.source or ()
        if not texts or not record.id:
            raise CotextError(f"{path}: document {record.id!r} is empty or has no id; leave it out")
        rows.append(record)
        held += len(texts)
        if held >= WRITTEN_SENTENCES:
            yield rows
            rows, held = [], 0
    if rows:
        yield rows
