"""Corpora in Parquet, and corpora at addresses."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import (
    detect_format,
    read_documents,
    read_parallel,
    write_documents,
    write_parallel,
    write_translations,
)
from cotext.runtime.errors import CotextError
from tests.loops import loop_over
from tests.tiny_runs import toy_documents

PAIRS = [*toy_documents(30, 3), ParallelDocument("empty ones", ("", "a  "), ("x", ""))]


def write(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=7)
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "corpus.parquet"
    write_parallel(path, None, PAIRS, "parquet")
    assert detect_format(path) == "parquet"
    assert list(read_parallel(path, None)) == PAIRS
    assert [d.sentences for d in read_documents(path, side="target")] == [d.target for d in PAIRS]
    one = tmp_path / "one"
    write_documents(one, [Document(d.id, d.source) for d in PAIRS], "parquet")
    assert [d.sentences for d in read_documents(one)] == [d.source for d in PAIRS]
    write_translations(one, PAIRS, "parquet")
    assert list(read_parallel(one, None)) == PAIRS
    assert {p.name for p in tmp_path.iterdir()} == {"corpus.parquet", "one"}


@loop_over("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
@loop_over("id_column", ["id", "document", "docid"])
def test_a_row_is_a_sentence_where_it_holds_a_text(tmp_path: Path, kind: Any, id_column: str) -> None:
    rows = [(d.id, s, t) for d in PAIRS for s, t in zip(d.source, d.target, strict=True)]
    ids, sources, targets = (pa.array(column, kind) for column in zip(*rows, strict=True))
    columns = {"score": list(range(len(rows))), id_column: ids, "source": sources, "target": targets}
    assert list(read_parallel(write(tmp_path / "x", **columns), None)) == PAIRS


def test_a_document_is_found_beside_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "x", id=["a", "a", "b"], sentences=["one", "two", "th\nree"])
    with pytest.raises(CotextError, match=r"x:3: document 'b', sentence 1: contains a line feed"):
        list(read_documents(path))


@loop_over(
    ("columns", "message"),
    [
        ({"name": ["a"], "source": ["b"]}, "the columns are name, source; a corpus has `id`"),
        ({"id": ["a"], "text": ["b"]}, "the columns are id, text"),
        ({"id": ["a"], "source": [1]}, "source: int64"),
        (
            {"id": ["a"], "source": ["b"], "target": [["b"]]},
            "in each row, a side must be a text or a list of texts",
        ),
        ({"id": ["a", None], "source": ["b", "c"]}, ":2: the id of the document is null"),
        ({"id": ["a", "a"], "source": ["b", None]}, ":2: document 'a', sentence 2: `source` is null"),
        ({"id": ["a"], "source": [["b", None]]}, ":1: document 'a', sentence 2: `source` is null"),
        ({"id": pa.array([], pa.string()), "source": pa.array([], pa.string())}, "has no documents"),
    ],
)
def test_tables_that_are_no_corpus(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(CotextError, match=message):
        list(read_documents(write(tmp_path / "x", **columns)))


def test_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    write_parallel(path, None, PAIRS, "parquet")
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], content.replace(b"source", b"\xe0ource")):
        path.write_bytes(damaged)
        with pytest.raises(CotextError, match=r"x\.parquet: not a Parquet file, or damaged"):
            list(read_documents(path))


def test_what_cannot_be_written_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_text("before")
    for documents, message in (
        ([], "no documents to write"),
        ([PAIRS[0], ParallelDocument("x", (), ())], "is empty"),
        ([ParallelDocument("x", ("\ud800",), ("a",))], "half a character"),
    ):
        with pytest.raises(CotextError, match=message):
            write_parallel(path, None, documents, "parquet")
        assert path.read_text() == "before"
        assert [p.name for p in tmp_path.iterdir()] == ["x.parquet"]
    with pytest.raises(CotextError, match=r"internal compression; remove the suffix \.gz"):
        write_parallel(tmp_path / "x.parquet.gz", None, PAIRS, "parquet")


def test_memory_holds_a_piece_of_the_file(tmp_path: Path) -> None:
    """Of one large row group, too."""
    path = tmp_path / "x.parquet"
    rows = 200_000
    texts = pa.array(f"A sentence of about sixty characters, which differs: {n}" for n in range(rows))
    pq.write_table(
        pa.table({"id": pa.array(n // 10 for n in range(rows)).cast("string"), "source": texts}), path
    )
    before, peak, read = pa.total_allocated_bytes(), 0, 0
    for document in read_documents(path):
        read += len(document)
        peak = max(peak, pa.total_allocated_bytes() - before)
    assert read == rows
    assert peak < texts.nbytes / 2
