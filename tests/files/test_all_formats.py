"""Every format, with random structures and translations; tests/hostile draws more."""

import random
import sys

import pytest

from cotext.files.blocks import Job
from cotext.files.table import file_formats, recognise
from tests.files import (
    enemies,
    structures,
    test_html,
    test_markdown,
    test_po,
    test_subtitles,
    test_text,
    test_xliff,
)
from tests.files.faking import assert_damage_is_survived, assert_well_formed, same_again, shuffled
from tests.files.structures import STRUCTURES
from tests.loops import loop_over
from tests.refusals import must_raise


@loop_over("name", STRUCTURES)
def test_a_hostile_translation_is_a_text_like_any_other(name: str) -> None:
    for seed in range(8):
        enemies.attack(name, random.Random(f"{name} {seed}"))


@loop_over("name", STRUCTURES)
def test_damage_is_survived(name: str) -> None:
    for seed in range(4):
        content, file_name = STRUCTURES[name](random.Random(f"{name} {seed}"))
        format = enemies.format_of(content, file_name, name)
        if format is not None and format.name == name:
            assert_damage_is_survived(format, content, seed, count=50)


@loop_over(
    ("content", "file_name", "name"),
    [
        (test_po.CATALOGUE, "messages", "po"),
        ("msgid is a keyword of gettext, and msgstr too.\n", "messages", None),
        *((content, "job", "xliff") for content in (test_xliff.FIRST, test_xliff.SECOND)),
        *((content.encode("utf-16"), "job", "xliff") for content in (test_xliff.FIRST, test_xliff.SECOND)),
        ("<p>About <xlif>", "job", "html"),
        *((head, "x.bin", "html") for head in ("<!doctype html>", "\n<!-- x -->\n<html>", "<p>x")),
        ("\ufeff<?xml version='1.0'?><html xmlns=x>", "x.bin", "html"),
        *((head, "x.bin", None) for head in ("<tmx><header/><body>", "text <p>", "")),
        ("# One\n\n* two\n", "a.MD", "markdown"),
        ("# One\n\n* two\n", "a.txt", None),
    ],
)
def test_formats_are_recognised(content: str | bytes, file_name: str, name: str | None) -> None:
    found = recognise(content.encode() if isinstance(content, str) else content, file_name)
    assert (found and found.name) == name


@loop_over(
    ("name", "content"),
    [
        *(("po", test_po.CATALOGUE), ("xliff", test_xliff.FIRST), ("xliff", test_xliff.SECOND)),
        *(("subtitles", test_subtitles.SRT), ("subtitles", test_subtitles.VTT)),
        *(("markdown", test_markdown.PAGE), ("prose", test_text.LETTER), ("html", test_html.PAGE)),
    ],
)
def test_own_blocks_give_the_file_back(name: str, content: str) -> None:
    for text in (content, content.replace("\n", "\r\n"), "\ufeff" + content, content.rstrip()):
        opened = same_again(file_formats()[name], text.encode())
        assert any(opened.contents.documents)


def test_every_format_has_random_structures() -> None:
    assert set(STRUCTURES) == set(file_formats())


@pytest.mark.parametrize(
    ("name", "content", "library"),
    [("a.docx", structures.docx(random.Random(1))[0], "lxml.etree"), ("a.md", b"# Text", "markdown_it")],
)
def test_without_its_library_a_format_says_what_to_install(
    name: str, content: bytes, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cotext.runtime.xml import lxml_etree

    lxml_etree.cache_clear()
    monkeypatch.setitem(sys.modules, library, None)
    format = recognise(content, name)
    must_raise(r"'\.\[files\]'", format.open, content, name)
    lxml_etree.cache_clear()


@loop_over(
    ("name", "content"),
    [("po", test_po.CATALOGUE), ("xliff", test_xliff.FIRST), ("xliff", test_xliff.SECOND)],
)
def test_elements_of_strings_in_any_order(name: str, content: str) -> None:
    """For any projection, every element occurs once, and the file is well-formed."""
    format = file_formats()[name].for_job(Job(entries="all"))
    draw = random.Random(1)
    opened = format.open(content.encode(), "file")
    assert_well_formed(opened)
    for _ in range(20):
        documents = [
            [shuffled(block, draw) if block.translate else block for block in blocks]
            for blocks in opened.contents.documents
        ]
        again = format.open(opened.written(documents), "written")
        assert_well_formed(again)
        assert list(map(len, again.contents.documents)) == list(map(len, documents))
