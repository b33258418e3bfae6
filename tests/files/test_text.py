"""Plain text: detection of running text, joined lines, and unchanged lines."""

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from cotext.data.formats.streams import opened
from cotext.files.blocks import Block
from cotext.files.places import SplicedFile
from cotext.files.table import recognise
from cotext.files.text import FORMAT, wrap_width, wrapped
from tests.loops import loop_over

LETTER = """From: Anna
To: Bob

Dear Bob, I bought a new lamp last week and I am very glad about
it. It was expensive. The table was new as well, and she liked it
very much. We will see each other on Monday, I hope, or maybe on
Tuesday if it rains.

> She liked the lamp.
> He did too.

1. Buy milk.
2. Call Anna. She is late.

Best,
Anna
"""


def written(file: SplicedFile, *texts: str) -> str:
    [blocks] = file.contents.documents
    return file.written([[replace(b, pieces=(t,)) for b, t in zip(blocks, texts, strict=True)]]).decode()


def test_a_letter_is_paragraphs() -> None:
    file = FORMAT.open(LETTER.encode(), "x")
    [blocks] = file.contents.documents
    assert [(block.place, block.text.split("\n")[0]) for block in blocks] == [
        ("line 1", "From: Anna"),
        ("line 2", "To: Bob"),
        ("line 4", "Dear Bob, I bought a new lamp last week and I am very glad about"),
        ("line 9", "She liked the lamp."),
        ("line 10", "He did too."),
        ("line 12", "Buy milk."),
        ("line 13", "Call Anna. She is late."),
        ("line 15", "Best,"),
        ("line 16", "Anna"),
    ]
    long = " ".join(["wort"] * 60)
    found = written(file, "a", "b", long, "d", "e", "f", "g", "h", "i")
    lines = found.splitlines()
    assert lines[:3] == ["a", "b", ""]
    others = ["", "> d", "> e", "", "1. f", "2. g", "", "h", "i"]
    assert [line for line in lines if "wort" not in line][3:] == others
    assert max(map(len, lines)) <= 65
    assert found.count("wort") == 60
    assert "wrapped at 65 characters" in file.contents.messages[1]


def test_a_line_of_a_quotation_or_of_columns_continues_no_other() -> None:
    wrapped_lines = [
        "I bought a new lamp last week and I am very glad about the",
        "lamp that I bought, as it was not even expensive, and the",
        "table was new as well, so that she liked the whole room very",
        "much. We will see each other on Monday, I hope, or maybe on",
    ]
    for last, blocks in (("Thursday, if it rains.", 1), ("> Thursday it is.", 2), ("Thursday\tit", 2)):
        [found] = FORMAT.open("\n".join([*wrapped_lines, last]).encode(), "x").contents.documents
        assert len(found) == blocks, last


@loop_over(
    ("text", "prose"),
    [
        (LETTER, True),
        ("One. Two is it.\n\nThree. Four it is.\n", True),
        ("the cat\na dog\n\nthe bird\n", False),
        ("It was. It is.\nThe cat.\nThe dog.\nThe bird.\nThe fish.\n", False),
        ("the cat\ra dog\r\rthe bird", True),
        ("# not a corpus of one\n- or is it\n", False),
        ("", False),
        ("\0", False),
    ],
)
def test_prose_is_told_by_content(text: str, prose: bool) -> None:
    assert (recognise(text.encode(), "x.txt") is not None) == prose


def test_corpora_are_no_prose(shared_data: Path) -> None:
    """Of one segment a line, aligned by people and machines."""
    names = ["mix-ende/dev.en.xz", "mix-ende/test.de.xz", "mix-enzh/test.zh.xz", "mix-enru/dev.ru.xz"]
    for name in [*names, "maruf/ted/dev.de", "maruf/europarl/test.en"]:
        with opened(shared_data / name) as file:
            assert recognise(file.read(1 << 18), "x.txt") is None, name


def test_columns_and_ends_of_lines_stay() -> None:
    file = FORMAT.open(b"Name\tthe cat    and dog\r\n", "x")
    [[block]] = file.contents.documents
    assert [piece for piece in block.pieces if isinstance(piece, str)] == ["Name", "the cat", "and dog"]
    assert file.written([[block]]) == b"Name\tthe cat    and dog\r\n"
    file = FORMAT.open("\ufeff  - One. Two.  \r\n----\r\n\r\nThree".encode(), "x")
    [blocks] = file.contents.documents
    assert blocks == [Block(("One. Two.",), "line 1"), Block(("Three",), "line 4")]
    assert written(file, "eins", "drei") == "\ufeff  - eins  \r\n----\r\n\r\ndrei"


WORDS = st.lists(st.text("abc", min_size=1, max_size=8), max_size=30)


@given(WORDS, st.integers(40, 120))
def test_what_was_wrapped_is_seen_to_be(words: list[str], width: int) -> None:
    lines = wrapped(" ".join(f"{word}x" for word in words * 9), width)
    assert wrap_width(lines) <= width
