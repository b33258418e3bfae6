"""`cotext translate` with --bilingual and --memory."""

import re
from pathlib import Path

import pytest

from tests.command_line import World, must_refuse, succeed

TEXT = "The cat sees. A dog runs. The bird sings.\n\nThe big fish < the cat & a dog.\n"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text(TEXT)
    return path


def command(world: World, text: Path, out: str, *more: str | Path) -> list[str | Path]:
    return ["translate", world.run, text, "--out", text.with_name(out), *more]


def test_what_is_forced_as_a_whole_is_not_unsure(world: World, text: Path) -> None:
    text.write_text("The cat sees. A dog runs.\n\nbirds!\n\n" * 5)
    page, keep = text.with_name("page.html"), text.with_name("keep.txt")
    keep.write_text("birds\n")
    succeed(*command(world, text, "out.txt", "--bilingual", page, "--keep", keep))
    rows = re.findall(r"<tr .*?</tr>", page.read_text(encoding="utf-8"))
    assert len(rows) == 15
    [marked] = (row for row in rows if "unsure" in row)
    assert "birds" not in marked


def test_a_memory_gives_the_same_file_again(world: World, text: Path) -> None:
    memory = text.with_name("memory.tmx")
    first = succeed(*command(world, text, "first.txt", "--bilingual", memory))
    assert "translation memory" not in first.out
    second = succeed(*command(world, text, "second.txt", "--memory", memory))
    assert re.search(r"4 sentences\s+taken from the translation memory", second.out)
    assert text.with_name("second.txt").read_bytes() == text.with_name("first.txt").read_bytes()
    # Every sentence is in the memory behind the one before it alone.
    text.write_text("A dog runs. The bird sings.\n")
    page = text.with_name("third.html")
    third = succeed(*command(world, text, "third.txt", "--memory", memory, "--bilingual", page))
    assert re.search(r"1 sentence\s+taken from the translation memory", third.out)


def test_what_is_refused_leaves_nothing(world: World, text: Path) -> None:
    (text.parent / "there.html").write_text("mine")
    page, there, no_folder = (text.with_name(name) for name in ("p.html", "there.html", "no"))
    for more, message in (
        (["--bilingual", text.with_name("p.pdf")], "must end with .html or .tmx"),
        (["--bilingual", there], "exists"),
        (["--bilingual", no_folder / "p.html"], "is not a folder"),
        (["--format", "text", "--bilingual", page], "a single file that is not a corpus"),
        (["--memory", text.with_name("none.tmx")], "none.tmx"),
        (["--memory", text], "notes.txt"),
    ):
        must_refuse(message, *command(world, text, "out.txt", *more))
        assert not text.with_name("out.txt").exists()
        assert not page.exists()
    assert there.read_text() == "mine"
    twice = ("translate", world.run, text, "--out", page, "--bilingual", page)
    must_refuse("this command also reads or writes this file", *twice)
    memory, out = text.with_name("there.tmx"), ("--out", text.with_name("out.txt"))
    translate = ("translate", world.run, text, "--memory", memory, "--overwrite")
    must_refuse("this command also reads or writes this file", *translate, *out, "--bilingual", memory)
    several = ["translate", world.run, text, there, "--out-dir", text.with_name("all"), "--bilingual", page]
    must_refuse("a single file", *several)
    assert sorted(path.name for path in text.parent.iterdir()) == ["notes.txt", "there.html"]
    must_refuse("would overwrite", *translate, "--out", there.rename(out[1]), "--glossary", out[1])
