"""Corpora from every format into every other, and a look at their beginning."""

from pathlib import Path

from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import FORMATS, read_documents, read_parallel, write_documents, write_parallel
from cotext.data.formats.xml_formats import languages_of_tmx
from tests.command_line import World, must_refuse, succeed
from tests.loops import loop_over
from tests.tiny_runs import toy_documents

DOCUMENTS = toy_documents(5, 51)
SENTENCES = sum(map(len, DOCUMENTS))
SOURCES = [Document(d.id, d.source) for d in DOCUMENTS]
WRITTEN = [name for name, row in FORMATS.items() if row.encode]
# Every format is read, and every one written; all pairs would take both many times.
PAIRS = [*((name, "jsonl") for name in WRITTEN), *(("docids", name) for name in WRITTEN)]


@loop_over(("read", "to"), PAIRS)
def test_every_format_into_every_format(tmp_path: Path, read: str, to: str) -> None:
    write_documents(tmp_path / "in.x", SOURCES, read)
    shown = succeed("convert", tmp_path / "in.x", "--to", to, "--out", tmp_path / "out.y", "--format", read)
    assert shown.out == f"{tmp_path / 'out.y'}: {SENTENCES} sentences in 5 documents\n"
    found = list(read_documents(tmp_path / "out.y", to))
    assert [d.sentences for d in found] == [d.sentences for d in SOURCES]
    if FORMATS[read].carries_ids and FORMATS[to].carries_ids:
        assert found == SOURCES
    # The same with both languages, in one file or two.
    given, written = (
        (tmp_path / f"{stem}.both", None if FORMATS[name].holds_both_languages else tmp_path / stem)
        for stem, name in (("in", read), ("out", to))
    )
    write_parallel(*given, DOCUMENTS, read)
    other = ["--out-target", written[1]] if written[1] else []
    succeed("convert", *filter(None, given), "--to", to, "--out", written[0], *other, "--format", read)
    found = list(read_parallel(*written, to))
    assert [(d.source, d.target) for d in found] == [(d.source, d.target) for d in DOCUMENTS]


def test_a_translation_memory_names_the_languages_of_the_corpus(tmp_path: Path) -> None:
    files = [tmp_path / "x.en", tmp_path / "x.de"]
    write_parallel(*files, DOCUMENTS, "text")
    for given, out in ((files, tmp_path / "a.tmx"), ([tmp_path / "a.tmx"], tmp_path / "b.tmx")):
        succeed("convert", *given, "--to", "tmx", "--out", out)
    assert (tmp_path / "a.tmx").read_text() == (tmp_path / "b.tmx").read_text()
    assert languages_of_tmx(tmp_path / "b.tmx") == ("en", "de")


def test_what_a_format_cannot_hold_is_refused_and_nothing_written(tmp_path: Path) -> None:
    path, out = tmp_path / "in.jsonl", tmp_path / "out"
    write_parallel(path, None, [ParallelDocument("a\tb", ("x", ""), ("y", "z"))], "jsonl")
    both = ["--out-target", tmp_path / "t"]
    for given, words in (
        (["--to", "tsv", "--out", out], "tab"),
        (["--to", "text", "--out", out, *both], "empty"),
        (["--to", "text", "--out", out], "--out-target"),
        (["--to", "jsonl", "--out", out, *both], "remove the target file"),
        (["--to", "docx", "--out", out], "unknown corpus format"),
        (["--to", "jsonl", "--out", path], "would overwrite"),
    ):
        must_refuse(words, "convert", path, *given)
        assert [p.name for p in tmp_path.iterdir()] == ["in.jsonl"]
    write_documents(tmp_path / "one", SOURCES, "text")
    must_refuse("contains one language", "convert", tmp_path / "one", "--to", "d-lines", "--out", out, *both)


def test_head_of_parts_and_of_what_is_not_there(world: World, tmp_path: Path) -> None:
    data = world.folder / "data"
    assert toy_documents(4, 1)[0].source[0] in succeed("head", data, "--split", "dev").out
    for arguments, word in (
        ([data, "--split", "test"], "test.arrow"),
        ([data, "--split", "x"], "train, dev, test"),
        ([data, "--format", "text"], "format has no effect for a folder"),
        ([world.folder / "test.en", "--split", "dev"], "split has no effect for a file"),
        ([tmp_path], "cotext prepare"),
        ([tmp_path / "none"], "no such file"),
    ):
        must_refuse(word, "head", *arguments)
    (long := tmp_path / "long").write_text("a" * 500 + "\n")
    assert f"{'a' * 30} ...\n" in succeed("head", long, "--characters", "30").out
