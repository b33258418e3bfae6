"""Options of file translation: splitting, bilingual pages, full stops; and refused combinations."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cotext.cli import translate
from cotext.files import translate_blocks, translate_files
from tests.command_line import World, cotext, listing, must_refuse, succeed
from tests.translation.test_translate_file import interrupted_after

TEXT = "The cat abv. The dog sees. Red fish.\n\nThe bird. Small dog abv. Big.\n"


def sentences(world: World, source: Path, *more: str | Path) -> int:
    out = source.with_suffix(".out")
    shown = succeed("translate", world.run, source, "--out", out, "--overwrite", "--json", *more)
    found = json.loads(shown.out)["sentences"]
    assert isinstance(found, int)
    return found


def test_files_are_split_as_asked(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "short.txt").write_text("abv.\n")
    asked = ("--abbreviations", tmp_path / "short.txt")
    assert sentences(world, tmp_path / "a.txt") == 6
    assert sentences(world, tmp_path / "a.txt", *asked) == 4
    assert sentences(world, tmp_path / "a.txt", "--no-split") == 2
    # A corpus, and standard input.
    out = tmp_path / "c.out"
    command = ["translate", world.run, tmp_path / "a.txt", "--format", "text", "--out", out, *asked]
    assert "2 are split into 4 sentences" in " ".join(succeed(*command).err.split())
    monkeypatch.setattr(translate, "STANDARD_INPUT", tmp_path / "a.txt")
    assert "2 lines split into 4 sentences" in succeed("translate", world.run, "-", *asked).err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            ("--abbreviations", "a.txt", "--no-split"),
            "--abbreviations applies to text that is split into sentences: omit",
        ),
        (("--abbreviations", "none.txt"), "none.txt: cannot be read: No such file"),
        (("--abbreviations", "a.txt"), "a.txt:1: not an abbreviation"),
    ],
)
def test_odd_splitting_is_refused(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text(TEXT)
    must_refuse(message, "translate", world.run, "a.txt", "--out", "b.txt", *more)
    assert list(tmp_path.iterdir()) == [tmp_path / "a.txt"]


def test_abbreviations_change_the_job(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "short.txt").write_text("abv.\n")
    command = ["translate", world.run, tmp_path / "a.txt", "--out", tmp_path / "b.txt"]
    asked = ("--abbreviations", tmp_path / "short.txt")
    with interrupted_after(monkeypatch, 0):
        assert cotext(*command, *asked).code == 130
    (tmp_path / "terms.tsv").write_text("cat\tdog\n")
    words = ("b.txt.partial: belongs to another job", "job.split: ", "job.terms")
    must_refuse(words, *command, "--glossary", tmp_path / "terms.tsv")
    succeed(*command, *asked)


def test_a_sentence_over_the_limit_is_named_by_its_place(world: World, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(f"# Red dog\n\nThe cat.\n\n{'cat ' * 90}\n")
    command = ["translate", world.run, tmp_path / "a.md", "--out", tmp_path / "b.md"]
    must_refuse("a.md: line 5: document 1, sentence 3: ", *command, "--set", "max_source_tokens=50")


def test_an_interrupted_page_is_written(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it is written, and behind that, before the job is forgotten."""
    (tmp_path / "a.txt").write_text(TEXT)
    command = ["translate", world.run, tmp_path / "a.txt", "--out", tmp_path / "b.txt"]
    command += ["--bilingual", tmp_path / "b.html"]
    succeed(*command)
    expected = listing(tmp_path)
    write = translate_files.write_bilingual
    for written in (False, True):
        (tmp_path / "b.txt").unlink()
        (tmp_path / "b.html").unlink()

        def interrupt(*arguments: Any, written: bool = written) -> None:
            if written:
                write(*arguments)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(translate_files, "write_bilingual", interrupt)
            assert cotext(*command).code == 130
        assert (tmp_path / "b.html").exists() == written
        assert "(1 document from an interrupted job)" in succeed(*command).out
        assert listing(tmp_path) == expected
    assert cotext(*command).code == 2


def test_what_an_interrupted_job_did_not_write_is_not_replaced(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    command = ["translate", world.run, tmp_path / "a.txt", "--out", tmp_path / "b.txt"]
    for done, (kind, option, name) in enumerate(
        (("prose", "bilingual", "c.html"), ("text", "scores", "c.tsv"))
    ):
        other = tmp_path / name
        other.touch()
        with interrupted_after(monkeypatch, done):
            assert cotext(*command, "--format", kind).code == 130
        more = ["--format", kind, f"--{option}", other]
        refused = cotext(*command, *more)
        assert (refused.code, other.read_bytes()) == (2, b"")
        assert f"{name}: exists" in refused.err
        succeed(*command, *more, "--overwrite")
        assert other.read_bytes()
        (tmp_path / "b.txt").unlink()


def test_what_is_no_text_file_is_named(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("folder").mkdir()
    Path("empty.docx").touch()
    refused = cotext("translate", world.run, "pipe", "folder", "empty.docx", "--out-dir", "out")
    assert refused.code == 2
    assert refused.err.splitlines() == [
        "cotext: pipe: is not a regular file; copy it to a regular file, or give - for standard input",
        "folder: is a folder; give the files in it, such as folder/*",
        "empty.docx: is empty: there is nothing to translate; omit this file",
    ]


def test_headings_get_no_full_stop(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the file as on the page beside it, but not where a memory has one."""
    (tmp_path / "a.md").write_text("# Red dog\n\nThe cat sees.\n\n* small bird\n")
    units = "<tu><tuv xml:lang='en'><seg>Red dog</seg></tuv><tuv xml:lang='de'><seg>Rot.</seg></tuv></tu>"
    head = "<header srclang='en' segtype='sentence' datatype='plaintext'/>"
    (tmp_path / "m.tmx").write_text(f"<tmx version='1.4'>{head}<body>{units}</body></tmx>")
    asked: list[str] = []

    def without(source: str, target: str, language: str, endings: tuple[str, ...]) -> str:
        assert endings == (" kz.",)
        asked.append(source)
        return f"{source}-{language}"

    monkeypatch.setattr(translate_blocks, "without_added_stop", without)
    command = ["translate", world.run, tmp_path / "a.md", "--out", tmp_path / "b.md"]
    (tmp_path / "terms.tsv").write_text("plate\tKz.\n")
    command += ["--memory", tmp_path / "m.tmx", "--glossary", tmp_path / "terms.tsv"]
    succeed(*command, "--bilingual", tmp_path / "b.tmx")
    assert (tmp_path / "b.md").read_text() == "# Rot.\n\nThe cat sees.-de\n\n* small bird-de\n"
    assert set(asked) == {"The cat sees.", "small bird"}
    assert "<seg>small bird-de</seg>" in (tmp_path / "b.tmx").read_text()
