"""Limits on unpacked corpora and documents, and reading from pipes."""

import gzip
import json
import lzma
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite, read_suite, write_suite
from cotext.data.formats import read_documents, read_parallel, streams, xml_formats
from cotext.evaluation.metrics.discourse import read_marks
from cotext.evaluation.studies.contrastive.decisions import read_decisions
from tests.command_line import piped
from tests.refusals import must_raise

SUITE = ContrastiveSuite(
    "mine", "en", "de", (ContrastiveExample("1", "pronoun", 1, ("a", "b"), (("A", "B"), ("A", "C")), 0),)
)


def test_a_bomb_is_refused_in_little_memory(tmp_path: Path) -> None:
    """One line of two gigabytes in 130 kB, read by a process that may have half of one."""
    path = tmp_path / "bomb.en.gz"
    path.write_bytes(gzip.compress(b"a" * (1 << 25), 1) * 64)
    assert path.stat().st_size < 1 << 24
    code = (
        "import resource, sys; from pathlib import Path; from cotext.data.formats import read_documents\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))\n"
        "list(read_documents(Path(sys.argv[1]), 'text'))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, path], stderr=subprocess.PIPE, text=True, check=False, timeout=60
    )
    assert found.stderr.splitlines()[-1].endswith(
        "bomb.en.gz:1: a line of more than 16,777,216 bytes; split it"
    )


@pytest.mark.parametrize("name", ["a.en", "a.en.gz", "a.en.xz"])
@pytest.mark.parametrize("format", ["text", "d-lines", "tsv", "jsonl"])
def test_long_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, format: str) -> None:
    pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(Path(name).suffix, bytes)
    path = tmp_path / name
    lines = {
        "text": b"%s\n",
        "d-lines": b"<d>\n%s\n",
        "tsv": b"1\tx\t%s\n",
        "jsonl": b'{"id": "1", "sentences": ["%s"]}\n',
    }
    content = lines[format] % (b"a" * 100)
    longest = max(map(len, content.splitlines(keepends=True)))
    path.write_bytes(pack(content))
    monkeypatch.setattr(streams, "MAX_LINE_BYTES", longest)
    [document] = read_documents(path, format, side="target")
    assert "a" * 100 in document.sentences
    monkeypatch.setattr(streams, "MAX_LINE_BYTES", longest - 1)
    last = len(content.splitlines())
    must_raise(rf"{name}:{last}: a line of", read_documents, path, format)


@pytest.mark.parametrize(
    ("format", "files"),
    [
        ("text", {"a.en": b"a\n" * 50}),
        ("d-lines", {"a.en": b"<d>\n" + b"\n" * 50}),
        ("tsv", {"a.en": b"1\ta\tb\n" * 50}),
        ("docids", {"a.en": b"a\n" * 50, "a.docids": b"1\t50\n"}),
        ("tmx", {"a.en": b"<tmx>" + b"<tu><tuv xml:lang='en'><seg>a</seg></tuv></tu>" * 50 + b"</tmx>"}),
        ("wmt-xml", {"a.en": b"<d><doc><src>" + b"<seg>a</seg>" * 50 + b"</src></doc></d>"}),
    ],
)
def test_documents_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, files: dict[str, bytes]
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    [document] = read_documents(tmp_path / "a.en", format)
    assert len(document) == 50
    monkeypatch.setattr(streams, "MAX_DOCUMENT_BYTES", 40 * (streams.SENTENCE_BYTES + 1))
    must_raise(r"a\.en:?.* document of more than", read_documents, tmp_path / "a.en", format)


def test_the_limit_is_of_documents_not_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_DOCUMENT_BYTES", 3 * (streams.SENTENCE_BYTES + 1))
    monkeypatch.setattr(streams, "MAX_LINE_BYTES", 100)
    documents = {
        "text": b"a\nb\n\n" * 50,
        "d-lines": b"<d>\na\nb\n" * 50,
        "tsv": b"".join(b"%d\ta\n%d\tb\n" % (n, n) for n in range(50)),
        "wmt-xml": b"<d>" + b"<doc><src><seg>a</seg><seg>b</seg></src></doc>" * 50 + b"</d>",
    }
    for format, content in documents.items():
        (tmp_path / "a").write_bytes(content)
        assert [d.sentences for d in read_documents(tmp_path / "a", format)] == [("a", "b")] * 50


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<d><doc><src><seg>" + b"a " * 5000 + b"</seg></src></doc></d>", "a segment of more than 1,000"),
        (b"<d><!-- " + b"a" * 5000 + b" --></d>", "markup of more than 1,000"),
        (b"<d x='" + b"a" * 5000 + b"'></d>", "markup of more than 1,000"),
        (b"<" + b"d" * 5000 + b"></d>", "markup of more than 1,000"),
        (b"<d>" * 500 + b"</d>" * 500, "more than 100 nested elements"),
    ],
)
def test_endless_xml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, message: str) -> None:
    monkeypatch.setattr(streams, "MAX_LINE_BYTES", 1000)
    monkeypatch.setattr(xml_formats, "CHUNK_BYTES", 100)
    (tmp_path / "a.xml").write_bytes(content)
    must_raise(rf"a\.xml:1: {message}", read_documents, tmp_path / "a.xml", "wmt-xml")


def test_whole_files_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("s.json", "s.json.gz", "s.json.xz"):
        write_suite(tmp_path / name, SUITE)
    size = (tmp_path / "s.json").stat().st_size
    monkeypatch.setattr(streams, "MAX_WHOLE_BYTES", size)
    assert read_suite(tmp_path / "s.json.gz") == SUITE
    monkeypatch.setattr(streams, "MAX_WHOLE_BYTES", size - 1)
    for name in ("s.json", "s.json.gz", "s.json.xz"):
        for read in (read_suite, read_decisions):
            must_raise(f"{name}: contains more than {size - 1} bytes", read, tmp_path / name)


def test_named_pipes_are_no_suites(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for read in (read_suite, read_decisions, read_marks):
        must_raise("pipe: is a named pipe", read, tmp_path / "pipe")


def test_what_a_shell_pipes_in_is_read(tmp_path: Path) -> None:
    write_suite(tmp_path / "s.json.gz", SUITE)
    with piped((tmp_path / "s.json.gz").read_bytes()) as path:
        assert read_suite(path) == SUITE
    with piped(json.dumps({"mine": {"decisions": {"1": "right"}}}).encode()) as path:
        assert read_decisions(path)["mine"].right == {"1": True}
    with piped(b"TC\t3:is,was\n") as path:
        assert read_marks(path)[0].marks[0].position == 3
    # More than a pipe holds at once.
    with piped(b"a\nb\n\nc\n" * 10_000) as source, piped(b"A\nB\n\nC\n" * 10_000) as target:
        assert sum(len(d) for d in read_parallel(source, target, "text")) == 30_000
