"""Translation of files by the command line: several files, interruptions, refusals, formats."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotext.cli import translate
from cotext.data.formats import FORMATS
from cotext.files.blocks import Block, Close, Contents, Copied, Open, Piece, Point, merged
from cotext.files.markdown import MarkdownReader
from cotext.files.table import format_of, require_fitting_name
from cotext.files.text import FORMAT
from cotext.runtime import CotextError
from cotext.runtime.jobs.journal import Journal
from cotext.translation.open import OpenedRun, open_run
from tests.command_line import World, cotext, listing, must_refuse, piped, succeed
from tests.loops import loop_over
from tests.translating import translated_blocks
from tests.translation.test_translate_file import interrupted_after

NOTES = """Red dog

The cat sees. A dog runs. The bird sings.
- the cat sees a dog
  * Big fish. Small fish.

----
> the bird sings\tred
"""
PAGE = """# The *red* dog

The cat sees [a dog](http://x.y "the bird"). The `code` sings and the **big fish runs**.
The bird.

* the cat
* a `dog`
"""


@pytest.fixture(scope="module")
def run(world: World) -> OpenedRun:
    return open_run(world.run, "cpu", {"beam": 1})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "notes.txt").write_text(NOTES)
    (tmp_path / "page.md").write_text(PAGE)
    (tmp_path / "corpus.en").write_text("the cat\na dog\n\nthe bird\n")
    return tmp_path


FILES = ("notes.txt", "page.md", "corpus.en")


def command(world: World, folder: Path, *more: str | Path) -> list[str | Path]:
    return ["translate", world.run, *(folder / name for name in FILES), "--out-dir", folder / "out", *more]


def test_files_together_are_as_each_alone(world: World, folder: Path) -> None:
    shown = succeed(*command(world, folder))
    for name in FILES:
        assert f"{folder / 'out' / name}: " in shown.out
        succeed("translate", world.run, folder / name, "--out", folder / f"alone-{name}")
        assert (folder / "out" / name).read_bytes() == (folder / f"alone-{name}").read_bytes()
    assert f"{folder / 'out' / 'notes.txt'}: 9 sentences in the file\n" in shown.out
    told = " ".join(shown.err.split())
    assert f"{folder}/notes.txt: read as running text, because 2 of 6 lines contain several sentences" in told
    assert "3 paragraphs are split into 7 sentences" in told
    assert sorted(path.name for path in (folder / "out").iterdir()) == sorted(FILES)
    # What is not text stays.
    notes = (folder / "out" / "notes.txt").read_text().split("\n")
    assert len(notes) == len(NOTES.split("\n"))
    assert [notes[1], notes[5], notes[6]] == ["", "", "----"]
    assert [line[:4] for line in notes[3:5]] == ["- " + notes[3][2:4], "  * "]
    assert notes[7].startswith("> ")
    assert notes[7].count("\t") == 1
    page = (folder / "out" / "page.md").read_text()
    for kept in ("# ", "](http://x.y ", "`code`", "**", "`dog`", "\n* "):
        assert page.count(kept) == PAGE.count(kept), kept


def test_a_report_for_each_file(world: World, folder: Path) -> None:
    found = json.loads(succeed(*command(world, folder, "--json")).out)
    assert [(each["file_format"], each["is_corpus"]) for each in found["files"]] == [
        ("prose", False),
        ("markdown", False),
        ("text", True),
    ]
    assert found["files"][0]["sentences"] == 9
    assert found["files"][0]["messages"]
    command_alone = ["translate", world.run, folder / "page.md", "--out", folder / "a", "--json"]
    alone = json.loads(succeed(*command_alone).out)
    assert (alone["format"], alone["file_format"]) == ("cotext-translate", "markdown")


def test_what_is_not_written_well_is_said(
    world: World, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MarkdownReader, "_parsed", lambda self, place, lines: None)
    done = succeed("translate", world.run, folder / "page.md", "--out", folder / "a", "--json")
    said = "the translation may contain unintended markup"
    assert said in done.err
    assert any(said in message for message in json.loads(done.out)["messages"])


def test_nothing_is_overwritten_unasked(world: World, folder: Path) -> None:
    succeed(*command(world, folder))
    (folder / "out" / "notes.txt").write_text("mine")
    before = listing(folder)
    must_refuse("add --overwrite to replace what is there", *command(world, folder))
    assert listing(folder) == before
    succeed(*command(world, folder, "--overwrite"))
    assert (folder / "out" / "notes.txt").read_text() != "mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["notes.txt", "page.md", "--out", "x"], "--out is for one file, but 2 files are given"),
        (["notes.txt", "--out", "-"], "files are not written to standard output"),
        (["notes.txt"], "--out FILE is needed, or --out-dir FOLDER"),
        (["notes.txt", "--out", "x", "--out-dir", "y"], "give only one of them"),
        (["notes.txt", "a/notes.txt", "--out-dir", "y"], "would both be written to"),
        (["notes.txt", "--out-dir", "page.md"], "is not a folder"),
        (["notes.txt", "--out-dir", "."], "would overwrite an input file"),
        (["notes.txt", "--out", "notes.txt"], "would overwrite an input file"),
        (["notes.txt", "page.md", "-", "--out-dir", "y"], "omit all other files"),
        (["notes.txt", "--out", "x", "--format", "markdwn"], "did you mean markdown?"),
        (["notes.txt", "--out", "x", "--scores", "s"], "--scores can be used only with a single corpus"),
        (["bad.txt", "none.txt", "notes.txt", "--out-dir", "y"], "none.txt: no such file"),
        (["bad.txt", "--out", "x", "--format", "prose"], "bad.txt:1: invalid utf-8, byte 5"),
        (["bad.md", "notes.txt", "--out-dir", "y"], "bad.md:1: contains a NUL character"),
        (["big.txt", "--out", "x", "--format", "prose"], "big.txt: has 10,737,418,240 bytes, but the limit"),
        (["lines.docx", "--out", "x"], "lines.docx: ends in .docx, but it contains only text; save it as"),
        (["page.md", "--out", "x.pdf"], "x.pdf: ends in .pdf, a format that is not written"),
        (["page.md", "--out", "x.docx"], "x.docx: ends in .docx, but the output is written as markdown; let"),
        (["talk.srt", "--out", "x.vtt"], "is written as subtitles; let --out end in .srt"),
        (["corpus.en", "--out", "x.PO"], "but the output is written as text; let --out end in .en"),
        (["lines.docx", "--out", "x", "--format", "docx"], "lines.docx: not a zip archive"),
    ],
)
def test_what_is_refused_is_refused_before_any_work(
    world: World, folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(folder)
    Path("a").mkdir()
    Path("a/notes.txt").write_text(NOTES)
    Path("bad.txt").write_bytes(b"the \xff. It was.\n")
    Path("bad.md").write_bytes(b"the \0\n")
    Path("lines.docx").write_text("the dog\nthe cat\n")
    Path("talk.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nthe dog\n")
    Path("big.txt").touch()
    os.truncate("big.txt", 10 << 30)
    before = sorted(folder.rglob("*"))
    must_refuse(message, "translate", world.run, *arguments)
    assert sorted(folder.rglob("*")) == before


@loop_over(
    ("source", "out", "format"),
    [
        ("page.md", "x.markdown", None),
        ("page.md", "x", None),
        ("page.md", "x.de", None),
        ("page.md", "x.md", "text"),
        ("corpus.en", "x.txt", None),
        ("notes.txt", "x.MD", "markdown"),
    ],
)
def test_names_of_outputs_that_fit(folder: Path, source: str, out: str, format: str | None) -> None:
    require_fitting_name(folder / out, format_of(folder / source, format), folder / source)


def test_interrupted_the_command_goes_on(world: World, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that were finished are not translated again."""
    succeed(*command(world, folder))
    expected = listing(folder / "out")
    for path in (folder / "out").iterdir():
        path.unlink()
    with interrupted_after(monkeypatch, 2):
        assert cotext(*command(world, folder)).code == 130
    assert {p.name for p in (folder / "out").iterdir()} == {
        *("notes.txt", "notes.txt.partial", "page.md", "page.md.partial")
    }
    # What has been changed since is not lost.
    page = (folder / "out" / "page.md").read_bytes()
    (folder / "out" / "page.md").write_bytes(page + b"mine")
    must_refuse("has been changed since it was written", *command(world, folder))
    (folder / "out" / "page.md").write_bytes(page)
    shown = succeed(*command(world, folder)).out
    assert shown.count("(1 document from an interrupted job)") == 2
    assert listing(folder / "out") == expected


@pytest.mark.parametrize("windows", [1, 4])
def test_a_document_goes_on_where_it_was_interrupted(
    world: World, folder: Path, monkeypatch: pytest.MonkeyPatch, windows: int
) -> None:
    """A document is translated window by window, and no window twice."""
    whole = ["translate", world.run, folder / "notes.txt", "--out"]
    succeed(*whole, folder / "expected")
    add = Journal.note
    noted: list[int] = []

    def add_and_interrupt(journal: Journal, unit: int, content: Any) -> None:
        if len(noted) == windows:
            raise KeyboardInterrupt
        noted.append(content["window"])
        add(journal, unit, content)

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "note", add_and_interrupt)
        assert cotext(*whole, folder / "out").code == 130
    # What is damaged is done again.
    journal = folder / "out.partial"
    *kept_lines, last = journal.read_text().splitlines(keepends=True)
    if windows == 4:
        journal.write_text("".join([*kept_lines, last.replace('"exact": true', '"exact": 1'), "\n"]))
    windows = 10**6
    before, noted = len(noted), []
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "note", add_and_interrupt)
        shown = succeed(*whole, folder / "out")
    kept = max(before - before // 4, 0)
    assert len(noted) == 9 - kept
    assert (f"{kept} windows were translated before" in shown.err) == (kept > 0)
    assert (folder / "out").read_bytes() == (folder / "expected").read_bytes()


@pytest.mark.parametrize(("ending", "mark", "last"), [("\n", "", "the dog"), ("\r\n", "\ufeff", "")])
def test_standard_input_is_a_line_for_a_line(
    world: World, monkeypatch: pytest.MonkeyPatch, ending: str, mark: str, last: str
) -> None:
    text = f"{mark}{NOTES}{last}".replace("\n", ending)
    with piped(text.encode()) as path:
        monkeypatch.setattr(translate, "STANDARD_INPUT", path)
        outcome = succeed("translate", world.run, "-")
    given, found = text.split(ending), outcome.out.split(ending)
    assert len(given) == len(found)
    assert outcome.out.startswith(mark)
    assert [bool(line.strip()) for line in given] == [bool(line.strip()) for line in found]
    assert "2 lines split into 5 sentences" in outcome.err


def test_lines_broken_at_a_width_are_joined_and_broken_again(world: World, folder: Path) -> None:
    words = ["the", "small", "cat", "sees", "a", "big", "green", "dog", "and", "the", "red", "bird", "sings"]
    lines, line = [], ""
    for number in range(80):
        word = words[number * 7 % len(words)]
        if len(line) + 1 + len(word) > 60:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    path = folder / "wrapped.txt"
    path.write_text("\n".join([*lines, f"{line}."]) + "\n")
    shown = succeed("translate", world.run, path, "--out", folder / "o.txt", "--set", "max_ratio=1.5")
    assert "wrapped at" in shown.err
    assert "are joined" in " ".join(shown.err.split())
    assert all(len(each) <= 60 for each in (folder / "o.txt").read_text().splitlines() if " " in each)


@st.composite
def contents(draw: st.DrawFn) -> Contents:
    """Documents of blocks with elements, some of them context alone."""
    words = st.lists(st.sampled_from(("the cat", "A dog.", "Red. ", " ", "12")), max_size=4).map("".join)

    def block() -> Block:
        keys = iter(range(9))
        pieces: list[Piece] = [draw(words)]
        for _ in range(draw(st.integers(0, 3))):
            key = next(keys)
            added: list[Piece] = [Open(key), draw(words), Close(key)]
            kind = draw(st.integers(0, 3))
            pieces += [added, [Point(key)], [Copied(key, "x1")], [draw(words)]][kind]
        return Block(merged([*pieces, draw(words)]), translate=draw(st.booleans()))

    return Contents(
        [[block() for _ in range(draw(st.integers(0, 3)))] for _ in range(draw(st.integers(0, 3)))]
    )


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(given=contents(), splitting=st.sampled_from([None, frozenset()]))
def test_blocks_and_every_element_once(
    run: OpenedRun, given: Contents, splitting: frozenset[str] | None
) -> None:
    found = translated_blocks(run, given.documents, splitting)
    assert [len(blocks) for blocks in found] == [len(blocks) for blocks in given.documents]
    for blocks, own in zip(found, given.documents, strict=True):
        for block, source in zip(blocks, own, strict=True):
            elements = [
                sorted(map(repr, (p for p in b.pieces if not isinstance(p, str)))) for b in (block, source)
            ]
            assert elements[0] == elements[1]
            assert source.translate or block == source
    # A document is translated as it is alone.
    for blocks, own in zip(found, given.documents, strict=True):
        assert translated_blocks(run, [own], splitting) == [blocks]


TEXTS = st.lists(
    st.sampled_from(("the cat", "Red dog. A bird.", "", " ", "- x", "> y", "----", "\t", "\n", "\r\n", "\r")),
    max_size=30,
).map("".join)


@settings(max_examples=300)
@given(TEXTS)
def test_any_plain_text_is_reproduced(text: str) -> None:
    file = FORMAT.open(text.encode(), "x.txt")
    assert file.written(file.contents.documents) == text.encode()


@pytest.mark.parametrize("name", ["a.html", "a.md", "a.text", "a.en", "a"])
def test_any_text_may_have_such_a_name(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("the dog\nthe cat\n")
    found = format_of(tmp_path / name)
    of_name = {"a.html": "html", "a.md": "markdown"}.get(name, "text")
    assert (found if isinstance(found, str) else found.name) == of_name


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("en.json", '{\n  "a": "the dog"\n}\n'),
        ("en.arb", '["the dog"]\n'),
        ("en.json", '{"a": "the dog", }\n'),
        ("en.json", '{"a": "the dog"}\n'),
        ("en.yml", "en:\n  a: the dog\n"),
        ("a.properties", "a.b=the dog\n"),
        ("a.strings", '"a" = "the dog";\n'),
        ("a.csv", "id,text\n1,the dog\n"),
        ("a.tex", "\\section{The dog}\n"),
        ("a.tsv", "the dog\tder Hund\nthe cat\tdie Katze\n"),
    ],
)
def test_catalogues_of_strings_are_refused(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(
        CotextError, match=r"not a supported format: it looks like (JSON|YAML|Java|Apple|CSV|LaTeX|a table)"
    ):
        format_of(tmp_path / name)


@pytest.mark.parametrize("content", ['{"sentences": ["a", "b"]}\n', "<d>\nthe dog\n</d>\n"])
def test_a_corpus_that_is_marked_may_have_any_name(content: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(content)
    assert format_of(tmp_path / "a.json") in FORMATS
