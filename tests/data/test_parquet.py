"""Corpora in Parquet, and corpora at addresses."""

from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tiny_runs import toy_documents

from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import (
    detect_format,
    read_documents,
    read_parallel,
    write_documents,
    write_parallel,
    write_translations,
)
from cotext.data.formats.streams import opened
from cotext.data.prepare import prepare
from cotext.data.requests import PreparationRequest
from cotext.runtime.addresses import address_of
from cotext.runtime.errors import CotextError
from cotext.runtime.files import checksum

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


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
@pytest.mark.parametrize("id_column", ["id", "document", "docid"])
def test_a_row_is_a_sentence_where_it_holds_a_text(tmp_path: Path, kind: Any, id_column: str) -> None:
    rows = [(d.id, s, t) for d in PAIRS for s, t in zip(d.source, d.target, strict=True)]
    ids, sources, targets = (pa.array(column, kind) for column in zip(*rows, strict=True))
    columns = {"score": list(range(len(rows))), id_column: ids, "source": sources, "target": targets}
    assert list(read_parallel(write(tmp_path / "x", **columns), None)) == PAIRS


def test_a_document_is_found_beside_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "x", id=["a", "a", "b"], sentences=["one", "two", "th\nree"])
    with pytest.raises(CotextError, match=r"x:3: document 'b', sentence 1: contains a line feed"):
        list(read_documents(path))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"name": ["a"], "source": ["b"]}, "the columns are name, source; a corpus has `id`"),
        ({"id": ["a"], "text": ["b"]}, "the columns are id, text"),
        ({"id": ["a"], "source": [1]}, "source: int64"),
        (
            {"id": ["a"], "source": ["b"], "target": [["b"]]},
            "a side is a list of texts, or a text, in each row",
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
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(CotextError, match=r"x\.parquet: no Parquet file, or a damaged one"):
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
    with pytest.raises(CotextError, match=r"compressed in itself; leave \.gz out"):
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


# ------------------------------------------------------------------------------------------ addresses


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("s3://bucket/a/b.parquet", "s3://bucket/a/b.parquet"),
        ("https://example.org:8000/x?y=1", "https://example.org:8000/x?y=1"),
        ("memory://x/y.en", "memory:///x/y.en"),
        ("file:///tmp/x", "file:///tmp/x"),
        ("data/train.en", None),
        ("c:/train.en", None),
        ("note:/train.en", None),
        ("/tmp/s3:/x", None),
    ],
)
def test_addresses_among_paths(path: str, address: str | None) -> None:
    assert address_of(Path(path)) == address


@pytest.fixture
def store() -> Iterator[str]:
    """A folder of fsspec's in memory."""
    fsspec.filesystem("memory").makedirs("/corpora", exist_ok=True)
    yield "memory://corpora"
    fsspec.filesystem("memory").rm("/corpora", recursive=True)


def put(store: str, name: str, content: bytes) -> Path:
    with fsspec.open(f"{store}/{name}", "wb") as file:
        file.write(content)
    return Path(f"{store}/{name}")


def test_every_format_is_read_at_an_address(store: str, tmp_path: Path) -> None:
    documents = [Document(d.id, d.source) for d in PAIRS[:-1]]
    for name in ("x.parquet", "x.jsonl", "x.jsonl.gz", "x.jsonl.xz", "x.en"):
        kind = {".parquet": "parquet", ".en": "docids"}.get(Path(name).suffix, "jsonl")
        write_documents(tmp_path / name, documents, kind)
        path = put(store, name, (tmp_path / name).read_bytes())
        if kind == "docids":
            put(store, "x.docids", (tmp_path / "x.docids").read_bytes())
        assert detect_format(path) == kind
        assert list(read_documents(path)) == documents
        assert checksum(path) == checksum(tmp_path / name)


def test_a_corpus_at_an_address_is_prepared(store: str, tmp_path: Path) -> None:
    write_parallel(tmp_path / "train.parquet", None, PAIRS[:-1], "parquet")
    path = put(store, "train.parquet", (tmp_path / "train.parquet").read_bytes())
    for source, out in ((path, "far"), (tmp_path / "train.parquet", "near")):
        prepare(
            PreparationRequest(source=source, dev_source=source, out=tmp_path / out, vocabulary=48, workers=1)
        )
    for name in ("train.arrow", "dev.jsonl"):
        assert checksum(tmp_path / "far" / name) == checksum(tmp_path / "near" / name)


def test_what_is_not_at_an_address(store: str) -> None:
    with pytest.raises(CotextError, match=r"memory:///corpora/none\.en: no such file"):
        read_documents(Path(f"{store}/none.en"))
    with pytest.raises(CotextError, match=r"s3://bucket/x: cannot be read without another package"):
        read_documents(Path("s3://bucket/x"))


class _Lost:
    """A stream that breaks off."""

    closed = False

    def read(self, size: int = -1) -> bytes:
        raise TimeoutError("timed out")

    readline = readinto = read

    def __enter__(self) -> "_Lost":
        return self

    def __exit__(self, *error: object) -> None:
        return None


def test_an_address_that_falls_silent(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(store, "x.en", b"one\n")
    monkeypatch.setattr(type(fsspec.filesystem("memory")), "open", lambda self, path, mode: _Lost())
    with pytest.raises(CotextError, match=r"memory:///corpora/x\.en: cannot be read: timed out"):
        list(read_documents(path, "text"))


class _Pieces(SimpleHTTPRequestHandler):
    """Answers requests for a range of bytes, and counts bytes."""

    sent = 0

    def log_message(self, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        content = Path(self.translate_path(self.path)).read_bytes()
        asked = self.headers.get("Range", "")
        first, _, last = asked.removeprefix("bytes=").partition("-")
        part = content[int(first) : int(last) + 1] if asked else content
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(part)))
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}")
        self.end_headers()
        self.wfile.write(part)
        type(self).sent += len(part)


@pytest.mark.outside
def test_of_a_table_on_a_server_only_the_columns_that_are_needed_are_fetched(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    filling = [f"{7919**20 * n % 10**200:0200}" for n in range(60_000)]
    ids = [str(n) for n in range(60_000)]
    pq.write_table(pa.table({"id": ids, "source": ids, "other": filling}), tmp_path / "x.parquet")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Pieces, directory=str(tmp_path)))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        path = Path(f"http://127.0.0.1:{server.server_port}/x.parquet")
        assert sum(1 for _ in read_documents(path, "parquet")) == 60_000
        with opened(path) as stream:
            assert stream.read(4) == b"PAR1"
    finally:
        server.shutdown()
    assert _Pieces.sent < (tmp_path / "x.parquet").stat().st_size
